"""Makes the references of this folder importable, and compiled code no older than what it calls.

numba's cache on disk is valid as long as the file of a function is unchanged, whatever happens to
the functions it calls.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

called = [
    "dpfit.kernels.rows",
    "dpfit.kernels.bounds",
    "dpfit.kernels.prefetch",
    "dpfit.losses.margin_functions",
]
callers = [f"dpfit.kernels.{name}" for name in ("rows", "glm", "softmax", "vector", "custom")]
newest = max(Path(find_spec(name).origin).stat().st_mtime for name in called)
for file in [Path(find_spec(name).origin) for name in callers]:
    if file.stat().st_mtime < newest:
        file.touch()

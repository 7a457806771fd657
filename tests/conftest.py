"""Makes the closed forms in tests/oracles importable as ``oracles.<module>`` under pytest's importlib mode."""

import os
import sys
from pathlib import Path

# Tests run side by side, one process for each core: libraries that start a thread for each core as well only wait.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

sys.path.insert(0, str(Path(__file__).parent))

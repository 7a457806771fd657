"""Import the closed forms in tests/oracles as ``oracles.<module>`` under importlib mode."""

import os
import sys
from pathlib import Path

from hypothesis import settings

# Tests run side by side, one process for each core: libraries that start a thread for each core as
# well only wait.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

collect_ignore = ["fixtures/make.py"]
"""It imports names of version 0.1.0."""

sys.path.insert(0, str(Path(__file__).parent))

# The same examples in every run, like all RNG seeds here; pytest --hypothesis-profile=default looks
# for new ones.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

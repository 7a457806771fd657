"""Makes the closed forms in tests/oracles importable as ``oracles.<module>`` under pytest's importlib mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

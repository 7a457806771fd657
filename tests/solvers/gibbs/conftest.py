"""The grids of the samplers are oracles here, too, and what stands beside the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "samplers"))
sys.path.insert(0, str(Path(__file__).parent))

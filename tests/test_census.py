"""Tests cannot vanish in silence: the suite is counted."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

LEAST = 6000


@pytest.mark.slow
def test_the_suite_has_not_shrunk():
    """Collection errors, a renamed folder or a lost file would lower the count."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    shown = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) tests collected", shown.stdout)
    assert found is not None, shown.stdout[-500:]
    assert int(found.group(1)) >= LEAST

"""Compiled code is kept on disk, but not longer than its sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dpfit

SUM = """
from dpfit.kernels import custom, passes
from dpfit.losses import CustomLoss
loss = CustomLoss(value_function=None, gradient_function=lambda theta, rows, labels: rows, lipschitz_bound=1.0)
print(passes.gradient([[2.0]], [1.0], [0.0], loss, row_norm=1.0, values=False)[1].round(6).tolist())
print(sum(custom._write_guarded.stats.cache_hits.values()))
"""


def run(where):
    """In a process of its own, with a cache of its own: the sum, and how many functions came from disk."""
    settings = os.environ | {"PYTHONPATH": str(where), "NUMBA_CACHE_DIR": str(where / "cache")}
    done = subprocess.run([sys.executable, "-c", SUM], env=settings, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_loop_follows_the_functions_that_it_calls_in_other_files(tmp_path):
    package = tmp_path / "dpfit"
    shutil.copytree(Path(dpfit.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert run(tmp_path) == ["[1.0]", "0"]
    assert run(tmp_path) == ["[1.0]", "1"]
    bounds = package / "kernels" / "bounds.py"
    source = bounds.read_text()
    bounds.write_text(source.replace("limits.row_norm * (1.0 / norm)", "0.5 * limits.row_norm * (1.0 / norm)"))
    assert run(tmp_path) == ["[0.5]", "0"]
    bounds.write_text(source)
    assert run(tmp_path) == ["[1.0]", "1"]

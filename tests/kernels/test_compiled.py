"""Compiled code is kept on disk, but not longer than its sources."""

import gc
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import dpfit
import dpfit.kernels
from dpfit.losses.compiled import Compiled, compiled

SUM = """
from dpfit.kernels import guarded_rows, passes
from dpfit.losses import CustomLoss
loss = CustomLoss(
    value_function=None, gradient_function=lambda theta, rows, labels: rows, lipschitz_bound=1.0
)
sums = passes.gradient([[2.0]], [1.0], [0.0], loss, row_norm=1.0, values=False)[1]
print(sums.round(6).tolist())
print(sum(guarded_rows.write_guarded.version.stats.cache_hits.values()))
"""


def run(where):
    """In a new process with a new cache: the sum, and how many functions came from disk."""
    settings = os.environ | {"PYTHONPATH": str(where), "NUMBA_CACHE_DIR": str(where / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", SUM], env=settings, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_loop_follows_the_functions_that_it_calls_in_other_files(tmp_path):
    package = tmp_path / "dpfit"
    shutil.copytree(
        Path(dpfit.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    assert run(tmp_path) == ["[1.0]", "0"]
    assert run(tmp_path) == ["[1.0]", "1"]
    bounds = package / "kernels" / "bounds.py"
    source = bounds.read_text()
    bounds.write_text(
        source.replace("limits.row_norm * (1.0 / norm)", "0.5 * limits.row_norm * (1.0 / norm)")
    )
    assert run(tmp_path) == ["[0.5]", "0"]
    bounds.write_text(source)
    assert run(tmp_path) == ["[1.0]", "1"]


FIRST_CALLER = """
import numpy as np
from numba import njit
from dpfit.losses.margin_functions import decay

@njit(fastmath={"reassoc", "nsz", "contract"})
def loose(x):
    return decay(x)

points = np.linspace(0.0, 700.0, 500)
loose(1.0)
print(all(decay(x) == decay.version.py_func(x) for x in points))
"""


def test_a_function_is_as_strict_as_it_says_whoever_calls_it_first(tmp_path):
    """A function without ``fastmath`` has its first caller's: errors of 2e-14 were seen."""
    settings = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALLER],
        env=settings,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True"]


def test_every_compiled_function_says_how_strict_it_is():
    for module in walk_packages(dpfit.kernels.__path__, "dpfit.kernels."):
        import_module(module.name)
    found = [
        each
        for name, module in sys.modules.items()
        if name.startswith(("dpfit.kernels.", "dpfit.losses."))
        for each in vars(module).values()
        if isinstance(each, Compiled) and each.compiler == "njit"
    ]
    assert len(found) > 20
    assert found[0].version.targetoptions.items() >= found[0].options.items()
    assert [each.__name__ for each in found if "fastmath" not in each.options] == []


FIRST_MODEL = """
import sys
from sklearn.linear_model import LogisticRegression
before = set(sys.modules)
from dpfit.models import HuberRegressor, LogisticRegression
heavy = {"numba", "llvmlite", "jax", "polars", "pandas", "pyarrow", "matplotlib", "mpmath"}
print(sorted((set(sys.modules) - before) & heavy))
"""


def test_importing_a_model_imports_no_compiler():
    """scikit-learn itself imports pandas and pyarrow where they are installed."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_MODEL], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_garbage_is_collected_again_after_a_compilation():
    double = compiled()(lambda x: 2.0 * x)
    for enabled in (False, True):
        (gc.enable if enabled else gc.disable)()
        try:
            assert double.__wrapped__(1.0) == Compiled(double.function, "njit", {})(1.0) == 2.0
            assert gc.isenabled() == enabled
        finally:
            gc.enable()

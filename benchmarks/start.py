"""Seconds of processor time that a new user waits: help, imports, and the first fit.

Run with ``python benchmarks/start.py [--quick] [--json]``. Each figure is the least of several new
processes; the two imports take turns. The first fit of a default model starts from an empty cache
of compiled loops, the second one from the cache that the first one left.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from typing import Any

from bars import at_most, finish

HELP = "import sys; sys.argv = ['dpfit', '--help']\nfrom dpfit.cli import main\nmain()"
OURS = "from dpfit.models import LogisticRegression"
THEIRS = "from sklearn.linear_model import LogisticRegression"
FIT = """
import numpy as np
from dpfit import LogisticRegression
rows = np.linspace(0, 100, 4000)[:, None]
LogisticRegression(epsilon=1.0, bounds=(0, 100)).fit(rows, rows[:, 0] > 50)
"""


def seconds(code: str, **environment: str) -> float:
    """Processor time of a new interpreter that runs the code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_and_second_fit() -> tuple[float, float]:
    """Processor time of the same fit in two processes, the first one with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        return tuple(seconds(FIT, NUMBA_CACHE_DIR=cache) for _ in range(2))  # type: ignore[return-value]


def measure(repeats: int) -> dict[str, Any]:
    """All figures, with the bars."""
    pairs = [(seconds(OURS), seconds(THEIRS)) for _ in range(2 * repeats)]
    ours, theirs = (min(times) for times in zip(*pairs, strict=True))
    shown = min(seconds(HELP) for _ in range(2 * repeats))
    first, second = map(min, zip(*(first_and_second_fit() for _ in range(repeats)), strict=True))
    figures = {
        "dpfit --help": shown,
        OURS: ours,
        THEIRS: theirs,
        "first fit": first,
        "second fit": second,
    }
    held = [
        at_most("first fit of a default model, seconds of processor time", first, 5.0),
        at_most("import of a model over that of scikit-learn's", ours / theirs, 1.3),
        at_most("dpfit --help, seconds of processor time", shown, 0.4),
    ]
    return {"seconds": figures, "bars": held}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(1 if options.quick else 5)
    if not options.json:
        for name, value in result["seconds"].items():
            print(f"{value:6.2f} s  {name}")
    return finish(result, options.json)


if __name__ == "__main__":
    sys.exit(main())

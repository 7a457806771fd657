"""Planning time side by side with the last release: seconds, calls, a default fit, and the import.

Run with ``python benchmarks/planning.py [--quick] [--json]``. The last release is checked out into
a temporary git worktree. One process for each version answers the same questions in turn, so that
both see the same load.

A plan is that of the default ``LogisticRegression`` for (epsilon, delta) = (1, 1e-6), 10,000 rows
and 20 columns. Calls are those of Python functions inside the package, counted by
``sys.setprofile``. Times are medians over repeats; those of a fit and of the import, which may
hardly change, are compared by the fastest of all repeats.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bars import at_least, at_most, finish

ROOT = Path(__file__).resolve().parents[1]
LAST_RELEASE = "787889c"
ROWS, COLUMNS = 10_000, 20
QUESTIONS = ("import", "plan", "fit")


def plan() -> None:
    """Plan the default fit."""
    from dpfit import LogisticRegression

    LogisticRegression(epsilon=1, delta=1e-6).plan(ROWS, COLUMNS)


def calls() -> int:
    """The number of calls of functions inside the package that one plan makes."""
    import dpfit

    inside, seen = str(Path(dpfit.__file__).parent), 0

    def look(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        seen += event == "call" and frame.f_code.co_filename.startswith(inside)

    sys.setprofile(look)
    try:
        plan()
    finally:
        sys.setprofile(None)
    return seen


def fit(rows: int) -> None:
    """Fit the default model to the table of `table`."""
    from dpfit import LogisticRegression

    LogisticRegression(epsilon=1, delta=1e-6, random_state=1).fit(*table(rows))


_TABLES: dict[int, Any] = {}


def table(rows: int) -> Any:
    """Normal rows, and labels that depend on them; made once."""
    import numpy as np

    if rows not in _TABLES:
        rng = np.random.default_rng(0)
        features = np.clip(rng.standard_normal((rows, COLUMNS)) / 4, -1, 1)
        _TABLES[rows] = features, rng.random(rows) < 1 / (1 + np.exp(-features @ np.ones(COLUMNS)))
    return _TABLES[rows]


def serve(rows: int) -> None:
    """Answer each line of the standard input with one number."""
    import warnings

    warnings.simplefilter("ignore")
    for line in sys.stdin:
        question = line.strip()
        if question == "calls":
            print(calls(), flush=True)
            continue
        if question == "fit":
            table(rows)
        start = time.perf_counter()
        if question == "import":
            command = [
                sys.executable,
                "-c",
                "import time; s = time.perf_counter(); import dpfit; print(time.perf_counter() - "
                "s)",
            ]
            print(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip(),
                flush=True,
            )
            continue
        plan() if question == "plan" else fit(rows)
        print(time.perf_counter() - start, flush=True)


class Version:
    """A process that runs one version of the package."""

    def __init__(self, source: Path, rows: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(source)},
        )

    def ask(self, question: str) -> float:
        """The answer to one question."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the process has no pipes")
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process ended while it was asked to {question}")
        return float(answer)

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(60)


@contextmanager
def last_release() -> Iterator[Path]:
    """The sources of the last release, in a worktree that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "release"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run(
            [*git, "add", "--detach", str(tree), LAST_RELEASE], check=True, capture_output=True
        )
        try:
            yield tree / "src"
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True, capture_output=True)


def measure(rows: int, repeats: dict[str, int]) -> dict[str, Any]:
    """All figures of both versions, in turns."""
    with last_release() as source:
        versions = {"release": Version(source, rows), "now": Version(ROOT / "src", rows)}
        try:
            for version in versions.values():
                version.ask("fit")  # compiles, and fills caches
            counted = {name: version.ask("calls") for name, version in versions.items()}
            seconds: dict[str, dict[str, list[float]]] = {question: {} for question in QUESTIONS}
            for question in QUESTIONS:
                for _ in range(repeats[question]):
                    for name, version in versions.items():
                        seconds[question].setdefault(name, []).append(version.ask(question))
        finally:
            for version in versions.values():
                version.close()
    medians = {
        q: {name: statistics.median(times) for name, times in by.items()}
        for q, by in seconds.items()
    }
    ratios = {q: min(by["now"]) / min(by["release"]) for q, by in seconds.items()}
    return {
        "rows of the fit": rows,
        "seconds": medians,
        "calls": counted,
        "ratios": ratios,
        "ratio of a fit without its plan": _rest(medians, "now") / _rest(medians, "release"),
        "bars": [
            at_least(
                "planning, times faster", medians["plan"]["release"] / medians["plan"]["now"], 3.0
            ),
            at_least("planning, times fewer calls", counted["release"] / counted["now"], 5.0),
            at_most(f"default fit of {rows} rows, ratio of seconds", ratios["fit"], 1.03),
            at_most("import, ratio of seconds", ratios["import"], 1.05),
        ],
    }


def _rest(medians: dict[str, dict[str, float]], name: str) -> float:
    return medians["fit"][name] - medians["plan"][name]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer repeats and a fit of 10,000 rows"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=int, metavar="ROWS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    few = 3 if options.quick else 15
    result = measure(10_000 if options.quick else 100_000, {"import": 25, "plan": few, "fit": few})
    if not options.json:
        for question, by in result["seconds"].items():
            print(f"{question:7} release {by['release']:.4g} s, now {by['now']:.4g} s")
        print(f"calls   release {result['calls']['release']:.0f}, now {result['calls']['now']:.0f}")
    return finish(result, options.json)


if __name__ == "__main__":
    sys.exit(main())

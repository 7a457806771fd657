"""Problems on which two rules of descents were set, with the scores of today's rules.

    python benchmarks/calibrate_descents.py            three RNG seeds
    python benchmarks/calibrate_descents.py --seeds 1  as many RNG seeds

Several classes: how long to descend, how hard to clip, how much to shrink (`DescentTuning`,
``class_...``). Scores are log losses over that of equal probabilities. Regressions: what the mean
of the labels gets (`LabelMeanTuning`). Scores are squared errors over the variance of the labels.
The problems differ from those of benchmarks/weak_spots.py in generator, size and RNG seeds.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars import finish
from dpfit.models import LinearRegression, LogisticRegression

Floats = NDArray[np.float64]

TEST, DELTA = 3000, 1e-6

CLUSTERS = [
    (800, 30, 5, 0.5, 0.4),
    (2000, 60, 12, 0.4, 0.5),
    (2000, 20, 3, 0.5, 0.6),
    (2000, 40, 20, 0.6, 0.3),
    (1000, 100, 7, 0.3, 0.6),
    (2500, 30, 8, 0.25, 0.6),
]
"""Records, columns, classes, half-range of the centres, spread around them."""

LOGITS = [
    (1000, 10, 3, 3.0),
    (3000, 20, 5, 4.0),
    (3000, 40, 10, 2.0),
    (2000, 60, 15, 5.0),
    (1500, 25, 4, 1.0),
    (1000, 30, 5, 0.0),
    (2000, 50, 12, 0.0),
    (2000, 8, 3, 0.0),
]
"""Records, columns, classes, size of the logits: 0 for labels that are all noise."""

REGRESSIONS = [
    (500, 3, 0.0, 0.3),
    (2000, 10, 0.3, 0.2),
    (4000, 40, -0.7, 0.1),
    (4000, 40, 0.0, 0.2),
    (1500, 25, 0.5, 0.15),
    (8000, 15, -0.4, 0.05),
    (800, 5, 0.1, 0.4),
]
"""Records, columns, mean and spread of the labels in (-1, 1)."""


def classed(rng: np.random.Generator, problem: tuple[Any, ...]) -> tuple[Floats, NDArray[np.int64]]:
    """Return rows and labels: clusters around centres, or classes by linear logits."""
    n, d, classes, size, *spread = problem
    if spread:
        centres, labels = rng.uniform(-size, size, (classes, d)), rng.integers(0, classes, n + TEST)
        rows = centres[labels] + spread[0] * rng.standard_normal((len(labels), d))
        return np.clip(rows, -1, 1), labels
    rows = rng.uniform(-1, 1, (n + TEST, d))
    logits = rows @ (rng.normal(size=(d, classes)) * size / np.sqrt(d))
    return rows, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def class_score(problem: tuple[Any, ...], epsilon: float, seed: int) -> float:
    """Return the log loss over that of equal probabilities."""
    n, _, classes, *_ = problem
    rows, labels = classed(np.random.default_rng([seed, 77]), problem)
    model = LogisticRegression(
        epsilon, DELTA, bounds=(-1, 1), classes=range(classes), relation="add_remove",
        n_declared=n, random_state=seed,
    ).fit(rows[:n], labels[:n])  # fmt: skip
    chances = model.predict_log_proba(rows[n:])
    return -float(np.mean(chances[np.arange(TEST), labels[n:]])) / np.log(classes)


def regression_score(problem: tuple[Any, ...], epsilon: float, seed: int) -> float:
    """Return the mean squared error over the variance of the test labels."""
    n, d, middle, spread = problem
    rng = np.random.default_rng([seed, 99])
    rows = rng.uniform(-1, 1, (n + TEST, d))
    signal = rows @ rng.normal(size=d)
    labels = 0.8 * signal / signal.std() + 0.6 * rng.standard_normal(len(rows))
    labels = np.clip(middle + spread * labels, -1, 1)
    model = LinearRegression(
        epsilon, DELTA, bounds=(-1, 1), y_bounds=(-1, 1), relation="add_remove", n_declared=n,
        random_state=seed,
    ).fit(rows[:n], labels[:n])  # fmt: skip
    errors = model.predict(rows[n:]) - labels[n:]
    return float(np.mean(errors**2) / np.var(labels[n:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3, help="number of RNG seeds")
    parser.add_argument("--quick", action="store_true", help="two problems of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    seeds, most = (1, 2) if given.quick else (given.seeds, None)
    warnings.simplefilter("ignore")
    figures = []
    for score, problems, epsilons in (
        (class_score, [*CLUSTERS, *LOGITS], (0.2, 0.7, 2.5)),
        (regression_score, REGRESSIONS, (0.03, 0.08, 0.25)),
    ):
        for problem in problems[:most]:
            scores = [np.mean([score(problem, e, s) for s in range(seeds)]) for e in epsilons]
            found = dict(zip(map(str, epsilons), map(float, scores), strict=True))
            figures.append({"score": score.__name__, "problem": str(problem), "by_epsilon": found})
            if not given.json:
                print(score.__name__, figures[-1]["problem"], found, flush=True)
    # It sets numbers and claims nothing: learning.py has the bars.
    return finish({"figures": figures, "bars": []}, given.json)


if __name__ == "__main__":
    sys.exit(main())

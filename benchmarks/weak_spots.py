"""Default models on synthetic problems where defaults are easily bad.

    python benchmarks/weak_spots.py            ten RNG seeds
    python benchmarks/weak_spots.py --quick    two RNG seeds, under 45 seconds
    python benchmarks/weak_spots.py --json     machine-readable, with the bars
    python benchmarks/weak_spots.py --seeds 3  as many RNG seeds

Budgets are (epsilon, 1e-6) under add/remove with the true number of training records declared.
The rules behind the defaults are set on other problems.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bars import at_least, at_most, finish
from dpfit.models import LinearRegression, LogisticRegression, QuantileRegressor

Floats = NDArray[np.float64]

TEST = 10_000
DELTA = 1e-6
SEEDS, QUICK_SEEDS = 10, 2
ROOM = 1.2
"""Room for the noise of two RNG seeds, as a factor on targets."""


class Drawn(NamedTuple):
    """Records of one problem: to fit, and to judge the fit."""

    rows: Floats
    labels: NDArray[Any]
    test_rows: Floats
    test_labels: NDArray[Any]


class WeakSpot(NamedTuple):
    """A problem: its records, the model at its defaults, the score, and the bars at some epsilons.

    ``above`` says whether the score must be at least the target, or at most.
    """

    draw: Callable[[np.random.Generator], Drawn]
    model: Callable[..., Any]
    score: Callable[[Any, Drawn], float]
    targets: dict[float, float]
    above: bool


def split(rows: Floats, labels: NDArray[Any]) -> Drawn:
    """Return the records with the last ones set apart to judge."""
    return Drawn(rows[:-TEST], labels[:-TEST], rows[-TEST:], labels[-TEST:])


def wages(rng: np.random.Generator) -> Drawn:
    """Log-normal labels in a wide declared range: three of 15 columns matter."""
    rows = rng.uniform(-1, 1, (20_000 + TEST, 15))
    location = 6.2 + 0.6 * rows[:, 0] + 0.4 * rows[:, 1] - 0.3 * rows[:, 2]
    return split(rows, np.clip(np.exp(location + 0.5 * rng.standard_normal(len(rows))), 0, 3000))


def houses(rng: np.random.Generator) -> Drawn:
    """Prices far below the middle of their declared range, from eight categories of five kinds."""
    effects = 20_000 * np.random.default_rng(1).normal(size=(8, 5))
    kinds = rng.integers(0, 5, (2_500 + TEST, 8))
    rows = (kinds[:, :, None] == np.arange(5)).reshape(len(kinds), 40).astype(float)
    worth = rows @ effects.ravel()
    prices = 180_000 + worth - worth.mean() + 25_000 * rng.standard_normal(len(rows))
    return split(rows, np.clip(prices, 0, 800_000))


def pictures(rng: np.random.Generator) -> Drawn:
    """Ten kinds of noisy pictures with 64 pixels, 150 of each."""
    pattern = np.random.default_rng(2).uniform(-0.6, 0.6, (10, 64))
    labels = rng.integers(0, 10, 1_500 + TEST)
    pixels = pattern[labels] + 0.45 * rng.standard_normal((len(labels), 64))
    return split(np.clip(pixels, -1, 1), labels)


def r_squared(model: Any, drawn: Drawn) -> float:
    """Return the explained share of the variance of the test labels."""
    truth = drawn.test_labels
    return float(1 - np.mean((truth - model.predict(drawn.test_rows)) ** 2) / np.var(truth))


def log_loss(model: Any, drawn: Drawn) -> float:
    """Return the mean log loss on the test records."""
    chances = model.predict_log_proba(drawn.test_rows)
    return -float(np.mean(chances[np.arange(len(chances)), drawn.test_labels]))


def pinball(level: float, truth: Floats, predicted: Any) -> float:
    """Return the mean quantile loss."""
    gap = truth - predicted
    return float(np.mean(np.maximum(level * gap, (level - 1) * gap)))


def pinball_share(model: Any, drawn: Drawn) -> float:
    """Return the quantile loss as a share of that of the best constant on the test records."""
    level, truth = model.quantile, drawn.test_labels
    best = pinball(level, truth, np.quantile(truth, level))
    return pinball(level, truth, model.predict(drawn.test_rows)) / best


PROBLEMS = {
    "quantile 0.9 of skewed labels, pinball loss over a constant's": WeakSpot(
        wages,
        lambda epsilon, **common: QuantileRegressor(
            epsilon, DELTA, quantile=0.9, bounds=(-1, 1), y_bounds=(0, 3000), **common
        ),
        pinball_share,
        {0.1: 0.745, 1.0: 0.726},
        above=False,
    ),
    "ten classes of 64 columns, log loss": WeakSpot(
        pictures,
        lambda epsilon, **common: LogisticRegression(
            epsilon, DELTA, bounds=(-1, 1), classes=range(10), **common
        ),
        log_loss,
        {0.5: 0.29, 1.0: 0.14, 2.0: 0.1},
        above=False,
    ),
    "labels far from the middle of their range, R2": WeakSpot(
        houses,
        lambda epsilon, **common: LinearRegression(
            epsilon, DELTA, bounds=(0, 1), y_bounds=(0, 800_000), **common
        ),
        r_squared,
        {0.1: 0.37, 0.5: 0.773},
        above=True,
    ),
}


def judged(spot: WeakSpot, epsilon: float, seeds: int) -> list[float]:
    """Return the score for each RNG seed."""
    scores = []
    for seed in range(seeds):
        drawn = spot.draw(np.random.default_rng([seed, 10]))
        model = spot.model(
            epsilon, relation="add_remove", n_declared=len(drawn.labels), random_state=seed
        )
        scores.append(spot.score(model.fit(drawn.rows, drawn.labels), drawn))
    return scores


def run(seeds: int, quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    figures, bars = [], []
    for name, spot in PROBLEMS.items():
        for epsilon, target in spot.targets.items():
            scores = judged(spot, epsilon, seeds)
            value = float(np.mean(scores))
            figures.append({"problem": name, "epsilon": epsilon, "scores": scores})
            judge, room = (at_least, 1 / ROOM) if spot.above else (at_most, ROOM)
            allowed = target * room if quick else target
            bars.append(judge(f"{name}, epsilon {epsilon:g}", value, allowed))
    return {"benchmark": "weak_spots", "quick": quick, "figures": figures, "bars": bars}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two RNG seeds, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seeds", type=int, help="number of RNG seeds, 10 by default")
    arguments = parser.parse_args()
    seeds = arguments.seeds or (QUICK_SEEDS if arguments.quick else SEEDS)
    result = run(seeds, arguments.quick)
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

"""Quantile regression on 20 synthetic problems: the figures that set its rules.

    python benchmarks/quantiles.py            four budgets with a delta, three without
    python benchmarks/quantiles.py --quick    those with bars, under 45 seconds
    python benchmarks/quantiles.py --json     machine-readable, with the bars

A figure is the excess pinball loss over the best linear fit, as a share of that of the best
constant. Rules: widths, time, row norms, and the quantile of the labels as a start. The generators
differ from those of benchmarks/weak_spots.py, which judges.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bars import at_most, finish
from dpfit.losses import QuantileHuber
from dpfit.models import QuantileRegressor

Floats = NDArray[np.float64]

TEST = 10_000
BUDGETS = ((0.1, 1e-6), (0.3, 1e-6), (1.0, 1e-6), (10.0, 1e-6), (0.3, 0.0), (3.0, 0.0), (30.0, 0.0))
BARS = {(0.1, 1e-6): 0.2, (1.0, 1e-6): 0.02, (3.0, 0.0): 0.02}


class Case(NamedTuple):
    """Errors of a standard deviation ``spread``, over half the label range, and a quantile.

    Labels lie around ``middle``, by default around a random number in [-0.5, 0.5].
    """

    errors: str
    n: int
    d: int
    level: float
    spread: float
    columns: str = "normal"
    middle: float | None = None


CASES = (
    Case("lognormal", 20_000, 8, 0.9, 0.15),
    Case("lognormal", 5_000, 4, 0.75, 0.05),
    Case("t", 10_000, 15, 0.9, 0.1),
    Case("t", 20_000, 6, 0.1, 0.03),
    Case("heteroscedastic", 20_000, 10, 0.9, 0.2),
    Case("heteroscedastic", 4_000, 5, 0.25, 0.1),
    Case("uniform", 10_000, 20, 0.8, 0.3),
    Case("uniform", 20_000, 3, 0.95, 0.05),
    Case("t", 3_000, 5, 0.5, 0.15),
    Case("lognormal", 10_000, 12, 0.8, 0.2),
    Case("lognormal", 20_000, 10, 0.9, 0.1, "uniform", -0.8),
    Case("t", 10_000, 20, 0.75, 0.1, "uniform", 0.4),
    Case("lognormal", 30_000, 12, 0.8, 0.08, "binary", -0.9),
    Case("heteroscedastic", 15_000, 25, 0.25, 0.15, "binary", 0.0),
    Case("uniform", 5_000, 6, 0.5, 0.2, "uniform", -0.3),
    Case("lognormal", 40_000, 30, 0.9, 0.15, "uniform", -0.65),
    Case("heteroscedastic", 8_000, 5, 0.9, 0.1, "uniform", -0.5),
    Case("t", 20_000, 8, 0.1, 0.05, "binary", 0.6),
    Case("lognormal", 15_000, 12, 0.9, 0.1, "normal", -0.8),
    Case("lognormal", 10_000, 15, 0.5, 0.12, "uniform", -0.7),
)


def drawn(case: Case) -> tuple[Floats, Floats]:
    """Return rows with entries and labels in [-1, 1]; the last records judge."""
    rng = np.random.default_rng([1, 77, case.n, case.d])
    records = case.n + TEST
    rows = drawn_rows(case, records, rng)
    weights = rng.standard_normal(case.d) * (rng.random(case.d) < 0.5)
    weights[0] += 1
    margins = rows @ (weights / np.linalg.norm(weights))
    if case.errors == "lognormal":
        labels = np.exp(0.5 * margins + 0.7 * rng.standard_normal(records)) - 1
    elif case.errors == "t":
        labels = margins + rng.standard_t(3, records) / 1.7
    elif case.errors == "heteroscedastic":
        labels = margins + (0.3 + 0.7 * np.abs(rows[:, 0])) * rng.standard_normal(records)
    else:
        labels = margins + rng.uniform(-1, 1, records)
    middle = rng.uniform(-0.5, 0.5) if case.middle is None else case.middle
    return rows, np.clip(case.spread * labels + middle, -1, 1)


def drawn_rows(case: Case, records: int, rng: np.random.Generator) -> Floats:
    """Return rows of clipped normal, uniform or two-valued columns."""
    if case.columns == "uniform":
        return rng.uniform(-1, 1, (records, case.d))
    if case.columns == "binary":
        often = rng.uniform(0.1, 0.9, case.d)
        return np.where(rng.random((records, case.d)) < often, 1.0, -1.0)
    return np.clip(0.5 * rng.standard_normal((records, case.d)), -1, 1)


def pinball(level: float, gaps: Floats) -> float:
    """Return the mean quantile loss."""
    return float(np.mean(np.maximum(level * gaps, (level - 1) * gaps)))


def best_fit(rows: Floats, labels: Floats, case: Case) -> Floats:
    """Return the best linear fit without privacy, along ever sharper corners."""
    theta = np.append(np.zeros(case.d), np.quantile(labels, case.level))
    design = np.column_stack([rows, np.ones(len(rows))])
    for width in (case.spread, 0.3 * case.spread, 0.1 * case.spread, 0.03 * case.spread):
        loss = QuantileHuber(case.level, width, centred=True)

        def objective(theta: Floats, loss: QuantileHuber = loss) -> tuple[float, Floats]:
            margins = design @ theta
            slopes = loss.slope(margins, labels) / loss.width
            value = float(loss.value(margins, labels).mean()) / loss.width
            return value, np.asarray(design.T @ slopes / len(labels))

        theta = minimize(objective, theta, jac=True, method="L-BFGS-B").x
    return np.asarray(theta)


def shares(case: Case, budgets: tuple[tuple[float, float], ...], seeds: int) -> list[float]:
    """Return the excess over the best fit for each budget, over that of the best constant."""
    rows, labels = drawn(case)
    train, test, truth = rows[: case.n], rows[case.n :], labels[case.n :]
    fit = best_fit(train, labels[: case.n], case)
    best = pinball(case.level, truth - test @ fit[:-1] - fit[-1])
    constant = pinball(case.level, truth - np.quantile(truth, case.level))
    found = []
    for epsilon, delta in budgets:
        losses = []
        for seed in range(seeds):
            model = QuantileRegressor(
                epsilon, delta, quantile=case.level, bounds=(-1, 1), y_bounds=(-1, 1),
                relation="add_remove", n_declared=case.n, random_state=seed,
            ).fit(train, labels[: case.n])  # fmt: skip
            losses.append(pinball(case.level, truth - model.predict(test)))
        found.append((float(np.mean(losses)) - best) / (constant - best))
    return found


def run(quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    budgets = tuple(BARS) if quick else BUDGETS
    table = [shares(case, budgets, 1 if quick else 3) for case in CASES]
    figures = [
        {**case._asdict(), "shares": dict(zip(map(str, budgets), row, strict=True))}
        for case, row in zip(CASES, table, strict=True)
    ]
    bars = []
    for budget, column in zip(budgets, np.array(table).T, strict=True):
        # Roots: neither the hardest nor the easiest problem decides alone.
        if budget in BARS:
            value = float(np.mean(np.sqrt(np.maximum(column, 1e-4))) ** 2)
            name = f"excess share, epsilon {budget[0]:g}, delta {budget[1]:g}"
            bars.append(at_most(name, value, BARS[budget]))
    return {"benchmark": "quantiles", "quick": quick, "figures": figures, "bars": bars}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="budgets with bars, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    result = run(arguments.quick)
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

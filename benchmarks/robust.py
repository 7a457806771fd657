"""Regression with 30% bad labels on one side: `RobustRegressor` beside Huber regression.

    python benchmarks/robust.py            30 seeds, several levels of label noise
    python benchmarks/robust.py --quick    10 seeds, under 45 seconds
    python benchmarks/robust.py --json     machine-readable, with the bars
    python benchmarks/robust.py --tune     the problems that set the numbers of `robust_gd`
    python benchmarks/robust.py --rules    momentum beside adaptive steps, for unequal columns

Epsilon 1, delta 1e-6, replace-one, 10,000 records, 20 columns. Rows are isotropic of norm 1, the
true parameter has norm 3. Good labels have normal errors; the others are 2 + 3 x_1 with the same
errors. All models fit an intercept, whose true value is 0, and declare labels in [-5, 5] and rows
of norm 1. Distances are those of coefficients and intercept. `--tune` shares no problem with the
bars.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars import at_most, finish
from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, GemanMcClure, Huber, Logistic
from dpfit.models import HuberRegressor, RobustRegressor
from dpfit.models.regressors import PrivateRegressor
from dpfit.privacy import Budget
from dpfit.solvers.gradient import robust_gd as robust
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.preconditioned_gd import preconditioned_gd

Floats = NDArray[np.float64]
Fit = Callable[[Floats, Floats, int], Floats]

N, COLUMNS, HALF_RANGE = 10_000, 20, 5.0
BUDGET = Budget(epsilon=1.0, delta=1e-6)
HUBER_WIDTHS = (0.1, 0.2, 0.5)
LABELLED = Bounds(1.0, -1.0, 1.0)
NOISE = 0.1
"""Standard deviation of the errors of good labels in the bars."""


def truth() -> Floats:
    w = np.random.default_rng(7).normal(size=COLUMNS)
    return np.asarray(3.0 * w / np.linalg.norm(w))


def draw(seed: int, noise: float, bad: float = 0.3) -> tuple[Floats, Floats]:
    rng = np.random.default_rng([seed, 20])
    rows = rng.standard_normal((N, COLUMNS))
    rows /= np.linalg.norm(rows, axis=1)[:, np.newaxis]
    labels = np.where(rng.random(N) < bad, 2 + 3 * rows[:, 0], rows @ truth())
    return rows, labels + noise * rng.standard_normal(N)


def models(solver: str) -> dict[str, PrivateRegressor]:
    """Huber regression of three widths in units of the labels, and the robust model's defaults."""
    facts: dict[str, Any] = {
        "delta": 1e-6, "row_norm": 1.0, "y_bounds": (-HALF_RANGE, HALF_RANGE),
    }  # fmt: skip
    found: dict[str, PrivateRegressor] = {
        f"huber {width}": HuberRegressor(1.0, width=width / HALF_RANGE, solver=solver, **facts)
        for width in HUBER_WIDTHS
    }
    return found | {"robust": RobustRegressor(1.0, **facts)}


def measured(solver: str, noise: float, seeds: int) -> dict[str, dict[str, float]]:
    """Mean distance to the truth with its standard error, and the median time of a fit."""
    away: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(seeds):
        rows, labels = draw(seed, noise)
        for name, model in models(solver).items():
            start = time.perf_counter()
            fitted = model.set_params(random_state=seed).fit(rows, labels)
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            error = np.append(fitted.coef_ - truth(), fitted.intercept_)
            away.setdefault(name, []).append(float(np.linalg.norm(error)))
    return {
        name: {
            "distance": float(np.mean(away[name])),
            "standard_error": float(np.std(away[name])) / max(1, seeds - 1) ** 0.5,
            "seconds": float(np.median(seconds[name])),
        }
        for name in away
    }


def robust_regression(quick: bool) -> dict[str, Any]:
    """Return figures for each level of label noise and solver of Huber regression, and bars."""
    seeds = 10 if quick else 30
    cases = [("noisy_gd", NOISE)]
    cases += [] if quick else [("auto", NOISE), *(("noisy_gd", each) for each in (0.02, 0.05, 0.2))]
    figures, bars = [], []
    for solver, noise in cases:
        found = measured(solver, noise, seeds)
        figures.append({"huber solver": solver, "noise": noise, "seeds": seeds, **found})
        if (solver, noise) != cases[0]:
            continue
        huber = [found[name] for name in found if name != "robust"]
        ratio = found["robust"]["distance"] / min(each["distance"] for each in huber)
        slower = found["robust"]["seconds"] / float(np.mean([each["seconds"] for each in huber]))
        bars = [
            at_most("distance to the truth over the best Huber width's", ratio, 0.6),
            at_most("fit time over Huber's", slower, 1.5),
        ]
    return {"figures": figures, "bars": bars}


def tuning_problem(seed: int, n: int, d: int, noise: float, kind: str) -> tuple[Floats, ...]:
    """Rows of unequal columns, labels in [-1, 1], truth; 30% of labels are bad, by kind."""
    rng = np.random.default_rng([seed, 77, n, d])
    rows = rng.standard_normal((n, d)) * np.exp(rng.normal(0, 0.3, d))
    norms = np.linalg.norm(rows, axis=1)
    usual = np.quantile(norms, 0.9)
    rows /= np.maximum(norms, usual)[:, np.newaxis]
    parameter = rng.standard_normal(d)
    parameter *= 0.25 / np.std(rows @ parameter)
    line = rows @ parameter
    good = line + noise * rng.standard_normal(n)
    other = {
        "none": good,
        "shifted": line + rng.uniform(0.2, 0.8, n),
        "high": 0.7 + 0.1 * rng.standard_normal(n),
        "flipped": 0.4 - line + noise * rng.standard_normal(n),
    }[kind]
    labels = np.where(rng.random(n) < 0.3, other, good)
    return rows, np.clip(labels, -1, 1), parameter


def tune(seeds: int = 2) -> dict[str, Any]:
    """Compare starts, widths and shares on problems of their own: rms errors of predictions."""
    whole = robust.TUNING
    ways: dict[str, Fit] = {f"huber {w}": _fit(noisy_gd, Huber(w)) for w in (0.05, 0.1, 0.2)}
    ways |= {f"origin {w}": _fit(noisy_gd, GemanMcClure(w)) for w in (0.03, 0.1, 0.25)}
    for name, tuning in {
        "robust": whole,
        "1.5 widths": replace(whole, widths=1.5),
        "3 widths": replace(whole, widths=3.0),
        "start 0.1": replace(whole, start=0.1),
        "start 0.35": replace(whole, start=0.35),
    }.items():
        ways[name] = _tuned(tuning)
    figures = []
    for n, d in ((10_000, 20), (2_000, 5)):
        for noise in (0.01, 0.05, 0.15):
            for kind in ("none", "shifted", "high", "flipped"):
                found: dict[str, list[float]] = {}
                for seed in range(seeds):
                    rows, labels, parameter = tuning_problem(seed, n, d, noise, kind)
                    for name, way in ways.items():
                        error = rows @ (way(rows, labels, seed) - parameter)
                        found.setdefault(name, []).append(float(np.sqrt(np.mean(error**2))))
                rms = {name: round(float(np.mean(each)), 5) for name, each in found.items()}
                figures.append({"n": n, "columns": d, "noise": noise, "bad": kind, **rms})
                print(figures[-1], file=sys.stderr, flush=True)
    return {"figures": figures, "bars": []}


def update_rules(seeds: int = 5) -> dict[str, Any]:
    """Return the excess risk of momentum and of adaptive steps, for columns of unequal scales."""
    ways = {
        "momentum": noisy_gd,
        "adaptive": noisy_gd.using(optimizer="adaptive"),
        "preconditioned_gd": preconditioned_gd,
    }
    figures = []
    for power in (0.0, 1.0, 2.0):
        scales = np.arange(1.0, COLUMNS + 1) ** -power
        found: dict[str, list[float]] = {name: [] for name in ways}
        for seed in range(seeds):
            rng = np.random.default_rng([seed, 9])
            rows = rng.standard_normal((2 * N, COLUMNS)) * scales
            rows /= np.linalg.norm(rows, axis=1)[:, np.newaxis]
            parameter = rng.standard_normal(COLUMNS) / scales
            margins = rows @ parameter
            parameter *= 3 / np.std(margins)
            labels = np.where(rng.logistic(size=2 * N) < rows @ parameter, 1.0, -1.0)
            for name, solver in ways.items():
                fitted = _fit(solver, Logistic(), Bounds(1.0))(rows, labels, seed)
                risks = [np.logaddexp(0, -labels * (rows @ w)).mean() for w in (fitted, parameter)]
                found[name].append(float(risks[0] - risks[1]))
        figures.append(
            {"scale of column k": f"1 / k^{power:g}"}
            | {name: float(np.mean(each)) for name, each in found.items()}
        )
    return {"figures": figures, "bars": []}


def _fit(solver: Any, loss: Any, bounds: Bounds = LABELLED) -> Fit:
    def fit(rows: Floats, labels: Floats, seed: int) -> Floats:
        problem = Minimize(n=len(rows), loss=loss, bounds=bounds, n_features=rows.shape[1])
        plan = solver.plan(problem, BUDGET)
        release = plan.run(InMemory(rows, labels), random_state=seed)
        return np.asarray(plan.output(release.value))

    return fit


def _tuned(tuning: robust.RobustTuning) -> Fit:
    inner = _fit(robust.robust_gd, GemanMcClure(0.25))

    def fit(rows: Floats, labels: Floats, seed: int) -> Floats:
        robust.TUNING, before = tuning, robust.TUNING
        try:
            return inner(rows, labels, seed)
        finally:
            robust.TUNING = before

    return fit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("quick", "json", "tune", "rules"):
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.tune:
        found = tune()
    else:
        found = update_rules() if given.rules else robust_regression(given.quick)
    if not given.json:
        for row in found["figures"]:
            print(row)
    return finish(found, given.json)


if __name__ == "__main__":
    sys.exit(main())

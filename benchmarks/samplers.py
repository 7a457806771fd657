"""What certified samples cost in full-data passes, and what they release.

    python benchmarks/samplers.py            all settings, three draws each
    python benchmarks/samplers.py --quick    smaller settings, under 45 seconds
    python benchmarks/samplers.py --json     machine-readable, with the bars

The exit status is 1 if a bar fails. One pass is one value or gradient of the whole sum of losses: a
call at k points counts k, a Hessian or a Gram matrix in d dimensions counts d. Rows have norm at
most 1; each plan is what the library ships, "auto" is the sampler it chooses by itself, and the
largest number of passes among the draws is compared with the bar.

Smooth losses: logistic, d = 20, a parameter of norm 3, epsilon = 1, delta = 1e-6 where there is
one. Losses with corners: d = 5, the mu-GDP of (1, 1e-6), whole chains. Releases: how far above the
minimum they are, beside an exact sample, and for the population.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars import at_most, finish
from dpfit.core import Minimize, Plan, Run
from dpfit.data.dataset import InMemory
from dpfit.data.tasks import Gradients
from dpfit.geometry import L2Ball
from dpfit.losses import Absolute, Bounds, Hinge, LinearLoss, Logistic, Loss
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.samplers.potential import Potential
from dpfit.solvers.gibbs.perturbed_sample import PerturbedSample
from dpfit.solvers.gibbs.posterior_release import posterior_release
from dpfit.solvers.gibbs.regularized_exp_mech import regularized_exp_mech

Floats = NDArray[np.float64]

D = 20
CORNERS_D = 5
MU = 0.2367
"""The mu-GDP of (1, 1e-6)."""


class Counted(InMemory):
    """Records that count what is asked of them."""

    passes = 0

    def reduce(self, task: Any, **options: Any) -> Any:
        Counted.passes += len(task.points) if isinstance(task, Gradients) else self.width
        return super().reduce(task, **options)


@dataclass(frozen=True)
class Setting:
    """A problem, a budget, and for each sampler asked for the bar on its passes."""

    name: str
    n: int
    radius: float | None
    ridge: float
    budget: Budget
    bars: dict[str, float]


REPLACED = Budget(epsilon=1, delta=1e-6)
ADDED = Budget(epsilon=1, delta=1e-6, relation="add_remove")
SETTINGS = (
    Setting(
        "pure, replace-one, ridge 0.01", 10_000, None, 0.01, Budget(epsilon=1),
        {"auto": 400, "preconditioned": 1000, "piloted": 1600},
    ),
    Setting(
        "GDP, replace-one, radius 1", 10_000, 1.0, 0.0, REPLACED,
        {"auto": 70, "preconditioned": 120, "piloted": 3000, "proximal": 3000},
    ),
    Setting(
        "GDP, add/remove, radius 1", 10_000, 1.0, 0.0, ADDED,
        {"auto": 70, "preconditioned": 120, "piloted": 4500},
    ),
    Setting(
        "GDP, replace-one, radius 2", 100_000, 2.0, 0.0, REPLACED,
        {"auto": 70, "preconditioned": 1100},
    ),
)  # fmt: skip
CORNERS: tuple[tuple[str, Loss, float, float], ...] = (
    ("hinge, radius 3", Hinge(), 3.0, 2e4),
    ("absolute, radius 1", Absolute(), 1.0, 6e4),
    ("hinge that never bends, radius 1", Hinge(), 1.0, 500.0),
)
"""Losses with corners, radius of the ball, and the bar on passes at n = 10,000."""
SLOPE = 2.1
"""The largest exponent of n in single-record values."""


PREDICTED = 2.5
"""Passes of a chain whose step follows the records, beside the planned ones, at most."""


def records(n: int, d: int, noise: float | None = None) -> Counted:
    """Rows of norm at most 1, with labels of a logistic model, or clipped labels with noise."""
    random = np.random.default_rng(20)
    rows = random.normal(size=(n, d))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    theta = random.normal(size=d)
    theta *= 3 / np.linalg.norm(theta)
    if noise is not None:
        labels = np.clip(rows @ theta / 4 + noise * random.normal(size=n), -1, 1)
    else:
        labels = np.where(random.random(n) < 1 / (1 + np.exp(-rows @ theta)), 1.0, -1.0)
    return Counted(rows, labels)


def smooth_plan(setting: Setting, sampler: str) -> Plan:
    problem = Minimize(
        n=setting.n,
        loss=Logistic(),
        bounds=Bounds(1.0),
        n_features=D,
        domain=None if setting.radius is None else L2Ball(D, setting.radius),
        ridge=setting.ridge,
    )
    return posterior_release.plan(problem, setting.budget, sampler=sampler)


def corner_plan(loss: Loss, radius: float, n: int, sampler: str = "auto") -> Plan:
    problem = Minimize(
        n=n,
        loss=loss,
        bounds=Bounds(1.0, -1.0, 1.0),
        n_features=CORNERS_D,
        domain=L2Ball(CORNERS_D, radius),
    )
    return regularized_exp_mech.plan(problem, Budget(mu=MU), sampler=sampler)


def measured(name: str, plan: Plan, data: Counted, draws: int) -> dict[str, Any]:
    """The most passes and seconds of a draw, beside the planned ones."""
    passes, seconds = [], []
    for seed in range(draws):
        Counted.passes, start = 0, time.perf_counter()
        plan.run(data, random_state=seed)
        passes.append(Counted.passes)
        seconds.append(time.perf_counter() - start)
    return {
        "setting": name,
        "passes": max(passes),
        "seconds": max(seconds),
        "predicted_passes": plan.work.passes,
        "most_passes": plan.work.most_passes,
    }


def smooth(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Passes of each sampler for logistic losses."""
    figures, bars = [], []
    for setting in SETTINGS:
        data = records(setting.n, D)
        for sampler, most in setting.bars.items():
            if quick and (sampler in ("piloted", "proximal") or setting.n > 10_000):
                continue
            name = f"{setting.name}, {sampler}"
            figures.append(measured(name, smooth_plan(setting, sampler), data, 1 if quick else 3))
            bars.append(at_most(f"passes, {name}", figures[-1]["passes"], most))
    return figures, bars


def corners(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Passes of whole chains for losses with corners, and the exponent of n in single values."""
    figures, bars = [], []
    sizes = (300, 1000, 3000) if quick else (1000, 3000, 10_000)
    for name, loss, radius, most in CORNERS:
        rows = []
        for n in sizes:
            data = records(n, CORNERS_D, 0.3 if isinstance(loss, Absolute) else None)
            plan = corner_plan(loss, radius, n)
            rows.append(measured(f"{name}, n = {n}", plan, data, 1 if quick else 3))
            rows[-1]["plain_passes"] = corner_plan(loss, radius, n, "proximal").work.passes
            if loss_bends(loss, radius):
                beside = rows[-1]["passes"] / plan.work.passes
                bars.append(at_most(f"passes / planned, {name}, n = {n}", beside, PREDICTED))
        figures += rows
        values = [row["passes"] * n for row, n in zip(rows, sizes, strict=True)]
        if loss_bends(loss, radius):
            slope = float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
            bars.append(at_most(f"exponent of n in single values, {name}", slope, SLOPE))
        if not quick or not loss_bends(loss, radius):
            bars.append(at_most(f"passes, {name}, n = {sizes[-1]}", rows[-1]["passes"], most))
    return figures, bars


def loss_bends(loss: Loss, radius: float) -> bool:
    """Whether margins of rows of norm 1 reach a kink."""
    return not isinstance(loss, Hinge) or radius > 1


def at_the_boundary(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Linear losses, pure 1: the release beside an exact sample, and beside its prediction."""
    n, draws, first = 400_000, 50 if quick else 400, np.eye(1, D)[0]
    problem = Minimize(
        n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=D, domain=L2Ball(D, 1.0)
    )
    sample = PerturbedSample.of(regularized_exp_mech.plan(problem, Budget(epsilon=1)).final)
    data = InMemory(np.tile(first, (n, 1)), np.zeros(n))
    target = Potential.gibbs(sample.problem, data, sample.inverse_temperature)
    released = 1 + np.array(sample.run_many(data, Run(Source(1)), draws))[:, 0]
    exact = 1 + sample.sampler.draw(target, draws, Source(2))[:, 0]
    figure = {
        "setting": f"linear losses, pure, n = {n}",
        "released": float(released.mean()),
        "exact": float(exact.mean()),
        "predicted": sample.risk.expected,
    }
    return [figure], [
        at_most("released / exact excess, linear losses", released.mean() / exact.mean(), 1.3),
        at_most("released / predicted excess, linear losses",
            released.mean() / sample.risk.expected, 1.0),
    ]  # fmt: skip


def population(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Logistic losses in a ball of radius 3; half a million records stand for the population."""
    n, draws, random = 100_000, 3 if quick else 12, np.random.default_rng(5)
    theta = random.normal(size=D)
    theta *= 3 / np.linalg.norm(theta)

    def drawn(size: int) -> tuple[Floats, Floats]:
        rows = random.normal(size=(size, D))
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        chance = 1 / (1 + np.exp(-rows @ theta))
        return rows, np.where(random.random(size) < chance, 1.0, -1.0)

    rows, labels = drawn(200_000 if quick else 500_000)

    def risk(point: Floats) -> float:
        return float(np.logaddexp(0, -labels * (rows @ point)).mean())

    best = np.zeros(D)
    for _ in range(60 if quick else 200):
        slope = -rows.T @ (labels / (1 + np.exp(labels * (rows @ best)))) / len(rows)
        best = L2Ball(D, 3.0).project(best - 8 * slope)
    problem = Minimize(
        n=n,
        loss=Logistic(),
        bounds=Bounds(1.0),
        n_features=D,
        domain=L2Ball(D, 3.0),
        objective="population",
    )
    plan, excess, passes = regularized_exp_mech.plan(problem, REPLACED), [], []
    for seed in range(draws):
        Counted.passes = 0
        release = plan.run(Counted(*drawn(n)), random_state=seed)
        excess.append(risk(np.asarray(release.value)) - risk(best))
        passes.append(Counted.passes)
    figure = {
        "setting": f"logistic, population, n = {n}",
        "excess": float(np.mean(excess)),
        "error": float(np.std(excess, ddof=1) / math.sqrt(draws)),
        "passes": max(passes),
    }
    return [figure], [
        at_most("excess population risk, logistic", figure["excess"], 0.0013),
        at_most("passes, logistic, population", max(passes), 100),
    ]


def run(quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    records(100, D).gradient(Logistic(), np.zeros(D))
    figures: list[dict[str, Any]] = []
    bars: list[dict[str, Any]] = []
    for part in (smooth, corners, at_the_boundary, population):
        more, asked = part(quick)
        figures += more
        bars += asked
    return {"benchmark": "samplers", "quick": quick, "figures": figures, "bars": bars}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    result = run(arguments.quick)
    if not arguments.json:
        for row in result["figures"]:
            rest = (f"{key} {value:.4g}" for key, value in row.items() if key != "setting")
            print(f"{row['setting']:>45}:", ", ".join(rest))
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

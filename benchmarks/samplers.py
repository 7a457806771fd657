"""What certified samples of a logistic posterior cost, in full-data passes and in seconds.

    python benchmarks/samplers.py            all settings, three draws each
    python benchmarks/samplers.py --quick    one draw each and without the plain chain, under 45
    seconds python benchmarks/samplers.py --json     machine-readable, with the bars

One pass is one value or gradient of the whole sum of losses: a call at k points counts k, a Hessian
or a Gram matrix in d dimensions counts d. The problem is synthetic and fixed: rows of norm 1,
labels from a logistic model whose parameter has norm 3, epsilon = 1, delta = 1e-6 where there is a
delta, d = 20. Each plan is what the library ships; "auto" is the sampler it chooses by itself. The
largest number of passes among the draws is compared with the bar.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.core import Minimize, Plan
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Logistic
from dpfit.privacy import Budget
from dpfit.solvers.gibbs.posterior_release import posterior_release

D = 20


class Counted(InMemory):
    """Records that count what is asked of them."""

    passes = 0

    def gradients(self, loss: Any, thetas: Any, **options: Any) -> Any:
        Counted.passes += len(thetas)
        return super().gradients(loss, thetas, **options)

    def hessian(self, loss: Any, theta: Any, **options: Any) -> Any:
        Counted.passes += self.width
        return super().hessian(loss, theta, **options)

    def gram(self, **options: Any) -> Any:
        Counted.passes += self.width
        return super().gram(**options)


@dataclass(frozen=True)
class Setting:
    """A problem, a budget, the samplers that are asked for, and the bar."""

    name: str
    n: int
    radius: float | None
    ridge: float
    budget: Budget
    samplers: tuple[str, ...]
    bar: float


BOTH, ALL = ("auto", "preconditioned"), ("auto", "preconditioned", "proximal")
REPLACED = Budget(epsilon=1, delta=1e-6)
ADDED = Budget(epsilon=1, delta=1e-6, relation="add_remove")
SETTINGS = (
    Setting("pure, replace-one, ridge 0.01", 10_000, None, 0.01, Budget(epsilon=1), ALL, 1_000),
    Setting("GDP, replace-one, radius 1", 10_000, 1.0, 0.0, REPLACED, ALL, 2_500),
    Setting("GDP, add/remove, radius 1", 10_000, 1.0, 0.0, ADDED, ALL, 5_000),
    Setting("GDP, replace-one, radius 2", 100_000, 2.0, 0.0, REPLACED, BOTH, 3_000),
)


def records(n: int) -> Counted:
    random = np.random.default_rng(20)
    rows = random.normal(size=(n, D))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    theta = random.normal(size=D)
    theta *= 3 / np.linalg.norm(theta)
    labels = np.where(random.random(n) < 1 / (1 + np.exp(-rows @ theta)), 1.0, -1.0)
    return Counted(rows, labels)


def planned(setting: Setting, sampler: str) -> Plan:
    domain = None if setting.radius is None else L2Ball(D, setting.radius)
    problem = Minimize(
        n=setting.n,
        loss=Logistic(),
        bounds=Bounds(1.0),
        n_features=D,
        domain=domain,
        ridge=setting.ridge,
    )
    return posterior_release.plan(problem, setting.budget, sampler=sampler)


def measured(plan: Plan, data: Counted, draws: int) -> list[tuple[int, float]]:
    """Passes and seconds of each draw."""
    found = []
    for seed in range(draws):
        Counted.passes, start = 0, time.perf_counter()
        plan.run(data, random_state=seed)
        found.append((Counted.passes, time.perf_counter() - start))
    return found


def run(quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    figures, bars = [], []
    records(100).gradient(Logistic(), np.zeros(D))
    for setting in SETTINGS:
        data = records(setting.n)
        for sampler in setting.samplers:
            if quick and sampler == "proximal":
                continue
            plan = planned(setting, sampler)
            found = measured(plan, data, 1 if quick else 3)
            passes, seconds = (max(column) for column in zip(*found, strict=True))
            name = f"{setting.name}, {sampler}"
            figures.append(
                {
                    "setting": name,
                    "passes": passes,
                    "seconds": seconds,
                    "predicted_passes": plan.work.passes,
                }
            )
            bars.append(
                {
                    "name": f"passes, {name}",
                    "value": passes,
                    "target": setting.bar,
                    "holds": passes <= setting.bar,
                }
            )
    return {"benchmark": "samplers", "quick": quick, "figures": figures, "bars": bars}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one draw each, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    result = run(arguments.quick)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for row in result["figures"]:
        print(
            f"{row['setting']:>40}: {row['passes']:5d} passes in {row['seconds']:.2f} s "
            f"(predicted {row['predicted_passes']:.0f})"
        )
    for bar in result["bars"]:
        print(
            f"{'ok ' if bar['holds'] else 'NO '} {bar['name']}: {bar['value']:.4g} (bar "
            f"{bar['target']:g})"
        )


if __name__ == "__main__":
    main()

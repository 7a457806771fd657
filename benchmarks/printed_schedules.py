"""By how much printed schedules lose: phases and localization as documents print them, and ours.

    python benchmarks/printed_schedules.py           1e4 and 1e5 records, 10 seeds (about 5 minutes)
    python benchmarks/printed_schedules.py --quick   1e4 records, 3 seeds, under 45 seconds
    python benchmarks/printed_schedules.py --json    machine-readable, with the bars

Problems, budget and excess risk are those of `benchmarks/one_pass.py`. Printed schedules need the
distance to the optimum, which no one knows; they are told twice the norm of the truth.

Phases, as fractions of the records, step sizes and clip norms:
    [Liu24] Algorithm 43   halving parts, steps that fall 16 times, clip norms that double, and
                           twice the noise that the guarantee needs
    fall fourfold          halving parts, steps that fall 4 times, the same clip norm, exact noise
    phased_sgd             by predicted risk, without the distance
Localization around `noisy_gd` with 100 passes:
    [Liu24] Algorithm 5    budgets that halve, step sizes that fall 32 times
    fall fourfold          the whole budget on each part, step sizes that fall 4 times
    localized              the same with step sizes 10 times as large
A bar holds if the printed schedule has at least the excess risk of ours.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bars import at_least, finish
from dpfit.core import Composition, Last, Minimize, Plan, Stage, StartAt, Step
from dpfit.data.dataset import InMemory
from dpfit.losses import GaussianSmoothed, smoothing_width
from dpfit.privacy import Basis, Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.solvers.descents.one_pass import OnePass
from dpfit.solvers.gradient.localized import default_ridge, localized
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.phased_sgd import phased_sgd
from one_pass import BUDGET, ROUND, Task

LEAST_RECORDS = 50
"""A phase on fewer records is left out; the last part takes what remains."""
MULTIPLIER = calibrate(Gaussian, BUDGET).noise_multiplier
BASIS = Basis("Theorem 2 of docs/explanation/phases.md", "replace", "record", (), "bounded")


def halving(n: int) -> tuple[float, ...]:
    """Return 1/2, 1/4, and so on, while parts are large enough; the last number comes twice."""
    count = max(1, int(math.log2(n / LEAST_RECORDS)))
    shares = [2.0**-i for i in range(1, count + 1)]
    return (*shares, shares[-1])


def phases(problem: Minimize, steps: Sequence[float], clips: Sequence[float], z: float) -> Plan:
    """Return phases of these step sizes and clip norms on halving parts."""
    shares, stages = halving(problem.n), []
    for i, (share, step, clip) in enumerate(zip(shares, steps, clips, strict=True)):
        loss: Any = problem.loss
        if loss.kink:
            loss = GaussianSmoothed(loss, smoothing_width(loss.kink, 1.0, step))
        smooth = replace(problem, loss=loss)
        one = OnePass(smooth, "replace", "gaussian", z, step, clip, share)
        binding = StartAt(f"phase {i - 1}") if i else None
        stages.append(Stage(f"phase {i}", Step(one, BASIS), binding, part=i))
    return Composition(tuple(stages), shares, Last())


def algorithm_43(problem: Minimize, distance: float) -> Plan:
    """Return the phases that [Liu24] Algorithm 43 prints, for second moments of 1."""
    n, d, rho = problem.n, problem.n_features, 1 / (2 * MULTIPLIER**2)
    step = distance * min(math.sqrt(8 / n), (n**2 * rho / (32 * d)) ** 0.25 * 2**0.75 / n)
    clip = (distance * rho * n / (32 * step * d)) ** (1 / 3)
    places = range(1, len(halving(n)) + 1)
    steps, clips = [step / 16**i for i in places], [clip * 2**i for i in places]
    return phases(problem, steps, clips, 2 * MULTIPLIER)


def fall_fourfold(problem: Minimize, distance: float) -> Plan:
    """Return phases with exact noise whose steps fall 4 times."""
    n, d = problem.n, problem.n_features
    step = 2 * distance * min(1 / math.sqrt(n), 1 / (MULTIPLIER * math.sqrt(d)))
    places = range(1, len(halving(n)) + 1)
    return phases(problem, [step / 4**i for i in places], [1.0] * len(places), MULTIPLIER)


def algorithm_5(problem: Minimize, distance: float) -> Plan:
    """Return the localization that [Liu24] Algorithm 5 prints."""
    n, d = problem.n, problem.n_features
    first = Budget(epsilon=float(BUDGET.epsilon or 1), delta=BUDGET.delta)
    slowest = max(math.sqrt(n), math.sqrt(d * math.log(1e6)) / float(first.epsilon or 1))
    shares, stages = halving(n), []
    for i, share in enumerate(shares):
        size, step = int(n * share), distance / slowest / 32 ** (i + 1)
        around = replace(problem, n=size, ridge=2 / (step * size), centre=(0.0,) * d)
        part = Budget(epsilon=2.0 ** -(i + 1), delta=1e-6 * 2.0 ** -(i + 1))
        binding = StartAt(f"phase {i - 1}", ("centre", "start")) if i else None
        plan = noisy_gd.plan(around, part, max_passes=100)
        stages.append(Stage(f"phase {i}", plan, binding, part=i))
    return Composition(tuple(stages), shares, Last())


def plans(task: Task, norm: float, n: int) -> dict[str, Plan]:
    """Return the plans of a problem by name."""
    problem, distance = task.problem(n), 2 * norm
    printed = default_ridge(problem, BUDGET, n // 2) * 10
    return {
        "phases: [Liu24] Algorithm 43": algorithm_43(problem, distance),
        "phases: fall fourfold": fall_fourfold(problem, distance),
        "phases: phased_sgd": phased_sgd.plan(problem, BUDGET),
        "localization: [Liu24] Algorithm 5": algorithm_5(problem, distance),
        "localization: fall fourfold": localized.plan(problem, BUDGET, ridge=printed),
        "localization: localized": localized.plan(problem, BUDGET),
        "noisy_gd 300": noisy_gd.plan(problem, BUDGET),
    }


OURS = {"phases": "phases: phased_sgd", "localization": "localization: localized"}


def measure(quick: bool) -> dict[str, Any]:
    """Return mean excess risks, with a bar for each printed schedule."""
    sizes, seeds = ((10_000,), 3) if quick else ((10_000, 100_000), 10)
    rows, bars = [], []
    for loss in ("logistic", "absolute"):
        kind, norm = ROUND[loss]
        task = Task(kind, norm, n_test=100_000 if quick else 1_000_000)
        for n in sizes:
            found: dict[str, float] = {}
            made = plans(task, norm, n)
            drawn = [InMemory(*task.draw(seed, n)) for seed in range(seeds)]
            for name, plan in made.items():
                values = [
                    task.excess(plan.output(plan.run(data, random_state=seed).value))
                    for seed, data in enumerate(drawn)
                ]
                found[name] = float(np.mean(values))
                rows.append({"problem": f"{loss} {n}", "schedule": name, "excess": found[name]})
                print(f"{loss} {n} {name:36} {found[name]:.3g}", file=sys.stderr, flush=True)
            for name, excess in found.items():
                ours = OURS.get(name.split(":")[0])
                if ours not in (None, name):
                    bars.append(at_least(f"{loss} {n}, {name}", excess / found[str(ours)], 1.0))
    return {"rows": rows, "bars": bars}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    return finish(measure(options.quick), options.json)


if __name__ == "__main__":
    sys.exit(main())

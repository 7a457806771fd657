"""Does `auto` gain by `langevin` on bounded domains, where noise dominates and elsewhere?

    python benchmarks/bounded.py            2 x 60 random problems in balls (about twenty minutes)
    python benchmarks/bounded.py --quick    2 x 10 smaller ones, under 45 seconds
    python benchmarks/bounded.py --json     machine-readable, with the bars

Half of the problems are like those of calibrate_auto.py, half are drawn where noise dominates; all
in a ball of radius 2 to 10. Where `auto` picks `langevin`, its mean excess risk is compared with
that of the solver that `auto` would pick without it; elsewhere the ratio is one. The margin of
`dpfit.solvers.gradient.langevin` was set on other RNG seeds (6 and 7).
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize as minimized

from bars import at_most, finish
from calibrate_auto import log_uniform, random_case
from dpfit.core import Minimize
from dpfit.geometry import L2Ball
from dpfit.solvers.auto import auto, candidates
from synthetic import LOSSES, Case, Floats

RNG_SEED = {"as in calibrate_auto": 91, "noise dominates": 92}
SMALL, LARGE = 40_000, 400_000
"""Numbers in the rows of a problem, at most: of the quick form, and of the full one."""


@dataclass(frozen=True)
class BallCase(Case):
    """A problem in a ball; the least mean loss is that of the ball."""

    radius: float = 1.0

    @property
    def problem(self) -> Minimize:
        return replace(super().problem, domain=L2Ball(self.d, self.radius))

    @cached_property
    def least(self) -> float:
        loss, guards = LOSSES[self.loss], super().problem.guards

        def objective(theta: Floats) -> tuple[float, Floats]:
            value, gradient = self.records.gradient(loss, theta, **guards)
            return float(value) / self.n, np.asarray(gradient) / self.n

        options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
        free = minimized(objective, np.zeros(self.d), jac=True, method="L-BFGS-B", options=options)
        if np.linalg.norm(free.x) <= self.radius:
            return float(free.fun)
        ball, size = (
            L2Ball(self.d, self.radius),
            1 / super().problem.constants("replace").smoothness,
        )
        point = ahead = np.zeros(self.d)
        for k in range(1500):
            new = ball.project(ahead - size * objective(ahead)[1])
            ahead, point = new + k / (k + 3) * (new - point), new
        return objective(point)[0]

    def mean_excess(self, name: str, options: Any, runs: int) -> float:
        """Mean excess risk of a solver."""
        solver = next(each for each in candidates(self.problem) if each.name == name)
        plan = solver.using(**options).plan(self.problem, self.budget)
        values = [plan.run(self.records, random_state=k).value for k in range(runs)]
        return float((self.loss_at(np.asarray(values)) - self.least).mean())


def cases(kind: str, number: int, largest: int) -> list[BallCase]:
    """Random problems with a delta, of at most so many numbers."""
    rng, found = np.random.default_rng(RNG_SEED[kind]), []
    while len(found) < number:
        case = random_case(rng, RNG_SEED[kind] * 10_000 + len(found))
        if kind == "noise dominates":
            case = replace(
                case,
                n=round(log_uniform(rng, 1500, 15_000)),
                d=round(log_uniform(rng, 8, 40)),
                epsilon=round(log_uniform(rng, 0.4, 2.5), 3),
            )
        radius = round(log_uniform(rng, 2, 10), 3)
        if case.n * case.d <= largest:
            found.append(BallCase(**asdict(replace(case, delta=1e-6)), radius=radius))
    return found


def judged(case: BallCase, runs: int) -> dict[str, Any]:
    """One problem: what `auto` picks with and without `langevin`, and the ratio of their risks."""
    plan = auto.plan(case.problem, case.budget)
    picked = plan.considered[0].name
    figure = {**asdict(case), "picked": picked, "ratio": 1.0}
    if picked != "langevin":
        return figure
    other = next(each.name for each in plan.considered if each.name != "langevin")
    moves = plan.final.optimizer  # type: ignore[attr-defined]
    options = {"max_passes": moves.schedule.steps, "step_size": moves.step_size}
    mine, theirs = case.mean_excess(picked, options, runs), case.mean_excess(other, {}, runs)
    return {**figure, "other": other, "risk": mine, "other_risk": theirs, "ratio": mine / theirs}


def run(quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    number, runs, largest = (10, 5, SMALL) if quick else (60, 10, LARGE)
    figures: dict[str, Any] = {}
    bars: list[dict[str, Any]] = []
    for kind in RNG_SEED:
        found = [judged(case, runs) for case in cases(kind, number, largest)]
        ratios = [figure["ratio"] for figure in found]
        mean = math.exp(float(np.mean(np.log(ratios))))
        figures[kind] = found
        for name, value, target in (
            ("risk over that without langevin", mean, 1.02),
            ("largest ratio", max(ratios), 2.0),
        ):
            bars.append(at_most(f"{kind}: {name}", value, target))
    return {"benchmark": "bounded", "quick": quick, "figures": figures, "bars": bars}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller problems")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    result = run(arguments.quick)
    if not arguments.json:
        for kind, found in result["figures"].items():
            for row in found:
                if "other" in row:
                    print(
                        f"{kind}: {row['loss']} n={row['n']} d={row['d']} {row['design']} "
                        f"{row['size']} eps={row['epsilon']} radius={row['radius']}: "
                        f"{row['risk']:.3g}, {row['other']} {row['other_risk']:.3g}"
                    )
            share = np.mean(["other" in row for row in found])
            print(f"{kind}: langevin picked in {share:.0%} of {len(found)}")
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

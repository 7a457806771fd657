"""Is curvature worth learning? Private geometry and private Newton steps, skewed columns.

    python benchmarks/curvature.py            12 problems, 6 runs of each method (four minutes)
    python benchmarks/curvature.py --quick    three of them, 3 runs, under 45 seconds
    python benchmarks/curvature.py --json     machine-readable, with the bars

`newton` is a prototype that is not shipped: K damped steps, each with a noisy gradient and a noisy
Hessian (a share of the squared budget), eigenvalues raised to a multiple of the noise. What counts
is the best of its settings in hindsight, which no private fit could choose. The ratio is between
mean excess risks.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bars import at_most, finish
from dpfit.privacy import calibrate
from dpfit.privacy.event import Gaussian
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.preconditioned_gd import preconditioned_gd
from dpfit.solvers.perturbation.objective_perturbation import objective_perturbation
from synthetic import Case

DESIGNS = (("positive", 0.0), ("power_law", 1.5), ("power_law", 1.0), ("isotropic", 0.0))
SIZES = ((20_000, 10, 1.0), (50_000, 20, 1.0), (50_000, 10, 4.0))
SETTINGS = ((3, 0.3, 1.0), (5, 0.3, 1.0), (8, 0.3, 1.0), (5, 0.3, 3.0), (8, 0.5, 3.0))
"""Newton steps, the share of the budget for Hessians, and to what multiple of their noise
eigenvalues are raised.
"""


def newton(
    case: Case, steps: int, share: float, raised: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Damped logistic Newton steps, add/remove: sensitivity 1 of gradients, 1/4 of Hessians."""
    rows, labels, d = case.records.matrix, case.records.labels, case.d
    whole = calibrate(Gaussian, case.budget).noise_multiplier
    slope_noise, bend_noise = (
        whole * math.sqrt(steps / (1 - share)),
        whole * math.sqrt(steps / share) / 4,
    )
    theta = np.zeros(d)
    for _ in range(steps):
        slopes = expit(-labels * (rows @ theta))
        gradient = slope_noise * rng.standard_normal(d) - (labels * slopes) @ rows
        noise = np.triu(rng.standard_normal((d, d)), 1) / math.sqrt(2)
        noise = bend_noise * (noise + noise.T + np.diag(rng.standard_normal(d)))
        values, vectors = np.linalg.eigh((rows.T * (slopes * (1 - slopes))) @ rows + noise)
        values = np.maximum(values, raised * bend_noise * math.sqrt(2 * d))
        theta = theta - vectors @ ((vectors.T @ gradient) / values)
    return theta


def judged(case: Case, runs: int) -> dict[str, Any]:
    """Mean excess risk of every method on one problem."""
    rng, problem, budget = np.random.default_rng(case.rng_seed), case.problem, case.budget
    tried = [[newton(case, *setting, rng) for _ in range(runs)] for setting in SETTINGS]
    risks = {
        "noisy_gd": float(case.excess(noisy_gd.plan(problem, budget), runs).mean()),
        "objective_perturbation": float(
            case.excess(objective_perturbation.plan(problem, budget), runs).mean()
        ),
        "preconditioned_gd": float(
            case.excess(preconditioned_gd.plan(problem, budget), runs).mean()
        ),
        "newton": min(
            float((case.loss_at(np.array(thetas)) - case.least).mean()) for thetas in tried
        ),
    }
    others = min(risks["noisy_gd"], risks["objective_perturbation"])
    return {
        "design": case.design, "power": case.power, "n": case.n, "d": case.d,
        "epsilon": case.epsilon, "risks": risks,
        "preconditioned_over_best": risks["preconditioned_gd"] / others,
        "newton_over_best": risks["newton"] / min(others, risks["preconditioned_gd"]),
    }  # fmt: skip


def run(quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    problems = list(itertools.product(DESIGNS, SIZES))[:: 3 if quick else 1][: 3 if quick else None]
    cases = [
        Case("logistic", n, d, design, power, "large", epsilon, 1e-6, "add_remove", 4242 + n + d)
        for (design, power), (n, d, epsilon) in problems
    ]
    figures = [judged(case, 3 if quick else 6) for case in cases]
    skewed = [
        figure["preconditioned_over_best"] for figure in figures if figure["design"] != "isotropic"
    ]
    typical = float(np.exp(np.mean(np.log(skewed))))
    bars = [at_most("preconditioned, skewed columns", typical, 0.5)]
    return {"benchmark": "curvature", "quick": quick, "figures": figures, "bars": bars}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three problems, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    result = run(arguments.quick)
    if not arguments.json:
        for row in result["figures"]:
            risks = ", ".join(f"{name} {risk:.2g}" for name, risk in row["risks"].items())
            print(
                f"{row['design']} {row['power']} n={row['n']} d={row['d']} eps={row['epsilon']}: "
                f"{risks}"
            )
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

"""Full-batch gradient descent with Gaussian noise on every gradient; all iterates are covered.

Guarantee: mu-GDP for all iterates together, mu = 1 / noise_multiplier, for any loss and data: gradients are clipped.
Reference: [LD] Lemma C.1, [ASAP] Theorem 4 with its variance corrected, [Gan22] Section 1.4; docs/explanation/
trajectory.md, Theorem 1 (why unequal noise, momentum and averages cost nothing more).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Minimize, Plan
from dpfit.core.algorithm import BOUNDED
from dpfit.core.examples import opposite_records
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import count
from dpfit.privacy.event import Gaussian
from dpfit.solvers.descents.descent import trajectory_step
from dpfit.solvers.descents.predicted import predicted_risk
from dpfit.solvers.descents.rule import tune_descent


class NoisyGD(Algorithm[Minimize]):
    """Full-batch gradient descent with Gaussian noise on clipped gradients.

    Use it for any loss, many columns and a delta; use `output_perturbation` for pure epsilon.
    Guarantee: mu-GDP for all iterates together, mu = 1 / noise_multiplier, for any loss and data.
    Reference: [LD] Lemma C.1; proof in docs/explanation/trajectory.md, Theorem 1.
    Work: ``max_passes`` passes over the data.

    Parameters
    ----------
    clip_norm : float, optional
        By default a fraction of the Lipschitz constant that falls as the noise grows.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20)
    >>> plan = noisy_gd.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> round(plan.guarantee.epsilon(1e-6), 3), plan.mechanism.rounds
    (1.0, 300)
    """

    name = "noisy_gd"
    summary = "full-batch gradient descent with noise, momentum and averaging; nothing to tune"
    reference = "[LD] Lemma C.1; [ASAP] Theorem 4, corrected; [Gan22] Section 1.4"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (BOUNDED,)
    supports = frozenset({"ridge", "domain", "centre", "trust_ball", "ridge_map"})
    tier = "recommended"
    auto_candidate = True

    def _plan(
        self, problem: Minimize, budget: Budget, *, max_passes: int = 300, clip_norm: float | None = None
    ) -> Plan:
        """Return a full-batch descent within the budget; nothing to tune."""
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        descent = tune_descent(
            problem, budget.relation, multiplier, max_passes=count("max_passes", max_passes), clip_norm=clip_norm
        )
        return trajectory_step(replace(descent, predicted=predicted_risk(descent)), budget)

    def example(self, relation: str) -> Example:
        """Return records whose gradients point one way, one of which points the other way or leaves."""
        return opposite_records(relation)


noisy_gd = NoisyGD()


# Names that last_iterate_gd, dp_sgd and the Gibbs samplers import until they have moved.
__all__ = ["NoisyGD", "noisy_gd", "opposite_records", "require_minimize", "start"]


def require_minimize(name: str, problem: object, budget: Budget) -> None:
    """Nothing: `Algorithm.plan` checks the problem."""


def start(problem: Minimize) -> NDArray[np.float64]:
    """Return the public start."""
    return problem.origin

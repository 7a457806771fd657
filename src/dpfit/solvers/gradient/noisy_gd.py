"""Full-batch gradient descent with Gaussian noise on every gradient; all iterates are covered.

Guarantee: mu-GDP for all iterates together, mu = 1 / noise_multiplier, for any loss and data:
gradients are clipped. Reference: [LD] Lemma C.1, [ASAP] Theorem 4 with its variance corrected,
[Gan22] Section 1.4; docs/explanation/ trajectory.md, Theorem 1 (why unequal noise, momentum and
averages cost nothing more).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Minimize, Plan, Step
from dpfit.core.algorithm import BOUNDED
from dpfit.core.examples import opposite_records
from dpfit.losses.custom import declared_basis
from dpfit.mechanisms.aggregates.filtered_mean import filter_basis, plan_filter
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer, positive
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.label_mean import (
    around_label_mean,
    from_label_mean,
    label_mean_share,
    split,
)
from dpfit.solvers.descents.predicted import predicted_risk
from dpfit.solvers.descents.rule import tune_descent
from dpfit.solvers.descents.scales import user_radius

PAIRS = 3.0
"""Distance of two users' mean gradients within which they count as near, in units of the radius."""


class NoisyGD(Algorithm[Minimize]):
    """Full-batch gradient descent with Gaussian noise on clipped gradients.

    Use it for any loss, many columns and a delta; use `output_perturbation` for pure epsilon.
    Guarantee: mu-GDP for all iterates together, mu = 1 / noise_multiplier, for any loss and data.
    Reference: [LD] Lemma C.1; proof in docs/explanation/trajectory.md, Theorem 1.
    Work: ``max_passes`` passes over the data.

    Parameters
    ----------
    clip_norm : float, optional
        By default a fraction of the Lipschitz constant that falls as the noise grows. Where users
        are protected, 0.4 / sqrt(rows_per_user) of it, and up to twice that at little noise.
    filtered : bool, default=False
        Take filtered means of users (`dpfit.mechanisms.filtered_mean`) in place of clipped ones:
        the descent halts where too many users disagree. More noise: for users that no norm bounds.

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
    units = ("record", "user")
    requires = (BOUNDED,)
    supports = frozenset({"ridge", "domain", "centre", "trust_ball", "ridge_map"})
    tier = "recommended"
    auto_candidate = True

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        max_passes: int = 300,
        clip_norm: float | None = None,
        filtered: bool = False,
    ) -> Plan:
        """Return a full-batch descent within the budget; nothing to tune.

        A regression with an intercept and declared label bounds finds the mean of the labels first,
        with at most 5% of the squared budget, and starts there.
        """
        passes = integer("max_passes", max_passes)
        if filtered:
            return _filtered(problem, budget, passes, clip_norm)
        multiplier = calibrate(Gaussian, budget).noise_multiplier

        def descent(multiplier: float, steps: int) -> Descent:
            return tune_descent(
                problem,
                budget.relation,
                multiplier,
                max_passes=steps,
                clip_norm=clip_norm,
                per=budget.unit,
            )

        whole = descent(multiplier, passes)
        risk = predicted_risk(whole)
        share = label_mean_share(problem, budget.relation, multiplier)
        # The mean of the labels is one over records: a user may have many.
        if not share or passes == 1 or budget.unit == "user":
            return trajectory_step(replace(whole, predicted=risk), budget)
        first, rest = split(budget, share)
        # Labels of reference designs are centred. There the mean gains nothing, so it is left out
        # of the prediction.
        steps = replace(around_label_mean(descent(rest, passes - 1)), predicted=risk)
        return from_label_mean(trajectory_step(steps, budget), problem, first, budget)

    def example(self, relation: str) -> Example:
        """Return records with gradients one way; one record is opposite, or is removed."""
        return opposite_records(relation)


def _filtered(problem: Minimize, budget: Budget, rounds: int, clip_norm: float | None) -> Plan:
    """Return a descent on filtered means, tuned as for a clipped mean of the same noise."""
    if budget.kind != "approximate" or budget.relation != "replace":
        raise ValueError(
            "filtered=True needs epsilon, delta and relation='replace'; leave filtered out"
        )
    radius = user_radius(problem) if clip_norm is None else positive("clip_norm", clip_norm)
    mean = plan_filter(problem.n, rounds, PAIRS * radius, budget)
    alike = mean.change * mean.noise_multiplier * problem.n / (2 * radius)
    descent = tune_descent(
        problem, budget.relation, alike, max_passes=rounds, clip_norm=radius, per=budget.unit
    )
    basis = declared_basis(filter_basis(budget), problem.loss)
    return Step(Descent(problem, mean, descent.optimizer), basis)


noisy_gd = NoisyGD()


# Names that last_iterate_gd, dp_sgd and the Gibbs samplers import until they have moved.
__all__ = ["NoisyGD", "noisy_gd", "opposite_records", "require_minimize", "start"]


def require_minimize(name: str, problem: object, budget: Budget) -> None:
    """Nothing: `Algorithm.plan` checks the problem."""


def start(problem: Minimize) -> NDArray[np.float64]:
    """Return the public start."""
    return problem.origin

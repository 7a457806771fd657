"""Full-batch gradient descent with Gaussian noise on every gradient; all iterates are covered.

Guarantee: mu-GDP for all iterates together, mu = 1 / noise_multiplier, for any loss and data:
gradients are clipped. Reference: [LD] Lemma C.1, [ASAP] Theorem 4 with its variance corrected,
[Gan22] Section 1.4; docs/explanation/ trajectory.md, Theorem 1 (why unequal noise, momentum and
averages cost nothing more).
"""

from __future__ import annotations

import math
from dataclasses import replace

from dpfit.core import Algorithm, Example, Minimize, Plan, Step
from dpfit.core.algorithm import BOUNDED, Requirement
from dpfit.core.examples import opposite_records
from dpfit.losses.custom import declared_basis
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.filtered_mean import filter_basis, plan_filter
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer, option, positive
from dpfit.solvers.descents.adaptive import tune_adaptive
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.label_mean import (
    TUNING as LABEL_MEAN,
)
from dpfit.solvers.descents.label_mean import (
    around_constant,
    from_constant,
    label_mean,
    label_mean_share,
    split,
)
from dpfit.solvers.descents.label_quantile import TUNING as LABEL_QUANTILE
from dpfit.solvers.descents.label_quantile import has_time, label_quantile, label_quantile_share
from dpfit.solvers.descents.network_rule import TUNING as NETWORK
from dpfit.solvers.descents.network_rule import tune_network
from dpfit.solvers.descents.optimizer import Optimizer
from dpfit.solvers.descents.predicted import predicted_risk
from dpfit.solvers.descents.quantiles import TUNING as QUANTILE
from dpfit.solvers.descents.rule import TUNING as DESCENT
from dpfit.solvers.descents.rule import tune_descent
from dpfit.solvers.descents.scales import TUNING as SCALES
from dpfit.solvers.descents.scales import user_radius

PAIRS = 3.0
"""Distance of two users' mean gradients within which they count as near, in units of the radius."""

CLIPPABLE = Requirement(
    BOUNDED.text,
    BOUNDED.hint,
    lambda problem, budget, options: (
        problem.loss.has_own_parameters or BOUNDED.holds(problem, budget, options)
    ),
)
"""Networks have a default clip norm: their gradients have no bound of their own."""

STEP_SIZE = Requirement(
    "step_size to be left out: it follows from the constants of this loss",
    "leave it out, or bring a loss with parameters of its own",
    lambda problem, budget, options: (
        options.get("step_size") is None or problem.loss.has_own_parameters
    ),
)

ADAPTIVE_STEP = Requirement(
    "a step_size for adaptive steps on a loss with parameters of its own",
    "pass step_size, about 10 / max_passes, or leave optimizer out",
    lambda problem, budget, options: (
        options.get("optimizer") != "adaptive"
        or options.get("step_size") is not None
        or not problem.loss.has_own_parameters
    ),
)

OWN_NUMBERS = Requirement(
    "clip_norm and step_size to be left out where optimizer is an Optimizer",
    "pass them to the Optimizer, which has its own",
    lambda problem, budget, options: (
        not isinstance(options.get("optimizer"), Optimizer)
        or (options.get("clip_norm") is None and options.get("step_size") is None)
    ),
)

FINITE_CLIP = Requirement(
    "a finite clip_norm",
    "leave it out for the default, or pass a number above 0",
    lambda problem, budget, options: options.get("clip_norm") != math.inf,
)

FILTERED = Requirement(
    "optimizer to be left out, and a loss without parameters of its own, where filtered=True",
    "leave filtered out",
    lambda problem, budget, options: (
        not options.get("filtered")
        or (options.get("optimizer", "momentum"), problem.loss.has_own_parameters)
        == ("momentum", False)
    ),
)


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
    step_size : float, optional
        Of losses with parameters of their own, such as networks. By default 1, less at much noise;
        for adaptive steps there is no default: try 10 / max_passes.
    filtered : bool, default=False
        Take filtered means of users (`dpfit.mechanisms.filtered_mean`) in place of clipped ones:
        the descent halts where too many users disagree. More noise: for users that no norm bounds.
    optimizer : {"momentum", "adaptive"} or Optimizer, default="momentum"
        The update rule. "adaptive" scales the steps of each coordinate (`Adaptive`): for columns of
        very different scales. A rule of your own is an `Optimizer` for ``max_passes`` steps. The
        event does not depend on the rule.

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
    use_for = "any loss, with a delta; many columns"
    reference = "[LD] Lemma C.1; [ASAP] Theorem 4, corrected; [Gan22] Section 1.4"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    units = ("record", "user")
    requires = (CLIPPABLE, FINITE_CLIP, STEP_SIZE, ADAPTIVE_STEP, OWN_NUMBERS, FILTERED)
    supports = frozenset({"ridge", "domain", "centre", "trust_ball", "ridge_map"})
    tier = "recommended"
    tunings = (DESCENT, LABEL_MEAN, LABEL_QUANTILE, QUANTILE, NETWORK, SCALES)
    auto_candidate = True

    def is_candidate(self, problem: Minimize) -> bool:
        # From the origin, a loss that levels off may not see the labels.
        return problem.loss.convex_start is None

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        max_passes: int = 300,
        clip_norm: float | None = None,
        step_size: float | None = None,
        filtered: bool = False,
        optimizer: str | Optimizer = "momentum",
    ) -> Plan:
        """Return a full-batch descent within the budget; nothing to tune.

        A regression with an intercept and declared label bounds finds the mean of the labels first,
        with at most 5% of the squared budget, and starts there. A quantile regression starts at the
        quantile of the labels, if the remaining passes are enough.
        """
        passes = integer("max_passes", max_passes)
        if filtered:
            return _filtered(problem, budget, passes, clip_norm)
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        if optimizer != "momentum":
            return _optimized(problem, budget, passes, clip_norm, step_size, multiplier, optimizer)
        if problem.loss.has_own_parameters:
            network = tune_network(
                problem, budget.relation, multiplier, max_passes=passes, clip_norm=clip_norm,
                step_size=step_size, per=budget.unit,
            )  # fmt: skip
            return trajectory_step(network, budget)

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
        alone = trajectory_step(replace(whole, predicted=risk), budget)
        # Constants are of records: a user may have many.
        if passes == 1 or budget.unit == "user":
            return alone
        # Labels of reference designs are centred. There a constant gains nothing, so it is left out
        # of the prediction.
        if share := label_mean_share(problem, budget.relation, multiplier):
            first, rest = split(budget, share)
            constant = label_mean(problem, budget.relation, first)
        elif share := label_quantile_share(problem, multiplier, passes):
            first, rest = split(budget, share)
            constant = label_quantile(problem, budget.relation, first)
            if not has_time(descent(rest, passes - constant.rounds)):
                return alone
        else:
            return alone
        steps = around_constant(descent(rest, passes - constant.rounds))
        steps = replace(steps, predicted=risk)
        return from_constant(constant, trajectory_step(steps, budget), problem, budget)

    def example(self, relation: str) -> Example:
        """Return records with gradients one way; one record is opposite, or is removed."""
        return opposite_records(relation)


def _optimized(
    problem: Minimize,
    budget: Budget,
    rounds: int,
    clip_norm: float | None,
    step_size: float | None,
    noise_multiplier: float,
    optimizer: str | Optimizer,
) -> Plan:
    """Return a descent by another rule, on the clipped mean that the budget allows."""
    rule: Optimizer
    if isinstance(optimizer, Optimizer):
        rule = optimizer
    else:
        option("optimizer, if not an Optimizer,", optimizer, ("momentum", "adaptive"))
        rule = tune_adaptive(
            problem, budget.relation, noise_multiplier, rounds, clip_norm, step_size,
            per=budget.unit,
        )  # fmt: skip
    mean = ClippedMean(
        problem.n, noise_multiplier, rounds, budget.relation, per=budget.unit,
        schedule=getattr(rule, "schedule", None),
    )  # fmt: skip
    return trajectory_step(Descent(problem, mean, rule), budget)


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

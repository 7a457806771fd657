"""Regression that ignores bad labels: a convex fit, the scale of its residuals, then a descent.

A loss that levels off sees labels within its width only, so the width should be a few times the
error of good labels, and the start should predict them. Both are found privately first.

Guarantee: mu-GDP for the three stages together, for any data: gradients are clipped, and each
record counts in one bucket. Reference: [LD] Lemma C.1; [Gan22] Fact 15; docs/explanation/robust.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dpfit.core import Algorithm, Composition, Example, Minimize, Plan, Requirement, Stage, Step
from dpfit.core.algorithm import DECLARED_N
from dpfit.core.binding import Binding, StartAt
from dpfit.core.examples import opposite_records
from dpfit.core.notes import Tuning
from dpfit.losses import Bounds, GemanMcClure, Loss
from dpfit.mechanisms.residual_scale import ResidualScale
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Composed, Gaussian
from dpfit.privacy.validate import integer
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.predicted import predicted_risk
from dpfit.solvers.descents.rule import TUNING as DESCENT
from dpfit.solvers.descents.rule import tune_descent
from dpfit.solvers.descents.scales import TUNING as SCALES
from dpfit.solvers.gradient.noisy_gd import noisy_gd

START, SCALE, FIT = "convex start", "scale of residuals", "fit"
"""Names of the three stages."""


@dataclass(frozen=True)
class RobustTuning(Tuning):
    """Tuned numbers of `robust_gd`.

    Parameters
    ----------
    start, scale : float
        Fractions of the squared GDP budget for the convex fit and for the scale.
    passes : float
        Fraction of the passes for the convex fit.
    widths : float
        Width of the loss over the median absolute residual.
    """

    kind = "robust_tuning"
    set_by: str = "benchmarks/robust.py --tune"
    start: float = 0.2
    scale: float = 0.03
    passes: float = 0.3
    widths: float = 2.0


TUNING = RobustTuning()

LEVELS_OFF = Requirement(
    "a regression loss that levels off",
    "use GemanMcClure or TruncatedAbsolute, or noisy_gd, which takes any loss",
    lambda problem, budget, options: problem.loss.convex_start is not None,
)
NO_START = Requirement(
    "no start",
    "leave start out: the convex fit is the start; or use noisy_gd",
    lambda problem, budget, options: problem.start is None,
)


@dataclass(frozen=True)
class Narrowed(Binding):
    """Start a descent at a released point, with a width that follows a released scale.

    The event stays: noise is the planned multiplier times the sensitivity at the new width.
    """

    kind = "narrowed"
    start: str
    scale: str
    widths: float

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        descent = plan.final
        if not isinstance(descent, Descent):
            raise ValueError(f"{self.kind} binds a descent, got {descent.kind!r}")
        point = np.asarray(released[self.start], dtype=np.float64).ravel()
        width = self.widths * float(np.asarray(released[self.scale])[0])
        loss: Any = descent.problem.loss
        problem = replace(descent.problem, start=tuple(point.tolist()), loss=loss.narrowed(width))
        bound = replace(narrowed(problem, descent), predicted=descent.predicted)
        return plan.map_steps(lambda _: bound)

    def stand_in(self, plan: Plan) -> Mapping[str, Any] | None:
        return {self.start: plan.final.problem.origin, self.scale: np.ones(1)}  # type: ignore[attr-defined]


def narrowed(problem: Minimize, planned: Descent) -> Descent:
    """Return the descent on another problem with the event of the planned one."""
    aggregate = planned.aggregate
    return tune_descent(
        problem, aggregate.relation, aggregate.noise_multiplier, max_passes=aggregate.rounds
    )


class RobustGD(Algorithm[Minimize]):
    """Noisy gradient descent on a loss that levels off, from a private convex fit.

    Use it for regressions with many bad labels on one side, which pull every convex loss. Use
    `noisy_gd` with `Huber` where bad labels are rare, or where there are few records.
    Guarantee: mu-GDP for all stages together, for any data.
    Reference: [LD] Lemma C.1; [Gan22] Fact 15; docs/explanation/robust.md.
    Work: ``max_passes`` passes over the data.

    The width of the problem's loss is the largest one: the loss is narrowed to a few times the
    median residual of the convex fit, which 3% of the squared budget finds.

    Examples
    --------
    >>> problem = Minimize(
    ...     n=10_000, loss=GemanMcClure(0.25), bounds=Bounds(1.0, -1.0, 1.0), n_features=20
    ... )
    >>> plan = robust_gd.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> [stage.name for stage in plan.stages], plan.work.passes
    (['convex start', 'scale of residuals', 'fit'], 300.0)
    """

    name = "robust_gd"
    summary = "regression that ignores bad labels: a convex fit, its residuals' scale, a descent"
    use_for = "regressions in which many labels are bad"
    reference = "[LD] Lemma C.1; [Gan22] Fact 15; docs/explanation/robust.md"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (LEVELS_OFF, NO_START)
    supports = frozenset({"ridge", "domain"})
    tier = "recommended"
    tunings = (TUNING, DESCENT, SCALES)
    auto_candidate = True

    def is_candidate(self, problem: Minimize) -> bool:
        return problem.loss.convex_start is not None

    def _plan(self, problem: Minimize, budget: Budget, *, max_passes: int = 300) -> Plan:
        """Return three stages within the budget; nothing to tune."""
        passes = integer("max_passes", max_passes, least=3)
        first, second, rest = shares(budget, TUNING.start, TUNING.scale)
        convex, relation = cast(Loss, problem.loss.convex_start), budget.relation
        steps = max(1, round(TUNING.passes * passes))
        alone = Budget(mu=1 / first, relation=relation, unit=budget.unit)
        start = noisy_gd.plan(replace(problem, loss=convex), alone, max_passes=steps)
        residuals = replace(problem, loss=convex, ridge=0.0)
        scale = ResidualScale(residuals, relation, second, largest=problem.loss.parameter)  # type: ignore[attr-defined]
        fit = tune_descent(problem, relation, rest, max_passes=passes - 1 - steps)
        fit = replace(fit, predicted=predicted_risk(fit))
        return Composition(
            (
                Stage(START, start),
                Stage(SCALE, Step(scale, _counted(budget)), StartAt(START)),
                Stage(FIT, trajectory_step(fit, budget), Narrowed(START, SCALE, TUNING.widths)),
            )
        )

    def example(self, relation: str) -> Example:
        """Return records with gradients one way; one record is opposite, or is removed."""
        plain = opposite_records(relation)
        loss = GemanMcClure(math.sqrt(3))  # steepest at residuals of 1
        return plain._replace(
            problem=replace(plain.problem, loss=loss, bounds=Bounds(1.0, -1.0, 1.0))
        )


def shares(budget: Budget, *fractions: float) -> tuple[float, ...]:
    """Return noise multipliers of Gaussian stages with these fractions of the squared budget.

    The last one gets the rest.

    >>> [round(each, 6) for each in shares(Budget(mu=0.5), 0.36)]
    [3.333333, 2.5]
    """
    whole = calibrate(Gaussian, budget).noise_multiplier
    parts = (*fractions, 1 - sum(fractions))
    stages = Composed(tuple(Gaussian(whole / math.sqrt(part)) for part in parts))
    return tuple(each.noise_multiplier for each in calibrate(stages, budget).events)  # type: ignore[attr-defined]


def _counted(budget: Budget) -> Basis:
    """Return why the scale is private."""
    counted = [Assumption("each record counts in one bucket", "enforced")]
    if budget.relation == "add_remove":
        counted.append(DECLARED_N)
    theorem = "Gaussian mechanism [Gan22, Fact 15]"
    return Basis(theorem, budget.relation, budget.unit, tuple(counted), "exact")


robust_gd = RobustGD()

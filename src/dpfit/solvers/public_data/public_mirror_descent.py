"""Mirror descent with the public loss as mirror map, on the schedule of a proven risk bound.

Guarantee: mu-GDP with respect to the private records, mu = 1 / noise_multiplier, for any data.
Risk: a bound in expectation that is known before public or private records are read, if the public
records are of the same population. Reference: [Gan22] Theorems 76 and 83, with explicit constants;
docs/explanation/public-data.md, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpfit.core import Minimize, Plan, Requirement, Risk, State
from dpfit.core.algorithm import CONVEX
from dpfit.data.dataset import Dataset
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Squared
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer, option, positive
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.scales import gradient_bound
from dpfit.solvers.public_data.descent import (
    SMOOTH_MARGIN_LOSS,
    Floats,
    PublicDescent,
    PublicOptimizer,
    Setting,
    asked,
    with_public,
)
from dpfit.solvers.public_data.mirror_maps import LossMap, MirrorMap, QuadraticMap, ball_of
from dpfit.solvers.public_data.public_loss import PublicLoss
from dpfit.theory import mirror_descent as theory

STEP_SIZES = ("fixed", "falling")

WITHIN = 1.02
"""Steps that lower the bound by less than this factor are not worth their passes."""

_FLAT = 1e-9
"""The least curvature of the mirror map, as a fraction of the largest: the map must be strictly
convex for any public records."""


@dataclass(frozen=True)
class ScheduledMirror(PublicOptimizer):
    """Mirror steps from the minimizer of the public loss, on a schedule that was planned.

    The output is the mean of the points at which gradients were taken.

    Parameters
    ----------
    step_size : float
        The size of each step; if ``similarity`` is given, the first one.
    similarity : float, optional
        Sizes fall as 1 / (similarity * (t + delay)), t from 1.
    slope : float, optional
        Points stay where the public gradient is at most so long.
    """

    kind = "scheduled_mirror"
    omitted: ClassVar[tuple[str, ...]] = (*PublicOptimizer.omitted, "similarity", "slope")
    step_size: float = 1.0
    similarity: float | None = None
    slope: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("step_size", self.step_size)
        if self.similarity is not None:
            positive("similarity", self.similarity)

    def needs_public(self, problem: Minimize) -> int:
        return problem.public or 1

    def geometries(self, problem: Minimize, public: Any, curvatures: Floats) -> Any:
        raise ValueError(f"{self.kind} compares no geometries: its schedule is planned")

    def size(self, index: int) -> float:
        """Return the size of a step, counted from 0."""
        if self.similarity is None:
            return self.step_size
        # 1 / (c (1 + delay)) is the first size.
        return 1 / (1 / self.step_size + self.similarity * index)

    def setting(self, problem: Minimize, aggregate: ClippedMean, public: Dataset) -> Setting:
        """Return the map of the public loss, and its minimizer in the ball as start."""
        # Without a ridge public records may leave flat directions: the map is kept invertible.
        floor = 0.0 if problem.ridge else _FLAT * problem.bounds.row_norm**2
        psi = PublicLoss.of(problem, public, problem.ridge + floor)
        mirror = self._mirror(problem, psi)
        start = mirror.minimizer()
        clip_norm = gradient_bound(problem) if self.clip_norm is None else self.clip_norm
        _, sensitivity = aggregate.scale(asked(problem, start, clip_norm))
        noise = sensitivity * float(aggregate.multipliers[0]) / problem.n
        values, vectors = np.linalg.eigh(psi.hessian(start))

        def move(points: Floats, gradients: Floats) -> Floats:
            return mirror.step(points, gradients, self.step_size)

        return Setting(
            start, clip_norm, move, math.nan, math.nan, vectors, self.step_size * noise / values
        )

    def _mirror(self, problem: Minimize, psi: PublicLoss) -> MirrorMap:
        ball = ball_of(problem)
        if not problem.loss.is_quadratic:
            return LossMap(psi, ball)
        origin = np.zeros((1, problem.dimension))
        values, vectors = np.linalg.eigh(psi.hessian(origin[0]))
        lowest = -(psi.gradients(origin)[0] @ vectors / values) @ vectors.T
        return QuadraticMap(
            vectors, values, lowest, ball, math.inf if self.slope is None else self.slope
        )

    def tell(self, problem: Minimize, state: State, answer: Any) -> State:
        points, index = state["points"], state["step"]
        gradients = answer + problem.ridge_gradient(points)
        average = state["average"] + self.schedule.average_weights[index] * points
        # A step depends on the product of size and gradient only.
        points = state["setting"].move(points, gradients * (self.size(index) / self.step_size))
        return state | {"step": index + 1, "points": points, "average": average}

    def diagnostics(self, state: State) -> dict[str, Any]:
        return {}


PUBLIC_NUMBER = Requirement(
    "a known number of public records",
    "pass public, their number, in the problem; or use pda_dpmd, which does without",
    lambda problem, budget, options: bool(problem.public),
)
L2_BALL = Requirement(
    "a Euclidean ball as domain",
    "pass domain=L2Ball(...); or use pda_dpmd, which does without",
    lambda problem, budget, options: isinstance(problem.domain, L2Ball),
)


class PublicMirrorDescent(PublicDescent):
    """Mirror descent with the public loss as mirror map, on the schedule of a proven risk bound.

    Use it where the risk must be known before the public records are read; `pda_dpmd` takes its
    settings from them and is more accurate. Guarantee: mu-GDP for all iterates together with
    respect to the private records. Reference: [Gan22] Theorems 76 and 83 with explicit constants.
    Work: ``steps`` passes over the data, or fewer.

    Parameters
    ----------
    steps : int
        Largest number of steps.
    step_sizes : {"fixed", "falling"}
        Fixed steps suit convex losses. Falling steps suit the squared loss: the bound then needs no
        distance to the start.
    curvatures : array, optional
        Lower bounds of the eigenvalues of the Hessian of the public loss, without the ridge, one
        for each feature. They are declared, and accuracy alone depends on them. By default 0.
    gradient_deviation : float, optional
        Root of the mean squared distance of a public gradient from its mean, at the population's
        minimizer. By default the Lipschitz constant.
    similarity : float
        Private curvature over public curvature is between this and its inverse in all directions;
        for falling steps.
    failure : float
        Falling steps stay where public gradients are no longer than they are at the population's
        minimizer, up to this probability.

    Examples
    --------
    >>> from dpfit.losses import Logistic
    >>> problem = Minimize(
    ...     n=10_000,
    ...     loss=Logistic(),
    ...     bounds=Bounds(1.0),
    ...     n_features=20,
    ...     ridge=0.1,
    ...     domain=L2Ball(20, 2.0),
    ...     public=1000,
    ... )
    >>> plan = public_mirror_descent.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    >>> round(plan.risk.expected, 4), round(plan.risk.baseline, 3)
    (0.0174, 0.301)
    """

    name = "public_mirror_descent"
    summary = "mirror descent with a public mirror map, on the schedule of a proven risk bound"
    reference = "[Gan22] Theorems 76 and 83, corrected"
    requires = (CONVEX, SMOOTH_MARGIN_LOSS, L2_BALL, PUBLIC_NUMBER)
    supports = frozenset({"ridge", "domain"})
    tier = "specialised"

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        steps: int = 300,
        step_sizes: str = "fixed",
        curvatures: npt.ArrayLike | None = None,
        gradient_deviation: float | None = None,
        similarity: float = 0.25,
        failure: float = 0.01,
    ) -> Plan:
        """Return mirror descent with the least risk bound in at most ``steps`` steps."""
        integer("steps", steps)
        option("step_sizes", step_sizes, STEP_SIZES)
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        bound = RiskBound(
            problem, budget.relation, multiplier, _curvatures(problem, curvatures),
            gradient_bound(problem) if gradient_deviation is None else gradient_deviation,
        )  # fmt: skip
        if step_sizes == "fixed":
            return with_public(bound.fixed(steps), budget)
        if not problem.loss.is_quadratic:
            raise ValueError(
                f"falling steps need the squared loss, got {problem.loss.kind!r}; "
                "use step_sizes='fixed'"
            )
        if not 0 < similarity <= 1:
            raise ValueError(f"similarity must lie in (0, 1], got {similarity!r}")
        return with_public(bound.falling(steps, similarity, failure), budget)

    def example(self, relation: str) -> Any:
        """Return the records of the base for the squared loss, whose steps are quick."""
        base = super().example(relation)
        bounds = Bounds(base.problem.bounds.row_norm, -1.0, 1.0)
        problem = replace(
            base.problem, loss=Squared(), bounds=bounds, domain=L2Ball(2, 1.0), ridge=0.5, public=24
        )
        return base._replace(problem=problem)


@dataclass(frozen=True, eq=False)
class RiskBound:
    """Descents with their risk bounds, by public facts: curvatures h and gradient deviation V."""

    problem: Minimize
    relation: str
    noise_multiplier: float
    curvatures: Floats
    gradient_deviation: float

    @property
    def lipschitz(self) -> float:
        """Of the private objective, ridge included."""
        return gradient_bound(self.problem) + self._ridge_slope

    @property
    def _ridge_slope(self) -> float:
        return self.problem.ridge * (self.problem.radius or 0.0)

    @property
    def start(self) -> float:
        """The divergence from the public start to the population's minimizer."""
        public = self.problem.public or 1
        return theory.start_divergence(self.gradient_deviation, self.curvatures, public)

    def aggregate(self, steps: int) -> ClippedMean:
        """Return the noisy means of so many steps."""
        return ClippedMean(
            self.problem.n, self.noise_multiplier, steps, self.relation, schedule=Schedule(steps)
        )

    def drift(self, steps: int) -> float:
        """Return the mean squared dual norm of the noisy gradients of so many steps."""
        mean, problem = self.aggregate(steps), self.problem
        _, sensitivity = mean.scale(asked(problem, problem.origin, gradient_bound(problem)))
        deviation = sensitivity * float(mean.multipliers[0]) / problem.n
        return theory.drift(self.lipschitz, deviation, self.curvatures)

    def fixed(self, steps: int) -> Descent:
        """Return descent in fixed steps, in as many of ``steps`` as help."""

        def size(number: int) -> float:
            return theory.best_step_size(number, self.start, self.drift(number))

        def risk(number: int) -> float:
            drift = self.drift(number)
            return theory.fixed_step_bound(number, size(number), self.start, drift)

        best = _enough(risk, steps)
        moved = self.gradient_deviation / math.sqrt(self.problem.public or 1)
        alone = self.lipschitz * moved / float(self.curvatures.min())
        return self._descent(ScheduledMirror(Schedule(best), None, size(best)), risk(best), alone)

    def falling(self, steps: int, similarity: float, failure: float) -> Descent:
        """Return descent in falling steps, in as many of ``steps`` as help."""
        # The first step is the longest that overshoots in no direction.
        delay = 1 / similarity**2 - 1

        def risk(number: int) -> float:
            return theory.falling_step_bound(
                number, similarity, delay, self.start, self.drift(number)
            )

        best = _enough(risk, steps)
        slope = theory.trusted_slope(
            gradient_bound(self.problem), self.problem.public or 1, failure, self._ridge_slope
        )
        moves = ScheduledMirror(Schedule(best), None, similarity, similarity, slope)
        return self._descent(moves, risk(best), self.start / similarity)

    def _descent(self, moves: ScheduledMirror, risk: float, alone: float) -> Descent:
        meaning = (
            "excess regularized empirical risk over the population's minimizer (bound in "
            "expectation, for public records of the same population)"
        )
        mean = self.aggregate(moves.schedule.steps)
        return Descent(self.problem, mean, moves, Risk(risk, meaning, baseline=alone))


def _enough(risk: Callable[[int], float], steps: int) -> int:
    """Return the least power of two, or ``steps``, whose risk is within 2% of the least."""
    numbers = [*(1 << j for j in range(steps.bit_length())), steps]
    most = WITHIN * min(risk(number) for number in numbers)
    return next(number for number in numbers if risk(number) <= most)


def _curvatures(problem: Minimize, given: npt.ArrayLike | None) -> Floats:
    """Return the declared curvatures plus the ridge."""
    d = problem.dimension
    declared = np.zeros(d) if given is None else np.asarray(given, dtype=np.float64)
    if declared.shape != (d,) or not np.isfinite(declared).all() or (declared < 0).any():
        raise ValueError(f"curvatures must be {d} finite numbers of at least 0")
    if not (declared + problem.ridge > 0).all():
        raise ValueError(
            "the public loss needs strong convexity; pass ridge, or declare positive curvatures"
        )
    return np.asarray(declared + problem.ridge)


public_mirror_descent = PublicMirrorDescent()

"""Noisy descent that starts at a public fit and takes its settings from public records.

Guarantee: mu-GDP for all iterates together with respect to the private records, mu = 1 /
noise_multiplier, for any loss, any private and any public data: gradients of private records are
clipped, the rest is public or post-processing. Reference: [Gan22] Theorem 74, whose variance is
replaced by the exact one; docs/explanation/public-data.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Minimize, Plan, Requirement, State
from dpfit.core.examples import opposite_records
from dpfit.core.notes import LeftOut, Tuning
from dpfit.data.dataset import Dataset, InMemory
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy import Assumption, Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer, positive
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.optimizer import Optimizer
from dpfit.solvers.descents.rule import tune_descent
from dpfit.solvers.descents.scales import gradient_bound
from dpfit.solvers.public_data.survey import Clipping, Survey

Floats = NDArray[np.float64]
Move = Callable[[Floats, Floats], Floats]
"""From points and noisy gradients of the objective to the next points, all of shape (k, d)."""


@dataclass(frozen=True)
class PublicTuning(Tuning):
    """Tuned numbers of descents with public records.

    Parameters
    ----------
    steps : int
        Steps by default: they cost passes, not privacy.
    averaged : float
        Fraction of the iterates that the output averages.
    records_per_dimension : float
        With fewer public records for each parameter their fit may be worse than none, and they are
        not looked at.
    quantiles : tuple of float
        Fractions of public gradients within the clipping norms that are compared.
    """

    kind = "public_tuning"
    set_by: str = "benchmarks/public_data.py"
    steps: int = 50
    averaged: float = 0.6
    records_per_dimension: float = 1.5
    quantiles: tuple[float, ...] = (0.3, 0.5, 0.7, 0.85, 0.95, 1.0)


TUNING = PublicTuning()

FRACTIONS = 2.0 ** -np.arange(0.0, 14.0)
"""Step sizes, as fractions of the longest one."""

SMOOTH_MARGIN_LOSS = Requirement(
    "a smooth generalized linear loss",
    "use Huber or SmoothedHinge, or noisy_gd",
    lambda problem, budget, options: (
        problem.loss.is_glm and problem.constants(budget.relation).smooth
    ),
)


@dataclass(frozen=True, eq=False)
class Geometry:
    """How points move, and its effect along a survey's eigenvectors, per unit step size.

    One step multiplies the distance to the private minimizer by 1 - ``rates``, pulls back to the
    public one by ``pulls`` and adds ``gains`` times the noise of the gradient. The longest step
    goes the fraction ``longest`` of the way to the minimum along the eigenvector of the highest
    rate.
    """

    rates: Floats
    gains: Floats
    pulls: Floats
    mover: Callable[[float], Move]
    longest: float = 1.0


@dataclass(frozen=True, eq=False)
class Setting:
    """Decisions from public records: start, clipping, geometry, and their predicted risk.

    ``risk`` is the excess risk that is predicted for the release, ``public_risk`` for the public
    fit alone. A step has noise of standard deviations ``spreads`` along the columns of ``vectors``,
    for short steps exactly if the mirror map is quadratic.
    """

    start: Floats
    clip_norm: float
    move: Move
    risk: float
    public_risk: float
    vectors: Floats
    spreads: Floats

    def noise_profile(self, directions: Floats | None = None) -> Floats:
        """Return how far noise moves a step along directions (rows), in the mean: E abs(<., v>).

        By default the directions are ``vectors``. It reads public records only, so it is free:
        look at it before budget is spent. Reference: [Gan22] Theorem 81.
        """
        along = self.vectors.T if directions is None else np.atleast_2d(directions)
        spread = np.linalg.norm((along @ self.vectors) * self.spreads, axis=1)
        return np.asarray(math.sqrt(2 / math.pi) * spread)


@dataclass(frozen=True)
class PublicOptimizer(Optimizer):
    """Moves that public records set.

    Parameters
    ----------
    clip_norm : float, optional
        Bound on gradients of private records. By default the public records decide.
    """

    omitted: ClassVar[tuple[str, ...]] = ("clip_norm",)
    stacks: ClassVar[bool] = True
    resumable: ClassVar[bool] = False
    schedule: Schedule
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            positive("clip_norm", self.clip_norm)

    def check(self, problem: Minimize, aggregate: Aggregate) -> None:
        if not problem.loss.is_glm:
            raise ValueError(
                f"{self.kind} needs a generalized linear loss, got {problem.loss.kind!r}"
            )
        if not isinstance(aggregate, ClippedMean) or aggregate.schedule != self.schedule:
            raise ValueError("aggregate and optimizer must have the same schedule")

    def needs_public(self, problem: Minimize) -> int:
        return math.ceil(TUNING.records_per_dimension * problem.dimension)

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        if self.clip_norm is not None:
            return (self.clip_norm,)
        return tuple(bound for bound in _clip_range(problem) if math.isfinite(bound))

    @abstractmethod
    def geometries(
        self, problem: Minimize, public: Survey, curvatures: Floats
    ) -> Iterator[Geometry]:
        """Return the geometries worth predicting, given the clipped objective's curvatures."""

    def setting(self, problem: Minimize, aggregate: ClippedMean, public: Dataset) -> Setting:
        """Return clip, geometry and step size of least predicted risk, by public records only."""
        found = Survey.of(problem, public)
        best: tuple[float, float, Geometry, float, float] | None = None
        full, weights = found.curvatures + problem.ridge, self.schedule.average_weights
        for clip_norm in self._clips(problem, found.norms):
            _, sensitivity = aggregate.scale(asked(problem, found.point, clip_norm))
            clipping, noise = (
                found.clipped(clip_norm),
                sensitivity * float(aggregate.multipliers[0]) / problem.n,
            )
            for geometry in self.geometries(
                problem, found, clipping.shares * found.curvatures + problem.ridge
            ):
                sizes = geometry.longest * FRACTIONS / geometry.rates.max()
                risks = predicted_risks(
                    full, found.variances, clipping, geometry, sizes, noise, weights
                )
                least = int(np.argmin(risks))
                if best is None or risks[least] < best[0]:
                    best = float(risks[least]), clip_norm, geometry, float(sizes[least]), noise
        if best is None:
            raise ValueError("there is no geometry to move in")
        risk, clip_norm, geometry, size, noise = best
        public_risk = 0.5 * float((full * found.variances).sum())
        return Setting(
            problem.project(found.point), clip_norm, geometry.mover(size), risk, public_risk,
            found.vectors, size * noise * geometry.gains,
        )  # fmt: skip

    def _clips(self, problem: Minimize, norms: Floats) -> set[float]:
        """The clipping norms to compare."""
        if self.clip_norm is not None:
            return {self.clip_norm}
        least, most = _clip_range(problem)
        return {min(max(float(norm), least), most) for norm in np.quantile(norms, TUNING.quantiles)}

    def init(self, problem: Minimize, aggregate: Aggregate, public: Dataset | None) -> State:
        if public is None or not isinstance(aggregate, ClippedMean):
            raise ValueError(
                f"{self.kind} needs public records and a clipped mean; pass public records with "
                "the data"
            )
        setting = self.setting(problem, aggregate, public)
        point = setting.start[np.newaxis]
        # The ridge and the domain are no part of the sums: `tell` acts on them.
        free = replace(problem, ridge=0.0, domain=None)
        return {
            "step": 0,
            "setting": setting,
            "free": free,
            "points": point,
            "average": np.zeros_like(point),
        }

    def ask(self, problem: Minimize, state: State) -> Gradient:
        return Gradient(state["free"], state["points"], state["setting"].clip_norm)

    def tell(self, problem: Minimize, state: State, answer: Any) -> State:
        points, index = state["points"], state["step"]
        points = state["setting"].move(points, answer + problem.ridge_gradient(points))
        average = state["average"] + self.schedule.average_weights[index] * points
        return state | {"step": index + 1, "points": points, "average": average}

    def stack(self, state: State, count: int) -> State:
        return super().stack(state, count) | {"stacked": True}

    def result(self, problem: Minimize, state: State) -> Floats:
        weights = self.schedule.average_weights[state["step"] :]
        average: Floats = (
            state["average"] + weights.sum() * state["points"] if len(weights) else state["average"]
        )
        return average if "stacked" in state else average[0]

    def diagnostics(self, state: State) -> dict[str, Any]:
        setting = state["setting"]
        return {"predicted_risk": {"release": setting.risk, "public fit": setting.public_risk}}


def _clip_range(problem: Minimize) -> tuple[float, float]:
    """Smallest and largest clip norm; kept from zero, since public fits may have no errors."""
    return 1e-6 * problem.bounds.row_norm, gradient_bound(problem)


def asked(problem: Minimize, point: Floats, clip_norm: float) -> Gradient:
    return Gradient(replace(problem, ridge=0.0, domain=None), point, clip_norm)


def predicted_risks(
    curvatures: Floats,
    variances: Floats,
    clipping: Clipping,
    geometry: Geometry,
    sizes: Floats,
    noise: float,
    weights: Floats,
) -> Floats:
    """Return the predicted excess risk of the average with these weights, for each step size.

    Along every eigenvector the iterates follow a scalar linear recursion, whose mean and variance
    are exact if the private loss is quadratic with the curvatures of the survey ([Gan22] Theorem 81
    for one step).
    """
    rates, gains, pulls = (
        np.outer(sizes, part) for part in (geometry.rates, geometry.gains, geometry.pulls)
    )
    left, kept = np.ones_like(rates), np.zeros_like(rates)
    influence, collected, drifted = (np.zeros_like(rates) for _ in range(3))
    for weight in weights:
        left = (1 - rates) * left + pulls
        kept += weight * left
    for weight in weights[::-1]:
        # How much of what one step adds is in the average, from the last step to the first.
        influence = weight + (1 - rates) * influence
        collected += influence**2
        drifted += influence
    squares = (
        variances * kept**2
        + (noise * gains) ** 2 * collected
        + (clipping.shifts * gains * drifted) ** 2
    )
    return np.asarray(0.5 * squares @ curvatures)


class PublicDescent(Algorithm[Minimize]):
    """Base of descents whose optimizer reads public records."""

    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    tunings: ClassVar[tuple[Tuning, ...]] = (TUNING,)

    def _public_plan(
        self,
        problem: Minimize,
        budget: Budget,
        optimizer: Callable[[Schedule, float | None], PublicOptimizer],
        *,
        steps: int,
        clip_norm: float | None,
    ) -> Plan:
        """Return the plan of a descent whose optimizer reads public records.

        Without public records, or with too few, `noisy_gd` takes as many steps. Where the problem
        declares their number, the plan is one or the other. A loss without a gradient bound needs
        ``clip_norm`` for this fallback.
        """
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        schedule = Schedule(integer("steps", steps), average=TUNING.averaged)
        moves = optimizer(schedule, clip_norm)
        aggregate = ClippedMean(problem.n, multiplier, steps, budget.relation, schedule=schedule)
        descent = Descent(problem, aggregate, moves)
        if problem.public is not None and problem.public >= moves.needs_public(problem):
            return with_public(descent, budget)
        if clip_norm is None and not math.isfinite(gradient_bound(problem)):
            if problem.public is not None:
                raise ValueError(
                    f"{moves.kind} needs at least {moves.needs_public(problem)} public records "
                    "with this loss, got "
                    f"{problem.public}; add public records, or pass clip_norm"
                )
            return with_public(descent, budget)
        plain = tune_descent(
            problem, budget.relation, multiplier, max_passes=steps, clip_norm=clip_norm
        )
        if problem.public is not None:
            why = (
                f"{moves.kind}: {problem.public} public records are fewer than "
                f"{moves.needs_public(problem)}"
            )
            return trajectory_step(plain, budget).with_notes(LeftOut(why))
        return with_public(replace(descent, fallback=plain), budget)

    def example(self, relation: str) -> Example:
        """Return records with opposite gradients, and the same 24 public records on both sides."""
        problem, data, neighbour = opposite_records(relation)
        rows = np.tile([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]], (8, 1))
        public = InMemory(rows, np.where(np.arange(24) % 5 < 3, 1.0, -1.0))
        return Example(problem, replace(data, public=public), replace(neighbour, public=public))


def with_public(descent: Descent, budget: Budget) -> Plan:
    text = "the public records are of nobody among the private ones; they are not protected"
    return trajectory_step(descent, budget, Assumption(text, "declared"))

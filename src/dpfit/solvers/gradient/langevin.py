"""Noisy descent with the optimal noise schedule and a proven bound on its risk.

Guarantee: mu-GDP for all iterates together, as `noisy_gd`. Risk: at most the plan's, in expectation
over the noise (and over the records, for the population objective), for every convex smooth loss
and bounded domain. Reference: [LD] Theorems F.1, F.2, F.4, F.5; their last-iterate proof and their
schedule are replaced (docs/errata.md).

With strong convexity m (the ridge), step k has weight w_k = (1 - step_size * m)**-(k + 1) in the
average, and noise whose inverse variance grows like the root of w_k. Among all schedules of the
same privacy this has the least noise in the average. The bound is the sum of what is left of the
start and the noise,

    radius**2 / (2 step sum(w)) + step d noise**2 sum(sqrt w)**2 / (2 (1 - step M) sum(w)),

and, for the population, what one record can change on average: lipschitz * (2 lipschitz / (m n)) (1
- steps / sum(w)). A kink is smoothed by a Gaussian of the margin whose width has the least bound: M
is then the kink's jump over width sqrt(2 pi), and the loss differs by at most jump width / sqrt(2
pi), in any dimension. The bound is for the loss with the kink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpfit.core import Algorithm, Example, Forecast, Minimize, Plan, Requirement, Risk, Tuning, Work
from dpfit.core.algorithm import BOUNDED, BOUNDED_DOMAIN, SMOOTH
from dpfit.core.examples import opposite_records
from dpfit.geometry import L2Ball
from dpfit.losses.smoothed import GaussianSmoothed
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer, positive
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.momentum import Momentum, momentum_descent
from dpfit.solvers.descents.predicted import predicted_risk
from dpfit.solvers.descents.scales import TUNING as SCALES
from dpfit.theory.stability import descent_average_distance

_FORGOTTEN = 40.0
"""The logarithm by which the weight of the last step is above that of the first, at most: all is
forgotten by then.
"""


@dataclass(frozen=True)
class LangevinTuning(Tuning):
    """Factor on the predicted risk, with which `auto` compares it.

    Reference designs have their optimum inside the domain. Where it is on the boundary, a descent
    this short misses more than they say, most where it seems to gain.
    """

    kind = "langevin_tuning"
    set_by: str = "benchmarks/bounded.py"
    margin: float = 2.2


TUNING = LangevinTuning()

_SMOOTH_OR_KINK = Requirement(
    "a smooth loss, or one with a single kink (hinge, absolute, pinball)",
    SMOOTH.hint,
    lambda problem, budget, options: (
        SMOOTH.holds(problem, budget, options) or getattr(problem.loss, "kink", 0.0) > 0
    ),
)


class _Choice(NamedTuple):
    """A number of steps, a step size, the width that smooths a kink, and the bound they have."""

    bound: float
    steps: int
    step_size: float
    width: float = 0.0


def risk_bound(descent: Descent) -> float:
    """Return the proven bound on the expected excess risk of the weighted average.

    If the loss is `GaussianSmoothed`, the excess is that of the loss with the kink.
    """
    problem, moves = descent.problem, descent.optimizer
    if not isinstance(moves, Momentum):
        raise ValueError(f"the bound is for gradient steps, got {moves.kind!r}")
    schedule, curvature = moves.schedule, problem.constants("add_remove").smoothness + problem.ridge
    if (
        problem.region is None
        or not moves.step_size * curvature < 1
        or schedule.momentum
        or schedule.average != 1.0
    ):
        raise ValueError(
            "the bound is for bounded domains, steps below 1 / smoothness, the full average, no "
            "momentum"
        )
    left, heat = _terms(problem, _noise(descent), schedule.steps, moves.step_size, schedule.growth)
    return left + heat / (1 - moves.step_size * curvature) + getattr(problem.loss, "gap", 0.0)


def _noise(descent: Descent) -> float:
    """Noise standard deviation of a mean gradient by direction, as if for one release."""
    aggregate, (clip_norm,) = descent.clipped_mean, descent.optimizer.bounds(descent.problem)
    return (
        aggregate.noise_multiplier
        * aggregate.scale(descent.asked(clip_norm))[1]
        / descent.problem.n
    )


def _terms(
    problem: Minimize, noise: float, steps: int, step_size: float, growth: float
) -> tuple[float, float]:
    """Return the bound's terms: of the start, and for the population of the sample; of the noise.

    The last one is for steps so short that curvature does not matter.
    """
    constants = problem.constants("add_remove")
    # Sums relative to the last weight: the first ones may be too small for a double, never the
    # last.
    decay = math.log1p(-growth) * np.arange(steps)
    weights, roots = float(np.exp(decay).sum()), float(np.exp(decay / 2).sum())
    last = math.exp(min(-math.log1p(-growth) * steps, 700.0))
    left = _radius(problem) ** 2 / (2 * step_size * weights * last)
    if problem.objective == "population":
        change = 2 * constants.lipschitz / problem.n
        left += constants.lipschitz * descent_average_distance(
            steps, step_size, change, problem.ridge
        )
    return left, step_size * problem.dimension * noise**2 * roots**2 / (2 * weights)


def _radius(problem: Minimize) -> float:
    """How far the optimum can be from the public start."""
    if problem.region is None:
        return math.inf
    if problem.start is None:
        return problem.region.radius()
    return problem.region.diameter()


class Langevin(Algorithm[Minimize]):
    """Noisy descent whose expected excess risk has a proven bound.

    Use it where a bound for all data matters more than the error on typical data; otherwise
    `noisy_gd`. `auto` considers it on bounded domains, with the step size of least predicted risk.
    Guarantee: mu-GDP for all iterates together, mu = 1 / noise_multiplier.
    Reference: [LD] Theorems F.1, F.2, F.4, F.5, corrected (docs/errata.md).
    Work: the fewest passes whose bound is within one percent of the best for ``max_passes``.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Logistic
    >>> ball = L2Ball(20, 1.0)
    >>> problem = Minimize(
    ...     n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20, domain=ball
    ... )
    >>> plan = langevin.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> 2.1e-3 < plan.risk.expected < 2.3e-3, plan.risk.proven
    (True, True)
    """

    name = "langevin"
    summary = "noisy descent with the optimal schedule and a proven bound on its risk"
    reference = "[LD] Theorems F.1, F.2, F.4, F.5, corrected"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (BOUNDED_DOMAIN, _SMOOTH_OR_KINK, BOUNDED)
    supports = frozenset({"ridge", "domain", "trust_ball", "population"})
    tier = "reference"
    auto_candidate = True
    tunings = (TUNING, SCALES)

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        max_passes: int = 1000,
        step_size: float | None = None,
    ) -> Plan:
        """Return the fewest steps with a bound within 1% of the best for ``max_passes``.

        With ``step_size`` there are ``max_passes`` steps of this size, and their bound.
        """
        integer("max_passes", max_passes)
        constants, multiplier = (
            problem.constants(budget.relation),
            calibrate(Gaussian, budget).noise_multiplier,
        )

        # Looks up the problem when called: a kink is smoothed by then.
        def descent(steps: int, step_size: float) -> Descent:
            schedule = Schedule(steps, growth=step_size * problem.ridge)
            return momentum_descent(
                problem, budget.relation, multiplier, step_size, constants.lipschitz, schedule
            )

        noise = _noise(descent(1, 0.5 * _longest(problem)))
        if step_size is None:
            chosen = _least_bound(problem, noise, max_passes)
        else:
            if not positive("step_size", step_size) < _longest(problem):
                raise ValueError(
                    f"step_size must be below {_longest(problem):g}, got {step_size!r}"
                )
            chosen = _choice(problem, noise, max_passes, step_size)
        kind = (
            "excess empirical risk"
            if problem.objective == "empirical"
            else "excess population risk"
        )
        # The proof is for convex losses; for others the bound is an estimate.
        convex = problem.loss.convex
        predicted = Risk(chosen.bound, f"{kind} (proven bound)" if convex else kind, proven=convex)
        if chosen.width:
            smooth = GaussianSmoothed(problem.loss, chosen.width)  # type: ignore[arg-type]
            problem = replace(problem, loss=smooth)
        found = descent(chosen.steps, chosen.step_size)
        return trajectory_step(replace(found, predicted=predicted), budget)

    def is_candidate(self, problem: Minimize) -> bool:
        """Whether `auto` considers it: predictions are for the empirical risk of smooth losses."""
        smooth = BOUNDED_DOMAIN.holds(problem, Budget(mu=1.0), {}) and problem.loss.reads_labels
        return (
            smooth
            and problem.objective == "empirical"
            and problem.constants("add_remove").smooth
            and not problem.facts - self.supports
        )

    def forecast(self, problem: Minimize, budget: Budget, **options: Any) -> Forecast:
        """Return the step size with the least predicted risk, in place of the least bound."""
        self.require(problem, budget, options)
        steps = integer("max_passes", options.get("max_passes", 300))
        constants = problem.constants(budget.relation)
        multiplier = calibrate(Gaussian, budget).noise_multiplier

        def risk(step_size: float) -> Risk:
            schedule = Schedule(steps, growth=step_size * problem.ridge)
            return predicted_risk(
                momentum_descent(
                    problem, budget.relation, multiplier, step_size, constants.lipschitz, schedule
                )
            )

        sizes = 0.9 * _longest(problem) * 2.0 ** -np.arange(0, 8)
        sizes = sizes[-steps * np.log1p(-sizes * problem.ridge) <= _FORGOTTEN]
        found = [risk(size) for size in sizes.tolist()]
        best = min(range(len(found)), key=lambda index: found[index].expected)
        work = Work(gradients=float(steps) * problem.n, passes=float(steps))
        chosen = {"max_passes": steps, "step_size": float(sizes[best])}
        doubtful = replace(found[best], expected=TUNING.margin * found[best].expected)
        return Forecast(doubtful, work, chosen)

    def example(self, relation: str) -> Example:
        """Return the records of `noisy_gd`, in a ball."""
        problem, data, neighbour = opposite_records(relation)
        return Example(replace(problem, domain=L2Ball(2, 1.0)), data, neighbour)


def _least_bound(problem: Minimize, noise: float, max_passes: int) -> _Choice:
    """The fewest steps with a bound within one percent of the best."""
    counts = {round(2 ** (j / 8)) for j in range(8 * max_passes.bit_length())} | {max_passes}
    longest = _longest(problem)
    best = [
        _best_step(problem, noise, steps, longest)
        for steps in sorted(counts)
        if steps <= max_passes
    ]
    least = min(choice.bound for choice in best)
    return next(choice for choice in best if choice.bound <= 1.01 * least)


def _best_step(problem: Minimize, noise: float, steps: int, longest: float) -> _Choice:
    """The step size with the least bound for a number of steps."""
    best = _Choice(math.inf, steps, 0.5 * longest)
    for share in 0.75 * 2.0 ** (-np.arange(0, 48) / 4):
        size = float(share * longest)
        if steps * -math.log1p(-size * problem.ridge) > _FORGOTTEN:
            # more steps bring nothing, and the first ones would have noise that no grid can hold
            continue
        choice = _choice(problem, noise, steps, size)
        if choice.bound < best.bound:
            best = choice
    return best


def _choice(problem: Minimize, noise: float, steps: int, step_size: float) -> _Choice:
    """A number of steps of a size, with their bound."""
    left, heat = _terms(problem, noise, steps, step_size, step_size * problem.ridge)
    bound, width = _curved(problem, step_size, heat)
    return _Choice(left + bound, steps, step_size, width)


def _curved(problem: Minimize, step_size: float, heat: float) -> tuple[float, float]:
    """Return what the noise adds with curvature, and the width that a kink is smoothed by.

    A kink of a width w has curvature bent / w and costs gap w; the best w balances the two.
    """
    slack, constants = 1 - step_size * problem.ridge, problem.constants("add_remove")
    if constants.smooth:
        return heat / (slack - step_size * constants.smoothness), 0.0
    one = GaussianSmoothed(problem.loss, 1.0)  # type: ignore[arg-type]
    bent, gap = step_size * one.curvature(problem.bounds)[1].value, one.gap
    width = (bent + math.sqrt(bent * heat / gap)) / slack
    return heat / (slack - bent / width) + gap * width, width


def _longest(problem: Minimize) -> float:
    """Return a step size above all that are tried."""
    constants = problem.constants("add_remove")
    if constants.smooth:
        return 1 / (constants.smoothness + problem.ridge)
    # A step across the domain at the largest slope.
    across = 2 * _radius(problem) / constants.lipschitz
    return min(across, 1 / problem.ridge) if problem.ridge else across


langevin = Langevin()

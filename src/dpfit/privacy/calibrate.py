"""Calibrate noise to a budget: one safeguarded secant search on log-noise for any event."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, overload

from dpfit.privacy import accountant, gaussian
from dpfit.privacy.budget import NEVER_PURE, Budget, BudgetUnreachable
from dpfit.privacy.cost import CostUndefined, decimal, privacy_cost
from dpfit.privacy.event import Event

__all__ = ["FINE_TOLERANCE", "TOLERANCE", "AtLevel", "BudgetUnreachable", "calibrate"]

TOLERANCE = 1e-4
"""Relative width of the final bracket: the noise returned is at most this much above the smallest.
"""

FINE_TOLERANCE = 1e-12
"""The same where accounting is a closed form: pure, GDP and zCDP budgets, and events that need no
grid.
"""

_WIDEST = math.log(1e12)


class HasEvent(Protocol):
    """A mechanism, a step or a plan."""

    @property
    def event(self) -> Event:
        """What is done to the data."""


class AtLevel(NamedTuple):
    """An event and its noise level.

    A search passes through levels at which some mechanisms refuse to exist, for example because no
    grid holds their noise. Such a mechanism is made once, at the level that was found for its
    event.
    """

    event: Event
    level: float


T = TypeVar("T", bound=Event | HasEvent)
E = TypeVar("E", bound=Event)


@overload
def calibrate(
    make: Callable[[float], T], budget: Budget, *, first_guess: float | None = None
) -> T: ...


@overload
def calibrate(make: E, budget: Budget, *, first_guess: float | None = None) -> E: ...


def calibrate(
    make: Callable[[float], Event | HasEvent] | Event,
    budget: Budget,
    *,
    first_guess: float | None = None,
) -> Event | HasEvent:
    """What ``make`` returns at the smallest noise level that meets ``budget``.

    ``make`` turns a noise level into an event, or into a mechanism, step or plan that has one. Its
    privacy loss must decrease with the level. A class such as ``Gaussian`` will do. ``make`` may
    also be an event: a template whose noise multipliers are all scaled by one factor, so that
    unequal stages keep their proportions.

    The result meets the budget when accounted again; a relative `TOLERANCE` less noise would not.
    ``make`` is called at each level tried, about ten times, so it must not search by itself: take
    `Budget.remaining_after` or `Budget.per_call` for what is inside, and plan it once. Where it
    checks more than its event, see `AtLevel`.

    >>> from dpfit.privacy.event import Composed, Gaussian
    >>> round(calibrate(Gaussian, Budget(epsilon=1, delta=1e-6)).noise_multiplier, 4)
    4.2247
    >>> stages = calibrate(Composed((Gaussian(1.0), Gaussian(2.0))), Budget(mu=0.5)).events
    >>> [round(stage.noise_multiplier, 4) for stage in stages]
    [2.2361, 4.4721]
    """
    made_at = make.scaled if isinstance(make, Event) else make
    tried: dict[float, Event | HasEvent] = {}

    def template(level: float) -> Event:
        if level not in tried:
            tried[level] = made_at(level)
        return _event(tried[level])

    def excess(log_level: float) -> float:
        return excess_at(math.exp(log_level))

    def excess_at(level: float) -> float:
        candidate = template(level)
        curve = accountant.privacy_curve(candidate, budget.relation)
        return budget.spent(curve, accountant.total_variation(candidate), smooth=True)

    start = _gaussian_guess(template, budget) if first_guess is None else math.log(first_guess)
    try:
        low, high = _bracket(excess, start)
    except BudgetUnreachable as error:
        if budget.kind == "pure" and excess(start) == math.inf:
            raise BudgetUnreachable(f"no noise meets this budget: {NEVER_PURE}") from None
        raise error
    on_a_grid = not accountant.privacy_curve(
        template(math.exp(high[0])), budget.relation
    ).closed_form
    tolerance = TOLERANCE if budget.kind == "approximate" and on_a_grid else FINE_TOLERANCE
    best = math.exp(_search(excess, low, high, tolerance))
    if budget.kind == "pure":

        def meets(level: float) -> bool:
            return excess_at(level) <= 0 and _costs_at_most(template(level), budget)

        best = _at_the_limit(meets, best * math.exp(excess_at(best)), best)
    template(best)
    return tried[best]


def _at_the_limit(meets: Callable[[float], bool], nearer: float, level: float) -> float:
    """Return a level that uses all of a pure budget but for the last digits, if there is one.

    Pure epsilons are inversely proportional to the noise. So totals of charges are what was asked.
    """
    candidates = (nearer * (1 + units * 2.0**-52) for units in (0, 1, 2, 4, 8))
    return next(filter(meets, candidates), level)


def _costs_at_most(event: Event, budget: Budget) -> bool:
    """Whether a ledger charges no more than the decimal number that was asked for.

    The double 0.1 is more than a tenth, and ten of them would not fit into a cap of 1.
    """
    try:
        cost = privacy_cost(event, budget.relation, "pure")
    except CostUndefined:
        return True
    return cost.amount <= decimal(float(budget.epsilon or 0.0))


def _event(made: Event | HasEvent) -> Event:
    return made if isinstance(made, Event) else made.event


Point = tuple[float, float]


def _gaussian_guess(template: Callable[[float], Event], budget: Budget) -> float:
    """Log of the noise at which a normal loss of equal spread meets an (epsilon, delta) budget."""
    if budget.kind != "approximate" or budget.epsilon is None or budget.delta is None:
        return 0.0
    target = gaussian.mu(budget.epsilon, budget.delta)
    if not target:
        return 0.0

    def excess(log_level: float) -> float:
        spread = accountant.privacy_curve(template(math.exp(log_level)), budget.relation).spread
        return math.log(spread / target**2) if spread > 0 else -math.inf

    try:
        return _search(excess, *_bracket(excess, 0.0), tolerance=0.01)
    except BudgetUnreachable:
        return 0.0


def _bracket(excess: Callable[[float], float], start: float) -> tuple[Point, Point]:
    """Two noise multipliers, below and above the budget's, by growing steps from the guess."""
    here = (start, excess(start))
    width = 0.5 if math.isinf(here[1]) else min(max(abs(here[1]) / 8, 0.05), 3.0)
    direction = 1.0 if here[1] > 0 else -1.0
    while True:
        level = min(max(here[0] + direction * width, start - _WIDEST), start + _WIDEST)
        if level == here[0]:
            if direction > 0:
                raise BudgetUnreachable(
                    "no noise meets this budget; raise it, or shorten the composition"
                )
            raise BudgetUnreachable(
                "this event meets the budget without noise, or with hardly any; there is nothing "
                "to calibrate, so lower the budget"
            )
        there = (level, excess(level))
        if (there[1] > 0) != (here[1] > 0):
            return (here, there) if direction > 0 else (there, here)
        # Steer by the local slope of log-loss in log-noise where there is one, at most sixfold
        # growth.
        slope = (there[1] - here[1]) / (there[0] - here[0])
        usable = math.isfinite(slope) and slope < 0
        width = min(max(abs(there[1] / slope) * 1.2, width / 4), 6 * width) if usable else 2 * width
        here = there


def _search(excess: Callable[[float], float], low: Point, high: Point, tolerance: float) -> float:
    """Illinois-type false position inside the bracket; returns the end that meets the budget."""
    weight_low, weight_high, last = 1.0, 1.0, 0
    while high[0] - low[0] > tolerance:
        f_low, f_high = low[1] * weight_low, high[1] * weight_high
        ratio = (
            f_low / (f_low - f_high)
            if math.isfinite(f_low) and math.isfinite(f_high) and f_low > f_high
            else 0.5
        )
        # A step just past the root closes the bracket from the other side next time.
        level = low[0] + min(max(ratio, 0.02), 0.98) * (high[0] - low[0])
        if abs(level - low[0]) < tolerance / 2 or abs(level - high[0]) < tolerance / 2:
            level = min(max(level, low[0] + tolerance / 2), high[0] - tolerance / 2)
        point = (level, excess(level))
        if point[1] > 0:
            low, weight_low, weight_high, last = (
                point,
                1.0,
                weight_high / 2 if last == 1 else 1.0,
                1,
            )
        else:
            high, weight_high, weight_low, last = (
                point,
                1.0,
                weight_low / 2 if last == -1 else 1.0,
                -1,
            )
    return high[0]

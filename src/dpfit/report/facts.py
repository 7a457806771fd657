"""What a page is about: a plan, its outputs, its accuracy; filled in by models or CLI."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from dpfit.core import Plan, Release
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import option, probability, real

if TYPE_CHECKING:
    from dpfit.models.linear import PrivateModel

SOURCES = ("predicted", "public data", "private score")
"""Where a figure of quality may come from. Scores on the private records themselves would be one
more release.
"""

ABOUT_INTERVALS = (
    "Each interval holds, with probability 95%, the number that the same fit would have released "
    "without noise. It covers privacy noise alone: it does not tell what a fit to other people "
    "would have given."
)
"""What the intervals of coefficients cover."""

_MOST_VALUES = 50


@dataclass(frozen=True)
class Estimate(Spec):
    """A released number: a coefficient, a mean, a count; with an interval if there is one.

    >>> Estimate("age", 0.8, 0.5, 1.1).interval
    (0.5, 1.1)
    """

    kind = "report_estimate"
    name: str
    value: float
    lower: float | None = None
    upper: float | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        finite("value", self.value)
        if (self.lower is None) != (self.upper is None):
            raise ValueError("an interval has both ends or none")
        if self.interval is not None and not finite("lower", self.interval[0]) <= finite(
            "upper", self.interval[1]
        ):
            raise ValueError("the ends of an interval must be in order")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, or None."""
        return (
            (self.lower, self.upper) if self.lower is not None and self.upper is not None else None
        )


@dataclass(frozen=True)
class Quality(Spec):
    """One figure of merit: what it is, its value, and which of `SOURCES` it comes from.

    >>> Quality("accuracy", 0.91, "training data")
    Traceback (most recent call last):
        ...
    ValueError: source must be one of 'predicted', 'public data', 'private score', got 'training
    data'
    """

    kind = "report_quality"
    name: str
    value: float
    source: str
    meaning: str = ""

    def __post_init__(self) -> None:
        finite("value", self.value)
        option("source", self.source, SOURCES)


class FactsOptions(TypedDict, total=False):
    """Fields of `Facts` that a release does not have."""

    summary: str
    estimates: tuple[Estimate, ...]
    called: str
    intervals: str
    quality: tuple[Quality, ...]
    delta: float
    date: str
    author: str


@dataclass(frozen=True)
class Facts(Spec):
    """Everything a page needs that is not in a ledger or an audit.

    ``summary`` says in a sentence or two what was released; ``estimates`` are the released numbers,
    ``called`` what one of them is, and ``intervals`` what their intervals cover. ``delta`` is where
    epsilon is quoted if the promise is not pure. ``private`` is False for a release with an RNG
    seed. ``date`` and ``author`` are shown as given.

    >>> from dpfit.privacy import Budget
    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.mean import BoundedMean, laplace_mean
    >>> plan = laplace_mean.plan(
    ...     Answer(n=100, workload=BoundedMean(0.0, 120.0)), Budget(epsilon=1.0)
    ... )
    >>> facts = Facts("Mean age", plan, estimates=(Estimate("mean age", 51.3, unit="years"),))
    >>> facts.private
    True
    """

    kind = "report_facts"
    title: str
    plan: Plan
    summary: str = ""
    estimates: tuple[Estimate, ...] = ()
    called: str = "value"
    intervals: str = ""
    quality: tuple[Quality, ...] = ()
    private: bool = True
    delta: float = 1e-6
    date: str = ""
    author: str = ""

    def __post_init__(self) -> None:
        Plan.require(self.plan)
        for name, kind in (("estimates", Estimate), ("quality", Quality)):
            values = getattr(self, name)
            if not isinstance(values, tuple) or not all(
                isinstance(value, kind) for value in values
            ):
                raise ValueError(f"{name} must be a tuple of {kind.__name__} values")
        if not 0 < probability("delta", self.delta) < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {self.delta!r}")

    @staticmethod
    def of(
        release: Release, title: str = "A private release", **more: Unpack[FactsOptions]
    ) -> Facts:
        """The facts of a release; its value is listed if it is a few numbers."""
        more.setdefault("estimates", _listed(release.value))
        return Facts(title, release.plan, private=release.private, **more)

    @staticmethod
    def of_model(model: PrivateModel, title: str = "", **more: Unpack[FactsOptions]) -> Facts:
        """The facts of a fitted model: its coefficients, with intervals where these are exact."""
        estimates = _coefficients(model)
        known: FactsOptions = {
            "estimates": estimates,
            "called": "coefficient",
            "intervals": ABOUT_INTERVALS if any(each.interval for each in estimates) else "",
            "delta": model.delta or 1e-6,
        }
        name, private = type(model).__name__, bool(model.private_)
        return Facts(title or f"A fitted {name}", model.plan_, private=private, **(known | more))


def _coefficients(model: PrivateModel) -> tuple[Estimate, ...]:
    """Coefficients by output and column; of columns that were chosen, if a solver chooses them."""
    summary, rows = model.summary(), len(model.summary().coefficients)
    lower = upper = np.full((len(summary.outputs), rows), np.nan)
    try:
        found = model.noise_interval()
    except AttributeError:
        pass  # The solver has no interval from public facts.
    else:
        if found.exact and rows:
            lower, upper = (
                np.column_stack([np.atleast_2d(coef), np.asarray(intercept).ravel()])[:, :rows]
                for coef, intercept in zip(found.coef, found.intercept, strict=True)
            )
    return tuple(
        Estimate(
            name if len(summary.outputs) == 1 else f"{output}: {name}",
            values[place],
            *(() if math.isnan(lower[place, row]) else (lower[place, row], upper[place, row])),
        )
        for place, output in enumerate(summary.outputs)
        for row, (name, values) in enumerate(summary.coefficients)
        if summary.chosen is None or name in summary.chosen or values[place]
    )


def finite(name: str, value: float) -> float:
    """A number that can be shown."""
    if not math.isfinite(real(name, value)):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return value


def _listed(value: object) -> tuple[Estimate, ...]:
    """A released value as named numbers; nothing if it is something else or too long to read."""
    try:
        numbers = np.asarray(value, dtype=np.float64).reshape(-1).tolist()
    except (TypeError, ValueError):
        return ()
    if not 0 < len(numbers) <= _MOST_VALUES or not all(map(math.isfinite, numbers)):
        return ()
    return tuple(
        Estimate("value" if len(numbers) == 1 else f"value {place}", each)
        for place, each in enumerate(numbers, 1)
    )

"""Events: what is done to the data, as immutable values to store and account again years later.

An event says which mechanisms run, at which noise multiplier (noise scale over sensitivity), on
which part of the data, at most how often. It says nothing about what that costs:
`dpfit.privacy.accountant` does. Kinds are never removed and never change their meaning, since
stored guarantees refer to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

from dpfit.privacy.spec import Json, Spec, from_json
from dpfit.privacy.validate import integer, non_negative, option, positive, probability, real

V = TypeVar("V")


@dataclass(frozen=True)
class Event(Spec):
    """Base of all events. Subclasses are frozen dataclasses of numbers, strings and events.

    A subclass that holds events names their one field in ``inside``; `parts`, `rebuilt` and `fold`
    follow from it.
    """

    inside: ClassVar[str] = ""

    @property
    def parts(self) -> tuple[Event, ...]:
        """The events directly inside this one; none for a leaf.

        >>> Repeated(Gaussian(2.0), 3).parts
        (Gaussian(noise_multiplier=2.0),)
        """
        held = getattr(self, self.inside) if self.inside else ()
        return held if isinstance(held, tuple) else (held,)

    def rebuilt(self, parts: Iterable[Event]) -> Self:
        """This event with other ``parts``, as many as it has; a leaf returns itself.

        >>> Repeated(Gaussian(2.0), 3).rebuilt([Pure(0.1)])
        Repeated(event=Pure(epsilon=0.1), times=3)
        """
        new = tuple(parts)
        if len(new) != len(self.parts):
            raise ValueError(
                f"an event of kind {self.kind!r} has {len(self.parts)} parts here, got {len(new)}"
            )
        if not new:
            return self
        several = isinstance(getattr(self, self.inside), tuple)
        return dataclasses.replace(self, **{self.inside: new if several else new[0]})

    def fold(self, combine: Callable[[Event, tuple[V, ...]], V]) -> V:
        """Apply ``combine`` from the leaves up: to each event and what it returned for the parts.

        >>> Composed((Gaussian(1.0), Repeated(Pure(0.1), 5))).fold(
        ...     lambda event, leaves: sum(leaves) or 1
        ... )
        2
        """
        return combine(self, tuple(part.fold(combine) for part in self.parts))

    def scaled(self, factor: float) -> Self:
        """The event with all noise multiplied by ``factor``; guarantees without noise are kept.

        >>> Repeated(Gaussian(2.0), 3).scaled(1.5)
        Repeated(event=Gaussian(noise_multiplier=3.0), times=3)
        """
        if hasattr(self, "noise_multiplier"):
            louder = {"noise_multiplier": self.noise_multiplier * factor}
            return dataclasses.replace(self, **louder)
        return self.rebuilt(part.scaled(factor) for part in self.parts)


def event_from_json(value: Json) -> Event:
    """The event that `Event.to_json` wrote.

    >>> event_from_json(Sampled(Gaussian(1.0), 0.01).to_json()) == Sampled(Gaussian(1.0), 0.01)
    True
    """
    return from_json(value, Event)


# Noise added to a value. The multiplier is noise scale over sensitivity in the norm named.


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise; multiplier = standard deviation / l2 sensitivity."""

    kind = "gaussian"
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class Laplace(Event):
    """Independent Laplace noise; multiplier = scale / l1 sensitivity."""

    kind = "laplace"
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class L2Laplace(Event):
    """Noise of density prop. to exp(-||x||_2 / scale); multiplier = scale / l2 sensitivity."""

    kind = "l2_laplace"
    noise_multiplier: float
    dimension: int

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        integer("dimension", self.dimension)


@dataclass(frozen=True)
class GeneralizedGaussian(Event):
    """Independent noise with density exp(-(|x|/scale)^shape) on each of ``dimension`` answers.

    The multiplier is scale / l-infinity sensitivity; shape 2 has variance scale^2 / 2.
    """

    kind = "generalized_gaussian"
    noise_multiplier: float
    shape: float
    dimension: int

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        if positive("shape", self.shape) < 1:
            raise ValueError(f"shape must be at least 1 (log-concave noise), got {self.shape!r}")
        integer("dimension", self.dimension)


@dataclass(frozen=True)
class DiscreteLaplace(Event):
    """Noise of mass exp(-|k|/scale) on the integers; multiplier = scale / l1 sensitivity."""

    kind = "discrete_laplace"
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class DiscreteGaussian(Event):
    """Noise of mass exp(-k^2/(2 sigma^2)) on the integers; multiplier = sigma / l2 sensitivity.

    It is zCDP as normal noise is, and GDP with a slightly larger mu.
    """

    kind = "discrete_gaussian"
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """One of ``categories`` values: the truth has odds exp(epsilon) to 1 against each other."""

    kind = "randomized_response"
    epsilon: float
    categories: int = 2

    def __post_init__(self) -> None:
        non_negative("epsilon", self.epsilon)
        integer("categories", self.categories, least=2)


@dataclass(frozen=True)
class ObjectivePerturbation(Event):
    """Minimizer of summed convex (generalized) linear losses, a quadratic and a random linear term.

    The random vector is normal, or of density proportional to exp(-||b||_2 / scale)
    (``noise="gamma"``: its norm has a Gamma law). The multiplier is its standard deviation, or
    scale, over the largest norm of one record's gradient, under both relations. ``curvature`` is
    the largest curvature that one record adds, over that of the quadratic. ``slopes`` says how the
    slope u (relative to its bound) and the curvature of a record go together: "two_sided" is any
    convex loss; "one_sided" one whose slope keeps its sign, given the record; "logistic" one whose
    curvature is, besides, at most 4 u (1 - u) of its largest; "softmax" is the multinomial logistic
    loss, with Gamma-norm noise only. Proofs: docs/explanation/perturbation.md.
    """

    kind = "objective_perturbation"
    noise_multiplier: float
    curvature: float
    slopes: str = "two_sided"
    noise: str = "gaussian"

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        positive("curvature", self.curvature)
        option("slopes", self.slopes, ("two_sided", "one_sided", "logistic", "softmax"))
        option("noise", self.noise, ("gaussian", "gamma"))
        if self.slopes == "softmax" and self.noise == "gaussian":
            raise ValueError(
                "for several classes no profile of normal noise is proven: take noise='gamma'"
            )


# Promises that rest on a theorem of their own.


@dataclass(frozen=True)
class Pure(Event):
    """Any epsilon-DP mechanism."""

    kind = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        non_negative("epsilon", self.epsilon)


@dataclass(frozen=True)
class BoundedRange(Event):
    """Log density ratios in an interval of length epsilon: the exponential mechanism."""

    kind = "bounded_range"
    epsilon: float

    def __post_init__(self) -> None:
        non_negative("epsilon", self.epsilon)


@dataclass(frozen=True)
class Approximate(Event):
    """Any (epsilon, delta)-DP mechanism."""

    kind = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        non_negative("epsilon", self.epsilon)
        probability("delta", self.delta)


@dataclass(frozen=True)
class GaussianPrivate(Event):
    """Any mu-GDP mechanism."""

    kind = "gdp"
    mu: float

    def __post_init__(self) -> None:
        non_negative("mu", self.mu)


@dataclass(frozen=True)
class ZeroConcentrated(Event):
    """Any rho-zCDP mechanism: Renyi divergence of order a at most rho * a."""

    kind = "zcdp"
    rho: float

    def __post_init__(self) -> None:
        non_negative("rho", self.rho)


@dataclass(frozen=True)
class Renyi(Event):
    """Renyi divergence at most ``values[i]`` at ``orders[i]`` (above 1, increasing)."""

    kind = "renyi"
    orders: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.orders or len(self.orders) != len(self.values):
            raise ValueError("orders and values must be non-empty and of the same length")
        for order, value in zip(self.orders, self.values, strict=True):
            if not real("order", order) > 1:
                raise ValueError(f"Renyi orders must be above 1, got {order!r}")
            non_negative("Renyi divergence", value)
        if any(b <= a for a, b in zip(self.orders, self.orders[1:], strict=False)):
            raise ValueError("Renyi orders must be increasing")


# Ways to put events together.


@dataclass(frozen=True)
class Composed(Event):
    """Events one after the other on the same data; later ones may depend on earlier outputs."""

    kind = "composed"
    inside = "events"
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        _check_events(self.events)


@dataclass(frozen=True)
class Repeated(Event):
    """The same event ``times`` times on the same data, adaptively."""

    kind = "repeated"
    inside = "event"
    event: Event
    times: int

    def __post_init__(self) -> None:
        _check_events((self.event,))
        integer("times", self.times, least=0)


@dataclass(frozen=True)
class Parallel(Event):
    """Events on disjoint parts of the data.

    ``by="index"``: a record's part is fixed by its row index, by its user, or by a coin of its own,
    so a change touches one part. ``by="value"``: the part depends on the record, so replacing a
    record may touch two; the noise of each part must then cover a record that enters, leaves or is
    replaced.
    """

    kind = "parallel"
    inside = "events"
    events: tuple[Event, ...]
    by: str = "index"

    def __post_init__(self) -> None:
        _check_events(self.events)
        option("by", self.by, ("index", "value"))


@dataclass(frozen=True)
class Sampled(Event):
    """An event on a random sample of the data.

    ``method="poisson"``: each record is in with probability ``rate``, independently.
    ``method="without_replacement"``: a uniform sample of a fixed share ``rate`` of the records
    (replace-one only). ``zero_out`` is the largest change of the noised value when a record leaves,
    over the sensitivity that the noise multiplier refers to; it matters under replace-one only,
    where it is 1/2 for sums of norm-bounded contributions. There an inner promise that is not noise
    (`Pure`, `GaussianPrivate`, ..) must also hold when a record leaves, and what is done to a
    sample must not depend on the order of its records.
    """

    kind = "sampled"
    inside = "event"
    event: Event
    rate: float
    method: str = "poisson"
    zero_out: float = 1.0

    def __post_init__(self) -> None:
        _check_events((self.event,))
        probability("rate", self.rate)
        option("method", self.method, ("poisson", "without_replacement"))
        if not 0.5 <= real("zero_out", self.zero_out) <= 1:
            raise ValueError(f"zero_out must lie between 0.5 and 1, got {self.zero_out!r}")


@dataclass(frozen=True)
class Selected(Event):
    """The best of a random number of runs of ``event``, only the winner leaving.

    The number of runs has the truncated negative binomial law with parameters ``eta > -1`` and
    ``stop`` in (0, 1) of Papernot and Steinke (2022); ``eta = 1`` is the geometric law with mean 1
    / stop.
    """

    kind = "selected"
    inside = "event"
    event: Event
    stop: float
    eta: float = 1.0

    def __post_init__(self) -> None:
        _check_events((self.event,))
        if not 0 < real("stop", self.stop) < 1:
            raise ValueError(f"stop must lie strictly between 0 and 1, got {self.stop!r}")
        if not -1 < real("eta", self.eta) < float("inf"):
            raise ValueError(f"eta must be above -1, got {self.eta!r}")


@dataclass(frozen=True)
class Filtered(Event):
    """Any adaptive sequence of events that a privacy filter stops at ``cap`` (pure, gdp, zcdp)."""

    kind = "filtered"
    inside = "cap"
    cap: Event

    def __post_init__(self) -> None:
        if not isinstance(self.cap, Pure | GaussianPrivate | ZeroConcentrated):
            raise ValueError(
                "a filter's cap must be a Pure, GaussianPrivate or ZeroConcentrated event"
            )


@dataclass(frozen=True)
class WithinTotalVariation(Event):
    """An implementation within total variation ``distance`` of the event, for every dataset."""

    kind = "within_total_variation"
    inside = "event"
    event: Event
    distance: float

    def __post_init__(self) -> None:
        _check_events((self.event,))
        probability("distance", self.distance)


@dataclass(frozen=True)
class CloseInRenyi(Event):
    """An implementation close to the event in Renyi divergence of one order, for every dataset.

    ``forward`` bounds the divergence of the implementation from the event, ``backward`` that of the
    event from the implementation. Either may be infinite.
    """

    kind = "close_in_renyi"
    inside = "event"
    event: Event
    order: float
    forward: float
    backward: float

    def __post_init__(self) -> None:
        _check_events((self.event,))
        if not real("order", self.order) >= 1:
            raise ValueError(f"order must be at least 1, got {self.order!r}")
        non_negative("forward", self.forward)
        non_negative("backward", self.backward)


@dataclass(frozen=True)
class Group(Event):
    """The event seen by a group of ``size`` records that change together."""

    kind = "group"
    inside = "event"
    event: Event
    size: int

    def __post_init__(self) -> None:
        _check_events((self.event,))
        integer("size", self.size)


@dataclass(frozen=True)
class Replaced(Event):
    """An event accounted under add/remove for replace-one: a record leaves, another enters."""

    kind = "replaced"
    inside = "event"
    event: Event

    def __post_init__(self) -> None:
        _check_events((self.event,))


def _check_events(events: tuple[Event, ...]) -> None:
    if not isinstance(events, tuple) or not all(isinstance(event, Event) for event in events):
        raise TypeError("expected events (a tuple of dpfit.privacy.Event values)")

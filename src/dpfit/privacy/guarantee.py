"""What is promised: an event, its curve, and the basis it rests on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpfit.privacy import accountant
from dpfit.privacy import event as events
from dpfit.privacy.accountant import RELATIONS
from dpfit.privacy.budget import UNITS, Budget
from dpfit.privacy.cost import Charge, privacy_cost
from dpfit.privacy.curve import Curve
from dpfit.privacy.event import Event
from dpfit.privacy.rounding import up_to_digits
from dpfit.privacy.spec import Json, Spec, from_json
from dpfit.privacy.validate import integer, non_negative, option, probability

ARITHMETIC = ("exact", "bounded", "idealised")
"""From best to worst: integers and enclosures only; a proven error term that is priced; real
numbers assumed.
"""

_SCHEMA = 1

_TRIFLE = 1e-5
"""Relative excess of a pure epsilon over a short number below which the budget that was asked for
is printed.
"""

_LARGEST = 1e300
"""An epsilon that stands for all large ones: what has a delta above the target there has no finite
epsilon.
"""


@dataclass(frozen=True)
class Assumption(Spec):
    """A condition of the guarantee, and whether it is enforced by code or declared."""

    kind = "assumption"
    text: str
    status: str

    def __post_init__(self) -> None:
        option("status", self.status, ("enforced", "declared"))


@dataclass(frozen=True)
class Basis(Spec):
    """Why a promise holds: theorem, neighbour relation, unit, assumptions, arithmetic."""

    kind = "basis"
    theorem: str
    relation: str = "replace"
    unit: str = "record"
    assumptions: tuple[Assumption, ...] = ()
    arithmetic: str = "exact"

    def __post_init__(self) -> None:
        if not isinstance(self.theorem, str) or not self.theorem:
            raise ValueError(
                "a guarantee names the theorem it rests on; theorem must be a text that is not "
                "empty"
            )
        if not isinstance(self.assumptions, tuple) or not all(
            isinstance(a, Assumption) for a in self.assumptions
        ):
            raise ValueError("assumptions must be a tuple of Assumption values")
        option("relation", self.relation, RELATIONS)
        option("unit", self.unit, UNITS)
        option("arithmetic", self.arithmetic, ARITHMETIC)

    def joined(self, other: Basis, rule: str) -> Basis:
        """The basis of two promises combined by ``rule``; relations and units are never mixed."""
        for name in ("relation", "unit"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                way = "to_relation('replace')" if name == "relation" else "to_user(max_rows)"
                raise ValueError(
                    f"cannot combine promises with {name} {mine!r} and {theirs!r}; convert one "
                    f"with {way} first"
                )
        theorems = [
            part for text in (self.theorem, rule, other.theorem) for part in text.split("; ")
        ]
        return Basis(
            theorem="; ".join(dict.fromkeys(theorems)),
            relation=self.relation,
            unit=self.unit,
            assumptions=tuple(dict.fromkeys(self.assumptions + other.assumptions)),
            arithmetic=max(self.arithmetic, other.arithmetic, key=ARITHMETIC.index),
        )


@dataclass(frozen=True)
class Guarantee:
    """A privacy guarantee: a curve, stored as JSON of event and basis, to be accounted again.

    >>> promise = Guarantee(events.Gaussian(noise_multiplier=4.2247), Basis("Gaussian mechanism"))
    >>> round(promise.epsilon(delta=1e-6), 3)
    1.0
    >>> round(promise.compose(promise).mu, 4)
    0.3347
    """

    event: Event
    basis: Basis
    shown_at: float = dataclasses.field(default=1e-6, compare=False, repr=False)
    """The delta at which a promise that is not pure is printed; no part of what is promised."""

    @property
    def curve(self) -> Curve:
        """All known bounds, total-variation terms apart."""
        return accountant.privacy_curve(self.event, self.basis.relation)

    @property
    def total_variation(self) -> float:
        """Distance of the code from the event; adds (1 + exp(epsilon)) times it to `delta`."""
        return accountant.total_variation(self.event)

    @property
    def pure(self) -> float:
        """The pure epsilon, infinite if there is none."""
        return math.inf if self.total_variation else self.curve.pure

    @property
    def mu(self) -> float:
        """The Gaussian-DP parameter, infinite if there is none."""
        return math.inf if self.total_variation else self.curve.mu

    @property
    def rho(self) -> float:
        """The zero-concentrated-DP parameter, infinite if there is none."""
        return math.inf if self.total_variation else self.curve.rho

    def delta(self, epsilon: float) -> float:
        """An upper bound on the smallest delta at this epsilon."""
        eps = non_negative("epsilon", epsilon)
        distance = self.total_variation
        if eps >= self.pure:
            return 0.0
        # Delta decreases, and exp() ends a little after 700.
        eps = min(eps, 700.0) if distance else eps
        slack = (1 + math.exp(eps)) * distance if distance else 0.0
        return min(1.0, float(self.curve.delta(np.array([eps]))[0]) + slack)

    def epsilon(self, delta: float = 0.0) -> float:
        """An upper bound on the smallest epsilon at this delta; infinite if none is known."""
        target = probability("delta", delta)
        if target == 0:
            return self.pure
        if self.delta(0.0) <= target:
            return 0.0
        high = 1e-3
        while self.delta(high) > target:
            high *= 2
            if 1e4 < high <= 2e4 and self.delta(_LARGEST) > target:
                return math.inf
        # Halving works for flat stretches and jumps alike, and its upper end always keeps the
        # promise.
        low = 0.0
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= target else (middle, high)
        # A budget that was asked for is a short number, and keeps the promise by itself.
        short = float(f"{high:.12g}")
        return short if short < high and self.delta(short) <= target else high

    def compose(self, *others: Guarantee) -> Guarantee:
        """Both on the same data; the later may depend on the outputs of the earlier."""
        joined = self
        for other in others:
            basis = joined.basis.joined(other.basis, "adaptive composition")
            joined = Guarantee(
                events.Composed((*_parts(joined.event), *_parts(other.event))), basis
            )
        return joined

    def parallel(self, *others: Guarantee, by: str = "index") -> Guarantee:
        """On disjoint parts of the data; see `dpfit.privacy.event.Parallel` for ``by``."""
        event = events.Parallel((self.event, *(other.event for other in others)), by)
        return Guarantee(
            event, parallel_basis([self.basis, *(other.basis for other in others)], by)
        )

    def group(self, size: int) -> Guarantee:
        """The promise to ``size`` records (or users) that change together."""
        if integer("size", size) == 1:
            return self
        return Guarantee(events.Group(self.event, size), self._with_rule("group privacy"))

    def to_relation(self, relation: str) -> Guarantee:
        """The guarantee under another relation; only add/remove to replace-one exists."""
        option("relation", relation, RELATIONS)
        if relation == self.basis.relation:
            return self
        if relation != "replace":
            raise ValueError(
                "a replace-one promise says nothing about adding or removing a record; plan with "
                "relation='add_remove'"
            )
        basis = dataclasses.replace(self._with_rule("one leaves, one enters"), relation="replace")
        return Guarantee(events.Replaced(self.event), basis)

    def to_user(self, max_rows: int) -> Guarantee:
        """The guarantee for a user with at most ``max_rows`` records (a bound to be enforced).

        Under replace-one every user must contribute exactly that many: pad with neutral records.
        """
        if self.basis.unit == "user":
            raise ValueError("this promise is to users already")
        rows = integer("max_rows", max_rows)
        # Replacing a user by one with fewer records would change the number of records, which
        # replace-one keeps.
        some = "at most" if self.basis.relation == "add_remove" else "exactly"
        bound = Assumption(f"each user contributes {some} {rows} records", "declared")
        basis = self._with_rule("group privacy")
        basis = dataclasses.replace(basis, unit="user", assumptions=(*basis.assumptions, bound))
        return Guarantee(events.Group(self.event, rows), basis)

    def meets(self, budget: Budget) -> bool:
        """Whether this promise is within the budget; relation and unit must be the same."""
        for name in ("relation", "unit"):
            if getattr(budget, name) != getattr(self.basis, name):
                raise ValueError(
                    f"the budget has {name} {getattr(budget, name)!r}, the promise "
                    f"{getattr(self.basis, name)!r}"
                )
        return budget.admits(self.event)

    def charge(self, currency: str) -> Charge:
        """The exact price of this promise in an additive currency: "pure", "zcdp" or "gdp"."""
        return privacy_cost(self.event, self.basis.relation, currency)

    def to_json(self) -> dict[str, Json]:
        """A dictionary of plain values."""
        return {"schema": _SCHEMA, "event": self.event.to_json(), "basis": self.basis.to_json()}

    @staticmethod
    def from_json(value: Json) -> Guarantee:
        """The guarantee that `to_json` wrote; nothing in it is evaluated but the event."""
        if (
            not isinstance(value, dict)
            or value.get("schema") != _SCHEMA
            or {"event", "basis"} - set(value)
        ):
            raise ValueError(f"not a guarantee of schema {_SCHEMA}")
        return Guarantee(from_json(value["event"], Event), from_json(value["basis"], Basis))

    def __str__(self) -> str:
        whose = "one record" if self.basis.unit == "record" else "one user's records"
        change = "replaced" if self.basis.relation == "replace" else "added or removed"
        shown = up_to_digits(self.pure, 4)
        size = f"epsilon = {shown:.4g}"
        # A budget of epsilon and delta may be met by a pure epsilon that is a trifle larger.
        trifle = float(f"{self.pure:.4g}") < self.pure < float(f"{self.pure:.4g}") * (1 + _TRIFLE)
        if trifle or math.isinf(self.pure):
            at_delta = up_to_digits(self.epsilon(self.shown_at), 4)
            delta = f"{up_to_digits(self.shown_at, 6):g}".replace("e-0", "e-")
            size = (
                f"epsilon = {at_delta:.4g} at delta = {delta}"
                if at_delta < shown or math.isinf(shown)
                else size
            )
        return f"{size}, with {whose} {change}"

    def _with_rule(self, rule: str) -> Basis:
        return dataclasses.replace(self.basis, theorem=f"{self.basis.theorem}; {rule}")


def parallel_basis(parts: Sequence[Basis], by: str) -> Basis:
    """Why guarantees on disjoint parts compose in parallel.

    Parts that are chosen by value need one condition more under replace-one.
    """
    basis = reduce(
        lambda joined, part: joined.joined(part, "parallel composition"), parts[1:], parts[0]
    )
    if by == "value" and basis.relation == "replace":
        cover = Assumption(
            "the noise of a part covers a record that enters, leaves or is replaced", "declared"
        )
        basis = dataclasses.replace(basis, assumptions=(*basis.assumptions, cover))
    return basis


def _parts(event: Event) -> tuple[Event, ...]:
    return event.parts if isinstance(event, events.Composed) else (event,)

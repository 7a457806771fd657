"""What the caller is willing to spend."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Rational

import numpy as np

from dpfit.privacy import accountant, gaussian
from dpfit.privacy.accountant import RELATIONS
from dpfit.privacy.curve import Curve
from dpfit.privacy.event import Composed, Event, GaussianPrivate
from dpfit.privacy.rounding import down, down_sqrt
from dpfit.privacy.validate import in_safe_range, integer, option, probability, real

UNITS = ("record", "user")

NEVER_PURE = (
    "no Gaussian mechanism satisfies pure epsilon-DP; give a delta (below 0.01 / n), mu or rho, "
    "or use Laplace noise "
    "(for fits: output_perturbation)"
)

_GRID_SLACK, _CLOSED_SLACK = 1e-2, 1e-6
"""Shares of delta that `Budget.remaining_after` keeps back. Delta is a bound that is computed: on a
grid its rounding depends on the parts (up to 5e-4 of the variance), in closed form on the last
digits. Both shares exceed what that does
to delta; they cost 0.03% and 3e-8 of noise at delta = 1e-6."""


_TINY_MU = 1e-3
"""Below this mu the delta of a composition is computed to about eight digits, so `Budget.split`
keeps a little back.
"""


class BudgetUnreachable(ValueError):
    """No amount of noise brings the event within the budget."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit on the privacy loss of one neighbour change.

    Give exactly one of ``epsilon`` (alone: pure DP; with ``delta``: approximate DP), ``mu``
    (Gaussian DP) or ``rho`` (zero-concentrated DP). ``unit`` is whose data is protected;
    ``relation`` is what a neighbour is: one record (or user) replaced, or one added or removed.

    >>> Budget(epsilon=1.0, delta=1e-6)
    Budget(epsilon=1.0, delta=1e-06)
    >>> Budget(epsilon=-1)
    Traceback (most recent call last):
        ...
    ValueError: epsilon must be a finite number above 0, got -1; smaller means more private, 1 is a
    common choice
    """

    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    rho: float | None = None
    unit: str = "record"
    relation: str = "replace"

    def __post_init__(self) -> None:
        given = [name for name in ("epsilon", "mu", "rho") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "give exactly one of epsilon, mu and rho, got "
                f"{' and '.join(given) or 'none of them'}"
            )
        value = getattr(self, given[0])
        try:
            in_safe_range(given[0], value)
        except ValueError as error:
            raise ValueError(f"{error}; smaller means more private, 1 is a common choice") from None
        if self.delta is not None:
            if given[0] != "epsilon":
                raise ValueError(f"delta goes with epsilon, not with {given[0]}")
            if not 0 <= probability("delta", self.delta) < 1:
                raise ValueError(
                    f"delta must be below 1, got {self.delta!r}; take it far below 1 / (number "
                    "of records)"
                )
        for name in ("epsilon", "delta", "mu", "rho"):
            if getattr(self, name) is not None:  # numbers of other types are not written as JSON
                object.__setattr__(self, name, _plain(getattr(self, name)))
        option("unit", self.unit, UNITS)
        option("relation", self.relation, RELATIONS)

    @property
    def kind(self) -> str:
        """One of "pure", "approximate", "gdp", "zcdp"."""
        if self.mu is not None:
            return "gdp"
        if self.rho is not None:
            return "zcdp"
        return "approximate" if self.delta else "pure"

    def spent(self, curve: Curve, total_variation: float = 0.0, *, smooth: bool = False) -> float:
        """Log of the fraction of this budget that a curve spends: at most 0 if it fits; may be inf.

        For (epsilon, delta) it is the log of delta(epsilon) / delta, the quantity that calibration
        drives to zero. ``smooth`` leaves out basic composition, whose deltas change abruptly with
        the noise.
        """
        if self.kind == "approximate" and self.epsilon is not None and self.delta:
            level = np.array([float(self.epsilon)])
            used = float(np.max(curve.profile(level)) if smooth else curve.delta(level)[0])
            used += (
                (1 + math.exp(min(self.epsilon, 700.0))) * total_variation
                if total_variation
                else 0.0
            )
            return _log(used / self.delta)
        if total_variation:
            return math.inf
        used, limit = {
            "pure": (curve.pure, self.epsilon),
            "gdp": (curve.mu, self.mu),
            "zcdp": (curve.rho, self.rho),
        }[self.kind]
        return _log(used / limit) if limit else math.inf

    def admits(self, event: Event) -> bool:
        """Whether ``event`` satisfies this budget, by the best bound that the accountant knows.

        Pure epsilon and GDP mu are closed forms: they are asked first, a grid only where they do
        not decide. All of them are upper bounds, so each yes is a proof. An event that `calibrate`
        returned is admitted.

        >>> from dpfit.privacy.event import Gaussian, Laplace
        >>> budget = Budget(epsilon=1.0, delta=1e-6)
        >>> [budget.admits(event) for event in (Laplace(1.0), Gaussian(4.2248), Gaussian(4.2206))]
        [True, True, False]
        """
        curve, distance = (
            accountant.privacy_curve(event, self.relation),
            accountant.total_variation(event),
        )
        if self.kind == "approximate" and self.epsilon is not None and self.delta and not distance:
            if curve.pure <= self.epsilon:
                return True
            if (
                math.isfinite(curve.mu)
                and float(gaussian.delta(curve.mu, self.epsilon)) <= self.delta
            ):
                return True
        return self.spent(curve, distance) <= 0

    @property
    def gaussian_mu(self) -> float:
        """Largest mu for which mu-GDP satisfies the budget; ValueError for pure budgets."""
        if self.mu is not None:
            return self.mu
        if self.rho is not None:
            return math.sqrt(2 * self.rho) * (1 - 2.0**-50)
        if not self.delta or self.epsilon is None:
            raise BudgetUnreachable(NEVER_PURE)
        mu = float(gaussian.mu(self.epsilon, self.delta))
        if not mu:
            raise BudgetUnreachable(
                f"no Gaussian noise meets delta = {self.delta!r}; raise delta, or leave it out"
            )
        return mu

    def split(self, share: float) -> tuple[Budget, Budget]:
        """Two budgets that together keep this one: ``share`` of it, and the rest.

        Pure epsilon and rho are shared as they are, mu by squares. An (epsilon, delta) budget is
        shared as the Gaussian DP budget with the same delta at epsilon, which loses nothing if both
        parts are Gaussian.

        >>> one, two = Budget(mu=1.0).split(0.36)
        >>> one.mu, round(two.mu, 9)
        (0.6, 0.8)
        """
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        if self.kind in ("pure", "zcdp"):
            name = "epsilon" if self.kind == "pure" else "rho"
            whole = getattr(self, name)
            first = whole * share
            # Rounded down, too: promises are rounded up when they are added.
            parts = ({name: first}, {name: whole * (1 - 2.0**-50) - first})
        else:
            mu = self.gaussian_mu
            if self.kind == "approximate" and mu < _TINY_MU:
                mu = replace(self, delta=(self.delta or 0.0) * (1 - _CLOSED_SLACK)).gaussian_mu
            first = mu * math.sqrt(share)
            # Rounded down, so that the squares sum up to at most the whole.
            rest = math.sqrt((mu - first) * (mu + first)) * (1 - 2.0**-50)
            parts = ({"mu": first}, {"mu": rest})
        one, two = (Budget(**part, unit=self.unit, relation=self.relation) for part in parts)
        return one, two

    def remaining_after(self, event: Event) -> Budget:
        """The budget after ``event``: what satisfies it satisfies, after the event, this budget.

        Proof. Adaptive composition adds pure epsilons, rhos and squares of mu; the remainder is the
        difference, rounded down. For (epsilon, delta), let r be the largest mu for which ``event``
        composed with one r-GDP mechanism is within the budget. A mechanism that is r-GDP is a
        post-processing of N(0, 1) against N(r, 1), for each pair of neighbours and each earlier
        output. So its composition with the event is a post-processing of the composition that was
        accounted, and its delta at epsilon is at most as large. The remainder is then a budget of
        mu = r.

        The remainder depends on the event, not on data, so a planner may take it before anything
        runs.

        >>> from dpfit.privacy.event import Gaussian, Laplace
        >>> Budget(epsilon=1.0).remaining_after(Laplace(4.0))
        Budget(epsilon=0.75)
        >>> round(Budget(mu=1.0).remaining_after(Gaussian(1 / 0.6)).mu, 9)
        0.8
        >>> round(Budget(epsilon=1.0, delta=1e-6).remaining_after(Laplace(4.0)).mu, 2)
        0.19
        """
        if self.kind == "approximate":
            return Budget(mu=self._remaining_mu(event), unit=self.unit, relation=self.relation)
        name = {"pure": "epsilon", "gdp": "mu", "zcdp": "rho"}[self.kind]
        curve = accountant.privacy_curve(event, self.relation)
        used = (
            math.inf
            if accountant.total_variation(event)
            else getattr(curve, "pure" if name == "epsilon" else name)
        )
        if math.isinf(used):
            raise BudgetUnreachable(
                f"an event of kind {event.kind!r} has no cost in {name}; plan it with noise that "
                "has one, or give a "
                "budget of epsilon and delta"
            )
        whole, part = Fraction(getattr(self, name)), Fraction(used)
        left = down_sqrt(whole**2 - part**2) if name == "mu" else down(whole - part)
        if not left > 0:
            raise BudgetUnreachable(_nothing_left(event))
        return Budget(delta=self.delta, unit=self.unit, relation=self.relation, **{name: left})

    def _remaining_mu(self, event: Event) -> float:
        """Largest mu of a mechanism that fits beside ``event`` in an (epsilon, delta) budget."""
        from dpfit.privacy.calibrate import AtLevel, calibrate  # which imports this module

        def beside(level: float) -> AtLevel:
            return AtLevel(Composed((event, GaussianPrivate(1 / level))), level)

        closed = accountant.privacy_curve(beside(1.0).event, self.relation).closed_form
        kept_back = replace(
            self, delta=(self.delta or 0.0) * (1 - (_CLOSED_SLACK if closed else _GRID_SLACK))
        )
        try:
            return 1 / calibrate(beside, kept_back).level
        except BudgetUnreachable:
            raise BudgetUnreachable(_nothing_left(event)) from None

    def per_call(self, n_calls: int) -> Budget:
        """The budget of each of ``n_calls`` calls: that many together satisfy this budget.

        Proof. Adaptive composition adds pure epsilons, rhos and squares of mu; each call gets one
        n-th of the sum, rounded down. An (epsilon, delta) budget is shared as the GDP budget with
        that delta at epsilon, as in `split`: Gaussian calls lose nothing by it. Fewer calls than
        ``n_calls`` use less.

        >>> Budget(epsilon=1.0).per_call(4), Budget(mu=1.0).per_call(4)
        (Budget(epsilon=0.25), Budget(mu=0.5))
        """
        if integer("n_calls", n_calls) == 1:
            return self
        if self.kind in ("pure", "zcdp"):
            name = "epsilon" if self.kind == "pure" else "rho"
            share = down(Fraction(getattr(self, name)) / n_calls)
            return Budget(delta=self.delta, unit=self.unit, relation=self.relation, **{name: share})
        mu = self.mu or replace(self, delta=(self.delta or 0.0) * (1 - _CLOSED_SLACK)).gaussian_mu
        return Budget(
            mu=down_sqrt(Fraction(mu) ** 2 / n_calls), unit=self.unit, relation=self.relation
        )

    def to_json(self) -> dict[str, float | str]:
        """A dictionary of plain values; `Budget(**...)` is its inverse."""
        limits = {name: getattr(self, name) for name in ("epsilon", "delta", "mu", "rho")}
        return {k: v for k, v in limits.items() if v is not None} | {
            "unit": self.unit,
            "relation": self.relation,
        }

    def __str__(self) -> str:
        """The budget in words, with all digits.

        >>> print(Budget(epsilon=0.5), "and", Budget(epsilon=1.0, delta=1e-6, unit="user"))
        epsilon 0.5 and (epsilon 1, delta 1e-6) for users
        """
        parts = [
            f"{name} {_short(getattr(self, name))}"
            for name in ("epsilon", "delta", "mu", "rho")
            if getattr(self, name) is not None
        ]
        whole = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
        users = " for users" if self.unit == "user" else ""
        return whole + users + (" under add/remove" if self.relation == "add_remove" else "")

    def __repr__(self) -> str:
        fields = {
            k: v
            for k, v in self.to_json().items()
            if (k, v) not in (("unit", "record"), ("relation", "replace"))
        }
        return f"Budget({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


def _short(value: float) -> str:
    """Return the shortest decimal that is read back as the number."""
    return repr(float(value)).removesuffix(".0").replace("e-0", "e-").replace("e+0", "e+")


def _nothing_left(event: Event) -> str:
    return (
        f"an event of kind {event.kind!r} leaves nothing of this budget; give it more noise, "
        "or raise the budget"
    )


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -math.inf


def _plain(value: object) -> float:
    """Return an int or a float as it is, and a number of another type as a float, rounded down."""
    if type(value) is int or type(value) is float:
        return value
    return down(Fraction(value)) if isinstance(value, Rational) else real("budget", value)

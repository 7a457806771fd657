"""What the caller is willing to spend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.privacy import gaussian
from dpfit.privacy.account import RELATIONS
from dpfit.privacy.check import one_of, positive, probability
from dpfit.privacy.curve import Curve

UNITS = ("record", "user")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit on the privacy loss of one neighbour change.

    Give exactly one of ``epsilon`` (alone: pure DP; with ``delta``: approximate DP), ``mu`` (Gaussian DP) or ``rho``
    (zero-concentrated DP). ``unit`` is whose data is protected; ``relation`` is what a neighbour is: one record (or
    user) replaced, or one added or removed.

    >>> Budget(epsilon=1.0, delta=1e-6)
    Budget(epsilon=1.0, delta=1e-06)
    >>> Budget(epsilon=-1)
    Traceback (most recent call last):
        ...
    ValueError: epsilon must be a finite number above 0, got -1; smaller means more private, 1 is a common choice
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
            raise ValueError(f"give exactly one of epsilon, mu and rho, got {' and '.join(given) or 'none of them'}")
        value = getattr(self, given[0])
        try:
            positive(given[0], value)
        except ValueError as error:
            raise ValueError(f"{error}; smaller means more private, 1 is a common choice") from None
        if self.delta is not None:
            if given[0] != "epsilon":
                raise ValueError(f"delta goes with epsilon, not with {given[0]}")
            if not 0 <= probability("delta", self.delta) < 1:
                raise ValueError(
                    f"delta must be below 1, got {self.delta!r}; take it far below 1 / (number of records)"
                )
        one_of("unit", self.unit, UNITS)
        one_of("relation", self.relation, RELATIONS)

    @property
    def kind(self) -> str:
        """One of "pure", "approximate", "gdp", "zcdp"."""
        if self.mu is not None:
            return "gdp"
        if self.rho is not None:
            return "zcdp"
        return "approximate" if self.delta else "pure"

    def spent(self, curve: Curve, total_variation: float = 0.0) -> float:
        """Log of the share of this budget that a curve uses up: at most 0 when it fits, infinite when nothing is known.

        For (epsilon, delta) it is the log of delta(epsilon) / delta, the quantity that calibration drives to zero.
        """
        if self.kind == "approximate" and self.epsilon is not None and self.delta:
            used = float(curve.delta(np.array([float(self.epsilon)]))[0])
            used += (1 + math.exp(min(self.epsilon, 700.0))) * total_variation if total_variation else 0.0
            return _log(used / self.delta)
        if total_variation:
            return math.inf
        used, limit = {
            "pure": (curve.pure, self.epsilon),
            "gdp": (curve.mu, self.mu),
            "zcdp": (curve.rho, self.rho),
        }[self.kind]
        return _log(used / limit) if limit else math.inf

    @property
    def gaussian_mu(self) -> float:
        """The largest mu for which a mu-GDP mechanism keeps the budget; refused for a pure one, which none keeps."""
        if self.mu is not None:
            return self.mu
        if self.rho is not None:
            return math.sqrt(2 * self.rho) * (1 - 2.0**-50)
        if not self.delta or self.epsilon is None:
            raise ValueError("no Gaussian mechanism keeps a pure budget; give a delta far below 1 / n")
        return float(gaussian.mu(self.epsilon, self.delta))

    def split(self, share: float) -> tuple[Budget, Budget]:
        """Two budgets that together keep this one: ``share`` of it, and the rest.

        Pure epsilon and rho are shared as they are, mu by squares. An (epsilon, delta) budget is shared as the Gaussian
        DP budget with the same delta at epsilon, which loses nothing if both parts are Gaussian.

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
            first = mu * math.sqrt(share)
            # Rounded down, so that the squares sum up to at most the whole.
            rest = math.sqrt((mu - first) * (mu + first)) * (1 - 2.0**-50)
            parts = ({"mu": first}, {"mu": rest})
        one, two = (Budget(**part, unit=self.unit, relation=self.relation) for part in parts)
        return one, two

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values; `Budget(**...)` is its inverse."""
        limits = {name: getattr(self, name) for name in ("epsilon", "delta", "mu", "rho")}
        return {k: v for k, v in limits.items() if v is not None} | {
            "unit": self.unit,
            "relation": self.relation,
        }

    def __repr__(self) -> str:
        fields = {
            k: v for k, v in self.to_json().items() if (k, v) not in (("unit", "record"), ("relation", "replace"))
        }
        return f"Budget({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -math.inf

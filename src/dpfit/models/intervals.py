"""How far privacy noise may move a released parameter, from the plan and released values.

Guarantee: none is needed, and nothing is spent: an interval is a function of released values.
It covers what the same procedure would have released without noise, on the same records.
It does not cover the distance to the truth about people outside the data: such an interval needs
the curvature of the objective, released within a budget. Proofs: docs/explanation/models.md.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Plan

Floats = NDArray[np.float64]
E = TypeVar("E", Floats, float)


class Ends(NamedTuple, Generic[E]):
    """Lower and upper bounds, in the shape of what they are about."""

    lower: E
    upper: E

    @staticmethod
    def around(value: E, half: E) -> Ends[E]:
        """Return the bounds of an interval by its middle and half its width."""
        return Ends(value - half, value + half)


class NoiseInterval(NamedTuple):
    """Intervals of noiseless coefficients and intercepts, each at probability ``level`` or more.

    ``exact`` says that the probability is ``level``. Otherwise it may be much larger, and the
    intervals much wider than the noise requires: only strong convexity of the objective is known.
    """

    coef: Ends[Floats]
    intercept: Ends[Floats] | Ends[float]
    level: float
    exact: bool


class NoiseBound(NamedTuple):
    """Largest move of a released parameter by noise, along one unit direction, at a level."""

    length: float
    exact: bool


def noise_bound(plan: Plan, level: float) -> NoiseBound:
    """Return a bound on the noise of a plan in one direction, at probability ``level`` or more.

    AttributeError if no bound follows from public facts.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
    mechanism = plan.final
    try:
        return NoiseBound(*mechanism.reach(level))
    except NotImplementedError:
        raise AttributeError(
            f"how far noise moves what {mechanism.kind!r} releases depends on the records, so "
            "there is no interval "
            "from public facts; fit with solver='output_perturbation' to have one"
        ) from None

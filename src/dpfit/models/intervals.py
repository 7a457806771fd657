"""How far privacy noise alone may have moved a released parameter: from the plan and released values, never records.

Guarantee: none is needed, and nothing is spent: an interval is a function of released values.
It covers what the same procedure would have released without noise, on the same records.
It does not cover the distance to the truth about people outside the data: such an interval needs the curvature of the
objective, released within a budget. Proofs: docs/explanation/models.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dpfit.core import Plan


class Ends(NamedTuple):
    """Lower and upper bounds, in the shape of what they are about."""

    lower: Any
    upper: Any

    @staticmethod
    def around(value: Any, half: Any) -> Ends:
        """Return the bounds of an interval by its middle and half its width."""
        return Ends(value - half, value + half)


class NoiseInterval(NamedTuple):
    """Intervals of coefficients and intercepts without noise, each with probability ``level`` or more.

    ``exact`` says that the probability is ``level``. Otherwise it may be much larger, and the intervals much wider than
    the noise requires: only strong convexity of the objective is known.
    """

    coef: Ends
    intercept: Ends
    level: float
    exact: bool


class NoiseBound(NamedTuple):
    """Largest move of a released parameter by noise, along one direction of unit norm, at a level."""

    length: float
    exact: bool


def noise_bound(plan: Plan, level: float) -> NoiseBound:
    """Return how far the noise of a plan moves one direction of the parameter, with probability ``level`` or more.

    AttributeError if no bound follows from public facts.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
    mechanism = plan.final
    try:
        return NoiseBound(*mechanism.reach(level))
    except NotImplementedError:
        raise AttributeError(
            f"how far noise moves what {mechanism.kind!r} releases depends on the records, so there is no interval "
            "from public facts; fit with solver='output_perturbation' to have one"
        ) from None

"""How long a descent on a quantile loss should be, from public facts.

Quantile losses have slopes of a fixed size and little curvature, so the general rule, which goes by
smoothness, either stops short of the quantile or collects noise. The rule decides about accuracy,
never about privacy.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpfit.core import Minimize
from dpfit.core.notes import Tuning
from dpfit.core.reference_designs import half_range


@dataclass(frozen=True)
class QuantileTuning(Tuning):
    """Tuned numbers of `quantile_time`.

    Parameters
    ----------
    collected_noise : float
        Standard deviation of the noise in a prediction that a descent without curvature may
        collect, over half the label range.
    reach : float
        How far predictions move under the steepest slope, over half the label range, before more
        is gained slowly. The flatter slope moves them less.
    growth : float
        Power of the time by which longer descents grow beyond that.
    """

    kind = "quantile_tuning"
    set_by: str = "benchmarks/quantiles.py"
    collected_noise: float = 0.15
    reach: float = 8.0
    growth: float = 0.25


TUNING = QuantileTuning()


def quantile_time(problem: Minimize, deviation: float) -> float:
    """Return the total step size of a descent, for noise of a ``deviation`` on each mean gradient.

    Rows of norm R in d isotropic directions, under slopes of a size s, move predictions by s R**2 /
    d a unit of time, and noise of a ``deviation`` on each gradient by up to ``deviation`` * R.
    """
    range_, longest = half_range(problem), problem.bounds.row_norm
    noisy = TUNING.collected_noise * range_ / (deviation * longest)
    enough = TUNING.reach * range_ * problem.dimension / longest**2 / problem.loss.slope_span
    growth: float = (noisy / enough) ** TUNING.growth
    return min(noisy, enough * growth)

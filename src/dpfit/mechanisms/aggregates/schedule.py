"""Schedules: how rounds of a descent share noise, and the weight of each iterate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, non_negative, probability

Floats = NDArray[np.float64]

EVEN = 0.4
"""Fraction of the squared budget that all steps share evenly if ``noise_decay`` shares out the
rest.
"""


@dataclass(frozen=True)
class Schedule(Spec):
    """Weights of a descent's steps in noise and in the averaged output, from few numbers.

    Parameters
    ----------
    steps : int
        Number of steps.
    momentum : float
        Fraction of the velocity that a step keeps.
    average : float
        Fraction of the iterates, from the end, that the output averages; 0 gives the last iterate.
    growth : float
        g > 0 weighs step k by (1 - g)**-(k + 1) in the average, and by its root in the noise. This
        is optimal for an objective of strong convexity g / step_size ([LD] Theorem F.2, corrected).
    noise_decay : float
        x > 0 gives less noise to steps whose noise is still felt in the output, along a direction
        that forgets all but exp(-x) of the start.
    """

    kind = "schedule"
    omitted: ClassVar = ("momentum", "average", "growth", "noise_decay")
    steps: int
    momentum: float = 0.0
    average: float = 1.0
    growth: float = 0.0
    noise_decay: float = 0.0

    def __post_init__(self) -> None:
        integer("steps", self.steps)
        probability("average", self.average)
        for name in ("momentum", "growth"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)!r}")
        if non_negative("noise_decay", self.noise_decay) and self.growth:
            raise ValueError("growth and noise_decay must not both be given; give one of them")
        with np.errstate(all="ignore"):
            if not np.isfinite(1 / np.sqrt(self.budget_fractions)).all():
                raise ValueError(
                    f"growth must leave finite noise for {self.steps} steps, got infinite noise "
                    "for the first; "
                    "reduce growth"
                )

    @cached_property
    def average_weights(self) -> Floats:
        """The weight of each iterate in the output; they sum to 1."""
        weights = np.exp(self._log_weights)
        weights[: min(self.steps - 1, round((1 - self.average) * self.steps))] = 0.0
        return np.asarray(weights / weights.sum())

    @cached_property
    def budget_fractions(self) -> Floats:
        """The fraction of the squared GDP budget that each step spends; they sum to 1.

        Noise of variance v_k leaves sum K_k**2 v_k in the average, with the `influence` K_k of step
        k. For a given sum of 1 / v_k this is least if 1 / v_k is proportional to abs(K_k) (Cauchy
        and Schwarz). That is for one rate of forgetting; for others, steps share `EVEN` of the
        budget evenly.
        """
        if not self.noise_decay:
            roots = np.exp(0.5 * self._log_weights)
            return np.asarray(roots / roots.sum())
        # At a faster pace noise would be overshot, not forgotten.
        decay = min(self.noise_decay, self.steps / (1 - self.momentum))
        influence = np.abs(self.influence(np.array([decay]))[:, 0])
        return np.asarray((1 - EVEN) * influence / influence.sum() + EVEN / self.steps)

    def influence(self, decay: Floats) -> Floats:
        """Return what is left in the output of a move in each step (row), by direction (column).

        ``decay`` is the curvature of a direction times step_size * steps / (1 - momentum), the time
        of the descent. A move that starts a velocity counts for all that it comes to in the end.
        """
        pull: Any = self._pull(decay)
        point: Any = np.zeros(len(decay))
        if len(decay) == 1:
            # Plain numbers give the same bits in a twentieth of the time.
            pull, point = float(pull[0]), 0.0
        velocity, left = point, []
        for weight in reversed(self.average_weights.tolist()):
            # How the output changes with point and velocity after this step, from those after the
            # next.
            following = point + velocity
            point, velocity = weight + point - pull * following, self.momentum * following
            left.append((1 - self.momentum) * (point + velocity))
        return np.array(left[::-1]).reshape(self.steps, len(decay))

    def remaining(self, decay: Floats) -> Floats:
        """Return what is left of the start in the output, by direction (see `influence`)."""
        pull = self._pull(decay)
        point, velocity, average = np.ones(len(decay)), np.zeros(len(decay)), np.zeros(len(decay))
        for weight in self.average_weights:
            velocity = self.momentum * velocity - pull * point
            point = point + velocity
            average = average + weight * point
        return average

    def _pull(self, decay: Floats) -> Floats:
        """The part of a point that one step removes, kept in the range where descents settle."""
        return np.asarray(
            np.minimum(decay / self.steps * (1 - self.momentum), 1.9 * (1 + self.momentum))
        )

    @property
    def _log_weights(self) -> Floats:
        """Logarithms of the weights of the steps, the largest being zero."""
        return np.asarray(math.log1p(-self.growth) * np.arange(self.steps - 1, -1, -1.0))

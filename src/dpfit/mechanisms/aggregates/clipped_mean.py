"""Means of clipped contributions with Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core.mechanism import Run, State
from dpfit.data.view import View
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Contribution, Gradient
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.mechanisms.aggregates.user_means import UserMean
from dpfit.noise import Grid, add_gaussian
from dpfit.noise.rounded import checked_scale
from dpfit.privacy.event import Event, Gaussian

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClippedMean(Aggregate):
    """Exact sum of clipped, rounded contributions, plus Gaussian noise, over a public number.

    With ``per="user"`` a gradient is averaged over the records of each user before it is clipped.

    Guarantee: with all records in each round, mu-GDP for all answers together, mu = 1 /
    noise_multiplier, for any data and adaptively chosen contributions. Step k has the noise
    multiplier m_k, and sum 1 / m_k**2 <= mu**2. Reference: [LD] Lemma C.1;
    docs/explanation/trajectory.md, Theorem 1.

    Parameters
    ----------
    schedule : Schedule, optional
        How steps share the noise multiplier; by default evenly.

    Examples
    --------
    >>> ClippedMean(100, 2.0, 4, "replace").multipliers.round(6).tolist()
    [4.0, 4.0, 4.0, 4.0]
    """

    kind = "clipped_mean"
    units: ClassVar[tuple[str, ...]] = ("record", "user")
    stacks: ClassVar[bool] = True
    omitted: ClassVar[tuple[str, ...]] = (*Aggregate.omitted, "schedule")
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule is not None:
            if self.schedule.steps != self.rounds:
                raise ValueError(
                    f"schedule must have {self.rounds} steps, got {self.schedule.steps}"
                )
            if not self.sampling.sees_all:
                raise ValueError("a schedule needs rounds that see all records; use FullBatch()")

    @property
    def event(self) -> Event:
        return self.sampling.event(
            Gaussian(self.noise_multiplier), self.rounds, self.relation, self.n
        )

    @cached_property
    def multipliers(self) -> Floats:
        """The noise multiplier of each step.

        If rounds see all records, the inverse squares sum to at most 1 / noise_multiplier**2.
        """
        if not self.sampling.sees_all:
            return np.full(self.rounds, self.noise_multiplier)
        schedule = Schedule(self.rounds) if self.schedule is None else self.schedule
        # The last factor covers the rounding errors of this line and of the sum.
        return np.asarray(
            self.noise_multiplier / np.sqrt(schedule.budget_fractions) * (1 + 2.0**-40)
        )

    def answer(
        self, state: State, contribution: Contribution, data: View, run: Run
    ) -> tuple[State, Floats]:
        contribution = self.of_unit(contribution)
        grid, sensitivity = self.scale(contribution)
        noisy = add_gaussian(
            contribution.total(data, grid), l2_sensitivity=sensitivity, source=run.noise, grid=grid,
            noise_multiplier=float(self.multipliers[state["round"]]),
        )  # fmt: skip
        return state, noisy / self._divisor

    def of_unit(self, contribution: Contribution) -> Contribution:
        """Return what a privacy unit contributes: of users, the mean gradient of their records."""
        if self.per == "user" and isinstance(contribution, Gradient):
            return UserMean(contribution, contribution.clip_norm)
        if self.per == "user" and not isinstance(contribution, UserMean):
            raise ValueError(
                f"users contribute means of gradients, got {type(contribution).__name__}; use "
                "per='record'"
            )
        return contribution

    def scale(self, contribution: Contribution) -> tuple[Grid, float]:
        """Return the grid, and how far one unit moves the rounded sum, rounded up."""
        contribution = self.of_unit(contribution)
        key = contribution.bound, contribution.dimension, self._change(contribution)
        if key not in self._scales:
            bound, dimension, change = key
            grid = Grid.fitting(bound, dimension, "l2")
            self._scales[key] = (
                grid,
                math.nextafter(change + grid.rounding(dimension, "l2"), math.inf),
            )
        return self._scales[key]

    def deviation(self, contribution: Contribution) -> float:
        """Return the noise standard deviation of each entry, if all rounds were one release."""
        return self._change(self.of_unit(contribution)) * self.noise_multiplier / self._divisor

    def round_deviations(self, contribution: Contribution) -> Floats:
        """Return the noise standard deviation of each entry, in each round."""
        return self._change(self.of_unit(contribution)) * self.multipliers / self._divisor

    def check_scale(self, contribution: Contribution) -> None:
        """Refuse noise that cannot be drawn, before anything is charged."""
        grid, sensitivity = self.scale(contribution)
        for multiplier in (self.multipliers.min(), self.multipliers.max()):
            checked_scale(float(multiplier) * sensitivity / grid.step)

    def _change(self, contribution: Contribution) -> float:
        if self.sampling.sees_all:
            return contribution.sensitivity(self.relation)
        # A record that leaves a sample moves the sum by its whole bound: half of this under
        # replace-one (`zero_out`).
        return contribution.bound if self.relation == "add_remove" else 2 * contribution.bound

    @cached_property
    def _scales(self) -> dict[tuple[float, int, float], tuple[Grid, float]]:
        return {}

    @cached_property
    def _divisor(self) -> float:
        return self.sampling.divisor(self.n, self.rounds)

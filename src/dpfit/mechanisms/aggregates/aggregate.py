"""Aggregates: interactive mechanisms that answer contributions by private means."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from dpfit.core.mechanism import Interactive, Run, State, Work
from dpfit.data.view import View
from dpfit.mechanisms.aggregates.contribution import Contribution
from dpfit.mechanisms.aggregates.sampling import FULL_BATCH, Sampling
from dpfit.privacy.validate import integer, option, positive


@dataclass(frozen=True)
class Aggregate(Interactive):
    """A private mean of contributions, at most ``rounds`` times.

    It couples sampling, clipping, noise and accounting. All that is done with its answers is
    post-processing.

    Parameters
    ----------
    n : int
        Declared number of units, by which sums are divided.
    noise_multiplier : float
        Noise of all rounds together if each sees all records, of one round otherwise.
    per : {"record", "user"}
        The privacy unit, one of ``units``.
    """

    omitted: ClassVar[tuple[str, ...]] = ("sampling", "per")
    units: ClassVar[tuple[str, ...]] = ("record",)
    """The privacy units that this kind of aggregate protects."""
    stacks: ClassVar[bool] = False
    """Whether it answers a contribution at a stack of points (k, d) by k independent answers."""
    n: int
    noise_multiplier: float
    rounds: int
    relation: str
    sampling: Sampling = FULL_BATCH
    per: str = "record"

    def __post_init__(self) -> None:
        integer("n", self.n)
        integer("rounds", self.rounds)
        positive("noise_multiplier", self.noise_multiplier)
        option("relation", self.relation, ("replace", "add_remove"))
        if self.per not in self.units:
            raise ValueError(
                f"per must be {' or '.join(map(repr, self.units))}, got {self.per!r}; convert "
                "the guarantee with "
                "to_user(max_rows)"
            )
        _ = self.event

    @property
    def work(self) -> Work:
        passes = self.rounds * self.sampling.divisor(self.n, self.rounds) / self.n
        # The number of records is private where users are protected.
        gradients = passes * self.n if self.per == "record" else 0.0
        return Work(gradients=gradients, passes=passes)

    @property
    def observes(self) -> bool:  # type: ignore[override]
        """Whether the records of a round arrive with it."""
        return self.sampling.arrives

    def check_scale(self, contribution: Contribution) -> None:
        """Refuse noise that cannot be drawn, before anything is charged."""

    def init(self, data: View, run: Run) -> State:
        return {"round": 0}

    def step(self, state: State, given: Contribution, data: View, run: Run) -> tuple[State, Any]:
        """Answer one contribution."""
        batch = self.sampling.take(data, state["round"], self.rounds)
        state, answer = self.answer(state, given, batch, run)
        return state | {"round": state["round"] + 1}, answer

    @abstractmethod
    def answer(
        self, state: State, contribution: Contribution, data: View, run: Run
    ) -> tuple[State, Any]:
        """Return the state and the private mean of the records of this round."""

    def finish(self, state: State) -> None:
        """Return nothing: the answers have left."""

"""Steps of version 0.1.0 that held whole plans of local samples: now they are compositions.

A plan that is read here has the event, the basis and the predicted work with which it was written.
It is not run again: its stages were bound by code that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from dpfit.core import Mechanism, Plan, Risk, Run, Work
from dpfit.data.view import View
from dpfit.privacy.event import Event, Parallel
from dpfit.privacy.validate import option


@dataclass(frozen=True)
class _Stored(Mechanism):
    """A mechanism that is read, shown and charged, but not run."""

    def run(self, data: View, run: Run) -> NoReturn:
        raise ValueError(
            "this plan was written by version 0.1.0 and cannot run again; plan it anew"
        )


@dataclass(frozen=True)
class LocalizedSample(_Stored):
    """A noisy minimizer and a sample around it, of which only the sample was released."""

    kind = "localized_sample"
    stages: Plan

    @property
    def event(self) -> Event:
        return self.stages.event

    @property
    def work(self) -> Work:
        return self.stages.work

    @property
    def risk(self) -> Risk | None:
        return self.stages.risk


@dataclass(frozen=True)
class SplitStages(_Stored):
    """Balls from one half of the records, a sample from the other; ``by`` is the assignment."""

    kind = "split_stages"
    balls: Plan
    last: Plan
    by: str

    def __post_init__(self) -> None:
        option("by", self.by, ("index", "coin"))
        if self.by == "index" and self.last.basis.relation == "add_remove":
            raise ValueError(
                "parts by row index need relation='replace': removing a row moves all later rows"
            )

    @property
    def event(self) -> Event:
        return Parallel((self.balls.event, self.last.event), "index")

    @property
    def work(self) -> Work:
        return (self.balls.work + self.last.work) * 0.5

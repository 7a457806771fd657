"""Mechanisms that version 0.1.0 wrote and no class of today describes: they keep their event and do not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpfit.core import Mechanism, Minimize, Plan, Risk, Run, Work
from dpfit.data.view import View
from dpfit.legacy.plans import refuse
from dpfit.mechanisms.mean import NoisyMean
from dpfit.privacy.event import Event, Gaussian, Parallel
from dpfit.privacy.spec import from_json, reads


@dataclass(frozen=True)
class _ReadOnly(Mechanism):
    """A mechanism that is read and not run."""

    def check(self, data: View) -> None:
        refuse()

    def run(self, data: View, run: Run) -> Any:
        refuse()


@dataclass(frozen=True)
class _Descent(_ReadOnly):
    """A descent on noisy gradients: all steps together are one Gaussian mechanism."""

    problem: Minimize
    relation: str
    noise_multiplier: float
    steps: int

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def work(self) -> Work:
        return Work(gradients=float(self.steps) * self.problem.n, passes=float(self.steps))


@dataclass(frozen=True)
class NoisyGD(_Descent):
    """Noisy gradient descent."""

    kind = "noisy_gd"
    step_size: float
    clip: float
    momentum: float = 0.0
    average: float = 0.6
    growth: float = 0.0
    predicted: Risk | None = None
    forgets: float = 0.0
    shrink: float = 0.0

    @property
    def risk(self) -> Risk | None:
        return self.predicted


@dataclass(frozen=True)
class MappedGD(NoisyGD):
    """Noisy gradient descent on rows that a matrix maps."""

    kind = "mapped_gd"
    matrix: tuple[float, ...] = ()


@dataclass(frozen=True)
class PreconditionedGD(_Descent):
    """Noisy gradient descent in coordinates that released moments set."""

    kind = "preconditioned_gd"
    floor: float
    moments: tuple[float, ...] | None = None


@dataclass(frozen=True)
class WarmStartGD(_Descent):
    """Noisy gradient descent from a fit to public records."""

    kind = "warm_start_gd"
    clip: float | None = None


@dataclass(frozen=True)
class MirrorDescent(WarmStartGD):
    """Noisy mirror descent, with a mirror map made from public records."""

    kind = "pda_dpmd"
    mirror: str = "loss"


@dataclass(frozen=True)
class SplitStages(_ReadOnly):
    """Balls from one part of the records, then a sample from the other."""

    kind = "split_stages"
    balls: Plan
    last: Plan
    by: str

    @property
    def event(self) -> Event:
        return Parallel((self.balls.event, self.last.event), "index")

    @property
    def work(self) -> Work:
        return (self.balls.work + self.last.work) * 0.5


@dataclass(frozen=True)
class LocalizedSample(_ReadOnly):
    """Stages that released the value of the last one only."""

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


@reads("ranged_mean")
def read_ranged_mean(value: dict[str, Any]) -> NoisyMean:
    """Return a mean in a range that another stage released; the range is not in the file."""
    return from_json(value | {"kind": NoisyMean.kind}, NoisyMean)

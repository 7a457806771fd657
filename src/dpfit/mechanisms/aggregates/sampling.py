"""Sampling: which records a round sees, and what that does to the guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpfit.data.view import View
from dpfit.noise.coins import LEAST
from dpfit.privacy.event import Event, Parallel, Repeated, Sampled
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, probability


@dataclass(frozen=True)
class Sampling(Spec, ABC):
    """Which records a round sees."""

    sees_all: ClassVar[bool] = False
    """Whether every round sees all records: then rounds may share one noise multiplier unequally.
    """
    arrives: ClassVar[bool] = False
    """Whether the records of a round arrive with it."""

    @abstractmethod
    def event(self, call: Event, rounds: int, relation: str, n: int) -> Event:
        """Return what all rounds do together; ``call`` is one round on the records that it sees.

        Where every round sees all records, ``call`` stands for all rounds.
        """

    @abstractmethod
    def take(self, data: View, index: int, rounds: int) -> View:
        """Return the records of round ``index``."""

    @abstractmethod
    def divisor(self, n: int, rounds: int) -> float:
        """Return the public number by which a round divides its sum."""


@dataclass(frozen=True)
class FullBatch(Sampling):
    """Every round sees all records."""

    kind = "full_batch"
    sees_all = True

    def event(self, call: Event, rounds: int, relation: str, n: int) -> Event:
        return call

    def take(self, data: View, index: int, rounds: int) -> View:
        return data

    def divisor(self, n: int, rounds: int) -> float:
        return n


FULL_BATCH = FullBatch()


@dataclass(frozen=True)
class Poisson(Sampling):
    """Each round includes each record independently with probability ``rate``; sizes are private.

    Sensitivity: a record that is replaced in a batch moves the sum by at most twice what one that
    leaves does, so ``zero_out`` is 1/2 under replace-one.
    """

    kind = "poisson_sampling"
    rate: float

    def __post_init__(self) -> None:
        if probability("rate", self.rate) < LEAST:
            raise ValueError(f"rate must be at least 2**-50, got {self.rate!r}")

    def event(self, call: Event, rounds: int, relation: str, n: int) -> Event:
        return Repeated(
            Sampled(call, self.rate, zero_out=0.5 if relation == "replace" else 1.0), rounds
        )

    def take(self, data: View, index: int, rounds: int) -> View:
        return data.sample(rate=self.rate)

    def divisor(self, n: int, rounds: int) -> float:
        return n * self.rate


@dataclass(frozen=True)
class FixedSize(Sampling):
    """Each round sees a uniformly random set of ``size`` records; n is public: replace-one."""

    kind = "fixed_size_sampling"
    size: int

    def __post_init__(self) -> None:
        integer("size", self.size)

    def event(self, call: Event, rounds: int, relation: str, n: int) -> Event:
        if relation != "replace":
            raise ValueError("samples of fixed size need relation='replace'; use Poisson(rate)")
        if self.size > n:
            raise ValueError(f"size must be at most n = {n}, got {self.size}")
        return Repeated(Sampled(call, self.size / n, "without_replacement", 0.5), rounds)

    def take(self, data: View, index: int, rounds: int) -> View:
        return data.sample(size=self.size)

    def divisor(self, n: int, rounds: int) -> float:
        return self.size


@dataclass(frozen=True)
class SinglePass(Sampling):
    """Each record is in one round, by its random position: rounds are disjoint."""

    kind = "single_pass"

    def event(self, call: Event, rounds: int, relation: str, n: int) -> Event:
        return Parallel((call,) * rounds, "index")

    def take(self, data: View, index: int, rounds: int) -> View:
        return data.between(Fraction(index, rounds), Fraction(index + 1, rounds))

    def divisor(self, n: int, rounds: int) -> float:
        return n / rounds


@dataclass(frozen=True)
class Arriving(Sampling):
    """Each round sees the batch that arrived; that no record arrives twice is declared.

    A plan's basis must state this assumption.
    """

    kind = "arriving"
    arrives = True

    def event(self, call: Event, rounds: int, relation: str, n: int) -> Event:
        return Parallel((call,) * rounds, "index")

    def take(self, data: View, index: int, rounds: int) -> View:
        return data

    def divisor(self, n: int, rounds: int) -> float:
        return n / rounds

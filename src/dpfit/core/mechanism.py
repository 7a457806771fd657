"""Mechanisms: the leaves of plans, and what one execution hands to them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from dpfit.noise import Source
from dpfit.privacy.check import non_negative
from dpfit.privacy.event import Event
from dpfit.privacy.spec import Spec


@dataclass(frozen=True)
class Work(Spec):
    """Work predicted from public facts: gradients and values of single examples, passes over the data."""

    kind = "cost"
    gradients: float = 0.0
    values: float = 0.0
    passes: float = 0.0

    def __str__(self) -> str:
        if math.isinf(self.passes):
            return "a pass over the data for each step"
        passes = f"{self.passes:g} pass{'' if self.passes == 1 else 'es'} over the data"
        return passes + (f", {self.gradients:g} gradients of single examples" if self.gradients else "")

    def __add__(self, other: Work) -> Work:
        return Work(self.gradients + other.gradients, self.values + other.values, self.passes + other.passes)

    def __mul__(self, times: float) -> Work:
        return Work(self.gradients * times, self.values * times, self.passes * times)


@dataclass(frozen=True)
class Risk(Spec):
    """Error predicted from public facts, and what it is an error of."""

    kind = "risk"
    expected: float
    meaning: str

    def __post_init__(self) -> None:
        non_negative("expected", self.expected)


@dataclass
class Run:
    """One execution: its noise, its progress, its diagnostics. Mechanisms see nothing else of the outside."""

    noise: Source
    report: Callable[[float], None] | None = None
    diagnostics: dict[str, Any] | None = None
    _start: float = 0.0
    _share: float = 1.0

    def progress(self, done: float) -> None:
        """Tell how much of this part is done, from public counts only."""
        if self.report is not None and self._share:
            self.report(self._start + self._share * done)

    def part(self, start: float, share: float) -> Run:
        """The run of a part of the plan."""
        return replace(self, _start=self._start + self._share * start, _share=self._share * share)

    def note(self, name: str, value: Any) -> None:
        """Keep a value that is NOT private, if the caller asked for diagnostics."""
        if self.diagnostics is not None:
            self.diagnostics[name] = value


@dataclass(frozen=True)
class Mechanism(Spec, ABC):
    """One private step with its own theorem: public parameters as fields, data only as an argument."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """What is done; never depends on anything bound late."""

    @property
    def work(self) -> Work:
        """Predicted work."""
        return Work(passes=1.0)

    @property
    def risk(self) -> Risk | None:
        """Predicted error, where there is a formula for it."""
        return None

    def bind(self, released: tuple[Any, ...]) -> Mechanism:
        """The mechanism with its geometry set from public facts and values released by earlier stages."""
        return self

    @abstractmethod
    def run(self, data: Any, run: Run) -> Any:
        """Draw the output. All randomness comes from ``run.noise``."""


@runtime_checkable
class Batched(Protocol):
    """The hook for speed: a mechanism may draw many outputs at once, each with the law of one call of ``run``."""

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Any]:
        """Independent outputs."""


@dataclass(frozen=True)
class Iterative(Mechanism):
    """A mechanism made of pure steps; the loop, and with it progress, is the runner's."""

    @property
    @abstractmethod
    def iterations(self) -> int:
        """How many steps; public."""

    @abstractmethod
    def init(self, data: Any, run: Run) -> Any:
        """The first state."""

    @abstractmethod
    def step(self, state: Any, index: int, data: Any, run: Run) -> Any:
        """The next state, which holds only what the step after it needs."""

    def finish(self, state: Any) -> Any:
        """The output; a function of the last state."""
        return state

    def run(self, data: Any, run: Run) -> Any:
        """Drive the steps."""
        state = self.init(data, run)
        for index in range(self.iterations):
            state = self.step(state, index, data, run)
            run.progress((index + 1) / self.iterations)
        return self.finish(state)


class Session(ABC):
    """The private side of an interaction: what happens between open and close."""

    done: bool = False

    @abstractmethod
    def step(self, query: Any) -> Any:
        """Answer one query."""

    def drive(self, queries: Iterable[Any]) -> None:
        """Put the queries one by one until the session ends."""
        for query in queries:
            if self.done:
                return
            self.step(query)

    @abstractmethod
    def result(self) -> Any:
        """What the release holds after close: a function of the answers given."""


@dataclass(frozen=True)
class Interactive(Mechanism):
    """A mechanism that answers over time; its event covers the whole interaction."""

    @abstractmethod
    def open(self, data: Any, run: Run) -> Session:
        """Draw what is drawn once, and wait for queries."""

    def run(self, data: Any, run: Run) -> Any:
        """Open and close without a query."""
        return self.open(data, run).result()

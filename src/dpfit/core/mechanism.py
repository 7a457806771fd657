"""Mechanisms: the leaves of plans, and what one execution hands to them.

There are two kinds. A one-shot mechanism draws its output in `run`. An interactive mechanism
answers step by step over a plain state; its event covers every answer of every step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from dpfit.data.view import View
from dpfit.noise import Source
from dpfit.privacy import Filter
from dpfit.privacy.event import Event, Filtered
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import non_negative


@dataclass(frozen=True)
class Work(Spec):
    """Work predicted from public facts: gradients and values of single records, and passes.

    ``most_passes`` bounds the passes for every dataset where that is more than ``passes``; 0 says
    that they are the same.
    """

    kind = "cost"
    omitted: ClassVar = ("most_passes",)
    gradients: float = 0.0
    values: float = 0.0
    passes: float = 0.0
    most_passes: float = 0.0

    def __str__(self) -> str:
        if math.isinf(self.passes):
            return "a pass over the data for each step"
        passes = f"{self.passes:g} pass{'' if self.passes == 1 else 'es'} over the data"
        return passes + (
            f", {self.gradients:g} gradients of single records" if self.gradients else ""
        )

    def __add__(self, other: Work) -> Work:
        most = 0.0
        if self.most_passes or other.most_passes:
            most = max(self.passes, self.most_passes) + max(other.passes, other.most_passes)
        return Work(
            self.gradients + other.gradients,
            self.values + other.values,
            self.passes + other.passes,
            most,
        )

    def __mul__(self, factor: float) -> Work:
        return Work(
            self.gradients * factor,
            self.values * factor,
            self.passes * factor,
            self.most_passes * factor,
        )


@dataclass(frozen=True)
class Risk(Spec):
    """Error predicted from public facts, and what it is an error of.

    ``proven`` marks a bound that holds for all data; other risks are estimates. ``baseline`` is the
    error of the public start, which needs no data.
    """

    kind = "risk"
    omitted: ClassVar = ("proven", "baseline")
    expected: float
    meaning: str
    proven: bool = False
    baseline: float | None = None

    def __post_init__(self) -> None:
        non_negative("expected", self.expected)

    @property
    def vacuous(self) -> bool:
        """Whether the bound says no more than the public start does."""
        return self.proven and self.baseline is not None and self.expected >= self.baseline


@dataclass
class Run:
    """One execution: noise, filter, progress and diagnostics; all that a mechanism sees."""

    noise: Source
    report: Callable[[float], None] | None = None
    diagnostics: dict[str, object] | None = None
    published: dict[str, object] = field(default_factory=dict)
    filter: Filter | None = None
    _start: float = 0.0
    _share: float = 1.0

    def progress(self, done: float) -> None:
        """Report how much of this part is done, from public counts only."""
        if self.report is not None and self._share:
            self.report(self._start + self._share * done)

    def part(self, start: float, share: float) -> Run:
        """Return the run of a part of the plan."""
        return replace(self, _start=self._start + self._share * start, _share=self._share * share)

    def charge(self, event: Event) -> None:
        """Charge an adaptively chosen event to the filter, before its noise is drawn.

        It raises `FilterExhausted` if the event does not fit, and RuntimeError if this run has no
        filter: a mechanism that charges must have an event that is a cap.
        """
        if self.filter is None:
            raise RuntimeError(
                "this run has no filter to charge; the event of the mechanism must be Filtered"
            )
        self.filter.charge(event)

    def within(self, event: Event, relation: str) -> Run:
        """Return the run with the filter that the event opens; for steps and the runner only."""
        return replace(
            self, filter=Filter(event, relation) if isinstance(event, Filtered) else None
        )

    def publish(self, name: str, value: object) -> None:
        """Keep a value beside the output; for functions of released values only."""
        self.published[name] = value

    def note(self, name: str, value: object) -> None:
        """Keep a value that is NOT private, if the caller asked for diagnostics."""
        if self.diagnostics is not None:
            self.diagnostics[name] = value


@dataclass(frozen=True)
class Mechanism(Spec, ABC):
    """A private step with its own theorem: fields are public, data are only an argument."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """What is done; it never depends on anything that is bound late."""

    @property
    def work(self) -> Work:
        """Predicted work."""
        return Work(passes=1.0)

    @property
    def risk(self) -> Risk | None:
        """Predicted error, where there is a formula for it."""
        return None

    @property
    def batched(self) -> bool:
        """Whether `run_many` draws many outputs for less than as many single runs."""
        return isinstance(self, Batched)

    def check(self, data: View) -> None:
        """Refuse data that this mechanism cannot run on, before anything is charged.

        It may read public facts only: shapes, types, whether there are user ids or public records.
        """

    def reach(self, level: float) -> tuple[float, bool]:
        """Return a bound on the noise, with probability ``level``, and whether it is exact.

        A mechanism whose noise has no such bound for all data refuses.
        """
        raise NotImplementedError(
            f"{self.kind} has no bound on the effect of its noise that holds for all data"
        )

    @abstractmethod
    def run(self, data: View, run: Run) -> object:
        """Draw the output. All randomness comes from ``run.noise``."""


@runtime_checkable
class Batched(Protocol):
    """Optional: draw many independent outputs in one call, each distributed as one of ``run``."""

    def run_many(self, data: View, run: Run, count: int) -> Sequence[object]:
        """Draw independent outputs."""


State = dict[str, Any]
"""What an interactive mechanism keeps between steps: plain values, tuples, lists, dictionaries and
arrays.
"""


@dataclass(frozen=True)
class Halted:
    """The answer of a private test that ends an interaction; ``value`` is what it says."""

    value: object = None


@dataclass(frozen=True)
class Interactive(Mechanism):
    """A mechanism that answers over time.

    Its event must cover every answer of every step: answers leave one by one, and the state may be
    stored and resumed. A mechanism whose guarantee is for its last state only is not interactive;
    `dpfit.core.loop` drives those. ``init``, ``step`` and ``finish`` are pure but for the noise of
    the run: the state is a value.
    """

    self_driven: ClassVar[bool] = False
    """Whether steps need no query: `run` then makes ``rounds`` of them."""
    resumable: ClassVar[bool] = True
    """Whether the state holds plain values only, so that it can be stored."""
    observes: ClassVar[bool] = False
    """Whether steps read records that arrive, by `Interaction.observe`, in place of data held from
    the start.
    """

    if TYPE_CHECKING:

        @property
        def rounds(self) -> int:
            """Largest number of steps: a field or a property of the mechanism."""

    @abstractmethod
    def init(self, data: View, run: Run) -> State:
        """Draw what is drawn once."""

    @abstractmethod
    def step(self, state: State, given: Any, data: View, run: Run) -> tuple[State, object]:
        """Answer one query, or observe one batch; returns the next state and the answer."""

    def observe_many(
        self, state: State, batches: Sequence[View], run: Run
    ) -> tuple[State, list[object]]:
        """Observe batches that are all there; as one `step` for each, perhaps in less time."""
        answers = []
        for batch in batches:
            state, answer = self.step(state, None, batch, run)
            answers.append(answer)
            if isinstance(answer, Halted) or self.is_done(state):
                break
        return state, answers

    @abstractmethod
    def finish(self, state: State) -> object:
        """Return the value of the release after any number of steps, none included."""

    def is_done(self, state: State) -> bool:
        """Whether the mechanism answers no more; by default only `Halted` and ``rounds`` end it."""
        return False

    def adversarial(self, data: object, neighbour: object) -> tuple[object, ...]:
        """Return queries that distinguish neighbours as well as the guarantee allows, for audits.

        A mechanism that drives itself or observes needs none: there the data are adversarial.
        """
        if self.self_driven or self.observes:
            return ()
        raise ValueError(f"no adversarial queries are known for {self.kind!r}; pass queries")

    def run(self, data: View, run: Run) -> object:
        """Make all steps of a mechanism that drives itself; another one answers nothing."""
        if self.observes:
            # Each step would read all data: a record would be in every batch, not in one.
            raise ValueError(
                f"{self.kind} reads records that arrive; open its plan alone and call "
                "observe(batch)"
            )
        state = self.init(data, run)
        for index in range(self.rounds if self.self_driven else 0):
            if self.is_done(state):
                break
            state, answer = self.step(state, None, data, run)
            run.progress((index + 1) / self.rounds)
            if isinstance(answer, Halted):
                break
        return self.finish(state)

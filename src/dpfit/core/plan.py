"""Plans and their five shapes: `Step`, `Chain`, `Split`, `Select` and `Until`, each of them a plan again.

A plan is frozen and public. Its event says which mechanisms run, at which noise multipliers, on which part of the data,
at most how often; its guarantee follows before data is seen. Geometry may be bound late, from released values only.
"""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np

from dpfit.core.explain import in_words
from dpfit.core.mechanism import Batched, Interactive, Mechanism, Risk, Run, Session, Work
from dpfit.core.runner import Interaction, Release, open_plan, run_plan
from dpfit.ledger.chain import fingerprint
from dpfit.privacy import Basis, Filter, Guarantee
from dpfit.privacy import event as events
from dpfit.privacy.check import one_of
from dpfit.privacy.event import Event
from dpfit.privacy.guarantee import parallel_basis
from dpfit.privacy.spec import Spec, from_json


class BindingChangedTheEvent(ValueError):
    """A late-bound mechanism does something else than was planned (and charged)."""


@dataclass(frozen=True)
class Plan(Spec, ABC):
    """A frozen, printable, comparable, serializable procedure with its promise."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """What is done, whatever the data are."""

    @property
    @abstractmethod
    def basis(self) -> Basis:
        """Why the promise holds."""

    @property
    @abstractmethod
    def work(self) -> Work:
        """Predicted work."""

    @property
    def risk(self) -> Risk | None:
        """Predicted error."""
        return None

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return Guarantee(self.event, self.basis)

    def bound(self, released: tuple[Any, ...]) -> Plan:
        """The plan with its geometry set from released values; the event stays."""
        return self

    @abstractmethod
    def execute(self, data: Any, run: Run) -> Any:
        """Draw the output; called by the runner only."""

    @property
    def batched(self) -> bool:
        """Whether many outputs can be drawn for less than as many single ones cost."""
        return False

    def execute_many(self, data: Any, run: Run, count: int) -> Sequence[Any]:
        """Draw independent outputs, each with the law of `execute`: for audits and simulations, never for a release."""
        return [self.execute(data, run) for _ in range(count)]

    def session(self, data: Any, run: Run) -> Session:
        """Open for queries; called by the runner only."""
        return _Once(self, data, run)

    def run(self, data: Any, queries: Iterable[Any] = (), **options: Any) -> Release:
        """Open, drive, close: see `open_plan` for the options."""
        return run_plan(self, data, queries, **options)

    def open(self, data: Any, **options: Any) -> Interaction:
        """An interaction on the data, charged in full: see `open_plan` for the options."""
        return open_plan(self, data, **options)

    @property
    def parts(self) -> tuple[Plan, ...]:
        """The plans that this one is made of."""
        values = [getattr(self, field.name) for field in fields(self)]
        groups = [value if isinstance(value, tuple) else (value,) for value in values]
        return tuple(part for group in groups for part in group if isinstance(part, Plan))

    @property
    def fingerprints(self) -> frozenset[str]:
        """Fingerprints of the plan's JSON: as `to_json` writes it, and as `plan_from_json` read it."""
        return frozenset({fingerprint(self.to_json()), *getattr(self, "_read", ())})

    def explain(self, delta: float = 1e-6) -> str:
        """The plan in words: what runs, what is promised (at a ``delta``, where it takes one), on what basis; then the
        same for each kind of part."""
        basis, promise = self.basis, replace(self.guarantee, shown_at=delta)
        lines = [f"does       {in_words(self.event)}", f"promises   {promise}", f"rests on   {basis.theorem}"]
        lines += [f"{a.status:10} {a.text}" for a in basis.assumptions]
        lines += [f"arithmetic {basis.arithmetic}", f"costs      {self.work}"]
        if self.risk is not None:
            lines.append(f"expect     {self.risk.meaning} about {self.risk.expected:.4g}")
        texts = dict.fromkeys(part.explain(delta) for part in self.parts)
        for number, text in enumerate(texts, 1):
            lines += [f"part       {number} of {len(texts)}", text]
        return "\n".join(lines)


def plan_from_json(value: Any) -> Plan:
    """Return the plan that `Plan.to_json` wrote, now or in an earlier version of dpfit.

    The plan keeps the fingerprint of ``value``: rows of a ledger hold the JSON of the version that wrote them.
    """
    plan = from_json(value, Plan)
    object.__setattr__(plan, "_read", (fingerprint(value),))
    return plan


@dataclass(frozen=True)
class Step(Plan):
    """One mechanism."""

    kind = "step"
    mechanism: Mechanism
    why: Basis

    @property
    def event(self) -> Event:
        return self.mechanism.event

    @property
    def basis(self) -> Basis:
        return self.why

    @property
    def work(self) -> Work:
        return self.mechanism.work

    @property
    def risk(self) -> Risk | None:
        return self.mechanism.risk

    def bound(self, released: tuple[Any, ...]) -> Step:
        step = replace(self, mechanism=self.mechanism.bind(released))
        if step.event != self.event:
            raise BindingChangedTheEvent(f"{self.mechanism.kind}.bind changed the event; only geometry may be bound")
        return step

    def execute(self, data: Any, run: Run) -> Any:
        return self.mechanism.run(data, run)

    @property
    def batched(self) -> bool:
        return isinstance(self.mechanism, Batched)

    def execute_many(self, data: Any, run: Run, count: int) -> Sequence[Any]:
        if isinstance(self.mechanism, Batched):
            return self.mechanism.run_many(data, run, count)
        return super().execute_many(data, run, count)

    def session(self, data: Any, run: Run) -> Session:
        if isinstance(self.mechanism, Interactive):
            return self.mechanism.open(data, run)
        return super().session(data, run)


@dataclass(frozen=True)
class Chain(Plan):
    """Stages on the same data; each is bound to what earlier ones released. The value is the tuple of all outputs."""

    kind = "chain"
    stages: tuple[Plan, ...]

    def __post_init__(self) -> None:
        _check_parts(self.stages)

    @property
    def event(self) -> Event:
        return events.Composed(tuple(stage.event for stage in self.stages))

    @property
    def basis(self) -> Basis:
        return _joined(self.stages, "adaptive composition")

    @property
    def work(self) -> Work:
        return sum((stage.work for stage in self.stages), Work())

    @property
    def risk(self) -> Risk | None:
        return self.stages[-1].risk

    def bound(self, released: tuple[Any, ...]) -> Chain:
        return replace(self, stages=(self.stages[0].bound(released), *self.stages[1:]))

    def execute(self, data: Any, run: Run) -> tuple[Any, ...]:
        released: tuple[Any, ...] = ()
        done = 0.0
        for stage, share in zip(self.stages, _shares_of_work(self.stages), strict=True):
            released += (stage.bound(released).execute(data, run.part(done, share)),)
            done += share
        return released

    @property
    def batched(self) -> bool:
        return any(stage.batched for stage in self.stages)

    def execute_many(self, data: Any, run: Run, count: int) -> Sequence[Any]:
        released: list[tuple[Any, ...]] = [()] * count
        for stage in self.stages:
            # Runs that have released the same so far are runs of one bound plan from here on.
            alike: dict[bytes, list[int]] = {}
            for index, values in enumerate(released):
                alike.setdefault(pickle.dumps(values), []).append(index)
            for members in alike.values():
                outputs = stage.bound(released[members[0]]).execute_many(data, run, len(members))
                for index, output in zip(members, outputs, strict=True):
                    released[index] += (output,)
        return released


@dataclass(frozen=True)
class Key(Spec, ABC):
    """A public rule that assigns each record to a part by its own values."""

    @abstractmethod
    def parts(self, rows: Any) -> Any:
        """The part number of each row, from that row alone."""


@dataclass(frozen=True)
class Split(Plan):
    """Plans on disjoint parts of the data.

    ``by="index"``: row i goes to part i modulo the number of parts (replace-one only: a removed row would move all
    later ones). ``by="coin"``: every row draws its part by a coin of its own. ``by="value"``: ``key`` decides.
    """

    kind = "split"
    plans: tuple[Plan, ...]
    by: str = "coin"
    key: Key | None = None

    def __post_init__(self) -> None:
        _check_parts(self.plans)
        one_of("by", self.by, ("index", "coin", "value"))
        if (self.by == "value") != (self.key is not None):
            raise ValueError("a key goes with by='value', and only with it")
        if self.by == "index" and self.basis.relation == "add_remove":
            raise ValueError(
                "parts by row index need relation='replace': removing a row moves all later rows to other parts; "
                "use by='coin', which gives every row a coin of its own"
            )

    @property
    def event(self) -> Event:
        return events.Parallel(tuple(plan.event for plan in self.plans), "value" if self.by == "value" else "index")

    @property
    def basis(self) -> Basis:
        return parallel_basis([plan.basis for plan in self.plans], self.by)

    @property
    def work(self) -> Work:
        return sum((plan.work for plan in self.plans), Work()) * (1 / len(self.plans))

    def bound(self, released: tuple[Any, ...]) -> Split:
        return replace(self, plans=tuple(plan.bound(released) for plan in self.plans))

    def execute(self, data: Any, run: Run) -> tuple[Any, ...]:
        number = self._assign(data, run)
        outputs = []
        for index, plan in enumerate(self.plans):
            part = run.part(index / len(self.plans), 1 / len(self.plans))
            outputs.append(plan.execute(_rows(data, np.flatnonzero(number == index)), part))
        return tuple(outputs)

    def _assign(self, data: Any, run: Run) -> Any:
        if self.key is not None:
            return np.asarray(self.key.parts(data))
        if self.by == "index":
            return np.arange(len(data)) % len(self.plans)
        return run.noise.integers(len(self.plans), len(data))


@dataclass(frozen=True)
class Scored:
    """An output with the score that selection compares."""

    score: float
    value: Any


@dataclass(frozen=True)
class Select(Plan):
    """The best-scored output of a geometric number of runs of ``plan``, whose outputs are `Scored`; only it leaves.

    Reference: Liu and Talwar (2019), Papernot and Steinke (2022) with eta = 1; mean number of runs 1 / stop.
    """

    kind = "select"
    plan: Plan
    stop: float

    def __post_init__(self) -> None:
        events.Selected(self.plan.event, self.stop)

    @property
    def event(self) -> Event:
        return events.Selected(self.plan.event, self.stop)

    @property
    def basis(self) -> Basis:
        return replace(self.plan.basis, theorem=f"{self.plan.basis.theorem}; private selection")

    @property
    def work(self) -> Work:
        return self.plan.work * (1 / self.stop)

    def bound(self, released: tuple[Any, ...]) -> Select:
        return replace(self, plan=self.plan.bound(released))

    def execute(self, data: Any, run: Run) -> Scored:
        quiet = run.part(0.0, 0.0)
        best: Scored = self.plan.execute(data, quiet)
        while not run.noise.bernoulli(self.stop, 1)[0]:
            other: Scored = self.plan.execute(data, quiet)
            # A score that is not a number never wins; the comparison sees released-quality values only.
            if other.score > best.score or math.isnan(best.score):
                best = other
        return best


@dataclass(frozen=True)
class Policy(Spec, ABC):
    """A public rule that chooses the next plan from the answers so far."""

    @abstractmethod
    def next(self, answers: tuple[Any, ...]) -> Plan | None:
        """The next plan, or None to stop."""


@dataclass(frozen=True)
class Until(Plan):
    """Plans chosen one after the other from earlier answers while a privacy filter allows; the promise is the cap.

    Opened, it takes plans of its own relation and unit as queries; run without queries, it follows ``policy``. The
    value is the tuple of all answers.
    """

    kind = "until"
    cap: Event
    why: Basis
    policy: Policy | None = None

    def __post_init__(self) -> None:
        events.Filtered(self.cap)

    @property
    def event(self) -> events.Filtered:
        return events.Filtered(self.cap)

    @property
    def basis(self) -> Basis:
        return replace(self.why, theorem=f"{self.why.theorem}; privacy filter")

    @property
    def work(self) -> Work:
        return Work(passes=math.inf)

    def execute(self, data: Any, run: Run) -> tuple[Any, ...]:
        session = self.session(data, run)
        session.drive(())
        return session.result()

    def session(self, data: Any, run: Run) -> _Filtered:
        return _Filtered(self, data, run)


class _Once(Session):
    """A plan that answers everything at once: any query gives its value."""

    def __init__(self, plan: Plan, data: Any, run: Run) -> None:
        self._draw: Callable[[], Any] = lambda: plan.execute(data, run)
        self._value: Any = None

    def step(self, query: Any) -> Any:
        return self.result()

    def result(self) -> Any:
        if not self.done:
            self._value, self.done = self._draw(), True
        return self._value


class _Filtered(Session):
    """Charges each plan to the filter before it runs."""

    def __init__(self, plan: Until, data: Any, run: Run) -> None:
        self._filter = Filter(plan.event, plan.basis.relation)
        self._basis, self._policy, self._data, self._run = plan.basis, plan.policy, data, run
        self._answers: tuple[Any, ...] = ()

    def step(self, query: Plan) -> Any:
        self._basis.joined(query.basis, "")  # refuses another relation or unit
        self._filter.charge(query.event)
        self._answers += (query.execute(self._data, self._run),)
        return self._answers[-1]

    def drive(self, queries: Iterable[Plan]) -> None:
        super().drive(queries)
        if self._policy is None or self._answers:
            return
        while (plan := self._policy.next(self._answers)) is not None and self._filter.fits(plan.event):
            self.step(plan)

    def result(self) -> tuple[Any, ...]:
        return self._answers


def _check_parts(parts: tuple[Plan, ...]) -> None:
    if not isinstance(parts, tuple) or not parts or not all(isinstance(part, Plan) for part in parts):
        raise ValueError("a plan of several parts needs a non-empty tuple of plans")
    _joined(parts, "")


def _shares_of_work(stages: tuple[Plan, ...]) -> list[float]:
    """Each stage's part of the planned passes, for progress; equal parts where some plan does not say."""
    passes = [stage.work.passes for stage in stages]
    if not all(0 < count < math.inf for count in passes):
        return [1 / len(stages)] * len(stages)
    return [count / sum(passes) for count in passes]


def _joined(parts: tuple[Plan, ...], rule: str) -> Basis:
    """The basis of all parts; refuses mixed relations and units."""
    return reduce(lambda basis, part: basis.joined(part.basis, rule), parts[1:], parts[0].basis)


def _rows(data: Any, index: Any) -> Any:
    """The rows of a part."""
    return data.rows(index) if hasattr(data, "rows") else np.asarray(data)[index]

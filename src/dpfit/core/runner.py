"""The runner: check the data, reserve, run, commit. Nothing is drawn before it is charged."""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypedDict

import numpy as np

from dpfit.core.mechanism import Halted, Interactive, Run, State
from dpfit.core.missing import require_complete
from dpfit.core.store import StateFile
from dpfit.data.dataset import Dataset
from dpfit.data.view import View, view_of
from dpfit.ledger.errors import LedgerUnavailable
from dpfit.noise import Source
from dpfit.noise.source import lineage
from dpfit.privacy import Guarantee

if TYPE_CHECKING:
    from dpfit.core.plan import Plan


_MANY = 1024
"""Batches that are observed at a time where none is stored."""


@dataclass(frozen=True)
class Release:
    """What leaves: the output, its guarantee and its plan.

    ``private`` is False when the caller set the RNG seed: whoever knows the seed can subtract the
    noise. ``facts`` are functions of released values. ``diagnostics``, if asked for, are not
    private.
    """

    value: Any
    plan: Plan
    private: bool
    diagnostics: dict[str, object] | None = field(default=None, repr=False)
    halted: bool = False
    facts: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """What is guaranteed about the value."""
        return self.plan.guarantee

    @property
    def output(self) -> Any:
        """The part of the value that solves the problem: the output of the last stage."""
        return self.plan.output(self.value)

    @property
    def stages(self) -> dict[str, Any]:
        """What each stage of a composition released, by name."""
        return self.plan.stage_values(self.value)


class Progress(Protocol):
    """A function that is called with the share of the work that is done."""

    def __call__(self, share: float, /) -> None: ...


class RunOptions(TypedDict, total=False):
    """Options of `run_plan`: those of `open_plan` but for ``store``."""

    account: Account | None
    random_state: int | None
    diagnostics: bool
    progress: Progress | None


class Account(Protocol):
    """Where budget is kept: reserved before data are read; an open reservation stays spent."""

    def reserve(self, plan: Plan) -> object:
        """Reserve the plan's privacy cost or raise; returns a token that state files can hold."""

    def commit(self, token: Any, release: Release) -> None:
        """Record that the release happened."""

    def abandon(self, token: Any, why: str = "", *, touched: bool = True) -> None:
        """Record that nothing is released; refunds the budget if ``touched`` is false."""

    def advance(self, token: Any, step: int, mark: str, previous: str) -> None:
        """Record the step and the mark of the newest line of a state file, or raise.

        The mark before it must be the newest one that is recorded: a copied state file would give
        one step a second answer.
        """


class ReleaseNotRecorded(UserWarning):
    """A release that is charged, and whose closing row the ledger could not write."""


class InteractionClosed(RuntimeError):
    """A query after the interaction ended."""


class AnswerWithheld(RuntimeError):
    """A query while the answer before it waits to be stored."""


class _Outcome(NamedTuple):
    """What a step leaves; it waits until it is stored and recorded."""

    state: State
    answer: Any
    halted: bool


class Interaction:
    """Queries and answers over time; the whole event was charged when it was opened.

    One interaction gives one answer for each step: steps are serialized by a lock, a forked child
    cannot go on with its parent's interaction, and an interaction is neither copied nor pickled.
    """

    def __init__(
        self,
        plan: Plan,
        data: View,
        run: Run,
        *,
        account: Account | None,
        token: object,
        store: StateFile | None,
    ) -> None:
        mechanism = plan.interactive
        if mechanism is None:
            raise ValueError(
                f"a {plan.kind} plan answers once; call plan.run(data) instead of plan.open(data)"
            )
        self.plan = plan
        self._mechanism: Interactive = mechanism
        self._data, self._run, self._account, self._token = data, run, account, token
        self._store = store
        self._lock, self._process = threading.Lock(), lineage()
        self._busy: int | None = None
        self._state: State = {}
        self._steps, self._halted, self._private = 0, False, run.noise.private
        self._release: Release | None = None
        self.last: Any = None
        """The last answer, for a caller that was killed before it came."""
        self._waiting: _Outcome | None = None
        self._stored = False

    def _begin(self) -> None:
        with _without_warnings():
            state = self._mechanism.init(self._data, self._run)
        self._waiting = _Outcome(state, None, False)
        self._settle()

    def _continue(self, saved: Mapping[str, Any]) -> None:
        self._steps, self._private = saved["steps"], saved["private"]
        if self._run.filter is not None:
            self._run.filter.restore(saved["spent"])
        self._waiting, self._stored = _Outcome(saved["state"], saved["last"], saved["halted"]), True
        self._settle()

    @property
    def steps(self) -> int:
        """Number of steps so far, without one whose answer is withheld."""
        return self._steps - self.withheld

    @property
    def withheld(self) -> bool:
        """Whether the answer of the newest step is kept back, since it could not be stored."""
        return self._waiting is not None

    @property
    def value(self) -> Any:
        """What `close` would release now: a function of the answers so far."""
        with self._alone():
            self._settle()
            with _without_warnings():
                return self.plan.shown(self._mechanism.finish(self._state))

    @property
    def done(self) -> bool:
        """Whether it answers no more."""
        return self._release is not None or (
            not self.withheld
            and (
                self._halted
                or self._steps >= self._mechanism.rounds
                or self._mechanism.is_done(self._state)
            )
        )

    def retry(self) -> Any:
        """Store a withheld answer and return it; no record is read again."""
        with self._alone():
            self._settle()
            return self.last

    def step(self, query: object = None) -> Any:
        """Answer one query."""
        if self.plan.observes:
            raise ValueError(
                f"{self._mechanism.kind} reads records that arrive; call observe(batch)"
            )
        return self._answer(query, self._data)

    def observe(self, batch: object) -> Any:
        """Feed records that arrived, checked against the plan; returns the answer after them."""
        if not self.plan.observes:
            # Its guarantee counts on data that stay the same, or on parts of them.
            raise ValueError(
                f"{self._mechanism.kind} reads the data that it was opened on; call step(query)"
            )
        return self._answer(None, self._arrived(batch))

    def _arrived(self, batch: object) -> View:
        basis = self.plan.basis
        view = view_of(batch, basis.relation, basis.unit, self._run.noise)
        with _without_warnings():
            return self.plan.arrived(view, self._run)

    def _answer(self, query: object, data: View) -> object:
        with self._alone():
            if self.done:
                raise InteractionClosed(
                    "this interaction has ended; open the plan again (and pay again) to ask more"
                )
            if self.withheld:
                # Whoever repeats the failed call would put its records into two steps.
                raise AnswerWithheld(
                    f"the answer to step {self._steps} was not stored; call retry() for it, and "
                    "then go on with the next step"
                )
            # A step that fails after it drew noise must not be asked again: it counts before it is
            # answered.
            self._steps += 1
            with _without_warnings():
                state, answer = self._mechanism.step(self._state, query, data, self._run)
            halted = isinstance(answer, Halted)
            self._waiting = _Outcome(state, answer.value if halted else answer, halted)  # type: ignore[attr-defined]
            self._settle()
            return self.last

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread of the process that opened the interaction act, one query at a time."""
        # Before the lock: a fork copies a lock that another thread holds, and nobody in the child
        # would release it.
        if lineage() != self._process:
            raise InteractionClosed(
                "a forked process cannot go on with its parent's interaction; resume it there"
            )
        if self._busy == threading.get_ident():
            raise InteractionClosed(
                "a query must not use the interaction that answers it; ask after the answer"
            )
        with self._lock:
            self._busy = threading.get_ident()
            try:
                yield
            finally:
                self._busy = None

    def _settle(self) -> None:
        """Store what waits and tell the ledger; only then may it leave.

        The state file comes first: a process that is killed in between leaves a file one line
        ahead of the ledger, which `resume` records.
        """
        if self._waiting is None:
            return
        state, answer, halted = self._waiting
        if self._store is not None and not self._stored:
            spent = None if self._run.filter is None else self._run.filter.spent
            self._store.write(
                plan=self.plan.fingerprint,
                token=self._token,
                steps=self._steps,
                state=state,
                spent=spent,
                last=answer,
                halted=halted,
                private=self._private,
            )
            self._stored = True
        if self._store is not None and self._account is not None:
            self._account.advance(self._token, self._steps, self._store.mark, self._store.previous)
        self._state, self.last, self._halted = state, answer, halted
        self._waiting, self._stored = None, False

    def drive(self, queries: Iterable[object]) -> None:
        """Put the queries in turn until the interaction ends; self-driving mechanisms need none."""
        for query in queries:
            if self.done:
                return
            self.step(query)
        while self._mechanism.self_driven and not self.done:
            self.step()
            self._run.progress(self._steps / self._mechanism.rounds)

    def feed(self, batches: Iterable[object]) -> None:
        """Observe the batches one by one until the interaction ends."""
        if self._store is None and self.plan.observes and self._run.filter is None:
            self._feed_unstored(iter(batches))
            return
        for batch in batches:
            if self.done:
                return
            self.observe(batch)

    def _feed_unstored(self, batches: Iterator[object]) -> None:
        """Observe batches many at a time: no answer has to be stored before the next step."""
        while not self.done:
            count = min(_MANY, self._mechanism.rounds - self._steps)
            views = [self._arrived(batch) for batch in itertools.islice(batches, count)]
            if not views:
                return
            with self._alone():
                self._steps += len(views)
                with _without_warnings():
                    self._state, answers = self._mechanism.observe_many(
                        self._state, views, self._run
                    )
                # A mechanism that halted answered fewer.
                self._steps -= len(views) - len(answers)
                self._halted = isinstance(answers[-1], Halted)
                self.last = answers[-1].value if self._halted else answers[-1]  # type: ignore[attr-defined]

    def close(self) -> Release:
        """End the interaction and commit the reservation; closing twice gives the same release."""
        if self._release is not None:
            return self._release
        with self._alone():
            if self._release is None:
                self._settle()
                with _without_warnings():
                    value = self.plan.shown(self._mechanism.finish(self._state))
                release = Release(
                    value,
                    self.plan,
                    self._private,
                    self._run.diagnostics,
                    self._halted,
                    self._run.published,
                )
                _commit(self._account, self._token, release)
                self._release = release
            return self._release

    def __enter__(self) -> Interaction:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an interaction cannot be copied or pickled: each copy would answer for one charge"
        )

    __copy__ = __reduce__

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce__()


def open_plan(
    plan: Plan,
    data: object = None,
    *,
    account: Account | None = None,
    store: Path | str | None = None,
    random_state: int | None = None,
    diagnostics: bool = False,
    progress: Progress | None = None,
) -> Interaction:
    """Check the data, reserve the plan in ``account``, and open the plan on the data.

    A plan that observes is opened without data: each batch is checked when it arrives.
    ``store`` is a file for the state, which is private: it is written before each answer leaves,
    and `resume` goes on from it. ``random_state`` is an RNG seed for tests; a seeded release is not
    private and says so. ``progress`` is called with the share of the work done.
    """
    run, view = _prepare(plan, data, random_state, diagnostics, progress)
    if plan.interactive is None:
        raise ValueError(
            f"a {plan.kind} plan answers once; call plan.run(data) instead of plan.open(data)"
        )
    if store is not None and not plan.interactive.resumable:
        raise ValueError(
            f"the state of {plan.interactive.kind} cannot be stored; open the plan without store"
        )
    file = None if store is None else StateFile.new(store)
    token = account.reserve(plan) if account is not None else None
    interaction = Interaction(
        plan,
        view,
        run.within(plan.event, plan.basis.relation),
        account=account,
        token=token,
        store=file,
    )
    with _abandoned_if_untouched(account, token, view):
        interaction._begin()
    return interaction


def resume(
    plan: Plan, store: Path | str, data: object = None, *, account: Account | None = None
) -> Interaction:
    """Resume an interaction from its state file, in any process; nothing is charged again.

    Noise is drawn afresh: the file holds none of the future.
    """
    run, view = _prepare(plan, data, None, False, None)
    file = StateFile.existing(store)
    saved = file.read(plan.fingerprint)
    if (saved["token"] is None) != (account is None):
        # Without its ledger a copied state file would go unnoticed.
        raise ValueError(
            "the session was opened without an account; resume it without one"
            if account is not None
            else "the session was charged to an account; pass the same account to resume it"
        )
    interaction = Interaction(
        plan,
        view,
        run.within(plan.event, plan.basis.relation),
        account=account,
        token=saved["token"],
        store=file,
    )
    interaction._continue(saved)
    return interaction


def run_plan(
    plan: Plan,
    data: object = None,
    queries: Iterable[object] = (),
    *,
    account: Account | None = None,
    random_state: int | None = None,
    diagnostics: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Run a plan once: check, reserve, execute, commit; interactive plans are driven and closed.

    The data of a plan that observes are a sequence of batches.
    """
    options: RunOptions = {
        "account": account,
        "random_state": random_state,
        "diagnostics": diagnostics,
        "progress": progress,
    }
    if plan.observes:
        if isinstance(data, Dataset) or not isinstance(data, Iterable):
            raise ValueError(
                f"data must be a sequence of batches, got {type(data).__name__}; pass one for "
                "each step"
            )
        interaction = open_plan(plan, None, **options)
        interaction.feed(data)
        return interaction.close()
    if plan.interactive is not None:
        interaction = open_plan(plan, data, **options)
        interaction.drive(queries)
        return interaction.close()
    run, view = _prepare(plan, data, random_state, diagnostics, progress)
    token = account.reserve(plan) if account is not None else None
    with _abandoned_if_untouched(account, token, view), _without_warnings():
        value = plan.execute(view, run)
    release = Release(
        value, plan, run.noise.private, run.diagnostics, isinstance(value, Halted), run.published
    )
    _commit(account, token, release)
    return release


def _commit(account: Account | None, token: Any, release: Release) -> None:
    """Record a release; warn if the ledger is not writable: the reservation is durable.

    Every other error is raised, and the release withheld: of a reservation that is closed already
    or is not in the ledger, nothing may leave.
    """
    if account is None:
        return
    try:
        account.commit(token, release)
    except LedgerUnavailable as error:
        warnings.warn(
            "the release is charged, but the ledger shows it as open, since its closing row was "
            f"not written: {error}",
            ReleaseNotRecorded,
            stacklevel=3,
        )


def _prepare(
    plan: Plan, data: object, random_state: int | None, diagnostics: bool, progress: Progress | None
) -> tuple[Run, View]:
    """Open the noise and check the data against the plan, before anything is reserved."""
    run = Run(
        Source(random_state), progress, {} if diagnostics else None
    )  # an invalid seed is refused here
    require_complete(plan)
    basis = plan.basis
    view = view_of(data, basis.relation, basis.unit, run.noise)
    if not plan.observes:
        plan.check(view)
    elif data is not None:
        raise ValueError("a plan that observes is opened without data; feed each batch to observe")
    view.touched = False
    return run, view


@contextmanager
def _abandoned_if_untouched(account: Account | None, token: object, view: View) -> Iterator[None]:
    """Abandon the reservation if the run fails before it asks for a record: that leaks nothing."""
    try:
        yield
    except BaseException as error:
        if account is not None and not view.touched:
            account.abandon(token, type(error).__name__, touched=False)
        raise


class _IgnoredWarnings:
    """Warnings are ignored while any thread reads records.

    Filters are those of the whole process, so the last thread to leave restores them. A release
    that the ledger does not show is reported at any time.
    """

    def __init__(self) -> None:
        self._lock, self._readers = threading.Lock(), 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Take a new lock: a forked child has a copy that another thread may have held."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._readers:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", ReleaseNotRecorded)
            self._readers += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._readers -= 1
            if not self._readers:
                self._filters.__exit__(None, None, None)


_IGNORED_WARNINGS = _IgnoredWarnings()


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hold back the warnings of libraries and queries: an overflow may reveal one record.

    Filters that turn warnings into errors are held back, too.
    """
    with np.errstate(all="ignore"), _IGNORED_WARNINGS:
        yield

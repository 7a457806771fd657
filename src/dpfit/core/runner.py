"""The one runner: check the data, reserve in an account, run, commit. Nothing is drawn before it is charged."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from dpfit.core.mechanism import Halted, Interactive, Run, State
from dpfit.core.missing import require_complete
from dpfit.core.store import StateFile
from dpfit.data.dataset import Dataset
from dpfit.data.view import View, view_of
from dpfit.noise import Source
from dpfit.privacy import Guarantee

if TYPE_CHECKING:
    from dpfit.core.plan import Plan


@dataclass(frozen=True)
class Release:
    """What leaves: the output, its guarantee and its plan.

    ``private`` is False when the caller set the RNG seed: whoever knows the seed can subtract the noise.
    ``facts`` are functions of released values. ``diagnostics``, if asked for, are not private.
    """

    value: Any
    plan: Plan
    private: bool
    diagnostics: dict[str, Any] | None = field(default=None, repr=False)
    halted: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

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


class Account(Protocol):
    """Where budget is kept. Reserving comes before data is read; an open reservation stays spent."""

    def reserve(self, plan: Plan) -> Any:
        """Set the plan's privacy cost aside, or raise; returns a token of plain values, which a state file can hold."""

    def commit(self, token: Any, release: Release) -> None:
        """Record that the release happened."""

    def abandon(self, token: Any, why: str = "", *, touched: bool = True) -> None:
        """Record that the release will not happen; gives the budget back if no record was read (``touched=False``)."""


class InteractionClosed(RuntimeError):
    """A query after the interaction ended."""


class Interaction:
    """Queries and answers over time; the whole event was charged when it was opened.

    One interaction gives one answer for each step: steps are serialized by a lock, a forked child cannot go on with
    its parent's interaction, and an interaction is neither copied nor pickled.
    """

    def __init__(
        self, plan: Plan, data: View, run: Run, *, account: Account | None, token: Any, store: StateFile | None
    ) -> None:
        mechanism = plan.interactive
        if mechanism is None:
            raise ValueError(f"a {plan.kind} plan answers once; call plan.run(data) instead of plan.open(data)")
        self.plan = plan
        self._mechanism: Interactive = mechanism
        self._data, self._run, self._account, self._token = data, run, account, token
        self._store = store
        self._lock, self._process = threading.Lock(), os.getpid()
        self._state: State = {}
        self._steps, self._halted, self._private = 0, False, run.noise.private
        self._release: Release | None = None
        self.last: Any = None
        """The last answer, for a caller that was killed before it came."""

    def _begin(self) -> None:
        self._state = self._mechanism.init(self._data, self._run)
        self._save()

    def _continue(self, saved: Mapping[str, Any]) -> None:
        self._state, self._steps, self.last = saved["state"], saved["steps"], saved["last"]
        self._halted, self._private = saved["halted"], saved["private"]
        if self._run.filter is not None:
            self._run.filter.restore(saved["spent"])

    @property
    def done(self) -> bool:
        """Whether it answers no more."""
        return (
            self._release is not None
            or self._halted
            or self._steps >= self._mechanism.rounds
            or self._mechanism.is_done(self._state)
        )

    def step(self, query: Any = None) -> Any:
        """Answer one query."""
        if self.plan.observes:
            raise ValueError(f"{self._mechanism.kind} reads records that arrive; call observe(batch)")
        return self._answer(query, self._data)

    def observe(self, batch: Any) -> Any:
        """Feed records that arrived, checked against the plan; returns the answer after them."""
        if not self.plan.observes:
            # Its guarantee counts on data that stay the same, or on parts of them.
            raise ValueError(f"{self._mechanism.kind} reads the data that it was opened on; call step(query)")
        basis = self.plan.basis
        view = view_of(batch, basis.relation, basis.unit, self._run.noise)
        self.plan.check(view)
        return self._answer(None, view)

    def _answer(self, query: Any, data: View) -> Any:
        with self._lock:
            if os.getpid() != self._process:
                raise InteractionClosed("a forked process cannot go on with its parent's interaction; resume it there")
            if self.done:
                raise InteractionClosed("this interaction has ended; open the plan again (and pay again) to ask more")
            # A step that fails after it drew noise must not be asked again: it counts before it is answered.
            self._steps += 1
            state, answer = self._mechanism.step(self._state, query, data, self._run)
            self._state = state
            self._halted = isinstance(answer, Halted)
            self.last = answer.value if isinstance(answer, Halted) else answer
            self._save()
            return self.last

    def _save(self) -> None:
        """Store the state before an answer leaves."""
        if self._store is not None:
            spent = None if self._run.filter is None else self._run.filter.spent
            self._store.write(
                plan=self.plan.fingerprint, token=self._token, steps=self._steps, state=self._state, spent=spent,
                last=self.last, halted=self._halted, private=self._private,
            )  # fmt: skip

    def drive(self, queries: Iterable[Any]) -> None:
        """Put the queries one by one until the interaction ends; a mechanism that drives itself needs none."""
        for query in queries:
            if self.done:
                return
            self.step(query)
        while self._mechanism.self_driven and not self.done:
            self.step()
            self._run.progress(self._steps / self._mechanism.rounds)

    def feed(self, batches: Iterable[Any]) -> None:
        """Observe the batches one by one until the interaction ends."""
        for batch in batches:
            if self.done:
                return
            self.observe(batch)

    def close(self) -> Release:
        """End the interaction and commit what was reserved; closing twice gives the same release."""
        if self._release is None:
            value = self._mechanism.finish(self._state)
            self._release = Release(
                value, self.plan, self._private, self._run.diagnostics, self._halted, self._run.published
            )
            if self._account is not None:
                self._account.commit(self._token, self._release)
        return self._release

    def __enter__(self) -> Interaction:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an interaction cannot be copied or pickled: each copy would answer for one charge")

    __copy__ = __reduce__

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.__reduce__()


def open_plan(
    plan: Plan,
    data: Any = None,
    *,
    account: Account | None = None,
    store: Path | str | None = None,
    random_state: int | None = None,
    diagnostics: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Interaction:
    """Check the data, reserve the plan in ``account``, and open the plan on the data.

    A plan that observes is opened without data: each batch is checked when it arrives.
    ``store`` is a file for the state, which is private: it is written before each answer leaves, and `resume` goes on
    from it. ``random_state`` is an RNG seed for tests; a seeded release is not private and says so. ``progress`` is
    called with the share of the work done.
    """
    run, view = _prepare(plan, data, random_state, diagnostics, progress)
    if plan.interactive is None:
        raise ValueError(f"a {plan.kind} plan answers once; call plan.run(data) instead of plan.open(data)")
    if store is not None and not plan.interactive.resumable:
        raise ValueError(f"the state of {plan.interactive.kind} cannot be stored; open the plan without store")
    file = None if store is None else StateFile.new(store)
    token = account.reserve(plan) if account is not None else None
    interaction = Interaction(
        plan, view, run.within(plan.event, plan.basis.relation), account=account, token=token, store=file
    )
    with _abandoned_if_untouched(account, token, view):
        interaction._begin()
    return interaction


def resume(plan: Plan, store: Path | str, data: Any = None, *, account: Account | None = None) -> Interaction:
    """Go on with an interaction from its state file, in this or another process; nothing is charged again.

    Noise is drawn afresh: the file holds none of the future.
    """
    run, view = _prepare(plan, data, None, False, None)
    file = StateFile.existing(store)
    saved = file.read(plan.fingerprint)
    interaction = Interaction(
        plan, view, run.within(plan.event, plan.basis.relation), account=account, token=saved["token"], store=file
    )
    interaction._continue(saved)
    return interaction


def run_plan(
    plan: Plan,
    data: Any = None,
    queries: Iterable[Any] = (),
    *,
    account: Account | None = None,
    random_state: int | None = None,
    diagnostics: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Release:
    """Run a plan once: check the data, reserve, execute, commit. An interactive plan is opened, driven and closed.

    The data of a plan that observes are a sequence of batches.
    """
    options: dict[str, Any] = {"random_state": random_state, "diagnostics": diagnostics, "progress": progress}
    if plan.observes:
        if isinstance(data, Dataset) or not isinstance(data, Iterable):
            raise ValueError(f"data must be a sequence of batches, got {type(data).__name__}; pass one for each step")
        interaction = open_plan(plan, None, account=account, **options)
        interaction.feed(data)
        return interaction.close()
    if plan.interactive is not None:
        interaction = open_plan(plan, data, account=account, **options)
        interaction.drive(queries)
        return interaction.close()
    run, view = _prepare(plan, data, random_state, diagnostics, progress)
    token = account.reserve(plan) if account is not None else None
    with _abandoned_if_untouched(account, token, view):
        value = plan.execute(view, run)
    release = Release(value, plan, run.noise.private, run.diagnostics, isinstance(value, Halted), run.published)
    if account is not None:
        account.commit(token, release)
    return release


def _prepare(
    plan: Plan, data: Any, random_state: int | None, diagnostics: bool, progress: Callable[[float], None] | None
) -> tuple[Run, View]:
    """Open the noise and check the data against the plan, before anything is reserved."""
    run = Run(Source(random_state), progress, {} if diagnostics else None)  # an invalid seed is refused here
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
def _abandoned_if_untouched(account: Account | None, token: Any, view: View) -> Iterator[None]:
    """Give a reservation back if a run fails before it asked for any record: such a failure says nothing of them."""
    try:
        yield
    except BaseException as error:
        if account is not None and not view.touched:
            account.abandon(token, type(error).__name__, touched=False)
        raise

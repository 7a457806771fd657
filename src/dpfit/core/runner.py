"""The one runner: open the noise, reserve in an account, run, commit; nothing is drawn before it is paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dpfit.core.mechanism import Run, Session
from dpfit.noise import Source
from dpfit.privacy import Guarantee

if TYPE_CHECKING:
    from dpfit.core.plan import Plan


@dataclass(frozen=True)
class Release:
    """What leaves: the output, its guarantee and its plan.

    ``private`` is False when the caller set the RNG seed: whoever knows the seed can subtract the noise.
    ``diagnostics``, if asked for, are not private either.
    """

    value: Any
    plan: Plan
    private: bool
    diagnostics: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised about the value."""
        return self.plan.guarantee


class Account(Protocol):
    """Where budget is kept. Reserving comes before data is read; an open reservation stays spent."""

    def reserve(self, plan: Plan) -> Any:
        """Set the plan's cost aside, or raise; returns a token."""

    def commit(self, token: Any, release: Release) -> None:
        """Record that the release happened."""

    def abandon(self, token: Any, why: str = "", *, touched: bool = True) -> None:
        """Record that the release will not happen; gives the budget back if no record was read (``touched=False``)."""


class InteractionClosed(RuntimeError):
    """A query after the interaction ended."""


class Interaction:
    """Queries and answers over time; the whole event was charged when it was opened."""

    def __init__(self, plan: Plan, session: Session, run: Run, account: Account | None, token: Any) -> None:
        self.plan = plan
        self._session, self._run, self._account, self._token = session, run, account, token
        self._release: Release | None = None

    @property
    def done(self) -> bool:
        """Whether it answers no more."""
        return self._release is not None or self._session.done

    def step(self, query: Any = None) -> Any:
        """Answer one query."""
        if self.done:
            raise InteractionClosed("this interaction has ended; open the plan again (and pay again) to ask more")
        return self._session.step(query)

    def drive(self, queries: Iterable[Any]) -> None:
        """Put the queries one by one until the interaction ends; a plan with a policy follows it if there are none."""
        self._session.drive(queries)

    def close(self) -> Release:
        """End the interaction and commit what was reserved; closing twice gives the same release."""
        if self._release is None:
            value = self._session.result()
            self._release = Release(value, self.plan, self._run.noise.private, self._run.diagnostics)
            if self._account is not None:
                self._account.commit(self._token, self._release)
        return self._release

    def __enter__(self) -> Interaction:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()


def open_plan(
    plan: Plan,
    data: Any,
    *,
    account: Account | None = None,
    random_state: int | None = None,
    diagnostics: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Interaction:
    """Open the noise, reserve the plan in ``account``, and open the plan on the data.

    ``random_state`` is an RNG seed for tests; a seeded release is not private and says so. ``progress`` is called with
    the share of the work done.
    """
    run = Run(Source(random_state), progress, {} if diagnostics else None)  # a seed that is none costs nothing
    token = account.reserve(plan) if account is not None else None
    return Interaction(plan, plan.session(data, run), run, account, token)


def run_plan(plan: Plan, data: Any, queries: Iterable[Any] = (), **options: Any) -> Release:
    """Open the plan, put the queries one by one until it ends, close."""
    interaction = open_plan(plan, data, **options)
    interaction.drive(queries)
    return interaction.close()

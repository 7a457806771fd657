"""The runner: charge first, then draw; a seeded release says that it is not private."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dpfit.core import Mechanism, Plan, Release, Run, Step
from dpfit.data.dataset import InMemory
from dpfit.privacy import Basis, Budget
from dpfit.privacy import event as events
from dpfit.solvers.gradient.noisy_gd import noisy_gd


@dataclass(frozen=True)
class Echo(Mechanism):
    kind = "test_echo"
    fails: bool = False

    @property
    def event(self) -> events.Event:
        return events.Pure(0.5)

    def run(self, data: Any, run: Run) -> int:
        data.given.touched += 1
        run.note("rows", 17)
        if self.fails:
            raise RuntimeError("the power went out")
        return int(run.noise.integers(2**62, 1)[0])


@dataclass(frozen=True)
class Unplugged(Echo):
    """Fails before it looks at the data."""

    kind = "test_unplugged"

    def run(self, data: Any, run: Run) -> int:
        raise RuntimeError("no power")


class Unread:
    touched = 0


class Book:
    """An account that remembers the order of things."""

    def __init__(self, data: Unread, refuse: bool = False) -> None:
        self.data, self.refuse = data, refuse
        self.log: list[tuple[str, Any]] = []

    def reserve(self, plan: Plan) -> int:
        if self.refuse:
            raise PermissionError("over budget")
        self.log.append(("reserve", self.data.touched))
        return 42

    def commit(self, token: int, release: Release) -> None:
        self.log.append(("commit", token))

    def abandon(self, token: int, why: str = "", *, touched: bool = True) -> None:
        self.log.append(("abandon", touched))


PLAN = Step(Echo(), Basis("a theorem"))


def test_budget_is_reserved_before_data_is_touched_and_committed_after():
    data = Unread()
    book = Book(data)
    PLAN.run(data, account=book)
    assert book.log == [("reserve", 0), ("commit", 42)]
    assert data.touched == 1


def test_a_refused_plan_touches_nothing():
    data = Unread()
    with pytest.raises(PermissionError):
        PLAN.run(data, account=Book(data, refuse=True))
    assert data.touched == 0


def test_a_crash_keeps_the_reservation():
    data = Unread()
    book = Book(data)
    with pytest.raises(RuntimeError, match="power"):
        Step(Echo(fails=True), Basis("a theorem")).run(data, account=book)
    assert book.log == [("reserve", 0)]


def test_a_failure_before_any_record_was_read_gives_the_reservation_back():
    data = Unread()
    book = Book(data)
    with pytest.raises(RuntimeError, match="no power"):
        Step(Unplugged(), Basis("a theorem")).run(data, account=book)
    assert book.log == [("reserve", 0), ("abandon", False)]


def test_data_that_the_plan_was_not_made_for_cost_nothing():
    """Found out from public facts, before the reservation."""
    problem = noisy_gd.example("replace").problem
    plan = noisy_gd.plan(problem, Budget(mu=1.0))
    for wrong, hint in (
        (
            InMemory(np.zeros((3, 2)), np.zeros(3)),
            "the plan is for n = 20 records, the data have 3",
        ),
        (InMemory(np.zeros((20, 5)), np.zeros(20)), "rows of 2 entries, got 5"),
        (np.zeros((20, 2)), "wrap it as InMemory"),
    ):
        book = Book(Unread())
        with pytest.raises(ValueError, match=hint):
            plan.run(wrong, account=book)
        assert book.log == []


def test_under_add_remove_no_message_tells_the_number_of_records():
    problem = noisy_gd.example("add_remove").problem
    plan = noisy_gd.plan(problem, Budget(mu=1.0, relation="add_remove"))
    for n in (1, 7, 40):
        plan.run(InMemory(np.zeros((n, 2)), np.zeros(n)))


def test_a_seeded_release_is_not_private_and_repeats():
    first, second = (PLAN.run(Unread(), random_state=5) for _ in range(2))
    assert first.value == second.value
    assert not first.private


def test_an_unseeded_release_is_private_and_does_not_repeat():
    first, second = (PLAN.run(Unread()) for _ in range(2))
    assert first.value != second.value
    assert first.private


def test_diagnostics_come_on_request_only():
    assert PLAN.run(Unread()).diagnostics is None
    assert PLAN.run(Unread(), diagnostics=True).diagnostics == {"rows": 17}


def test_numpy_global_state_is_not_used():
    """A peer's default key comes from NumPy's global generator; its seed must not matter."""
    np.random.seed(0)
    first = PLAN.run(Unread()).value
    np.random.seed(0)
    assert PLAN.run(Unread()).value != first

"""Interactions: one answer for each step, stored before it leaves, resumed where it stopped."""

import copy
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dpfit.core import (
    Composition,
    Halted,
    Interact,
    InteractionClosed,
    Interactive,
    Stage,
    Step,
    resume,
)
from dpfit.core.runner import ReleaseNotRecorded
from dpfit.data.dataset import InMemory
from dpfit.ledger import LedgerDamaged, LedgerUnavailable
from dpfit.mechanisms.above_threshold import ThresholdQueries, above_threshold
from dpfit.mechanisms.sparse_vector import SparseQueries, sparse_vector
from dpfit.privacy import Basis, Budget
from dpfit.privacy.event import Event, Filtered, GaussianPrivate

WHY = Basis("a theorem")


@dataclass(frozen=True)
class Counter(Interactive):
    """Counts its steps; halts at ``stop``."""

    kind = "test_counter"
    self_driven: ClassVar[bool] = True
    rounds: int = 5
    stop: int = 99

    @property
    def event(self) -> Event:
        return GaussianPrivate(1.0)

    def init(self, data, run):
        return {"count": 0, "noise": np.zeros(2)}

    def step(self, state, given, data, run):
        count = state["count"] + 1
        answer = Halted(count) if count == self.stop else count
        return {"count": count, "noise": run.noise.gaussian(2)}, answer

    def finish(self, state):
        return state["count"]


@dataclass(frozen=True)
class Spender(Counter):
    """Charges a quarter of mu squared for each step, under a cap of one."""

    kind = "test_spender"
    rounds: int = 100

    @property
    def event(self) -> Event:
        return Filtered(GaussianPrivate(1.0))

    def step(self, state, given, data, run):
        run.charge(GaussianPrivate(0.5))
        return super().step(state, given, data, run)


class Book:
    """An account that counts."""

    def __init__(self):
        self.log = []

    def reserve(self, plan):
        self.log.append("reserve")
        return 7

    def commit(self, token, release):
        self.log.append(("commit", token))

    def abandon(self, token, why="", *, touched=True):
        self.log.append("abandon")

    def advance(self, token, step, mark, previous):
        pass


def test_a_mechanism_that_drives_itself_makes_all_its_rounds_and_halts():
    assert Step(Counter(), WHY).run(np.zeros(1)).value == 5
    release = Step(Counter(stop=2), WHY).run(np.zeros(1))
    assert (release.value, release.halted) == (2, True)


def test_the_cap_on_steps_holds():
    session = Step(Counter(), WHY).open(np.zeros(1))
    assert [session.step() for _ in range(5)] == [1, 2, 3, 4, 5]
    with pytest.raises(InteractionClosed, match="pay again"):
        session.step()


def test_a_one_shot_plan_cannot_be_opened():
    from dpfit.mechanisms.mean import gaussian_mean

    problem, data, _ = gaussian_mean.example("replace")
    with pytest.raises(ValueError, match=r"plan\.run"):
        gaussian_mean.plan(problem, Budget(mu=1.0)).open(data)


def test_each_step_has_one_answer_in_threads():
    session = Step(Counter(rounds=400, stop=1000), WHY).open(np.zeros(1))
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(session.step() for _ in range(50)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(1, 401))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_interaction_cannot_be_duplicated(duplicate):
    session = Step(Counter(), WHY).open(np.zeros(1))
    with pytest.raises(TypeError, match="copied or pickled"):
        duplicate(session)


def test_a_forked_child_cannot_go_on():
    session = Step(Counter(), WHY).open(np.zeros(1))
    child = os.fork()
    if child == 0:
        try:
            session.step()
        except InteractionClosed:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def in_child(*actions):
    """Fork, and return how many of the actions a child refuses."""
    child = os.fork()
    if child == 0:
        refused = 0
        for action in actions:
            try:
                action()
            except InteractionClosed:
                refused += 1
        os._exit(refused)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@FORKS
def test_a_child_cannot_close_drive_or_go_on_with_a_resumed_interaction(tmp_path):
    plan, book = Step(Counter(), WHY), Book()
    plan.open(np.zeros(1), store=tmp_path / "s", account=book).step()
    again = resume(plan, tmp_path / "s", np.zeros(1), account=book)
    assert in_child(again.step, again.close, lambda: again.drive([None])) == 3
    assert again.step() == 2
    assert again.close().value == 2
    assert book.log == ["reserve", ("commit", 7)]


@FORKS
def test_a_grandchild_cannot_go_on_even_with_the_number_of_its_grandparent(monkeypatch):
    session, number = Step(Counter(), WHY).open(np.zeros(1)), os.getpid()

    def grandchild():
        monkeypatch.setattr(os, "getpid", lambda: number)
        if in_child(session.step, session.close) == 2:
            raise InteractionClosed

    assert in_child(grandchild) == 1


@FORKS
def test_a_child_that_is_forked_during_a_step_is_refused_at_once():
    """The lock that another thread held at the fork stays locked in the child."""
    session = Step(Counter(), WHY).open(np.zeros(1))
    with session._alone():
        assert in_child(session.step, session.close) == 2
    assert session.step() == 1


def _step_in_worker(session):
    try:
        session.step()
    except InteractionClosed:
        sys.exit(3)


@FORKS
def test_a_worker_of_multiprocessing_is_refused():
    session = Step(Counter(), WHY).open(np.zeros(1))
    worker = multiprocessing.get_context("fork").Process(target=_step_in_worker, args=(session,))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 3
    with pytest.raises(TypeError, match="copied or pickled"):
        multiprocessing.get_context("spawn").Process(
            target=_step_in_worker, args=(session,)
        ).start()


def test_a_query_cannot_use_the_interaction_that_answers_it():
    problem = Interact(n=3, workload=ThresholdQueries(threshold=1e6), rounds=6)
    session = above_threshold.plan(problem, Budget(epsilon=1.0)).open(np.ones(3))
    for inner in (
        lambda: session.step(lambda data: 0.0),
        session.close,
        lambda: session.drive([lambda data: 0.0]),
    ):
        with pytest.raises(InteractionClosed, match="must not use"):
            session.step(lambda data, inner=inner: inner())
    session.step(lambda data: -1e9)
    assert session._steps == 4  # a step that failed counts


def test_threads_that_close_commit_once():
    book = Book()
    session = Step(Counter(), WHY).open(np.zeros(1), account=book)
    threads = [threading.Thread(target=session.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert book.log == ["reserve", ("commit", 7)]


def test_a_release_that_the_ledger_refuses_to_close_is_withheld_for_good():
    class Refusing(Book):
        def commit(self, token, release):
            raise LedgerDamaged("not in the ledger")

    session = Step(Counter(), WHY).open(np.zeros(1), account=Refusing())
    for _ in range(2):
        with pytest.raises(LedgerDamaged):
            session.close()


def test_a_release_whose_closing_row_cannot_be_written_is_kept():
    class Locked(Book):
        def commit(self, token, release):
            raise LedgerUnavailable("locked")

    for account in (Locked(), Locked()):
        with pytest.warns(ReleaseNotRecorded, match="locked"):
            assert Step(Counter(), WHY).run(np.zeros(1), account=account).value == 5


def test_every_step_can_be_the_last_before_a_kill(tmp_path):
    """Stop after k steps and resume: the transcript goes on at k + 1, whatever k is."""
    plan = Step(Counter(), WHY)
    for stop in range(6):
        file, book = tmp_path / f"{stop}.state", Book()
        session = plan.open(np.zeros(1), store=file, account=book)
        seen = [session.step() for _ in range(stop)]
        again = resume(plan, file, np.zeros(1), account=book)
        assert again.last == (seen[-1] if seen else None)
        rest = [again.step() for _ in range(5 - stop)]
        assert seen + rest == [1, 2, 3, 4, 5]
        assert again.done
        again.close()
        assert book.log == ["reserve", ("commit", 7)]


def test_a_killed_process_is_resumed_in_another(tmp_path):
    file = tmp_path / "queries.state"
    script = textwrap.dedent(f"""
        import os
        import numpy as np
        from dpfit.core import Interact
        from dpfit.mechanisms.sparse_vector import SparseQueries, sparse_vector
        from dpfit.privacy import Budget
        problem = Interact(n=3, workload=SparseQueries(threshold=1e6, hits=2), rounds=4)
        plan = sparse_vector.plan(problem, Budget(epsilon=1.0))
        session = plan.open(np.ones(3), store={str(file)!r})
        session.step(lambda data: -1e9)
        session.step(lambda data: 1e9)
        os._exit(9)
    """)
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    problem = Interact(n=3, workload=SparseQueries(threshold=1e6, hits=2), rounds=4)
    plan = sparse_vector.plan(problem, Budget(epsilon=1.0))
    session = resume(plan, file, np.ones(3))
    assert session.last == pytest.approx(1e9, rel=1e-3)
    session.step(lambda data: -1e9)
    session.step(lambda data: 1e9)
    assert session.done
    assert [value is None for value in session.close().value] == [True, False, True, False]


def test_what_was_spent_is_in_the_file(tmp_path):
    plan = Step(Spender(), WHY)
    session = plan.open(np.zeros(1), store=tmp_path / "s")
    for _ in range(3):
        session.step()
    again = resume(plan, tmp_path / "s", np.zeros(1))
    again.step()
    with pytest.raises(Exception, match="left 0"):
        again.step()


def test_a_state_of_another_plan_is_refused(tmp_path):
    Step(Counter(), WHY).open(np.zeros(1), store=tmp_path / "s")
    with pytest.raises(ValueError, match="another plan"):
        resume(Step(Counter(rounds=6), WHY), tmp_path / "s", np.zeros(1))
    with pytest.raises(ValueError, match="exists"):
        Step(Counter(), WHY).open(np.zeros(1), store=tmp_path / "s")
    with pytest.raises(ValueError, match="no state file"):
        resume(Step(Counter(), WHY), tmp_path / "t", np.zeros(1))
    (tmp_path / "broken").write_text("{")
    with pytest.raises(ValueError, match="not a readable state file"):
        resume(Step(Counter(), WHY), tmp_path / "broken", np.zeros(1))


def test_a_seeded_session_stays_not_private_when_resumed(tmp_path):
    plan = Step(Counter(), WHY)
    plan.open(np.zeros(1), store=tmp_path / "s", random_state=1).step()
    assert not resume(plan, tmp_path / "s", np.zeros(1)).close().private


def test_a_state_file_is_for_its_owner_and_holds_no_code(tmp_path):
    plan = Step(Counter(), WHY)
    plan.open(np.zeros(1), store=tmp_path / "s").step()
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0
    _, _, content = (tmp_path / "s").read_text().partition(" ")
    assert json.loads(content)["state"]["count"] == 1


@pytest.mark.parametrize("seed", range(20))
def test_transcripts_do_not_depend_on_storing(seed, tmp_path):
    problem = Interact(n=3, workload=ThresholdQueries(threshold=2.0), rounds=6)
    plan = above_threshold.plan(problem, Budget(epsilon=1.0))
    queries = [lambda data, k=k: float(np.sum(data)) - 2 + k / 2 for k in range(6)]
    plain = plan.run(np.ones(3), queries, random_state=seed).value
    stored = plan.open(np.ones(3), store=tmp_path / "s", random_state=seed)
    stored.drive(queries)
    assert stored.close().value == plain


@dataclass(frozen=True)
class Stream(Counter):
    """Counts the records that arrive."""

    kind = "test_stream"
    observes: ClassVar[bool] = True
    rounds: int = 3

    def check(self, data):
        if data.width != 1:
            raise ValueError("batches must have one column")

    def step(self, state, given, data, run):
        count = state["count"] + data.n
        return {"count": count}, count


def batch(n, width=1):
    return InMemory(np.zeros((n, width)), np.zeros(n))


def test_a_stream_is_fed_by_observe_alone():
    plan = Step(Stream(), WHY)
    session = plan.open()
    assert [session.observe(batch(n)) for n in (2, 0, 1)] == [2, 2, 3]
    with pytest.raises(InteractionClosed):
        session.observe(batch(1))
    assert plan.run([batch(2), batch(1), batch(4), batch(9)]).value == 7
    for call in (
        lambda: plan.open(batch(1)),
        lambda: plan.run(batch(1)),
        lambda: plan.open().step(),
    ):
        with pytest.raises(ValueError, match=r"observe|batches"):
            call()


def test_a_batch_that_does_not_fit_is_refused_and_costs_no_step():
    session = Step(Stream(), WHY).open()
    with pytest.raises(ValueError, match="one column"):
        session.observe(batch(1, width=2))
    assert [session.observe(batch(1)) for _ in range(3)] == [1, 2, 3]


def test_what_holds_its_data_observes_nothing():
    """A record that is fed again would be read by more steps than its guarantee covers."""
    session = Step(Counter(), WHY).open(np.zeros(1))
    with pytest.raises(ValueError, match="call step"):
        session.observe(batch(1))


def test_a_stream_inside_a_composition_does_not_run():
    """Each of its steps would read all records."""
    book = Book()
    plan = Composition((Stage("stream", Step(Stream(), WHY)), Stage("count", Step(Counter(), WHY))))
    with pytest.raises(ValueError, match="open its plan alone"):
        plan.run(batch(2), account=book)
    assert book.log == ["reserve", "abandon"]

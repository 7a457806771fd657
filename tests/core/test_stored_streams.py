"""Stored streams: state files that append, copies that are refused, kill -9 at random moments."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from dpfit.core import AnswerWithheld, Interact, resume
from dpfit.core import store as store_module
from dpfit.core.log import Log
from dpfit.core.store import StateFile
from dpfit.data.dataset import InMemory
from dpfit.data.schema import Category, Schema
from dpfit.ledger import (
    BudgetExceeded,
    DatasetAccount,
    Ledger,
    LedgerError,
    LedgerUnavailable,
    SessionCopied,
)
from dpfit.ledger import store as ledger_file
from dpfit.mechanisms.aggregates.encoders import Exponentials
from dpfit.mechanisms.prefix_sums import RunningSums, StreamSums, prefix_sums
from dpfit.privacy import Budget
from dpfit.queries import continual
from dpfit.queries.continual import ContinualCounts, Measures

BATCH = InMemory(np.ones((2, 1)), np.zeros(2))


def stream(rounds=6, **facts):
    unit = "user" if facts else "record"
    work = StreamSums(1, **facts)
    return prefix_sums.plan(Interact(workload=work, rounds=rounds), Budget(mu=1.0, unit=unit))


@pytest.fixture
def account(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("visits", Budget(mu=9.0))
    return ledger.account("visits")


# Logs and their file.


def test_histories_of_a_log_do_not_mix():
    first = Log([np.array([0.0])])
    one, other = first.extended([np.array([1.0])]), first.extended([np.array([2.0])])
    assert one.arrays()[:, 0].tolist() == [0.0, 1.0]
    assert other.arrays()[:, 0].tolist() == [0.0, 2.0]
    assert first.arrays()[:, 0].tolist() == [0.0]
    assert one.extended([np.array([3.0])]).arrays(1)[:, 0].tolist() == [1.0, 3.0]


def test_a_file_appends_the_new_items_of_each_log_and_is_read_back(tmp_path):
    file, log, sizes = StateFile.new(tmp_path / "s"), Log(), []
    for step in range(20):
        log = log.extended([np.full(50, 7)])
        file.write(plan="p", state={"log": log, "pair": ({"inner": log},)}, step=step)
        sizes.append((tmp_path / "s").stat().st_size)
    # Each line is as long as the others: nothing is written again.
    assert max(np.diff(sizes)) <= min(np.diff(sizes)) + 60
    back = StateFile.existing(tmp_path / "s")
    content = back.read("p")
    assert content["step"] == 19
    np.testing.assert_array_equal(content["state"]["log"].arrays(), log.arrays())
    np.testing.assert_array_equal(content["state"]["pair"][0]["inner"].arrays(), log.arrays())
    back.write(plan="p", state={"log": Log([1, 2])}, step=20)
    assert list(StateFile.existing(tmp_path / "s").read("p")["state"]["log"]) == [1, 2]


def test_a_line_that_a_kill_cut_off_did_not_happen(tmp_path):
    plan = stream()
    session = plan.open(store=tmp_path / "s")
    first = session.observe(BATCH)
    whole = (tmp_path / "s").read_bytes()
    session.observe(BATCH)
    grown = (tmp_path / "s").read_bytes()
    assert grown.startswith(whole)
    for cut in range(len(whole), len(grown), 9):
        (tmp_path / "s").write_bytes(grown[:cut])
        assert resume(plan, tmp_path / "s").last == first
    again = resume(plan, tmp_path / "s")
    again.observe(BATCH)
    assert resume(plan, tmp_path / "s").steps == 2


def test_a_damaged_file_is_refused(tmp_path):
    plan = stream()
    session = plan.open(store=tmp_path / "s")
    for _ in range(3):
        session.observe(BATCH)
    content = (tmp_path / "s").read_bytes()
    for place in range(0, len(content), 37):
        damaged = bytearray(content)
        damaged[place] ^= 1
        (tmp_path / "s").write_bytes(bytes(damaged))
        if damaged[-1:] == b"\n":
            with pytest.raises(ValueError, match="not a readable state file"):
                resume(plan, tmp_path / "s")


def test_two_processes_cannot_both_append(tmp_path):
    plan = stream()
    session = plan.open(store=tmp_path / "s")
    other = resume(plan, tmp_path / "s")
    session.observe(BATCH)
    with pytest.raises(ValueError, match="another process"):
        other.observe(BATCH)


def replacing(plan):
    """Return the plan with a state that holds no log."""
    encoder = Exponentials.of(plan.mechanism.rounds)
    sums = NewestOnly(plan.mechanism.workload, replace(plan.mechanism.aggregate, encoder=encoder))
    return replace(plan, mechanism=sums)


@dataclass(frozen=True)
class NewestOnly(RunningSums):
    """It keeps no totals, so each step replaces the state file."""

    kind = "test_newest_only"

    def init(self, data, run):
        return {"aggregate": self.aggregate.init(data, run), "last": None}

    def step(self, state, given, data, run):
        state, answer = self.aggregate.step(state["aggregate"], self._asked, data, run)
        return {"aggregate": state, "last": answer}, answer

    def finish(self, state):
        return state["last"]


def _full(*arguments, **facts):
    raise OSError("no space left on device")


@pytest.mark.parametrize("broken", ["fsync", "write"])
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("charged", [False, True])
def test_an_answer_that_was_not_stored_does_not_leave(
    tmp_path, account, monkeypatch, broken, replaces, charged
):
    plan = replacing(stream()) if replaces else stream()
    account = account if charged else None
    session = plan.open(store=tmp_path / "s", account=account)
    first = session.observe(BATCH)
    with monkeypatch.context() as patched:
        if broken == "fsync":
            patched.setattr(os, "fsync", _full)
        else:
            patched.setattr(StateFile, "write", _full)
        for leave in (
            lambda: session.observe(BATCH),
            session.retry,
            session.close,
            lambda: session.value,
        ):
            with pytest.raises(OSError, match="no space"):
                leave()
            assert (session.last, session.steps, session.done) == (first, 1, False)
        assert resume(plan, tmp_path / "s", account=account).steps == 1
    with pytest.raises(AnswerWithheld, match="step 2"):
        session.observe(BATCH)
    second = session.retry()
    assert second != first
    assert session.retry() == second
    again = resume(plan, tmp_path / "s", account=account)
    assert (again.last, again.steps) == (second, 2)
    session.observe(BATCH)
    assert session.steps == 3


def test_a_command_whose_answer_was_not_stored_goes_on_without_the_table(tmp_path, monkeypatch):
    folder = tmp_path / "s"
    board = ContinualCounts.open(
        folder, Measures(), steps=4, budget=Budget(mu=1.0, relation="add_remove")
    )
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _full)
        with pytest.raises(OSError, match="no space"):
            board.add({"a": [1]}, step=1)
        assert board.step == 0
    board.add(None, step=1)
    assert board.step == 1
    assert ContinualCounts.resume(folder).estimates() == board.estimates()


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_of_two_processes_one_answers_a_step(tmp_path, replaces):
    """Without a ledger: both know the file before either writes its step."""
    plan = replacing(stream(rounds=40)) if replaces else stream(rounds=40)
    store, ready, go, answers = tmp_path / "s", os.pipe(), os.pipe(), os.pipe()
    plan.open(store=store)
    for step in range(1, 21):
        children = []
        for _ in range(2):
            children.append(os.fork())
            if children[-1] == 0:
                session = resume(plan, store)
                os.write(ready[1], b".")
                os.read(go[0], 1)
                try:
                    os.write(answers[1], f"{session.observe(BATCH)[0]!r}\n".encode())
                except ValueError as error:
                    os.write(answers[1], b"refused\n" * ("another process" in str(error)))
                os._exit(0)
        for _ in children:
            os.read(ready[0], 1)
        os.write(go[1], b"..")
        for child in children:
            os.waitpid(child, 0)
        given = sorted(os.read(answers[0], 1000).decode().split())
        assert given[1:] == ["refused"]
        session = resume(plan, store)
        assert (session.steps, repr(session.last[0])) == (step, given[0])


def test_of_two_openings_of_one_file_one_is_charged(tmp_path, account):
    plan, other = stream(), StateFile.new(tmp_path / "s")
    plan.open(store=tmp_path / "s", account=account)
    with pytest.raises(ValueError, match="exists"):
        other.write(plan="p")
    assert resume(plan, tmp_path / "s", account=account).steps == 0


# Copies.


def test_a_copied_state_file_answers_no_step_again(tmp_path, account):
    plan = stream()
    session = plan.open(store=tmp_path / "s", account=account)
    session.observe(BATCH)
    shutil.copy(tmp_path / "s", tmp_path / "copy")
    copy = resume(plan, tmp_path / "copy", account=account)
    second = session.observe(BATCH)
    with pytest.raises(SessionCopied, match="2 steps"):
        copy.observe(BATCH)
    assert copy.last != second
    for _ in range(2):
        # The copy holds an answer to step 2 that never left.
        with pytest.raises(SessionCopied):
            resume(plan, tmp_path / "copy", account=account)
    assert resume(plan, tmp_path / "s", account=account).last == second


def test_an_answer_that_the_ledger_did_not_record_does_not_leave(tmp_path, account, monkeypatch):
    plan = stream()
    session = plan.open(store=tmp_path / "s", account=account)
    first = session.observe(BATCH)
    monkeypatch.setattr(type(account), "advance", _locked)
    with pytest.raises(LedgerUnavailable):
        session.observe(BATCH)
    assert (session.last, session.steps, session.withheld) == (first, 1, True)
    for leave in (session.close, session.retry, lambda: session.value):
        with pytest.raises(LedgerUnavailable):
            leave()
    monkeypatch.undo()
    # The records of the failed call are in step 2 already.
    with pytest.raises(AnswerWithheld, match="step 2 was not stored"):
        session.observe(BATCH)
    second = session.retry()
    session.observe(BATCH)
    assert session.steps == 3
    assert session.close().value[1] == second


def _locked(*arguments):
    raise LedgerUnavailable("locked")


def test_the_ledger_moves_forward_only(tmp_path, account):
    token = account.reserve(stream())
    account.advance(token, 0, "a", "")
    account.advance(token, 1, "b", "a")
    account.advance(token, 1, "b", "a")
    for step, mark, previous in ((1, "c", "a"), (2, "c", "a"), (1, "c", "b"), (0, "a", "")):
        with pytest.raises(SessionCopied):
            account.advance(token, step, mark, previous)
    with ledger_file.writing(account.path) as db:
        for change in ("UPDATE sessions SET step = 0", "DELETE FROM sessions"):
            with pytest.raises(Exception, match="never"):
                db.execute(change)
    Ledger(account.path).verify()


def test_a_ledger_of_an_earlier_version_keeps_sessions_too(tmp_path, account):
    with ledger_file.writing(account.path) as db:
        db.execute("DROP TABLE sessions")
    Ledger(account.path).verify()
    session = stream().open(store=tmp_path / "s", account=account)
    session.observe(BATCH)
    Ledger(account.path).verify()


def test_a_closed_session_answers_no_more_from_its_file(tmp_path, account):
    plan = stream()
    session = plan.open(store=tmp_path / "s", account=account)
    session.observe(BATCH)
    session.close()
    again = resume(plan, tmp_path / "s", account=account)
    with pytest.raises(LedgerError, match="closed already"):
        again.observe(BATCH)
    assert (again.steps, again.withheld) == (1, True)
    assert again.last == session.last


def test_a_session_is_resumed_with_its_account_only(tmp_path, account):
    plan = stream()
    plan.open(store=tmp_path / "s", account=account)
    with pytest.raises(ValueError, match="same account"):
        resume(plan, tmp_path / "s")
    plan.open(store=tmp_path / "t")
    with pytest.raises(ValueError, match="without an account"):
        resume(plan, tmp_path / "t", account=account)


def test_a_resumed_stream_still_counts_users(tmp_path):
    plan = stream(rounds=4, times=2, apart=1)
    day = InMemory(np.ones((1, 1)), np.zeros(1), ["ann"])
    session = plan.open(store=tmp_path / "s")
    session.observe(day)
    session = resume(plan, tmp_path / "s")
    session.observe(day)
    saved = json.loads((tmp_path / "s").read_text().splitlines()[-1].partition(" ")[2])
    assert saved["state"]["aggregate"]["seen"] == {"$log": [{"$tuple": ["ann", 1]}], "from": 1}
    session = resume(plan, tmp_path / "s")
    session.observe(day)
    assert len(session._state["aggregate"]["seen"]) == 2
    assert session._state["aggregate"]["encoder"]["inputs"][2] == 0


def test_a_stream_is_resumed_in_another_process(tmp_path):
    plan, store, saved = stream(rounds=3), tmp_path / "s", tmp_path / "plan.json"
    first = plan.open(store=store).observe(BATCH)
    saved.write_text(json.dumps(plan.to_json()))
    code = (
        "import json, sys, numpy as np\n"
        "from dpfit.core import plan_from_json, resume\n"
        "from dpfit.data.dataset import InMemory\n"
        "plan = plan_from_json(json.load(open(sys.argv[2])))\n"
        "session = resume(plan, sys.argv[1])\n"
        "last = session.last.tolist()\n"
        "for _ in range(2): session.observe(InMemory(np.ones((2, 1)), np.zeros(2)))\n"
        "sys.stdout.write(json.dumps([last, session.done, session.close().value.tolist()[0]]))\n"
    )
    command = [sys.executable, "-c", code, str(store), str(saved)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == [first.tolist(), True, first.tolist()]


# Openings that are killed.


def _open_board(tmp_path, steps=4):
    budget = Budget(mu=1.0, relation="add_remove")
    return ContinualCounts.open(
        tmp_path / "board", Measures(), steps=steps, budget=budget,
        ledger=tmp_path / "book", dataset="visits",
    )  # fmt: skip


KILLS = {
    "before the folder": (Path, "mkdir", False),
    "before the plan is written": (continual, "create", False),
    "before the charge": (DatasetAccount, "reserve", False),
    "after the charge": (DatasetAccount, "reserve", True),
    "before the state file": (store_module.os, "link", False),
    "after the state file": (StateFile, "write", True),
    "after the ledger knows it": (DatasetAccount, "advance", True),
}


def _opened_in_a_child(tmp_path, place, name, after):
    """Open a board in a child that is killed at a call, or just after it."""
    child = os.fork()
    if child == 0:
        called = getattr(place, name)

        def kill(*arguments, **facts):
            # The plan is linked first, and then the state file.
            if name == "link" and "board/state" not in str(arguments[1]):
                return called(*arguments, **facts)
            if after:
                called(*arguments, **facts)
            os._exit(9)

        setattr(place, name, kill)
        try:
            _open_board(tmp_path)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("when", KILLS)
def test_an_opening_that_was_killed_is_repeated_and_charged_once(tmp_path, when):
    book = Ledger.create(tmp_path / "book")
    book.register("visits", Budget(mu=1.5, relation="add_remove"))
    assert _opened_in_a_child(tmp_path, *KILLS[when]) == 9
    folder = tmp_path / "board"
    if when in ("after the state file", "after the ledger knows it"):
        with pytest.raises(ValueError, match="add to it, or choose a new name"):
            _open_board(tmp_path)
    else:
        with pytest.raises(ValueError, match=r"interrupted; repeat it|open one first"):
            ContinualCounts.resume(folder)
        if (folder / "plan.json").exists():
            with pytest.raises(ValueError, match="not an interrupted opening of this stream"):
                _open_board(tmp_path, steps=5)
        # The budget has room for one charge only.
        assert _open_board(tmp_path).step == 0
    board = ContinualCounts.resume(folder)
    board.add({"a": [1]}, step=1)
    assert [entry.kind for entry in book.entries("visits")] == ["register", "reserve"]
    book.verify()


def test_an_opening_is_one_reservation(account):
    """The key of an opening is for one plan, until a state file has its reservation."""
    keyed, plan = replace(account, opening="key"), stream()
    token = keyed.reserve(plan)
    assert keyed.reserve(plan) == token
    assert replace(account, opening="other").reserve(plan) != token
    with pytest.raises(LedgerError, match="another plan"):
        keyed.reserve(stream(rounds=7))
    keyed.advance(token, 0, "a", "")
    with pytest.raises(LedgerError, match="resume its state file"):
        keyed.reserve(plan)
    keyed.advance(token, 1, "b", "a")
    with pytest.raises(LedgerError, match="has answered 1 steps"):
        keyed.abandon(token, touched=False)
    keyed.abandon(token)
    given_back = replace(account, opening="again")
    first = given_back.reserve(plan)
    given_back.abandon(first, touched=False)
    assert given_back.reserve(plan) != first


def test_a_refused_opening_leaves_no_folder(tmp_path):
    book = Ledger.create(tmp_path / "book")
    book.register("visits", Budget(mu=0.5, relation="add_remove"))
    with pytest.raises(BudgetExceeded):
        _open_board(tmp_path)
    assert not (tmp_path / "board").exists()


# Wide rows.


def test_a_wide_stream_keeps_the_newest_totals_in_memory_and_in_its_file(tmp_path):
    work = StreamSums(6000)
    plan = prefix_sums.plan(Interact(workload=work, rounds=800), Budget(mu=1.0))
    kept = plan.mechanism.kept
    session, row = plan.open(store=tmp_path / "s"), InMemory(np.ones((1, 6000)), np.zeros(1))
    assert kept == 10
    answers, sizes = [], []
    for _ in range(kept + 3):
        answers.append(session.observe(row))
        sizes.append((tmp_path / "s").stat().st_size)
    assert len(session._state["sums"]) == kept
    assert sizes[-1] < 1.02 * sizes[kept - 1]
    again = resume(plan, tmp_path / "s")
    for each in (session, again):
        np.testing.assert_array_equal(each.value, answers[-kept:])
    assert again.observe(row).shape == (6000,)
    many = plan.open()
    many.feed([row] * (kept + 6))
    assert many.value.shape == (kept, 6000)


def test_a_dashboard_with_more_totals_than_it_keeps_is_refused(tmp_path):
    wards = Category("ward", tuple(map(str, range(1200))))
    measures = Measures.of(Schema((wards,)), ["ward"], [])
    with pytest.raises(ValueError, match="count by fewer columns"):
        ContinualCounts.open(tmp_path / "s", measures, steps=4000, budget=Budget(mu=1.0))
    assert not (tmp_path / "s").exists()


# Kill -9.


def _worker(plan, store, account, sent):
    """Resume, answer all steps that are left, and send each answer as it leaves."""
    with open(sent, "ab", buffering=0) as pipe:
        session = resume(plan, store, account=account)
        if session.steps:
            pipe.write(f"{session.steps} {session.last[0]!r}\n".encode())
        while not session.done:
            answer = session.observe(BATCH)
            pipe.write(f"{session.steps} {answer[0]!r}\n".encode())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_hundred_kills_repeat_no_step_and_charge_nothing_twice(tmp_path, account):
    plan, store, sent = stream(rounds=2000), tmp_path / "s", tmp_path / "sent"
    plan.open(store=store, account=account)
    rng = np.random.default_rng(1)
    for _ in range(200):
        child = os.fork()
        if child == 0:
            try:
                _worker(plan, store, account, sent)
            finally:
                os._exit(0)
        time.sleep(float(rng.uniform(0.0, 0.15)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    lines = sent.read_bytes().split(b"\n")[:-1]
    answers: dict[int, set[bytes]] = {}
    for line in lines:
        step, _, answer = line.partition(b" ")
        answers.setdefault(int(step), set()).add(answer)
    assert len(answers) > 30
    assert all(len(each) == 1 for each in answers.values())
    session = resume(plan, store, account=account)
    values = session.value[:, 0]
    assert all(answers[step] == {repr(values[step - 1]).encode()} for step in answers)
    ledger = Ledger(account.path)
    assert [entry.kind for entry in ledger.entries("visits")] == ["register", "reserve"]
    ledger.verify()

"""Ledgers under crashes, load, damage, wrong clocks: no release without a charge.

The same load tests run in full size in benchmarks/ledger.py.
"""

import copy
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import joblib
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from dpfit.core import Answer
from dpfit.ledger import (
    BudgetExceeded,
    Ledger,
    LedgerDamaged,
    LedgerError,
    LedgerUnavailable,
    hash_chain,
    store,
)
from dpfit.mechanisms.mean import BoundedMean, laplace_mean
from dpfit.privacy import Budget
from ledger.promises import Outcome, pure, spend

ROOT = Path(__file__).parents[2]
PLAN = laplace_mean.plan(Answer(n=10, workload=BoundedMean(0.0, 1.0)), Budget(epsilon=0.25))


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("d", Budget(epsilon=1.0))
    return ledger


def spent(ledger) -> Fraction:
    return ledger.status("d").spent.amount


def fit(ledger, epsilon=0.1) -> bool:
    """Something leaves if, and only if, it was charged."""
    try:
        token = ledger.account("d").reserve(pure(epsilon))
    except BudgetExceeded:
        return False
    ledger.account("d").commit(token, Outcome())
    return True


class Constant(RegressorMixin, BaseEstimator):
    """An estimator that takes a ledger as a parameter, as private models do."""

    def __init__(self, ledger=None, epsilon=0.1):
        self.ledger, self.epsilon = ledger, epsilon

    def fit(self, X, y):
        spend(self.ledger.account("d"), pure(self.epsilon))
        self.value_ = 0.0
        return self

    def predict(self, X):
        return [self.value_] * len(X)


class TestLoad:
    def benchmark(self, *options: str) -> dict:
        command = [sys.executable, str(ROOT / "benchmarks" / "ledger.py"), "--json", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        shown = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment, timeout=300
        )
        return json.loads(shown.stdout)

    def test_eight_processes_never_overspend_and_never_lock_up(self):
        result = self.benchmark("--race", "3", "--kills", "0", "--entries", "0")
        assert all(bar["holds"] for bar in result["bars"]), result
        assert result["race"]["datasets"] > 1  # at least one cap was spent to the end

    def test_kill_nine_in_the_middle_of_spends(self):
        result = self.benchmark("--race", "0", "--kills", "15", "--entries", "0")
        assert all(bar["holds"] for bar in result["bars"]), result
        assert result["kills"]["reserved"] >= result["kills"]["releases"] > 0


class TestOneFileManyHands:
    """A peer records nothing after five cross-validation fits; eight threads all fit."""

    def test_eight_threads_on_one_handle(self, ledger):
        with ThreadPoolExecutor(8) as pool:
            granted = sum(pool.map(lambda _: fit(ledger), range(40)))
        assert granted == 10
        assert spent(ledger) == 1
        ledger.verify()

    def test_eight_threads_that_each_want_all(self, ledger):
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(lambda _: fit(ledger, 1.0), range(8))) == 1

    def test_eight_threads_that_give_back_half_of_what_they_reserve(self, ledger):
        """At no time is more spent than the cap, and what was released stays spent."""

        def one(number: int) -> int:
            account = ledger.account("d")
            try:
                token = account.reserve(pure(0.125))
            except BudgetExceeded:
                return 0
            if number % 2:
                account.abandon(token, touched=False)
                return 0
            account.commit(token, Outcome())
            return 1

        with ThreadPoolExecutor(8) as crowd:
            released = sum(crowd.map(one, range(40)))
        assert 0 < released <= 8
        assert spent(ledger) == Fraction(released, 8)
        ledger.verify()

    def test_deep_copies_and_clones_spend_from_the_same_file(self, ledger):
        model = Constant(ledger)
        for other in (clone(model), copy.deepcopy(model), clone(clone(model))):
            assert other.ledger is ledger
            other.fit([[0.0]], [0.0])
        assert spent(ledger) == Fraction(3, 10)

    def test_five_folds_are_charged_five_times(self, ledger):
        cross_val_score(Constant(ledger), [[0.0]] * 20, [0.0] * 20, cv=5)
        assert spent(ledger) == Fraction(1, 2)
        assert ledger.status("d").releases == 5

    def test_a_grid_search_is_charged_for_every_fit_and_stops_at_the_cap(self, ledger):
        search = GridSearchCV(Constant(ledger), {"epsilon": [0.1, 0.15]}, cv=3, error_score="raise")
        search.fit([[0.0]] * 12, [0.0] * 12)  # three of each, and the winner once more
        assert spent(ledger) == Fraction(3, 4) + Fraction(repr(search.best_params_["epsilon"]))
        with pytest.raises(BudgetExceeded):
            search.fit([[0.0]] * 12, [0.0] * 12)

    @pytest.mark.parametrize("backend", ["loky", "threading"])
    def test_joblib_workers_spend_from_the_same_file(self, ledger, backend):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            joblib.Parallel()(joblib.delayed(ledger.account("d").reserve)(PLAN) for _ in range(4))
        assert spent(ledger) == 1
        with pytest.raises(BudgetExceeded):
            ledger.account("d").reserve(PLAN)

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_multiprocessing_workers_get_the_address(self, ledger, method):
        with multiprocessing.get_context(method).Pool(2) as pool:
            tokens = pool.map(ledger.account("d").reserve, [PLAN] * 4)
        assert len({token.number for token in tokens}) == 4
        assert spent(ledger) == 1

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_spends_on_its_own_and_disturbs_nothing(self, ledger):
        fit(ledger)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if fit(ledger) else 2
            finally:
                os._exit(code)
        assert fit(ledger)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert spent(ledger) == Fraction(3, 10)
        ledger.verify()


class TestCrash:
    def test_killed_between_reserve_and_commit(self, ledger):
        script = (
            "import os, signal, sys; from dpfit.ledger import Ledger; from ledger.promises "
            "import pure;"
            "Ledger(sys.argv[1]).account('d').reserve(pure(0.5)); os.kill(os.getpid(), "
            "signal.SIGKILL)"
        )
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
        done = subprocess.run(
            [sys.executable, "-c", script, str(ledger.path)], env=environment, check=False
        )
        assert done.returncode == -signal.SIGKILL
        assert spent(ledger) == Fraction(1, 2)
        assert ledger.status("d").releases == 0
        ledger.verify()

    def test_an_interrupt_inside_the_transaction_undoes_it(self, ledger, monkeypatch):
        def interrupted(*_arguments):
            raise KeyboardInterrupt

        monkeypatch.setattr(hash_chain, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.account("d").reserve(pure(0.5))
        monkeypatch.undo()
        assert spent(ledger) == 0
        assert fit(ledger)


class TestFile:
    def test_a_missing_file_is_not_made_up(self, tmp_path):
        ledger = Ledger(tmp_path / "nothing")
        for call in (
            ledger.verify,
            ledger.export,
            lambda: fit(ledger),
            lambda: ledger.register("d", Budget(mu=1.0)),
        ):
            with pytest.raises(LedgerUnavailable, match="there is no ledger"):
                call()
        assert not ledger.path.exists()

    def test_a_file_deleted_midway_is_noticed(self, ledger):
        token = ledger.account("d").reserve(pure(0.5))
        ledger.path.unlink()
        with pytest.raises(LedgerUnavailable, match="there is no ledger"):
            ledger.account("d").commit(token, Outcome())
        with pytest.raises(LedgerUnavailable, match="there is no ledger"):
            fit(ledger)

    @pytest.mark.parametrize("replaced", [False, True])
    def test_a_file_deleted_or_replaced_during_a_spend_is_noticed(
        self, ledger, monkeypatch, replaced, tmp_path
    ):
        shutil.copy(ledger.path, tmp_path / "copy")
        append = hash_chain.append

        def slow(*arguments):
            entry = append(*arguments)
            os.replace(tmp_path / "copy", ledger.path) if replaced else ledger.path.unlink()
            return entry

        monkeypatch.setattr(hash_chain, "append", slow)
        with pytest.raises(LedgerUnavailable, match="deleted or replaced"):
            ledger.account("d").reserve(pure(0.5))

    @pytest.mark.parametrize("first", ["name", "link"])
    def test_a_hard_link_is_no_second_cap(self, ledger, first, tmp_path):
        """Without the refusal the second spender does not see what the first one spent."""
        link = Ledger(tmp_path / "link.ledger")
        before = spent(ledger)
        os.link(ledger.path, link.path)
        for one in (ledger, link) if first == "name" else (link, ledger):
            for touch in (lambda one=one: fit(one), lambda one=one: one.status("d"), one.verify):
                with pytest.raises(LedgerUnavailable, match="2 names"):
                    touch()
        link.path.unlink()
        assert spent(ledger) == before
        assert fit(ledger)

    def test_a_name_that_moved_is_the_same_ledger(self, ledger, tmp_path):
        assert fit(ledger)
        before, moved = spent(ledger), Ledger(tmp_path / "moved.ledger")
        os.link(ledger.path, moved.path)
        ledger.path.unlink()
        assert spent(moved) == before
        assert fit(moved)

    def test_a_link_made_between_charge_and_release_stops_the_release(self, ledger, tmp_path):
        account = ledger.account("d")
        token = account.reserve(pure(0.1))
        os.link(ledger.path, tmp_path / "link.ledger")
        with pytest.raises(LedgerUnavailable, match="2 names"):
            account.commit(token, Outcome())

    def test_a_ledger_is_not_made_under_two_names(self, tmp_path):
        (tmp_path / "empty").touch()
        os.link(tmp_path / "empty", tmp_path / "link")
        with pytest.raises(LedgerUnavailable, match="2 names"):
            Ledger.create(tmp_path / "link")
        assert not (tmp_path / "empty").stat().st_size

    def test_a_copy_and_a_symbolic_link_are_not_refused(self, ledger, tmp_path):
        shutil.copy(ledger.path, tmp_path / "copy.ledger")
        assert fit(Ledger(tmp_path / "copy.ledger"))
        assert spent(ledger) == 0
        (tmp_path / "symbolic").symlink_to(ledger.path)
        assert fit(Ledger(tmp_path / "symbolic"))
        assert spent(ledger) > 0

    def test_creating_never_touches_what_is_there(self, ledger, tmp_path):
        fit(ledger)
        with pytest.raises(LedgerError, match="already"):
            Ledger.create(ledger.path)
        assert spent(ledger) == Fraction(1, 10)
        (tmp_path / "notes.txt").write_text("dear diary")
        with pytest.raises(LedgerError, match="already"):
            Ledger.create(tmp_path / "notes.txt")
        assert (tmp_path / "notes.txt").read_text() == "dear diary"

    @pytest.mark.parametrize(
        "content", [b"", b"dear diary", b"SQLite format 3\x00" + b"\x00" * 4080, b"\xff" * 9000]
    )
    def test_a_file_that_is_not_a_ledger(self, tmp_path, content):
        (tmp_path / "other").write_bytes(content)
        for call in (Ledger(tmp_path / "other").verify, lambda: fit(Ledger(tmp_path / "other"))):
            with pytest.raises(LedgerDamaged, match=r"not a ledger|damaged"):
                call()
        assert (tmp_path / "other").read_bytes() == content

    def test_another_sqlite_file_or_a_directory(self, tmp_path):
        with closing(sqlite3.connect(tmp_path / "other")) as db:
            db.execute("CREATE TABLE entries (id)")
        with pytest.raises(LedgerDamaged, match="not a ledger"):
            Ledger(tmp_path / "other").verify()
        with pytest.raises(LedgerUnavailable):
            Ledger(tmp_path).verify()
        with pytest.raises(LedgerUnavailable, match="cannot be opened"):
            Ledger.create(tmp_path / "no" / "such" / "directory")

    def test_a_version_from_the_future(self, ledger):
        with closing(sqlite3.connect(ledger.path)) as db:
            db.execute("PRAGMA user_version = 2")
        with pytest.raises(LedgerDamaged, match="version 2"):
            fit(ledger)

    def test_a_locked_file(self, ledger, monkeypatch):
        monkeypatch.setattr(store, "_PATIENCE", 0.1)
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable, match="locked"):
                fit(ledger)
            assert spent(ledger) == 0  # reading is not held up
        assert fit(ledger)

    def test_a_read_only_file(self, ledger, monkeypatch):
        monkeypatch.setattr(store, "_SETTINGS", (*store._SETTINGS, "PRAGMA query_only = ON"))
        with pytest.raises(LedgerUnavailable, match="read-only"):
            fit(ledger)
        assert spent(ledger) == 0

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only files")
    def test_a_read_only_file_of_the_operating_system(self, ledger):
        ledger.path.chmod(0o444)
        with pytest.raises(LedgerUnavailable, match="read-only"):
            fit(ledger)

    def test_a_full_disk(self, ledger, monkeypatch):
        with closing(sqlite3.connect(ledger.path)) as db:
            (pages,) = db.execute("PRAGMA page_count").fetchone()
        monkeypatch.setattr(
            store, "_SETTINGS", (*store._SETTINGS, f"PRAGMA max_page_count = {pages}")
        )
        granted = []
        with pytest.raises(LedgerUnavailable, match="disk is full"):
            granted.extend(
                ledger.account("d", why="x" * 500).reserve(pure(0.001)) for _ in range(100)
            )
        monkeypatch.undo()
        assert spent(ledger) == Fraction(len(granted), 1000)
        ledger.verify()
        assert fit(ledger)

    def test_writes_that_the_operating_system_refuses(self, ledger):
        """A limit on file sizes, set in a process of its own, is a full disk to SQLite."""
        script = (
            "import resource, sys; from dpfit.ledger import *; from ledger.promises import pure\n"
            "account = Ledger(sys.argv[1]).account('d')\n"
            "account.reserve(pure(0.25))\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
            "try:\n    account.reserve(pure(0.25))\n"
            "except LedgerUnavailable as error:\n    sys.exit(7)\n"
        )
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
        done = subprocess.run(
            [sys.executable, "-c", script, str(ledger.path)], env=environment, check=False
        )
        assert done.returncode == 7
        assert spent(ledger) == Fraction(1, 4)
        ledger.verify()


class TestDamage:
    """Bytes overwritten, pages lost: an error or a correct spend, never a total that has shrunk."""

    @pytest.fixture
    def long(self, ledger):
        for _ in range(30):
            spend(ledger.account("d"), pure(0.01))
        return ledger

    def outcome(self, ledger) -> None:
        try:
            ledger.account("d").reserve(pure(0.01))
            total = ledger.status("d").spent.amount
        except LedgerError:
            return
        assert total == Fraction(31, 100)

    @pytest.mark.parametrize("number", range(40))
    def test_overwritten_bytes(self, long, number):
        rng = random.Random(number)
        content = bytearray(long.path.read_bytes())
        size = rng.choice((1, 8, 100, 4096))
        at = rng.randrange(len(content) - size)
        content[at : at + size] = rng.randbytes(size)
        long.path.write_bytes(content)
        self.outcome(long)

    @pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
    def test_a_truncated_file(self, long, share):
        content = long.path.read_bytes()
        long.path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(LedgerError):
            long.verify()
        self.outcome(long)

    def test_a_lost_page(self, long):
        content = long.path.read_bytes()
        for page in range(1, len(content) // 4096):
            long.path.write_bytes(
                content[: page * 4096] + bytes(4096) + content[(page + 1) * 4096 :]
            )
            with pytest.raises(LedgerError):
                long.verify()
            long.path.write_bytes(content)
        long.verify()


class TestClock:
    def test_a_clock_going_backwards_changes_nothing_but_the_time(self, ledger, monkeypatch):
        class Clock:
            times = iter(["2030-05-01T00:00:00Z", "2001-01-01T00:00:00Z", "2030-06-01T00:00:00Z"])

            @classmethod
            def now(cls, _zone):
                return cls()

            def strftime(self, _format):
                return next(self.times)

        monkeypatch.setattr(hash_chain, "datetime", Clock)
        for _ in range(3):
            assert fit(ledger)
        times = [entry.time for entry in ledger.entries("d") if entry.kind == "reserve"]
        assert times == ["2030-05-01T00:00:00Z", "2030-05-01T00:00:00Z", "2030-06-01T00:00:00Z"]
        ledger.verify()
        assert spent(ledger) == Fraction(3, 10)

"""A ledger file holds every charge by itself: move or copy it any time, even after a kill."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpfit.ledger import Ledger, LedgerError, LedgerUnavailable, store
from dpfit.privacy import Budget
from ledger.promises import Outcome, pure, spend

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
FORK = multiprocessing.get_context("fork")

RESERVE = """
import os, signal, sys
from dpfit.ledger import Ledger
from ledger.promises import pure
Ledger(sys.argv[1]).account("d").reserve(pure(0.5))
os.kill(os.getpid(), signal.SIGKILL)
"""

SPEND = """
import sys
from dpfit.ledger import Ledger
from ledger.promises import pure
account = Ledger(sys.argv[1]).account("d")
while True:
    account.reserve(pure(0.001))
    print(".", end="", flush=True)
"""


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("d", Budget(epsilon=10.0))
    return ledger


def spent(ledger) -> Fraction:
    return ledger.status("d").spent.amount


def killed_after_reserve(path) -> None:
    done = subprocess.run([sys.executable, "-c", RESERVE, str(path)], env=ENVIRONMENT, check=False)
    assert done.returncode == -signal.SIGKILL


def moved(path, folder) -> Ledger:
    """Move the main file only, as `mv` does."""
    folder.mkdir()
    return Ledger(os.rename(path, folder / path.name) or folder / path.name)


def side_files(path) -> list[str]:
    return sorted(
        other.name for other in path.parent.iterdir() if other.name.startswith(f"{path.name}-")
    )


def in_wal_mode(ledger) -> None:
    """Turn a ledger into one of an earlier version."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        assert db.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)


def journal_mode(path) -> str:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA journal_mode").fetchone()[0]


class TestMoved:
    def test_a_charge_is_in_the_main_file_when_reserve_returns(self, ledger, tmp_path):
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as reader:
            reader.execute(
                "SELECT count(*) FROM entries"
            ).fetchone()  # a reader next to the one that is killed
            killed_after_reserve(ledger.path)
            elsewhere = moved(ledger.path, tmp_path / "elsewhere")
        assert spent(elsewhere) == Fraction(1, 2)
        elsewhere.verify()

    def test_a_plain_copy_has_every_charge_that_returned(self, ledger, tmp_path):
        """A copy that caught a commit halfway is refused; it never has more budget left."""
        with subprocess.Popen(
            [sys.executable, "-c", SPEND, str(ledger.path)], env=ENVIRONMENT, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout.read(1) == b"."
            os.set_blocking(child.stdout.fileno(), False)
            returned, sound = 1, 0
            for number in range(40):
                returned += len(child.stdout.read() or b"")
                subprocess.run(["cp", ledger.path, tmp_path / f"copy {number}"], check=True)
                copy = Ledger(tmp_path / f"copy {number}")
                try:
                    copy.verify()
                    sound += 1
                    assert spent(copy) >= Fraction(returned, 1000)
                except LedgerError:
                    continue
            child.kill()
        assert sound > 0

    def test_kills_at_any_time_leave_charges_in_the_moved_file(self, ledger, tmp_path):
        path, returned = ledger.path, 0
        for number in range(8):
            with subprocess.Popen(
                [sys.executable, "-c", SPEND, str(path)], env=ENVIRONMENT, stdout=subprocess.PIPE
            ) as child:
                returned += len(child.stdout.read(1))
                time.sleep(0.01 * number)
                child.kill()
                returned += len(child.stdout.read())
            journal = path.with_name(f"{path.name}-journal")
            there = moved(path, tmp_path / str(number))
            try:
                assert spent(there) >= Fraction(returned, 1000)
                there.verify()
            except LedgerError:
                # Killed within a commit: the file is whole with its journal beside it.
                assert journal.exists()
                journal.rename(there.path.with_name(journal.name))
                assert spent(there) >= Fraction(returned, 1000)
            path = there.path
        Ledger(path).verify()


class TestOldFiles:
    """Earlier ledgers keep charges in a write-ahead log until the last connection closes."""

    def test_the_first_write_converts_without_loss(self, ledger):
        spend(ledger.account("d"), pure(0.25))
        in_wal_mode(ledger)
        spend(ledger.account("d"), pure(0.25))
        assert journal_mode(ledger.path) == "delete"
        assert side_files(ledger.path) == []
        assert spent(ledger) == Fraction(1, 2)
        ledger.verify()

    def test_charges_in_a_log_that_a_kill_left_are_taken_over(self, ledger, tmp_path):
        before = ledger.path.read_bytes()
        in_wal_mode(ledger)
        script = (
            "import os, sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "db.execute('BEGIN')\n"
            "from dpfit.ledger import amount, hash_chain\n"
            "from dpfit.privacy.cost import Charge\n"
            "from dpfit.ledger.account import DatasetAccount\n"
            "from ledger.promises import pure\n"
            "price = Charge(amount.ZERO + 1)\n"
            "facts = DatasetAccount(sys.argv[1], 'd')._facts(pure(1.0), price)\n"
            "hash_chain.append(db, 'd', 'reserve', facts, price)\n"
            "db.execute('COMMIT')\n"
            "os._exit(9)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(ledger.path)], env=ENVIRONMENT, check=False
        )
        assert done.returncode == 9
        assert side_files(ledger.path) == [f"{ledger.path.name}-shm", f"{ledger.path.name}-wal"]
        assert len(ledger.path.read_bytes()) == len(before)  # the charge is in the log alone
        with pytest.raises(LedgerUnavailable, match="-wal"):
            ledger.verify()
        ledger.account("d").reserve(pure(0.5))
        elsewhere = moved(ledger.path, tmp_path / "elsewhere")
        assert side_files(ledger.path) == []
        assert spent(elsewhere) == Fraction(3, 2)
        elsewhere.verify()

    def test_reading_an_old_file_changes_nothing(self, ledger):
        in_wal_mode(ledger)
        before = ledger.path.read_bytes()
        assert spent(ledger) == 0
        ledger.verify()
        assert ledger.path.read_bytes() == before

    def test_an_old_file_in_use_is_not_written_in_the_old_way(self, ledger, monkeypatch):
        monkeypatch.setattr(store, "_PATIENCE", 0.2)
        in_wal_mode(ledger)
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as reader:
            reader.execute("SELECT count(*) FROM entries").fetchone()
            with pytest.raises(LedgerUnavailable, match="locked"):
                ledger.account("d").reserve(pure(0.5))
        assert spent(ledger) == 0
        ledger.account("d").reserve(pure(0.5))
        assert journal_mode(ledger.path) == "delete"

    def test_many_first_writers_convert_once_and_never_overspend(self, ledger):
        in_wal_mode(ledger)
        workers = [FORK.Process(target=_spend_ten, args=(ledger,)) for _ in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert [worker.exitcode for worker in workers] == [0] * 6
        assert spent(ledger) == Fraction(60, 100)
        ledger.verify()


def _spend_ten(ledger) -> None:
    for _ in range(10):
        account = ledger.account("d")
        account.commit(account.reserve(pure(0.01)), Outcome())


class TestSideFiles:
    @pytest.mark.parametrize("suffix", ["-wal", "-shm"])
    def test_verify_refuses_a_log_beside_the_file(self, ledger, suffix):
        stray = ledger.path.with_name(ledger.path.name + suffix)
        stray.write_bytes(b"")
        with pytest.raises(LedgerUnavailable, match=suffix):
            ledger.verify()
        assert stray.exists()
        stray.unlink()
        ledger.verify()

    def test_verify_refuses_through_a_symbolic_link_too(self, ledger, tmp_path):
        (tmp_path / "link").symlink_to(ledger.path)
        ledger.path.with_name(f"{ledger.path.name}-wal").touch()
        with pytest.raises(LedgerUnavailable, match="-wal"):
            Ledger(tmp_path / "link").verify()

    def test_verify_refuses_an_unfinished_write_and_reading_undoes_it(self, ledger):
        interrupted = (
            "import os, sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "db.execute('PRAGMA cache_size = 1')\n"
            "db.execute('PRAGMA cache_spill = 1')\n"
            "db.execute('BEGIN EXCLUSIVE')\n"
            "db.execute('CREATE TABLE big (x)')\n"
            "db.executemany('INSERT INTO big VALUES (?)', [(bytes(3000),)] * 200)\n"
            "os._exit(9)\n"
        )
        assert (
            subprocess.run([sys.executable, "-c", interrupted, ledger.path], check=False).returncode
            == 9
        )
        journal = ledger.path.with_name(f"{ledger.path.name}-journal")
        torn = ledger.path.read_bytes()
        assert journal.stat().st_size
        with pytest.raises(LedgerUnavailable, match="was stopped while it wrote"):
            ledger.verify()
        assert ledger.path.read_bytes() == torn  # verify changes nothing
        assert spent(ledger) == 0
        assert not journal.exists()
        ledger.verify()

    def test_a_journal_of_a_write_under_way_does_not_stop_verify(self, ledger):
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("CREATE TABLE other (x)")
            assert side_files(ledger.path) == [f"{ledger.path.name}-journal"]
            ledger.verify()

    @pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
    def test_no_ledger_is_made_beside_the_log_of_another(self, tmp_path, suffix):
        (tmp_path / f"new.ledger{suffix}").write_bytes(b"x")
        with pytest.raises(LedgerError, match=suffix):
            Ledger.create(tmp_path / "new.ledger")
        assert not (tmp_path / "new.ledger").exists()

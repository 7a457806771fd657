"""Users in files, a million users, processes that die: what user-level runs must survive."""

import os
import signal
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dpfit.core import Answer, Interact, Minimize
from dpfit.data.dataset import InMemory
from dpfit.data.files import scan_parquet
from dpfit.data.schema import Number, Schema
from dpfit.ledger import Ledger
from dpfit.losses import Bounds, Logistic
from dpfit.mechanisms.aggregates.user_vectors import UserVectors
from dpfit.mechanisms.filtered_mean import filtered_mean
from dpfit.mechanisms.filtered_means import filtered_means
from dpfit.mechanisms.staged_user_mean import staged_user_mean
from dpfit.mechanisms.user_mean import user_mean
from dpfit.mechanisms.user_means import user_means
from dpfit.models import LogisticRegression
from dpfit.privacy import Budget
from dpfit.solvers.gradient.noisy_gd import noisy_gd

ROOT = Path(__file__).parents[2]
BUDGET = Budget(epsilon=1.0, delta=1e-6, unit="user")


@pytest.mark.slow
def test_a_million_users_of_one_row_each():
    """The error is the noise of the plan; six deviations."""
    n = 1_000_000
    rows = np.random.default_rng(1).uniform(-1, 1, (n, 2))
    data = InMemory(rows, np.zeros(n), np.arange(n))
    plan = user_mean.plan(Answer(n=n, workload=UserVectors(2, 2.0)), BUDGET)
    error = plan.run(data, random_state=1).value - rows.mean(axis=0)
    assert np.abs(error).max() < 6 * plan.mechanism.deviation
    assert plan.mechanism.deviation < 1e-4


@pytest.mark.parametrize("blocks_of_file", ["row groups", "one group"])
def test_a_user_whose_rows_lie_in_several_blocks_of_a_file(tmp_path, blocks_of_file):
    """User 0 has rows in all 16 blocks, the other 90 in some; bits are those in memory."""
    rng = np.random.default_rng(3)
    rows, ids = rng.uniform(-0.7, 0.7, (1000, 2)), rng.integers(0, 91, 1000)
    ids[::10] = 0
    labels = np.where(rows[:, 0] > 0, 1.0, -1.0)
    table = pa.table({"a": rows[:, 0], "b": rows[:, 1], "y": labels, "who": ids})
    group = 64 if blocks_of_file == "row groups" else 1000
    parquet.write_table(table, tmp_path / "people.parquet", row_group_size=group)
    ranges = [Number(name, -1.0, 1.0) for name in ("a", "b", "y")]
    file = scan_parquet(
        tmp_path / "people.parquet",
        Schema(tuple(ranges[:2]), target=ranges[2]),
        users="who",
        rows_per_block=64,
    )
    chunks = list(file.chunks())
    assert len(chunks) >= 16
    assert all("0" in chunk.users.tolist() for chunk in chunks)
    part = file.rows(np.arange(1000))
    held = InMemory(part.matrix, part.labels, ids)
    problem = Minimize(n=91, loss=Logistic(), bounds=Bounds(2.0), n_features=file.width)
    for plan in (
        user_mean.plan(Answer(n=91, workload=UserVectors(file.width, 5.0)), BUDGET),
        noisy_gd.plan(problem, BUDGET, max_passes=3),
    ):
        values = [plan.run(data, random_state=5).value for data in (file, held)]
        np.testing.assert_array_equal(*values)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("people", Budget(epsilon=3.0, delta=1e-5, unit="user"), currency="pure")
    return ledger


def spent(ledger):
    return ledger.status("people").spent.amount


def test_a_fit_that_is_killed_while_records_are_read_stays_charged(ledger):
    """The process dies at the first pass over users: after the charge, before the release."""
    script = textwrap.dedent("""
        import os, signal, sys
        import numpy as np
        from dpfit.data.view import View
        from dpfit.models import LogisticRegression
        View.unit_means = lambda *facts, **more: os.kill(os.getpid(), signal.SIGKILL)
        X = np.random.default_rng(1).uniform(-1, 1, (2000, 2))
        model = LogisticRegression(
            1.0, 1e-6, bounds=(-1, 1), classes=(0, 1), rows_per_user=10,
            ledger=sys.argv[1], dataset="people",
        )
        model.fit(X, X[:, 0] > 0, user_ids=np.repeat(np.arange(200), 10))
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(ledger.path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert spent(ledger) == Fraction(1)
    assert ledger.status("people").releases == 0
    assert [entry.kind for entry in ledger.entries("people")][-1] == "reserve"
    ledger.verify()


def people(d=2, users=700):
    return InMemory(np.zeros((users, d)), np.zeros(users), np.arange(users))


@pytest.mark.parametrize(
    "algorithm", [user_mean, staged_user_mean, filtered_mean, user_means, filtered_means],
    ids=lambda a: a.name,
)  # fmt: skip
def test_bad_input_charges_nothing(algorithm, ledger):
    """Without ids, of another width, with other numbers of users where those are public."""
    workload, account = (
        UserVectors(2, 9.0, spread=1.0),
        ledger.account("people", as_approximate=1e-6),
    )
    interactive = algorithm in (user_means, filtered_means)
    problem = (Interact if interactive else Answer)(
        n=700, workload=workload, **({"rounds": 2} if interactive else {})
    )
    plan = algorithm.plan(problem, BUDGET)
    queries = {"queries": (None, None)} if interactive else {}
    no_ids = InMemory(np.zeros((700, 2)), np.zeros(700))
    bad = [no_ids, "people"] + ([] if interactive else [people(3)])
    for data in bad + ([people(2, 699)] if "filtered" in algorithm.name else []):
        with pytest.raises(ValueError, match=r"user ids|rows of 2 entries|Dataset|have 699"):
            plan.run(data, account=account, **queries)
    assert spent(ledger) == 0
    assert ledger.entries("people")[-1].kind == "register"
    plan.run(people(), account=account, **queries)
    assert spent(ledger) > 0


@pytest.mark.parametrize(
    "facts", [{"rows_per_user": 0.0}, {"max_rows_per_user": 0}, {"rows_per_user": 5, "n_users": 7}]
)
def test_bad_facts_of_a_fit_charge_nothing(facts, ledger):
    ids = np.repeat(np.arange(50), 4)
    X = np.zeros((200, 2))
    model = LogisticRegression(
        1.0, 1e-6, bounds=(-1, 1), classes=(0, 1), ledger=ledger, dataset="people", **facts
    )
    with pytest.raises(ValueError, match=r"rows_per_user|n_users"):
        model.fit(X, X[:, 0], user_ids=ids)
    with pytest.raises(ValueError, match="user_ids must have one entry for each record"):
        LogisticRegression(
            1.0, 1e-6, bounds=(-1, 1), classes=(0, 1), ledger=ledger, dataset="people",
            rows_per_user=4,
        ).fit(X, X[:, 0], user_ids=ids[:-1])  # fmt: skip
    assert spent(ledger) == 0
    assert ledger.entries("people")[-1].kind == "register"

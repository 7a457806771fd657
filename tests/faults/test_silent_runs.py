"""Hostile rows of users: no warning, no error, and the bits do not depend on warning filters."""

import math
import threading
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array

import dpfit
from dpfit.core import Answer, Interact
from dpfit.data.dataset import Blocks, InMemory
from dpfit.mechanisms.aggregates.user_vectors import UserVectors
from dpfit.mechanisms.filtered_mean import filtered_mean
from dpfit.mechanisms.filtered_means import filtered_means
from dpfit.mechanisms.staged_user_mean import staged_user_mean
from dpfit.mechanisms.user_mean import user_mean
from dpfit.mechanisms.user_means import user_means
from dpfit.privacy import Budget

BUDGET = Budget(epsilon=1.0, delta=1e-6, unit="user")
USERS = 800
CELLS = [1e308, -1e308, math.nan, math.inf, -math.inf, 5e-324]


def hostile(rows_per_user=3):
    """Rows of which some hold cells that overflow, underflow or are not finite."""
    rng = np.random.default_rng(5)
    rows = rng.uniform(-1, 1, (USERS * rows_per_user, 2))
    rows[:36] = [[a, b] for a in CELLS for b in CELLS]
    return rows, np.tile(np.arange(USERS), rows_per_user)


def formats():
    rows, ids = hostile()
    labels = np.zeros(len(rows))
    yield "dense", InMemory(rows, labels, ids)
    yield "wide floats", InMemory(rows.astype(np.longdouble) * 10, labels, ids)
    yield "sparse", InMemory(csr_array(rows), labels, ids)
    yield (
        "blocks",
        Blocks(
            len(rows),
            2,
            lambda: (
                (rows[i : i + 99], labels[i : i + 99], ids[i : i + 99])
                for i in range(0, len(rows), 99)
            ),
        ),
    )


FORMATS = dict(formats())


def in_all_modes(run):
    """Return what a run returns under filters that report all, and under those that raise."""
    with warnings.catch_warnings(record=True) as found, np.errstate(all="warn", under="ignore"):
        warnings.simplefilter("always")
        told = run()
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        raising = run()
    assert [str(one.message) for one in found] == []
    np.testing.assert_array_equal(told, raising)
    return told


@pytest.mark.parametrize("data", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(
    "algorithm", [user_mean, staged_user_mean, filtered_mean], ids=lambda a: a.name
)
def test_means_of_hostile_rows_are_silent(algorithm, data):
    problem = Answer(n=USERS, workload=UserVectors(2, 10.0, spread=40.0))
    plan = algorithm.plan(problem, BUDGET)
    value = in_all_modes(lambda: plan.run(data, random_state=1).value)
    assert value is None or np.isfinite(value).all()


def overflowing(rows, labels):
    return rows.mean(axis=0) * 1e300 * 1e300


def empty(rows, labels):
    return np.full(2, np.mean(rows[rows > 0.9]))


def talking(rows, labels):
    warnings.warn(f"a user has {len(rows)} rows", stacklevel=1)
    return rows[0]


@pytest.mark.parametrize("query", [overflowing, empty, talking], ids=lambda q: q.__name__)
@pytest.mark.parametrize("algorithm", [user_means, filtered_means], ids=lambda a: a.name)
def test_queries_that_warn_are_silent(algorithm, query):
    problem = Interact(n=USERS, workload=UserVectors(2, 10.0, spread=40.0), rounds=2)
    plan = algorithm.plan(problem, BUDGET)
    data = FORMATS["wide floats"]
    in_all_modes(lambda: plan.run(data, queries=(query, query), random_state=1).value)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_table_of_hostile_cells_is_silent(relation):
    rows, ids = hostile()
    table = {"who": ids, "a": rows[:, 0], "b": rows[:, 1]}
    public = {"relation": relation} | ({"n_users": USERS} if relation == "add_remove" else {})
    for bounds in ((-1, 1), (-1e308, 1e308), (0.0, 5e-324)):
        given = {"user": "who", "bounds": bounds, "epsilon": 1.0, "delta": 1e-6} | public
        in_all_modes(
            lambda given=given: list(
                dpfit.user_mean(table, ["a", "b"], **given, random_state=1).means.values()
            )
        )


@pytest.mark.parametrize("facts", [{"rows_per_user": 3}, {"max_rows_per_user": 3}], ids=str)
@pytest.mark.parametrize("ranges", [{"bounds": (-1, 1), "y_bounds": (-1, 1)}, {}], ids=str)
def test_a_fit_on_hostile_rows_is_silent(facts, ranges):
    rows, ids = hostile()
    labels = np.resize(CELLS, len(rows))

    def fit():
        model = dpfit.LinearRegression(1.0, 1e-6, **ranges, **facts)
        model.fit(rows, labels, user_ids=ids)
        assert np.isfinite(model.coef_).all()
        return 0.0

    in_all_modes(fit)


def test_filters_are_restored_after_runs_that_overlap():
    """The first thread enters, the second enters, the first leaves, the second leaves."""
    problem = Interact(n=USERS, workload=UserVectors(2, 10.0, spread=40.0), rounds=1)
    plan, data = user_means.plan(problem, BUDGET), FORMATS["dense"]
    inside, entered, left = threading.Event(), threading.Event(), threading.Event()

    def first(rows, labels):
        inside.set()
        entered.wait(20)
        return rows[0]

    def second(rows, labels):
        entered.set()
        left.wait(20)
        return rows[0]

    def run_first():
        plan.run(data, queries=(first,))
        left.set()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        threads = [threading.Thread(target=run_first)]
        threads[0].start()
        inside.wait(20)
        threads.append(threading.Thread(target=plan.run, args=(data, (second,))))
        threads[1].start()
        for thread in threads:
            thread.join(30)
        assert left.is_set()
        assert list(warnings.filters) == before

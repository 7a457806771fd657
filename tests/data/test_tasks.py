"""Tasks: frozen, picklable sums whose bits do not depend on who adds them up."""

import pickle
from dataclasses import FrozenInstanceError
from functools import reduce
from operator import add

import numpy as np
import pytest

from dpfit.data import tasks
from dpfit.data.dataset import Blocks, Chunk, InMemory
from dpfit.kernels import passes
from dpfit.kernels.rounding import pairwise
from dpfit.losses import Logistic
from dpfit.noise import Grid
from dpfit.noise.lattice import LIMIT

GUARDS = {"row_norm": 1.0, "binary": True, "clip": 0.4}
RNG = np.random.default_rng(0)
X, Y, THETA = RNG.normal(size=(211, 3)), np.sign(RNG.normal(size=211)), RNG.normal(size=3)
TASKS = [
    tasks.Gradients(Logistic(), THETA[np.newaxis], True, GUARDS),
    tasks.ClippedSum(Logistic(), THETA, Grid(-20), GUARDS),
    tasks.Hessian(Logistic(), THETA, {"row_norm": 1.0}),
    tasks.HessianVector(Logistic(), THETA, THETA, {"row_norm": 1.0}),
    tasks.Gram({"row_norm": 1.0}),
]


def pieces(size):
    return [(X[i : i + size], Y[i : i + size]) for i in range(0, len(Y), size)]


def in_blocks(size):
    return Blocks(len(Y), 3, lambda: iter(pieces(size)))


def arrays(result):
    return getattr(result, "arrays", None) or (getattr(result, "steps", result),)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_pickled_task_gives_the_same_sums(task):
    sent = pickle.loads(pickle.dumps(task))
    for data in (InMemory(X, Y), in_blocks(10)):
        for index in (None, np.array([3, 200, 17])):
            some, other = (arrays(data.reduce(one, index=index)) for one in (task, sent))
            assert all(map(np.array_equal, some, other))
            assert any(one.any() for one in some)
    with pytest.raises(FrozenInstanceError):
        task.guards = {}
    # A result that a worker sends back adds like one that was made here.
    results = [task(Chunk(rows, labels, 0)) for rows, labels in pieces(10)]
    sent_back = [pickle.loads(pickle.dumps(result)) for result in results]
    assert all(map(np.array_equal, arrays(reduce(add, results)), arrays(reduce(add, sent_back))))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_any_order_of_additions_gives_the_sums(task):
    results = [task(Chunk(rows, labels, 0)) for rows, labels in pieces(10)]
    half = len(results) // 2
    tree = reduce(add, results[half:]) + reduce(add, results[:half])
    for some, other in zip(arrays(tree), arrays(InMemory(X, Y).reduce(task)), strict=True):
        assert some == pytest.approx(other, rel=1e-12, abs=1e-12)
        if task is TASKS[1]:
            assert np.array_equal(some, other)


@pytest.mark.parametrize("size", [1, 7, 30, 211])
def test_sums_of_blocks_have_the_bits_of_pairwise_and_running_sums(size):
    data, parts = in_blocks(size), pieces(size)
    losses, gradients = pairwise(
        (np.zeros(1), np.zeros((1, 3))),
        (passes.gradients(*part, THETA[np.newaxis], Logistic()) for part in parts),
    )
    found = data.gradients(Logistic(), THETA[np.newaxis])
    assert np.array_equal(found[0], losses)
    assert np.array_equal(found[1], gradients)
    hessian, square, cross = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3)
    for part in parts:
        hessian += passes.hessian(*part, THETA, Logistic())
        both = passes.gram(*part)
        square, cross = square + both[0], cross + both[1]
    assert np.array_equal(data.hessian(Logistic(), THETA), hessian)
    assert np.array_equal(data.gram()[0], square)
    assert np.array_equal(data.gram()[1], cross)


def test_no_records_have_the_sums_zero():
    for data in (Blocks(0, 3, lambda: iter(())), InMemory(np.zeros((0, 3)), np.zeros(0))):
        for task in TASKS:
            for one, full in zip(
                arrays(data.reduce(task)), arrays(InMemory(X, Y).reduce(task)), strict=True
            ):
                assert (one.shape, one.dtype, one.any()) == (full.shape, full.dtype, False)


def test_totals_saturate_at_each_addition():
    many = tasks.Saturated(np.array([LIMIT - 1, 1 - LIMIT]))
    total = 0 + many + many + tasks.Saturated(np.array([-5, 5]))
    assert total.steps.tolist() == [LIMIT - 5, 5 - LIMIT]
    assert total.steps.dtype == np.int64


def test_records_are_taken_in_the_order_of_the_index():
    index = np.array([200, 3, 3, 17])
    for data in (InMemory(X, Y), in_blocks(10)):
        taken = data.take(index)
        assert np.array_equal(taken.rows, X[index])
        assert np.array_equal(taken.labels, Y[index])
        assert (len(taken), len(data.take([])), taken.users) == (4, 0, None)
        for wrong in ([211], [-1]):
            with pytest.raises(ValueError, match="outside the records"):
                data.take(wrong)
    assert InMemory(X, Y).whole.rows is X
    assert in_blocks(10).whole is None


def test_a_fold_visits_records_in_order():
    def visit(seen, chunk):
        return [*seen, *chunk.rows[:, 0]]

    for data in (InMemory(X, Y), in_blocks(10)):
        assert data.fold(visit, []) == X[:, 0].tolist()

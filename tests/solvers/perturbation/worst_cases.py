"""Small datasets at the corners of their bounds, and all neighbours of them."""

import itertools

import numpy as np
from scipy.optimize import minimize

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Logistic


def corner_records(dimension, labels, random, number=3):
    """Rows of norm one (axes, diagonals, random ones, zero) with the extreme labels."""
    axes = np.vstack([np.eye(dimension), -np.eye(dimension), np.zeros(dimension)])
    others = random.normal(size=(number, dimension))
    rows = np.vstack([axes, others / np.linalg.norm(others, axis=1, keepdims=True)])
    return [(row, label) for row in rows for label in labels]


def dataset(records, dimension):
    rows = np.array([row for row, _ in records]).reshape(-1, dimension)
    return InMemory(rows, np.array([label for _, label in records], dtype=float))


def neighbouring(records, size, relation, random, pairs, dimension):
    """Pairs of datasets of about ``size`` records that differ in one."""
    for _ in range(pairs):
        picked = [records[k] for k in random.integers(len(records), size=size + 1)]
        if random.uniform() < 0.3:
            picked[:-2] = [picked[0]] * (size - 1)
        first = dataset(picked[:-1], dimension)
        second = picked[:-2] if relation == "add_remove" else [*picked[:-2], picked[-1]]
        yield first, dataset(second, dimension)


def all_pairs(records, relation, dimension):
    """Every dataset of two records, and each of its neighbours."""
    for one, two in itertools.product(records, repeat=2):
        base = dataset([one, two], dimension)
        if relation == "add_remove":
            yield base, dataset([one], dimension)
            continue
        for other in records:
            yield base, dataset([one, other], dimension)


def hostile(d):
    """Five records each: NaN, one class, constant features, nothing; n < d where d > 5."""
    bad = np.array([[np.nan] * d, [np.inf] * d, [1e300] * d, [0.0] * d, [-1e-300] * d])
    return [
        InMemory(bad, [1.0, np.nan, 0.0, np.inf, -np.inf]),
        InMemory(np.ones((5, d)), np.ones(5)),
        InMemory(np.ones((5, d)), -np.ones(5)),
        InMemory(np.zeros((5, d)), np.zeros(5)),
    ]


def logistic_case(n=1000, ridge=0.01):
    """Rows, labels, a problem, and its optimum by other means."""
    random = np.random.default_rng(2)
    rows = random.normal(size=(n, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.where(rows[:, 0] + 0.5 * random.normal(size=n) > 0, 1.0, -1.0)

    def objective(theta):
        return np.mean(np.logaddexp(0, -labels * (rows @ theta))) + ridge / 2 * theta @ theta

    optimum = minimize(objective, np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x
    return (
        rows,
        labels,
        Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=3, ridge=ridge),
        optimum,
    )

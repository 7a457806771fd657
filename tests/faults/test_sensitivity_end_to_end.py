"""Sensitivity end to end: from raw records, through scaling and guards, to what noise is added to.

Each model is fitted to neighbouring tables. What its mechanisms see is then compared without noise.
"""

import numpy as np
import pytest

from dpfit.core.plan import Step
from dpfit.data.tasks import ClippedSum
from dpfit.mechanisms.private_bounds import PrivateBounds
from dpfit.models import (
    GeometricMedian,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    QuantileRegressor,
    RobustRegressor,
)
from dpfit.solvers.perturbation.minimizer import CertifiedMinimizer
from dpfit.solvers.perturbation.sufficient_statistics import NoisyStatistics

N = 24
RNG = np.random.default_rng(11)
X = RNG.uniform(-3, 3, size=(N, 2))
LABELS = RNG.integers(0, 2, N).astype(float)
AT = 5
WORST = [
    ([3.0, 3.0], 1.0),
    ([-3.0, -3.0], 0.0),
    ([1e300, -1e300], 1e300),
    ([np.nan, 1.0], -np.inf),
    ([3.0, -3.0], np.nan),
]
SOLVERS = [
    ("objective_perturbation", 0.0),
    ("output_perturbation", 0.0),
    ("output_perturbation", 1e-4),
    ("noisy_gd", 1e-4),
    ("dp_sgd", 1e-4),
]
CASES = [(kind, *each) for kind in (LogisticRegression, LinearRegression) for each in SOLVERS] + [
    (LinearSVC, "auto", 0.0),
    (HuberRegressor, "auto", 0.0),
    (QuantileRegressor, "auto", 0.0),
    pytest.param(RobustRegressor, "auto", 1e-4, marks=pytest.mark.slow),
    (LinearRegression, "sufficient_statistics", 1e-4),
    (GeometricMedian, None, 0.0),
]


def neighbours(relation):
    if relation == "add_remove":
        yield np.delete(X, AT, 0), np.delete(LABELS, AT)
        for row, label in WORST:
            yield np.vstack([X, [row]]), np.append(LABELS, label)
        return
    for row, label in WORST:
        rows, labels = X.copy(), LABELS.copy()
        rows[AT], labels[AT] = row, label
        yield rows, labels


class Seen:
    """The mechanisms of a fit, what each saw, and its clipped sums."""

    def __init__(self, monkeypatch, model, X, y):
        self.steps, self.sums = [], []
        execute, add_up = Step.execute, ClippedSum.__call__

        def executed(step, data, run):
            self.steps.append((step.mechanism, data))
            self.sums.append([])
            return execute(step, data, run)

        def summed(task, chunk):
            self.sums[-1].append(task)
            return add_up(task, chunk)

        with monkeypatch.context() as patch:
            patch.setattr(Step, "execute", executed)
            patch.setattr(ClippedSum, "__call__", summed)
            model.fit(X) if isinstance(model, GeometricMedian) else model.fit(X, y)


def changes(mechanism, mine, theirs, sums):
    """Changes by one record, each with its declared bound, at points drawn alike in every test."""
    rng = np.random.default_rng(12)
    if isinstance(mechanism, PrivateBounds):
        order = 2 if mechanism.noise == "gaussian" else 1
        counts = mechanism.counts(mine) - mechanism.counts(theirs)
        yield np.linalg.norm(counts.ravel(), order), mechanism.sensitivity
    if isinstance(mechanism, CertifiedMinimizer):
        problem = mechanism.problem
        for theta in (np.zeros(problem.dimension), *rng.normal(0, 30, (32, problem.dimension))):
            values = [
                side.gradient(problem.loss, theta, **problem.guards)[1] for side in (mine, theirs)
            ]
            yield np.linalg.norm(np.subtract(*values)), mechanism.constants.gradient_sensitivity
        if hasattr(mechanism, "vector_noise") and hasattr(mechanism, "_minimizer"):
            moved = mechanism._minimizer(mine) - mechanism._minimizer(theirs)
            yield np.linalg.norm(moved), mechanism.sensitivity
    if isinstance(mechanism, NoisyStatistics):
        gram = mechanism.gram(mine) - mechanism.gram(theirs)
        yield np.linalg.norm(gram[np.triu_indices(len(gram))]), mechanism.sensitivity
    if hasattr(mechanism, "clip_norm"):
        problem, guards = mechanism.problem, mechanism.problem.guards
        sums = [
            ClippedSum(
                problem.loss,
                rng.normal(0, size, problem.dimension),
                mechanism.grid,
                guards | {"clip": mechanism.clip_norm},
            )
            for size in (0.0, 1.0, 30.0)
        ]
    for task in sums[:20]:
        moved = (mine.reduce(task).steps - theirs.reduce(task).steps).astype(float)
        one = task.guards["clip"] + task.grid.rounding(len(moved.ravel()), "l2") / 2
        times = 1 if mine.relation == "add_remove" else 2
        yield np.linalg.norm(moved) * task.grid.step, times * one


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(
    "facts",
    [
        {"bounds": (-3, 3)},
        pytest.param({"row_norm": 2.0}, marks=pytest.mark.slow),
        pytest.param({"bounds": (-3, 3), "row_norm": 0.7}, marks=pytest.mark.slow),
        pytest.param({"bounds": "private"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize(("kind", "solver", "delta"), CASES)
def test_no_record_moves_more_than_is_declared(kind, solver, delta, facts, relation, monkeypatch):
    if kind is GeometricMedian and "row_norm" in facts:
        pytest.skip("a location has no row_norm")
    options = {**facts, "relation": relation}
    options |= {} if solver is None else {"solver": solver}
    options |= {"n_declared": N} if relation == "add_remove" else {}
    if kind in (LinearRegression, HuberRegressor, QuantileRegressor, RobustRegressor):
        options["y_bounds"] = (0, 1)
    model = kind(20.0, delta, **options)
    base, ratios = Seen(monkeypatch, model, X, LABELS), []
    for rows, labels in neighbours(relation):
        other = Seen(monkeypatch, model, rows, labels)
        pairs = zip(base.steps, other.steps, base.sums, strict=True)
        for (mechanism, mine), (same, theirs), sums in pairs:
            if mechanism != same:
                break  # bound to what noise made of an earlier stage
            ratios += [moved / bound for moved, bound in changes(mechanism, mine, theirs, sums)]
            if isinstance(mechanism, PrivateBounds):
                break  # the next stage is scaled by what this one released
    assert ratios
    assert max(ratios) <= 1 + 1e-9
    # Half the declared bound would be caught: some record reaches half of it everywhere, and all of
    # it in most cases.
    assert max(ratios) > 0.49

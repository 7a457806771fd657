"""With a budget that is huge, every model is the optimum of its own objective."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from dpfit.models import (
    BoundedMean,
    GeometricMedian,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
)
from dpfit.solvers.perturbation.minimizer import Objective

N = 2000


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (N, 2))
    signal = X @ [2.0, -1.0] + 0.5
    return (
        X,
        signal + random.logistic(size=N),
        np.clip(signal + 0.5 * random.standard_normal(N), -5, 5),
    )


def distance_to_optimum(objective, weights):
    """Distance of the weights from the minimizer, by simplex search, corners included."""
    options = {"xatol": 1e-8, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000}
    return np.abs(
        minimize(objective, weights, method="Nelder-Mead", options=options).x - weights
    ).max()


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "private"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (LogisticRegression, {}),
        (LinearSVC, {}),
        (LinearRegression, {}),
        (Ridge, {}),
        (HuberRegressor, {}),
        (HuberRegressor, {"width": 0.002}),
        (QuantileRegressor, {}),
        (QuantileRegressor, {"quantile": 0.9}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_linear_models(kind, settings, delta, declared, table):
    X, noisy, values = table
    classifies = kind in (LogisticRegression, LinearSVC)
    y = (noisy > 0).astype(int) if classifies else values
    ranges = {"bounds": (-1, 1)} if declared else {}
    if declared and not classifies:
        ranges["y_bounds"] = (-5, 5)
    model = kind(1e6, delta, **ranges, **settings).fit(X, y)
    problem = model.plan_.final.problem
    rows, labels = model.scaling_.rows(X), 2.0 * y - 1 if classifies else model.scaling_.labels(y)

    def objective(weights):
        return (
            np.mean(problem.loss.value(rows @ weights, labels))
            + problem.ridge / 2 * weights @ weights
        )

    assert distance_to_optimum(objective, np.ravel(model.weights_)) < 1e-3


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("n", "d"), [(2000, 3), (5000, 10)])
def test_a_margin_on_separable_records_takes_few_passes(n, d, delta, monkeypatch):
    """Newton steps were refused, and the descent made all that were planned: 25 seconds."""
    rows = np.random.default_rng(6).uniform(-1, 1, (n, d))
    yes = rows[:, 0] > 0
    passes = []
    for name in ("gradient", "newton"):
        monkeypatch.setattr(Objective, name, counted(passes, getattr(Objective, name)))
    model = LinearSVC(1e7, delta, bounds=(-1, 1)).fit(rows, yes)
    assert 0 < len(passes) <= 1000
    assert len(passes) <= model.plan_.work.most_passes < np.inf
    assert (model.predict(rows) == yes).mean() > 0.99


def counted(passes, method):
    def run(*arguments, **options):
        passes.append(method)
        return method(*arguments, **options)

    return run


@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_quantiles_far_from_the_middle(delta, neighbours):
    """Optimum by linear programming; a rounded corner moves it by a share of the width 0.002."""
    random = np.random.default_rng(5)
    X = random.uniform(-1, 1, (500, 6))
    y = np.clip(X @ random.normal(size=6) + 0.5 * random.normal(size=500), -5, 5)
    facts = {"bounds": (-1, 1), "y_bounds": (-5, 5), "relation": neighbours, "n_declared": 500}
    model = QuantileRegressor(1e6, delta, quantile=0.9, **facts).fit(X, y)
    rows = model.scaling_.rows(X)
    costs = np.r_[np.zeros(7), np.full(500, 0.9), np.full(500, 0.1)]
    best = linprog(
        costs / 500,
        A_eq=np.c_[rows, np.eye(500), -np.eye(500)],
        b_eq=y / 5,
        bounds=[(None, None)] * 7 + [(0, None)] * 1000,
    )
    assert np.abs(best.x[:7] - model.weights_).max() < 2e-3


@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
@pytest.mark.parametrize("bounds", [(-1, 1), None], ids=["declared", "private"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_several_classes(delta, bounds, neighbours):
    """With and without a ridge: noise in the objective asks for hardly any of its own."""
    random = np.random.default_rng(0)
    for n, ridge in ((2000, 1e-3), (2000, 0.0)):
        X = random.uniform(-1, 1, (n, 2))
        y = np.digitize(X @ [2.0, -1.0] + 0.5 + random.logistic(size=n), [-1.0, 1.0])
        model = LogisticRegression(
            1e6,
            delta,
            bounds=bounds,
            classes=[0, 1, 2],
            relation=neighbours,
            n_declared=n,
            ridge=ridge,
        ).fit(X, y)
        rows = model.scaling_.rows(X)

        def objective(weights, rows=rows, y=y, ridge=ridge):
            scores = rows @ weights.reshape(3, -1).T
            chosen = np.arange(len(y)), y
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            value = -np.mean(np.log(shares[chosen])) + ridge / 2 * weights @ weights
            shares[chosen] -= 1
            return value, (shares.T @ rows / len(y)).ravel() + ridge * weights

        weights = np.ravel(model.weights_)
        best = minimize(objective, weights, jac=True, method="BFGS", options={"gtol": 1e-9})
        # Adding the same to the weights of all classes changes nothing, unless there is a ridge.
        gap = (best.x - weights).reshape(3, -1)
        assert np.abs(gap - gap.mean(axis=0) * (ridge == 0)).max() < 1e-3


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_locations(delta):
    X = np.random.default_rng(1).normal([2.0, -1.0], 0.5, size=(N, 2))
    mean = BoundedMean(1e6, delta, bounds=(-10, 10)).fit(X).location_
    assert np.abs(mean - X.mean(axis=0)).max() < 1e-3

    def objective(point):
        away = np.linalg.norm(X / 10 - point, axis=1)
        return np.mean(np.where(away < 0.1, away**2 / 0.2, away - 0.05))

    median = GeometricMedian(1e6, delta, bounds=(-10, 10)).fit(X).location_
    assert distance_to_optimum(objective, median / 10) < 1e-3

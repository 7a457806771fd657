"""The minimizer: certified for every dataset, by Newton steps or without them."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import (
    Absolute,
    Bounds,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    QuantileHuber,
    SmoothedHinge,
    Squared,
)
from dpfit.solvers.perturbation import minimizer
from dpfit.solvers.perturbation.minimizer import Accuracy, Objective

LOSSES = [
    (Logistic(), Bounds(1.0)),
    (SmoothedHinge(0.3), Bounds(1.0)),
    (Huber(0.5), Bounds(1.0, -4.0, 4.0)),
    (Huber(1e-3), Bounds(1.0, -4.0, 4.0)),
    (QuantileHuber(0.9, 1e-2), Bounds(1.0, -4.0, 4.0)),
    (QuantileHuber(0.9, 1e-2, centred=True), Bounds(1.0, -4.0, 4.0)),
]


def case(loss, bounds, n, d, seed=0):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = 3 * rows @ random.normal(size=d) + 0.1 * random.normal(size=n)
    return Minimize(n=n, loss=loss, bounds=bounds, n_features=d), InMemory(rows, labels)


def value(objective, theta):
    problem = objective.problem
    total = objective.data.gradient(problem.loss, theta, **problem.guards)[0]
    return total + objective.strength / 2 * theta @ theta + objective.linear @ theta


@pytest.mark.parametrize(("loss", "bounds"), LOSSES, ids=str)
@pytest.mark.parametrize("strength", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 8), (200, 5)])
def test_the_distance_is_kept(loss, bounds, strength, n, d):
    """The reference starts at the answer and only improves it; strong convexity bounds it."""
    problem, data = case(loss, bounds, n, d)
    linear = 2 * np.random.default_rng(1).normal(size=d)
    objective = Objective(problem, data, strength, linear)
    found = Accuracy.of(problem, strength, "replace", linear=float(np.linalg.norm(linear)))
    theta = objective.minimize(found)
    assert found.accepts(theta, objective.gradient(theta))
    reference = scipy_minimize(
        lambda t: value(objective, t),
        theta,
        jac=objective.gradient,
        method="BFGS",
        options={"gtol": 1e-12},
    ).x
    assert np.linalg.norm(theta - reference) <= found.distance + 1e-7 / strength
    assert value(objective, theta) <= value(objective, np.zeros(d)) + 1e-9


def test_one_dimension_in_closed_form():
    problem = Minimize(n=2, loss=Huber(10.0), bounds=Bounds(1.0, -3.0, 3.0), n_features=1)
    objective = Objective(problem, InMemory([[1.0], [0.5]], [2.0, -1.0]), 0.5, np.array([0.25]))
    # (1 + 1/4 + 1/2) theta = 2 - 1/2 - 1/4
    found = Accuracy.of(problem, 0.5, "replace", linear=0.25)
    assert objective.minimize(found)[0] == pytest.approx(1.25 / 1.75, abs=found.distance)


@pytest.mark.parametrize(("loss", "bounds"), LOSSES[:3], ids=str)
def test_the_planned_descent_alone_keeps_the_distance(loss, bounds):
    problem, data = case(loss, bounds, 30, 3)
    objective = Objective(problem, data, 2.0, np.zeros(3))
    found = Accuracy.of(problem, 2.0, "replace")
    assert (
        np.linalg.norm(minimizer._accelerated(objective, found) - objective.minimize(found))
        <= 2 * found.distance
    )


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
def test_many_records_are_first_seen_through_a_sample(order):
    """Also when the sample misleads: here every sixteenth record is of the other kind."""
    problem, data = case(Logistic(), Bounds(1.0), 8000, 3)
    if order == "sorted":
        data.labels[:] = np.where(np.arange(8000) % 16 == 0, -1.0, 1.0)
    objective = Objective(problem, data, 2.0, np.ones(3))
    assert minimizer._thinning(objective) == 16
    found = Accuracy.of(problem, 2.0, "replace", linear=2.0)
    theta = objective.minimize(found)
    assert found.accepts(theta, objective.gradient(theta))


def test_when_newton_fails_the_descent_takes_over(monkeypatch):
    problem, data = case(Logistic(), Bounds(1.0), 30, 3)
    objective = Objective(problem, data, 2.0, np.zeros(3))
    found = Accuracy.of(problem, 2.0, "replace")
    wanted = objective.minimize(found)
    monkeypatch.setattr(Objective, "newton", lambda *arguments: None)
    assert np.linalg.norm(objective.minimize(found) - wanted) <= 2 * found.distance


def test_conjugate_gradients_agree_with_factorization(monkeypatch):
    problem, data = case(Logistic(), Bounds(1.0), 300, 12)
    objective = Objective(problem, data, 0.1, np.zeros(12))
    found = Accuracy.of(problem, 0.1, "replace")
    wanted = objective.minimize(found)
    monkeypatch.setattr(minimizer, "_DENSE", 0)
    again = objective.minimize(found)
    assert found.accepts(again, objective.gradient(again))
    assert np.linalg.norm(again - wanted) <= 2 * found.distance


def separable(n, d, strength, width=0.3):
    random = np.random.default_rng(0)
    rows = random.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    problem = Minimize(n=n, loss=SmoothedHinge(width), bounds=Bounds(1.0), n_features=d)
    data = InMemory(rows, np.sign(rows[:, 0]))
    return Objective(problem, data, strength, np.zeros(d)), Accuracy.of(
        problem, strength, "replace"
    )


@pytest.mark.parametrize("strength", [1e-4, 1e-3])
@pytest.mark.parametrize(("n", "d"), [(2000, 3), (1000, 10)])
def test_a_weak_quadratic_on_separable_records_follows_the_path(n, d, strength, monkeypatch):
    """Newton steps do not get there from the origin, but along the path they do."""
    monkeypatch.setattr(
        minimizer, "_accelerated", lambda *arguments: pytest.fail("the path was not enough")
    )
    objective, found = separable(n, d, strength)
    assert not found.accepts(*minimizer._newton(objective, np.zeros(d), found.tolerance))
    theta = objective.minimize(found)
    assert found.accepts(theta, objective.gradient(theta))


class Passes:
    """Count passes over the data of an objective."""

    def __init__(self, monkeypatch):
        self.number = 0
        for name in ("gradient", "hessian", "hessian_vector"):
            monkeypatch.setattr(InMemory, name, self.counted(getattr(InMemory, name)))

    def counted(self, method):
        def run(*arguments, **options):
            self.number += 1
            return method(*arguments, **options)

        return run


@pytest.mark.parametrize("newton", ["works", "fails", "misleads"])
def test_no_minimizer_makes_more_passes_than_planned(newton, monkeypatch):
    """Nor does it when Newton steps are refused, or lead nowhere."""
    objective, found = separable(60, 3, 0.05)
    wanted = objective.minimize(found)
    if newton == "fails":
        monkeypatch.setattr(Objective, "newton", lambda *arguments: None)
    if newton == "misleads":
        monkeypatch.setattr(Objective, "newton", lambda self, theta, slope, *rest: -1e-9 * slope)
    passes = Passes(monkeypatch)
    theta = objective.minimize(found)
    assert 0 < passes.number <= found.passes
    if newton == "fails":
        assert passes.number >= found.steps
    assert np.linalg.norm(theta - wanted) <= 2 * found.distance


def test_accelerated_steps_are_few_and_their_number_is_known():
    """Plain steps would be as many as the condition number times a logarithm."""
    objective, found = separable(60, 3, 1e-4)
    condition = found.smoothness / objective.strength
    assert condition > 1e6
    assert found.steps < 100 * math.sqrt(condition)


@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_accelerated_steps_stay_close_with_gradients_that_err(error, monkeypatch):
    """Errors of norm e in every gradient, along one direction or at random: 2 e / strength."""
    objective, found = separable(60, 3, 0.05)
    exact, (random, away) = objective.minimize(found), (np.random.default_rng(3), np.ones(3))
    gradient = Objective.gradient
    for draw in (lambda: away, lambda: random.normal(size=3)):

        def wrong(self, theta, draw=draw):
            drawn = draw()
            return gradient(self, theta) + error * drawn / np.linalg.norm(drawn)

        monkeypatch.setattr(Objective, "gradient", wrong)
        moved = np.linalg.norm(minimizer._accelerated(objective, found) - exact)
        assert moved <= 2 * found.distance + 2 * error / objective.strength
        if error and draw() is away:
            assert moved > 0.01 * error / objective.strength


def test_ridges_that_would_take_too_many_steps_are_refused_when_planning():
    problem = Minimize(n=100, loss=SmoothedHinge(0.3), bounds=Bounds(1.0), n_features=3)
    with pytest.raises(ValueError, match="passes over the data"):
        Accuracy.of(problem, 1e-9, "replace")
    strengths = np.array([1e-9, 1e-3])
    assert np.isinf(Accuracy.distances(problem, strengths, "replace")).tolist() == [True, False]


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_rounding_errors_of_gradients_are_covered(relation):
    """Against sums in exact arithmetic, the computed gradient errs by less than is allowed for."""
    from fractions import Fraction

    problem, data = case(Huber(0.5), Bounds(1.0, -4.0, 4.0), 64, 3)
    strength = 0.5
    found = Accuracy.of(problem, strength, relation)
    allowed = found.distance * strength - found.tolerance
    theta = np.array([0.3, -0.7, 0.2])
    guarded = dataset_rows(data, problem)
    exact = [Fraction(strength) * Fraction(t) for t in theta]
    for row, label in guarded:
        margin = sum(Fraction(x) * Fraction(t) for x, t in zip(row, theta, strict=True))
        slope = min(max(margin - Fraction(label), Fraction(-1, 2)), Fraction(1, 2))
        exact = [e + slope * Fraction(x) for e, x in zip(exact, row, strict=True)]
    computed = Objective(problem, data, strength, np.zeros(3)).gradient(theta)
    error = math.sqrt(
        sum(float(Fraction(c) - e) ** 2 for c, e in zip(computed, exact, strict=True))
    )
    assert 0 < error <= allowed


def dataset_rows(data, problem):
    """Guarded records: rows slightly below the bound, so that they are kept."""
    rows = data.matrix * 0.999
    data.matrix[:] = rows
    low, high = problem.bounds.labels
    return list(zip(rows, np.clip(data.labels, low, high), strict=True))


@pytest.mark.parametrize("loss", [Hinge(), Absolute(), Pinball(0.3)], ids=str)
def test_losses_with_kinks_raise_with_a_hint(loss):
    with pytest.raises(ValueError, match="SmoothedHinge"):
        Accuracy.constants(
            Minimize(n=3, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=1), "replace"
        )


def test_a_hopeless_ridge_is_refused_from_public_facts():
    problem = Minimize(n=10**9, loss=Logistic(), bounds=Bounds(1.0), n_features=100)
    with pytest.raises(ValueError, match="rounding errors"):
        Accuracy.of(problem, 1e-12, "replace")


@pytest.mark.parametrize(("row_norm", "width"), [(1e-100, 1e-62), (1e100, 1e60), (1e-100, 1e60)])
def test_gradients_whose_squares_vanish_or_overflow_are_refused(row_norm, width):
    """1e-162 would have norm zero, certifying any point; theta of 1e160 overflows rows."""
    problem = Minimize(
        n=20, loss=Huber(width), bounds=Bounds(row_norm, -width, width), n_features=100
    )
    with pytest.raises(ValueError, match="range of double precision"):
        Accuracy.of(problem, 20 * row_norm**2, "replace")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dense", [1024, 0])
@pytest.mark.parametrize("row_norm", [1e-100, 1e100])
@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.3), Huber(0.5)], ids=str)
def test_the_smallest_and_largest_rows_are_as_good_as_others(loss, row_norm, dense, monkeypatch):
    monkeypatch.setattr(minimizer, "_DENSE", dense)
    monkeypatch.setattr(
        minimizer, "_accelerated", lambda *arguments: pytest.fail("Newton steps were not enough")
    )
    bounds = Bounds(row_norm, -4.0, 4.0) if isinstance(loss, Huber) else Bounds(row_norm)
    problem, data = case(loss, bounds, 60, 12)
    data.matrix[:] *= row_norm
    objective = Objective(problem, data, 0.1 * row_norm**2, np.full(12, row_norm))
    found = Accuracy.of(problem, objective.strength, "replace", linear=4 * row_norm)
    theta = objective.minimize(found)
    assert found.accepts(theta, objective.gradient(theta))
    assert np.linalg.norm(theta) > 0.01 / row_norm


def test_unbounded_slopes_are_refused():
    problem = Minimize(n=10, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=1)
    with pytest.raises(ValueError, match="huberized"):
        Accuracy.of(problem, 1.0, "replace")

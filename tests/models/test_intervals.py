"""Privacy intervals hold at their level, no more or less, and use public facts."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom
from sklearn.exceptions import NotFittedError

from dpfit.core import Run
from dpfit.data.dataset import InMemory
from dpfit.mechanisms.vector_noise import l2_laplace_reach
from dpfit.models import (
    BoundedMean,
    GeometricMedian,
    LinearRegression,
    LogisticRegression,
    load,
    save,
)
from dpfit.models.intervals import noise_bound
from dpfit.models.scaling import Scaling
from dpfit.noise import Source

LEVEL = 0.8
"""Where a tenth more or less of heavy-tailed noise shows best."""


def chances(draws, level=LEVEL):
    """Numbers of hits that are neither too few nor too many; a false alarm has probability 2e-8."""
    return binom.ppf(1e-8, draws, level), binom.isf(1e-8, draws, level)


@pytest.mark.parametrize("level", [0.01, 0.5, 0.95, 0.999, 1 - 1e-9])
def test_one_coordinate_of_l2_laplace_noise_has_its_closed_form(level):
    """1-D: Laplace's law; 3-D: P(abs > t) = (1 + t / 2) exp(-t), by integration."""
    assert l2_laplace_reach(1, level) == pytest.approx(-math.log1p(-level), rel=1e-7)
    t = l2_laplace_reach(3, level)
    assert (1 + t / 2) * math.exp(-t) == pytest.approx(1 - level, rel=1e-9)


def without_noise(mechanism, rows, labels):
    """The weights that minimize the planned objective, by another optimizer."""
    loss = mechanism.problem.loss

    def objective(theta):
        margins = rows @ theta
        value = loss.value(margins, labels).mean() + mechanism.ridge / 2 * theta @ theta
        return value, rows.T @ loss.slope(margins, labels) / len(rows) + mechanism.ridge * theta

    start = np.zeros(rows.shape[1])
    return minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x


COLUMNS, DRAWS = 60, 250


@pytest.mark.parametrize("kind", [LinearRegression, LogisticRegression])
@pytest.mark.parametrize(("delta", "law"), [(0.0, "l2_laplace"), (1e-4, "gaussian")])
def test_an_exact_interval_holds_at_its_level(kind, delta, law):
    """A fifth of the noisy coefficients are outside; far more if it is a tenth narrower."""
    X = np.random.default_rng(6).uniform(0.0, 4.0, size=(300, COLUMNS))
    regression = kind is LinearRegression
    y, labels = (
        (X[:, 0], X[:, 0] / 2 - 1)
        if regression
        else (X[:, 0] > 1.5, np.where(X[:, 0] > 1.5, 1.0, -1.0))
    )
    more = {"y_bounds": (0, 4)} if regression else {}
    model = kind(
        2.0, delta, bounds=(0, 4), row_norm=20.0, ridge=2.0, solver="output_perturbation", **more
    ).fit(X, y)
    mechanism = model.plan_.final
    assert mechanism.noise == law
    theta = without_noise(mechanism, np.column_stack([X / 2 - 1, np.ones(300)]), labels)
    data = InMemory(X, y if regression else labels).map(model.scaling_)
    noisy = np.stack(mechanism.run_many(data, Run(Source(random_state=1)), DRAWS))
    misses = np.abs(
        model.scaling_.unscaled(noisy)[0] - (theta[:-1] if regression else theta[:-1] / 2)
    )
    found = model.noise_interval(LEVEL)
    assert found.exact
    assert np.shape(found.coef.upper) == np.shape(model.coef_)
    half = np.ravel(found.coef.upper - model.coef_)
    # Entries of one draw share the length of the noise, so draws are compared: six standard errors.
    shares, narrow = (np.mean(misses <= share * half, axis=1) for share in (1.0, 0.9))
    margin = 6 * shares.std() / math.sqrt(DRAWS)
    assert abs(shares.mean() - LEVEL) < margin
    assert narrow.mean() < LEVEL - margin


@pytest.mark.parametrize("constant", [0.0, 3.0])
@pytest.mark.parametrize("ranges", [None, ((0.0, -3.0), (4.0, 1.0))])
@pytest.mark.parametrize("labels", [(None, None), (-1.0, 9.0)])
def test_leverage_is_the_norm_of_the_units(constant, ranges, labels):
    scaling = Scaling(1.0, constant, *(ranges or (None, None)), *labels)
    weights = 2 + bool(constant)
    moved = [scaling.unscaled(unit) for unit in np.eye(weights)]
    still = scaling.unscaled(np.zeros(weights))
    coef, intercept = scaling.leverage(2)
    assert coef * np.ones(2) == pytest.approx(
        np.linalg.norm([c[0] - still[0][0] for c, _ in moved], axis=0)
    )
    assert intercept == pytest.approx(np.linalg.norm([i[0] - still[1][0] for _, i in moved]))


@pytest.mark.parametrize(("columns", "delta", "law"), [(30, 0.0, "gamma"), (60, 1e-4, "gaussian")])
def test_a_bound_after_objective_perturbation_is_reached_where_only_the_ridge_curves(
    columns, delta, law
):
    """Records in the middle of their ranges are zero: theta is the linear term over the ridge."""
    X, runs = np.zeros((100, columns)), 500
    model = LogisticRegression(
        0.5,
        delta,
        bounds=(-1, 1),
        row_norm=1.0,
        ridge=0.5,
        fit_intercept=False,
        solver="objective_perturbation",
    ).fit(X, np.ones(100))
    mechanism = model.plan_.final
    assert mechanism.noise == law
    found, length = model.noise_interval(0.95), noise_bound(model.plan_, 0.95).length
    assert not found.exact
    assert np.allclose(found.coef.upper - model.coef_, length)
    run, data = Run(Source(random_state=2)), InMemory(X, np.ones(100))
    sizes = np.linalg.norm([mechanism.run(data, run) for _ in range(runs)], axis=1)
    least, most = chances(runs, 0.95)
    assert least <= (sizes <= length).sum() <= most
    assert (sizes <= 0.9 * length).sum() < least


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_the_interval_of_a_mean_holds_at_its_level(delta):
    columns = 40_000
    X = np.random.default_rng(1).uniform(0, 10, size=(5, columns))
    model = BoundedMean(1000.0, delta, bounds=(0, 10)).fit(X)
    noisy = model.plan_.run(InMemory(X, np.zeros(5)), random_state=3).value
    half = 5 * noise_bound(model.plan_, LEVEL).length
    misses = np.abs(5 + 5 * noisy - X.mean(axis=0))
    least, most = chances(columns)
    assert least <= (misses <= half).sum() <= most
    assert (misses <= 0.9 * half).sum() < least
    lower, upper = model.location_noise_interval_
    assert np.allclose(upper - lower, 10 * noise_bound(model.plan_, 0.95).length)


def test_intervals_need_the_file_of_a_model_and_no_records(tmp_path, line):
    X, _, _ = line
    classes = np.digitize(X[:, 0], [-0.3, 0.3])
    model = LogisticRegression(4.0, classes=[0, 1, 2], solver="output_perturbation").fit(X, classes)
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert model.coef_noise_interval_.lower.shape == (3, 2)
    for name in ("coef_noise_interval_", "intercept_noise_interval_"):
        for one, other in zip(getattr(model, name), getattr(again, name), strict=True):
            assert np.array_equal(one, other)


def test_no_interval_is_made_up(line):
    X, y, values = line
    model = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), solver="noisy_gd", max_passes=5)
    with pytest.raises(NotFittedError):
        model.noise_interval()
    assert not hasattr(model.fit(X, y), "coef_noise_interval_")
    with pytest.raises(AttributeError, match="solver='output_perturbation'"):
        model.noise_interval()
    assert not hasattr(GeometricMedian(1.0, bounds=(-1, 1)).fit(X), "location_noise_interval_")
    fitted = LinearRegression(
        1.0, bounds=(-1, 1), y_bounds=(0, 10), solver="output_perturbation"
    ).fit(X, values)
    with pytest.raises(ValueError, match="level"):
        fitted.noise_interval(1.0)

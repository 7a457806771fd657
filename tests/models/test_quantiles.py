"""Quantile regression: calibrated at huge budgets, close to the best fit at usual ones."""

from itertools import pairwise

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.losses import Bounds, Pinball, QuantileHuber
from dpfit.models import QuantileRegressor
from dpfit.models.regressors import corner_widths
from dpfit.privacy import Budget
from dpfit.solvers.gradient.noisy_gd import noisy_gd

pytestmark = pytest.mark.filterwarnings("ignore:random_state")


def pinball(level, gaps):
    return float(np.mean(np.maximum(level * gaps, (level - 1) * gaps)))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("level", [0.05, 0.5, 0.9])
def test_quantiles_are_calibrated_in_a_range_500_times_the_spread(level, delta):
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (2000, 3))
    y = X @ [30.0, -20.0, 10.0] + random.standard_normal(2000)
    model = QuantileRegressor(
        1e6, delta, quantile=level, bounds=(-1, 1), y_bounds=(-250, 250), random_state=0
    )
    assert np.mean(y < model.fit(X, y).predict(X)) == pytest.approx(level, abs=0.01)


def gumbel(n=10_000):
    """Labels with a long tail, in a range that is about five times as wide as most of them."""
    random = np.random.default_rng(1)
    X = random.uniform(-1, 1, (2 * n, 6))
    y = np.clip(2 + X @ [1.5, -1.0, 0.5, 0, 0, 0] + random.gumbel(size=2 * n), -6, 14)
    return X[:n], y[:n], X[n:], y[n:]


@pytest.mark.parametrize(("epsilon", "most"), [(0.3, 0.12), (1.0, 0.04), (10.0, 0.01)])
@pytest.mark.parametrize("level", [0.25, 0.9])
def test_a_fit_with_a_delta_keeps_most_of_what_columns_tell(level, epsilon, most):
    """Against the true quantiles, as a share of the excess of the best constant."""
    X, y, test, truth = gumbel()
    model = QuantileRegressor(
        epsilon, 1e-6, quantile=level, bounds=(-1, 1), y_bounds=(-6, 14), random_state=0
    ).fit(X, y)
    exact = 2 + test @ [1.5, -1.0, 0.5, 0, 0, 0] - np.log(-np.log(level))
    best = pinball(level, truth - exact)
    constant = pinball(level, truth - np.quantile(truth, level))
    excess = pinball(level, truth - model.predict(test)) - best
    assert excess < most * (constant - best)
    # The predicted risk is of the quantile loss, in units of half the label range.
    assert model.plan_.risk.expected > excess / 10 / 2


def test_a_fit_through_the_origin_has_no_shift():
    """The corner is centred in the loss, not by moving predictions."""
    random = np.random.default_rng(2)
    X = random.uniform(0, 1, (5000, 1))
    y = X[:, 0] * (1 + random.uniform(-0.5, 0.5, 5000))
    model = QuantileRegressor(
        100.0, quantile=0.9, bounds=(0, 1), y_bounds=(-2, 2), fit_intercept=False, random_state=0
    ).fit(X, y)
    assert model.predict([[0.0]])[0] == pytest.approx(0.0, abs=1e-12)
    assert model.predict([[1.0]])[0] == pytest.approx(1.4, abs=0.05)


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_corners_of_perturbed_minimizers_follow_the_budget_down(delta):
    widths = [
        corner_widths(Budget(epsilon=epsilon, delta=delta), 10_000, 5)[-1]
        for epsilon in (1e1, 1e2, 1e6)
    ]
    assert all(after < before for before, after in pairwise(widths))
    assert widths[-1] == 0.002


def test_predicted_risks_are_those_of_the_sharp_corner():
    """The rounded loss is the width times the quantile loss, which would hide its risk."""
    budget = Budget(epsilon=1.0, delta=1e-6, relation="add_remove")

    def risk(loss):
        problem = Minimize(n=20_000, loss=loss, bounds=Bounds(2.0, -1.0, 1.0), n_features=5)
        return noisy_gd.plan(problem, budget).risk.expected

    sharp = risk(Pinball(0.9))
    for width in (0.02, 0.04):
        assert 0.3 < risk(QuantileHuber(0.9, width, centred=True)) / sharp < 3
    wide = risk(QuantileHuber(0.9, 1.0, centred=True))
    assert wide > 3 * risk(QuantileHuber(0.9, 0.02, centred=True))

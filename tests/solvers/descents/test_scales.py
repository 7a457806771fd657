"""Scales that descents plan with: the radius of a user's mean gradient."""

import math

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.losses import Bounds, Logistic
from dpfit.solvers.descents.scales import user_radius


def problem(rows, d=10, row_norm=1.0):
    facts = {"loss": Logistic(), "bounds": Bounds(row_norm), "n_features": d}
    return Minimize(n=1000, rows_per_user=rows, **facts)


@pytest.mark.parametrize("d", [8, 20, 60])
@pytest.mark.parametrize("rows", [4, 16, 64, 256])
def test_the_radius_of_users_is_the_spread_of_their_mean_gradients(rows, d):
    """At the minimizer of a logistic model with unit rows and a parameter of norm 4.

    The root mean square of users' mean gradients is within 25% of the radius, whatever the width.
    """
    rng = np.random.default_rng(1)
    theta = np.eye(d)[0] * 4.0
    X = rng.normal(size=(400, rows, d))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    chance = 1 / (1 + np.exp(-(X @ theta)))
    errors = chance - (rng.random(chance.shape) < chance)
    means = np.einsum("ur,urd->ud", errors, X) / rows
    spread = math.sqrt(float(np.mean(np.sum(means**2, axis=1))))
    assert 0.75 <= spread / user_radius(problem(rows, d)) <= 1.25


def test_the_radius_falls_with_the_root_of_the_rows_and_grows_with_the_lipschitz_constant():
    assert user_radius(problem(100)) == pytest.approx(0.04)
    assert user_radius(problem(400)) == pytest.approx(0.02)
    assert user_radius(problem(100, row_norm=3.0)) == pytest.approx(0.12)
    for one_row in (1, None):
        assert user_radius(problem(one_row)) == pytest.approx(1.0)

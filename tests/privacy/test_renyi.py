"""Renyi divergences of negative orders, against quadrature."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpfit.privacy import renyi


@pytest.mark.parametrize("order", [0.4, 1.5, 3.0])
def test_negative_orders_follow_from_the_other_direction(order):
    """R_{1 - order}(P||Q) by its integral, for two normal laws of unequal variance."""
    P, Q = norm(0.3, 1.0), norm(0.0, 1.2)

    def divergence(a, one, two):
        def density(x):
            return math.exp(a * one.logpdf(x) + (1 - a) * two.logpdf(x))

        return math.log(quad(density, -40, 40, points=[-3, 0, 3], limit=200)[0]) / (a - 1)

    reverse = divergence(order, Q, P)
    closed = renyi.gaussians(order, np.zeros(1), np.eye(1) * 1.44, np.array([0.3]), np.eye(1))
    assert reverse == pytest.approx(closed, rel=1e-6)
    exact = divergence(1 - order, P, Q)
    assert renyi.at_negative_order(order, reverse) == pytest.approx(exact, rel=1e-6)
    assert (exact < 0) == (order > 1)


def test_orders_without_a_divergence_are_refused():
    for order in (0.0, 1.0):
        with pytest.raises(ValueError, match="neither 0 nor 1"):
            renyi.at_negative_order(order, 1.0)

"""Exact checks against closed forms, and faults of a few percent that no sampling would see."""

import numpy as np
import pytest
from scipy.stats import laplace, norm

from dpfit.audit import exact_densities, exact_gaussian, exact_masses
from dpfit.privacy import Basis, Guarantee
from dpfit.privacy.event import Composed, Gaussian, Laplace, Pure


def promise(event):
    return Guarantee(event, Basis("test"))


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_gaussian_noise_is_exactly_as_good_as_promised(mu):
    assert exact_gaussian(mu, 1.0, promise(Gaussian(1 / mu))).kept
    audit = exact_gaussian(1.001 * mu, 1.0, promise(Gaussian(1 / mu)))
    assert audit.broken
    assert audit.lower == pytest.approx(1.001 * mu, rel=1e-6)
    assert "promised" in audit.findings[0].note


def test_quadrature_of_gaussian_and_laplace_densities():
    wide = [-45.0, 0.0, 1.0, 45.0]
    assert exact_densities(norm(0).pdf, norm(1).pdf, wide, promise(Gaussian(1.0))).kept
    audit = exact_densities(norm(0).pdf, norm(1.01).pdf, wide, promise(Gaussian(1.0)))
    assert audit.broken
    assert audit.lower == pytest.approx(1.01, rel=1e-3)
    assert exact_densities(laplace(0).pdf, laplace(1).pdf, wide, promise(Laplace(1.0))).kept
    assert exact_densities(
        laplace(0).pdf, laplace(1.02).pdf, [-45, 0, 1.02, 45], promise(Laplace(1.0))
    ).broken


def test_both_directions_count():
    """Mass that only one of the laws has is a leak, whichever comes first."""
    one, two = [0.5, 0.5, 0.0], [0.49, 0.5, 0.01]
    for laws in ((one, two), (two, one)):
        audit = exact_masses(*laws, promise(Pure(1.0)))
        assert audit.broken


def test_randomized_response_and_its_composition():
    p = np.e / (1 + np.e)
    assert exact_masses([p, 1 - p], [1 - p, p], promise(Pure(1.0))).kept
    assert exact_masses([p, 1 - p], [1 - p, p], promise(Pure(0.99))).broken
    twice = np.outer([p, 1 - p], [p, 1 - p]).ravel(), np.outer([1 - p, p], [1 - p, p]).ravel()
    assert exact_masses(*twice, promise(Composed((Pure(1.0), Pure(1.0))))).kept
    assert exact_masses(*twice, promise(Pure(1.9))).broken


def test_bad_input_is_said():
    with pytest.raises(ValueError, match="add up to 1"):
        exact_masses([0.5, 0.4], [0.5, 0.5], promise(Pure(1.0)))
    with pytest.raises(ValueError, match="same outcomes"):
        exact_masses([1.0], [0.5, 0.5], promise(Pure(1.0)))
    with pytest.raises(ValueError, match="widen the breaks"):
        exact_densities(norm(0).pdf, norm(1).pdf, [-1.0, 1.0], promise(Gaussian(1.0)))
    with pytest.raises(ValueError, match="increasing order"):
        exact_densities(norm(0).pdf, norm(1).pdf, [1.0, -1.0], promise(Gaussian(1.0)))
    with pytest.raises(ValueError, match="sigma"):
        exact_gaussian(1.0, 0.0, promise(Gaussian(1.0)))

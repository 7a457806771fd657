"""Certificates price what is run."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpfit.privacy import gaussian, renyi
from dpfit.privacy.accountant import privacy_curve
from dpfit.privacy.event import (
    Approximate,
    BoundedRange,
    CloseInRenyi,
    GaussianPrivate,
    Laplace,
    Pure,
    WithinTotalVariation,
)
from dpfit.privacy.spec import from_json
from dpfit.samplers.certificate import (
    Certificate,
    Exact,
    NotCertified,
    TotalVariation,
    Uncertified,
    WithinChiSquare,
    WithinGaussian,
    WithinMaxDivergence,
    WithinRenyi,
    WithinWasserstein,
)
from dpfit.theory.closeness import sampler_privacy
from oracles.continuous import both_directions

ALL = (
    Exact(),
    WithinWasserstein(0.1),
    WithinGaussian(0.1),
    WithinMaxDivergence(0.1),
    TotalVariation(1e-3),
    WithinChiSquare(1e-3),
    WithinRenyi(2.0, 1e-3, 2e-3),
    Uncertified(),
)


@pytest.mark.parametrize("certificate", ALL, ids=lambda c: c.kind)
def test_they_are_records(certificate):
    assert from_json(certificate.to_json(), Certificate) == certificate


def test_events():
    assert Exact().event(Pure(1.0)) == Pure(1.0)
    assert WithinMaxDivergence(0.1).event(Pure(1.0)).epsilon == pytest.approx(1.2)
    assert WithinMaxDivergence(0.1).event(GaussianPrivate(1.0)).mu == pytest.approx(
        1 + 2 * gaussian.from_pure(0.1)
    )
    assert TotalVariation(0.1).event(Pure(1.0)) == WithinTotalVariation(Pure(1.0), 0.1)
    assert WithinChiSquare(0.04).event(Pure(1.0)) == TotalVariation(0.1).event(Pure(1.0))
    assert WithinRenyi(1.5, 0.08, 0.02).event(Pure(1.0)) == CloseInRenyi(Pure(1.0), 1.5, 0.08, 0.02)
    assert (
        WithinChiSquare(math.inf).total_variation == WithinRenyi(2.0, 9.0, math.inf).total_variation
    )
    for certificate, ideal in (
        (WithinWasserstein(0.1), Pure(1.0)),
        (Uncertified(), Pure(1.0)),
        (WithinGaussian(0.1), BoundedRange(1.0)),
        (WithinMaxDivergence(0.1), Laplace(1.0)),
    ):
        with pytest.raises(NotCertified):
            certificate.event(ideal)


def test_displacements():
    assert Exact().displacement == 0
    assert WithinWasserstein(0.3).displacement == 0.3
    for certificate in ALL[2:]:
        with pytest.raises(NotCertified):
            _ = certificate.displacement


def test_gaussian_closeness_is_attained_by_shifts():
    """Ideal N(0, 1) and N(mu, 1), drawn as N(-a, 1) and N(mu + a, 1): the cost is 2 a."""
    mu, a = 0.7, 0.1
    promised = WithinGaussian(a).event(GaussianPrivate(mu)).mu
    laws = [norm(-a).logpdf, norm(mu + a).logpdf]
    for epsilon in (0.0, 0.5, 2.0):
        for exact in both_directions(*laws, epsilon, np.linspace(-12, 12, 200)):
            assert exact == pytest.approx(float(gaussian.delta(promised, epsilon)), rel=1e-6)


def test_max_divergence_is_attained_on_three_points():
    """Three points: ideal ratio e^eps at the first, implementations off by e^k and e^-k."""
    epsilon, k = 0.8, 0.2
    ideal = np.array([0.01 * math.exp(epsilon), 0.3]), np.array([0.01, 0.3])
    ratio = (ideal[0][0] * math.exp(k)) / (ideal[1][0] * math.exp(-k))
    assert math.log(ratio) == pytest.approx(WithinMaxDivergence(k).event(Pure(epsilon)).epsilon)


def delta(event, epsilon):
    return float(privacy_curve(event, "replace").delta(np.array([epsilon]))[0])


def test_closeness_in_renyi_divergence_is_chained_with_its_factors():
    """The best split over a fine grid, by formula; dropping a factor moves it by over 10%."""
    mu, order, forward, backward = 0.6, 12.0, 0.05, 0.08

    def beyond(divergence, c):
        return np.exp((order - 1) * (divergence - c + math.log1p(-1 / order))) / order

    event = WithinRenyi(order, forward, backward).event(GaussianPrivate(mu))
    for epsilon in (1.0, 2.0, 3.0):
        c = np.linspace(0.0, epsilon / 2, 5001)
        each = (
            np.minimum(beyond(forward, c), 1.0),
            np.exp(c) * gaussian.delta(mu, np.maximum(epsilon - 2 * c, 0.0)),
            np.exp(epsilon - c) * np.minimum(beyond(backward, c), 1.0),
        )
        best = np.min(sum(each))
        assert 0.999 * best <= delta(event, epsilon) <= 1.001 * best


def test_closeness_at_one_order_is_at_most_the_triangle_of_three():
    """Order 28.6, divergence 0.5: (1, 1e-6) becomes (2.69, 9.6e-6)."""
    close = renyi.epsilon(np.array([28.6]), np.array([0.5]), 1e-6)
    epsilon, total = sampler_privacy((1.0, 1e-6), (close, 1e-6))
    assert (round(epsilon, 2), round(total * 1e6, 1)) == (2.69, 9.6)
    event = WithinRenyi(28.6, 0.5, 0.5).event(Approximate(1.0, 1e-6))
    assert 0.9 * total < delta(event, epsilon) <= 1.001 * total
    # Total variation is the better one where divergences are tiny.
    tiny = WithinRenyi(1.5, 2e-18, 2e-18).event(Pure(1.0))
    assert delta(tiny, 1.0) == pytest.approx((1 + math.e) * 1e-9)
    assert delta(WithinRenyi(9.0, 2e-18, math.inf).event(Pure(1.0)), 1.0) == pytest.approx(
        (1 + math.e) * 1e-9
    )


def test_closeness_in_renyi_divergence_holds_for_shifted_normal_laws():
    """Ideal N(0, 1) and N(mu, 1), drawn as N(-a, 1) and N(mu + a, 1), at several orders."""
    mu, a = 0.7, 0.2
    laws = [norm(-a).logpdf, norm(mu + a).logpdf]
    for order in (2.0, 10.0, 40.0):
        event = WithinRenyi(order, order * a**2 / 2, order * a**2 / 2).event(GaussianPrivate(mu))
        for epsilon in (0.0, 0.5, 2.0, 4.0):
            for exact in both_directions(*laws, epsilon, np.linspace(-14, 14, 200)):
                assert exact <= delta(event, epsilon)

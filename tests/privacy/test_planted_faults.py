"""A test of the tests: each oracle accepts a claim and rejects it for 10% more noise.

``claim(factor)`` is what the library says of a mechanism with ``factor`` times the noise that
really runs; with factor 1.1 the claim is unsound and the oracle must see it, with 1/1.1 it is loose
and the tightness check must see that.
"""

import math

import numpy as np
import pytest

from dpfit.privacy import Basis, Guarantee, gaussian
from dpfit.privacy import event as ev
from dpfit.privacy.accountant import privacy_curve
from oracles import continuous, discrete


def delta(event, epsilon, relation="replace"):
    return float(privacy_curve(event, relation).delta(np.array([float(epsilon)]))[0])


def gaussian_oracle(factor):
    return [
        (delta(ev.Gaussian(2.0 * factor), e), float(continuous.gaussian_delta(0.5, e)))
        for e in (0.1, 0.5, 1.0)
    ]


def laplace_oracle(factor):
    edges = np.unique(np.concatenate([np.linspace(-40, 41, 400), [0.0, 1.0]]))
    pair = continuous.generalized_gaussian_pair(1.0, 1.0, 1.0)
    return [
        (delta(ev.Laplace(factor), e), continuous.hockey_stick(*pair, e, edges)) for e in (0.1, 0.5)
    ]


def l2_laplace_oracle(factor):
    return [
        (delta(ev.L2Laplace(factor, 3), e), continuous.l2_laplace_delta(1.0, 3, e))
        for e in (0.0, 0.4)
    ]


def generalized_oracle(factor):
    pair = continuous.generalized_gaussian_pair(4.0, 2.0, 1.0)
    edges = np.unique(np.concatenate([np.linspace(-8, 9, 400), [0.0, 1.0]]))
    return [
        (
            delta(ev.GeneralizedGaussian(2.0 * factor, 4.0, 1), e),
            continuous.hockey_stick(*pair, e, edges),
        )
        for e in (0.0, 0.3, 1.0)
    ]


def response_oracle(factor):
    pair = discrete.product([discrete.randomized_response(0.5)] * 4)
    return [
        (delta(ev.Repeated(ev.RandomizedResponse(0.5 / factor), 4), e), discrete.worse(pair, e))
        for e in (0.0, 1.0)
    ]


def poisson_oracle(factor):
    pair = continuous.poisson_gaussian(0.1, 1.0, 2000)
    event = ev.Repeated(ev.Sampled(ev.Gaussian(factor), 0.1), 2)
    return [
        (delta(event, e, "add_remove"), max(pair.forward(e, 2), pair.reverse(e, 2)))
        for e in (0.05, 0.3, 1.0)
    ]


def rate_oracle(factor):
    """The same with the sampling rate, not the noise, claimed a tenth too small."""
    pair = continuous.poisson_laplace(0.2, 1.0, 500)
    event = ev.Sampled(ev.Laplace(1.0), 0.2 / factor)
    return [(delta(event, e, "add_remove"), pair.forward(e, 1)) for e in (0.0, 0.1, 0.2)]


def group_oracle(factor):
    return [
        (delta(ev.Group(ev.Gaussian(8.0 * factor), 4), e), float(continuous.gaussian_delta(0.5, e)))
        for e in (0.1, 1.0)
    ]


def total_variation_oracle(factor):
    xi, p_q = 1e-3, discrete.randomized_response(1.0)
    move = np.array([xi, -xi])
    truth = discrete.hockey_stick(p_q[0] + move, p_q[1] - move, 1.0)
    return [
        (
            delta_with_distance(
                ev.WithinTotalVariation(ev.RandomizedResponse(1.0), xi / factor), 1.0
            ),
            truth,
        )
    ]


def delta_with_distance(event, epsilon):
    return Guarantee(event, Basis("test")).delta(epsilon)


def bounded_range_oracle(factor):
    levels = np.linspace(0, 1, 400)[1:-1]
    return [
        (
            delta(ev.BoundedRange(1.0 / factor), e),
            max(discrete.worse(discrete.bounded_range(1.0, t), e) for t in levels),
        )
        for e in (0.0, 0.5)
    ]


def renyi_oracle(factor):
    law = privacy_curve(ev.GeneralizedGaussian(2.0 * factor, 4.0, 1), "replace")
    return [
        (
            float(law.renyi(np.array([order]))[0]),
            continuous.generalized_gaussian_renyi(0.5, 4.0, order),
        )
        for order in (2.0, 5.0)
    ]


def from_pure_oracle(factor):
    """mu from a pure epsilon: the exact constant is where the two tradeoff curves touch."""
    epsilon = 1.0
    touch = 1 / (1 + math.exp(epsilon))
    return [(1 - float(gaussian.tradeoff(gaussian.from_pure(epsilon / factor), touch)), 1 - touch)]


ORACLES = [value for name, value in list(globals().items()) if name.endswith("_oracle")]


def sound(pairs):
    return all(claim >= truth * (1 - 1e-7) for claim, truth in pairs)


def tight(pairs):
    return all(claim <= truth * 1.03 + 1e-9 for claim, truth in pairs)


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: o.__name__)
def test_the_claim_as_it_is_passes(oracle):
    assert sound(oracle(1.0))
    assert tight(oracle(1.0))


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: o.__name__)
def test_a_claim_for_a_tenth_more_noise_is_caught(oracle):
    assert not sound(oracle(1.1))


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: o.__name__)
def test_a_claim_for_a_tenth_less_noise_is_caught(oracle):
    assert not tight(oracle(1 / 1.1))

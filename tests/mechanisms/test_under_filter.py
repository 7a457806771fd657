"""Plans under a cap: an analyst who decides as they go never gets more than was charged."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpfit.core import Step, plan_from_json
from dpfit.mechanisms.mean import BoundedMean, NoisyMean
from dpfit.mechanisms.under_filter import UnderFilter
from dpfit.privacy import FilterExhausted, gaussian
from dpfit.privacy.event import GaussianPrivate, Pure, ZeroConcentrated

QUERY = BoundedMean(0.0, 1.0)
WHY = NoisyMean("gaussian", 1.0, QUERY, 5, "replace").basis("record")


def mean(multiplier: float, noise: str = "gaussian", why=WHY) -> Step:
    return Step(NoisyMean(noise, multiplier, QUERY, 5, "replace"), why)


def under(cap, why=WHY) -> Step:
    return Step(UnderFilter(cap, why), why)


def test_the_filter_stops_an_analyst_who_sharpens():
    """Multipliers 8, 4, 2 cost 1/64 + 1/16 + 1/4 = 21/64 of mu^2; the next would cost 1."""
    plan = under(GaussianPrivate(1.0))
    session = plan.open(np.zeros(5), random_state=0)
    for multiplier in (8.0, 4.0, 2.0):
        session.step(mean(multiplier))
    with pytest.raises(FilterExhausted, match="asked for 1"):
        session.step(mean(1.0))
    assert len(session.close().value) == 3
    assert plan.guarantee.mu == pytest.approx(1.0)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_inside_a_plan_is_charged_once_and_its_own_filter_is_its_own():
    """A capped plan under a cap: the inner is charged its cap, and cannot spend the outer's."""
    outer = under(GaussianPrivate(1.0)).open(np.zeros(5), random_state=0)
    outer.step(under(GaussianPrivate(0.6)))
    with pytest.raises(FilterExhausted):
        outer.step(under(GaussianPrivate(0.9)))


def test_without_a_filter_nothing_can_be_charged():
    from dpfit.core import Run
    from dpfit.noise import Source

    with pytest.raises(RuntimeError, match="no filter"):
        Run(Source(0)).charge(Pure(0.1))


def test_opened_it_takes_any_mechanism_that_fits_and_refuses_the_rest():
    session = under(ZeroConcentrated(0.25)).open(np.zeros(5), random_state=0)
    for _ in range(2):
        session.step(mean(2.0))  # rho = 1/8 each, all of the cap
    with pytest.raises(FilterExhausted, match="left 0"):
        session.step(mean(1e3))
    assert len(session.close().value) == 2


def test_plans_of_another_relation_are_refused():
    session = under(ZeroConcentrated(0.25)).open(np.zeros(5), random_state=0)
    with pytest.raises(ValueError, match="cannot combine"):
        session.step(mean(2.0, why=replace(WHY, relation="add_remove")))


def test_a_gaussian_step_has_no_price_under_a_pure_cap():
    session = under(Pure(1.0)).open(np.zeros(5), random_state=0)
    with pytest.raises(FilterExhausted, match="no cost in pure currency"):
        session.step(mean(100.0))
    assert session.step(mean(1.0, "laplace")).shape == (1,)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("level", [-1.0, 0.0, 0.5, 1.5])
def test_the_cap_holds_for_an_adaptive_number_of_rounds(epsilon, sign, level):
    """Exact hockey stick of "stop, or spend the rest", both directions, below the cap.

    First answer N(0, 1) against N(sign a, 1); below ``level`` the transcript ends, above it a
    second answer spends the rest. Inside, the second answer's profile at the remaining loss is in
    closed form for every real argument.
    """
    cap, first = 1.0, 0.6
    second = (cap**2 - first**2) ** 0.5

    def profile(eps: float) -> float:
        return norm.cdf(-eps / second + second / 2) - np.exp(eps) * norm.cdf(
            -eps / second - second / 2
        )

    def stopped(y: float) -> float:
        return max(norm.pdf(y) - np.exp(epsilon) * norm.pdf(y - sign * first), 0.0)

    def went_on(y: float) -> float:
        loss = norm.logpdf(y) - norm.logpdf(y - sign * first)
        return norm.pdf(y) * profile(epsilon - loss)

    total = quad(stopped, -9, level, limit=200)[0] + quad(went_on, level, 9, limit=200)[0]
    promise = float(gaussian.delta(cap, epsilon))
    assert total <= promise + 1e-9
    if level == -1.0 and sign == -1:
        # Nearly always going on spends nearly everything: the bound is not slack, and less noise
        # would break it.
        assert total > float(gaussian.delta(0.9 * cap, epsilon))

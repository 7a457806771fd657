"""The loss with wells: its values, its slope, and what privacy costs on it."""

import json
import math

import numpy as np
import pytest

from dpfit.core import Minimize, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Wells
from dpfit.privacy import Budget
from dpfit.solvers.gibbs.exponential_net import exponential_net
from dpfit.theory.hard_instances import Packing, greedy_packing

DISC = np.random.default_rng(0).uniform(-1, 1, size=(4000, 2))
CENTRES = greedy_packing(DISC[np.linalg.norm(DISC, axis=1) <= 1], 0.4)
WELLS = Wells(tuple(map(tuple, CENTRES)), 0.4)


def records(n, best=3, seed=1):
    shares = np.where(np.arange(len(CENTRES)) == best, 0.9, 0.5)
    bits = np.random.default_rng(seed).uniform(size=(n, len(CENTRES))) < shares
    return bits.astype(np.float64)


def problem(n):
    bounds = Bounds(math.sqrt(len(CENTRES)))
    return Minimize(n=n, loss=WELLS, bounds=bounds, n_features=len(CENTRES), domain=L2Ball(2, 1.0))


def test_values_are_those_of_the_packing():
    rows, packing = records(50), Packing(CENTRES, 0.4)
    for point in DISC[:30]:
        assert WELLS.value(point, rows) == pytest.approx(packing.values(point, rows > 0))


def test_the_gradient_is_that_of_the_value_and_its_norm_is_the_constant():
    rows, step = records(50), 1e-7
    for point in DISC[:30]:
        slopes = [
            (WELLS.value(point + step * e, rows) - WELLS.value(point - step * e, rows)) / (2 * step)
            for e in np.eye(2)
        ]
        assert WELLS.gradient(point, rows) == pytest.approx(np.stack(slopes, axis=1), abs=1e-5)
    norms = np.linalg.norm(WELLS.gradient(CENTRES[3] + 0.01, rows), axis=1)
    assert norms.max() == pytest.approx(WELLS.lipschitz(Bounds(1.0)).value)
    # Two records with one well each, on either side: their gradients are opposite.
    pair = Wells(((-0.2,), (0.2,)), 0.4)
    one, other = pair.gradient([0.0], np.eye(2))
    assert abs(one[0] - other[0]) == pytest.approx(pair.lipschitz_diff(Bounds(1.0)).value)


def test_the_exponential_mechanism_finds_the_best_well():
    """Excess risk is below the bound, and the chosen centre is the best one with many records."""
    n, data = 3000, records(3000)
    plan = exponential_net.plan(problem(n), Budget(epsilon=4.0), points=400)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    packing, best = Packing(CENTRES, 0.4), data.mean(axis=0).max()
    for seed in range(3):
        value = plan.run(InMemory(data, np.zeros(n)), random_state=seed).value
        excess = float(WELLS.value(value, data).mean()) + best
        assert -1e-12 <= excess <= plan.risk.expected
        assert packing.chosen(value) == 3


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="one for each centre"):
        WELLS.parameters(2)
    for wrong in ((), ((1.0,), (math.nan,))):
        with pytest.raises(ValueError, match="centres"):
            Wells(wrong, 0.4)
    with pytest.raises(ValueError, match="width"):
        Wells(((0.0,),), 0.0)

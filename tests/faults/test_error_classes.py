"""One class for each recurring kind of privacy error, over the whole catalogue.

The library has no assert, so ``python -O`` changes nothing; `make test` runs some classes under it
all the same.
"""

import ast
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dpfit
from dpfit.catalogue import ENTRIES, entry
from dpfit.core import Answer
from dpfit.data.dataset import InMemory
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean, laplace_mean
from dpfit.privacy import Basis, Budget, Filter, FilterExhausted, Guarantee, calibrate
from dpfit.privacy import event as events

SOURCE = Path(dpfit.__file__).parent
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
RELATIONS = ("replace", "add_remove")


# A filtered mean may halt where others give numbers: tests/mechanisms/test_filtered_mean.py.
ONE_SHOT = [
    (row.name, relation)
    for row in ENTRIES
    for relation in row.relations
    if row.problem != "play" and row.name != "filtered_mean"
]


@cache
def planned(name, relation):
    """(plan, data, neighbour) of an entry's example; planned once, not at collection."""
    row = entry(name)
    problem, data, neighbour = row.load().example(relation)
    kind = BUDGET if "approximate" in row.guarantees else {"epsilon": 1.0}
    return row.load().plan(problem, Budget(**kind, relation=relation)), data, neighbour


class TestWrongSensitivity:
    """Asymmetric ranges and a zero lower bound (a peer then adds no noise at all)."""

    @pytest.mark.parametrize(("lower", "upper"), [(0.0, 1.0), (0.0, 1e6), (-5.0, 0.0), (3.0, 4.0)])
    @pytest.mark.parametrize("algorithm", [gaussian_mean, laplace_mean], ids=lambda a: a.name)
    def test_noise_scales_with_the_range(self, algorithm, lower, upper):
        problem = Answer(n=100, workload=BoundedMean(lower, upper))
        plan = algorithm.plan(problem, Budget(**BUDGET))
        unit = algorithm.plan(Answer(n=100, workload=BoundedMean(0.0, 1.0)), Budget(**BUDGET))
        assert plan.risk.expected == pytest.approx(unit.risk.expected * (upper - lower))
        values = {
            float(plan.run(np.full(100, lower), random_state=seed).value[0]) for seed in range(20)
        }
        assert len(values) > 15  # on a grid some may coincide


class TestDataDependentNormaliser:
    """Under add/remove n is private: it sets no noise, grid, shape or exception."""

    @pytest.mark.parametrize("algorithm", [gaussian_mean, laplace_mean], ids=lambda a: a.name)
    def test_the_declared_n_divides(self, algorithm):
        problem = Answer(n=100, workload=BoundedMean(0.0, 1.0))
        plan = algorithm.plan(problem, Budget(epsilon=1e6, delta=1e-6, relation="add_remove"))
        for rows in (1, 2, 50, 200):
            expected = 0.5 + rows * 0.5 / 100
            assert plan.run(np.ones(rows)).value[0] == pytest.approx(expected, abs=1e-3)

    @pytest.mark.parametrize(("name", "relation"), ONE_SHOT)
    def test_same_seed_same_noise_for_neighbours(self, name, relation):
        """With equal bits, neighbours' outputs differ by the shift of the value, never in kind."""
        plan, data, neighbour = planned(name, relation)
        one, two = (plan.run(rows, random_state=11).value for rows in (data, neighbour))
        assert np.shape(one[-1]) == np.shape(two[-1])


class TestFloatingPointNoise:
    """Outputs live on a grid that does not depend on the records."""

    def test_low_bits_do_not_tell_neighbours_apart(self):
        plan = gaussian_mean.plan(Answer(n=1, workload=BoundedMean(-1.0, 1.0)), Budget(mu=1.0))
        for record in (0.0, 1.0, 1 / 3, 1e-300, 5e-324):
            values = np.array(
                [plan.run(np.array([record]), random_state=s).value[0] for s in range(200)]
            )
            # The grid for sensitivity 2 in one dimension is 2^-12.
            assert np.all(values * 2.0**12 == np.round(values * 2.0**12))


class TestSamplingMatchesAccounting:
    """Amplification is priced only for the sampling and relation that have a proof."""

    def test_fixed_size_samples_need_replace_one(self):
        event = events.Sampled(events.Gaussian(1.0), 0.1, "without_replacement")
        with pytest.raises(ValueError, match="method='poisson'"):
            Guarantee(event, Basis("x", relation="add_remove")).epsilon(1e-6)

    def test_replace_one_is_never_cheaper_than_the_same_noise_under_add_remove(self):
        """Replacing is a change of twice the size for norm-bounded contributions."""
        sampled = events.Repeated(events.Sampled(events.Gaussian(2.0), 0.05), 50)
        removed = Guarantee(sampled, Basis("x", relation="add_remove"))
        assert removed.to_relation("replace").epsilon(1e-6) > removed.epsilon(1e-6)


class TestUnsafeEndOfASearch:
    """Calibration returns the end of the bracket that keeps the promise."""

    @pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0])
    def test_calibrated_noise_never_overshoots(self, epsilon):
        budget = Budget(epsilon=epsilon, delta=1e-7, relation="add_remove")
        event = calibrate(events.Repeated(events.Sampled(events.Gaussian(1.0), 0.02), 300), budget)
        promise = Guarantee(event, Basis("x", relation="add_remove"))
        assert promise.delta(epsilon) <= 1e-7
        assert promise.epsilon(1e-7) <= epsilon
        assert promise.epsilon(1e-7) > 0.999 * epsilon


class TestNotANumber:
    """Non-finite values are repaired silently in records, refused in public parameters."""

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324])
    @pytest.mark.parametrize(("name", "relation"), ONE_SHOT)
    def test_records(self, name, relation, value):
        plan, data, _ = planned(name, relation)
        if isinstance(data, InMemory):
            hostile = InMemory(np.array(data.matrix), np.array(data.labels), public=data.public)
            hostile.matrix[-1], hostile.labels[-1] = value, value
        else:
            hostile = np.array(data, dtype=float, copy=True)
            hostile[-1] = value
        released = plan.run(hostile, random_state=0).value
        assert np.all(
            np.isfinite(np.concatenate([np.ravel(part) for part in np.atleast_1d(released[-1:])]))
        )

    @pytest.mark.parametrize("name", ["epsilon", "mu", "rho"])
    @pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, "1", True, None])
    def test_budgets(self, name, value):
        with pytest.raises(ValueError, match=rf"{name}|exactly one"):
            Budget(**{name: value})

    @pytest.mark.parametrize("delta", [math.nan, math.inf, -1e-9, 1.0, 1.5, "0.1", True])
    def test_deltas(self, delta):
        with pytest.raises(ValueError, match="delta"):
            Budget(epsilon=1.0, delta=delta)


class TestGuardsThatCanBeSwitchedOff:
    """No privacy check is an assert statement, which ``python -O`` removes."""

    def test_the_library_has_no_assert(self):
        for path in SOURCE.rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text()))
            assert not any(isinstance(node, ast.Assert) for node in nodes), path

    def test_randomness_is_made_in_the_noise_room_only(self):
        for path in SOURCE.rglob("*.py"):
            if path.parent.name != "noise":
                text = path.read_text()
                assert "np.random" not in text, path
                assert "import random" not in text, path
                assert "randomgen" not in text, path


class TestBudgetCheckedButNotHeld:
    """What was charged stays charged, what does not fit does not run."""

    def test_a_filter_charges_before_and_refuses_without_charging(self):
        limit = Filter(events.Filtered(events.Pure(1.0)), "replace")
        for _ in range(10):
            limit.charge(
                events.Pure(0.1) if limit.left > 0.2 else events.Pure(float(limit.left) / 2)
            )
        left = limit.left
        with pytest.raises(FilterExhausted, match="ask for more noise"):
            limit.charge(events.Pure(0.5))
        assert limit.left == left

    def test_mixed_relations_and_units_do_not_compose(self):
        base = Guarantee(events.Gaussian(1.0), Basis("x"))
        for change in ({"relation": "add_remove"}, {"unit": "user"}):
            with pytest.raises(ValueError, match="cannot combine"):
                base.compose(Guarantee(events.Gaussian(1.0), Basis("x", **change)))
            with pytest.raises(ValueError, match="cannot combine"):
                base.parallel(Guarantee(events.Gaussian(1.0), Basis("x", **change)))

    def test_a_budget_in_another_relation_or_unit_is_not_met(self):
        base = Guarantee(events.Gaussian(10.0), Basis("x"))
        for change in ({"relation": "add_remove"}, {"unit": "user"}):
            with pytest.raises(ValueError, match="the budget has"):
                base.meets(Budget(mu=1.0, **change))

"""Descent on Poisson samples: guarantee, sensitivity, noise law, convergence."""

import itertools
import math
from dataclasses import dataclass, fields, replace
from functools import cached_property

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.stats import chi2, norm

from dpfit.audit import audit_plan
from dpfit.core import Minimize, Run, Step
from dpfit.data.dataset import Blocks, InMemory
from dpfit.geometry import L2Ball
from dpfit.kernels.minibatch import Epoch, in_place
from dpfit.losses import Absolute, Bounds, Hinge, Huber, Logistic, Softmax, Squared
from dpfit.noise import Gaussian, Grid, Source, add_gaussian, rounded
from dpfit.noise.coins import successes
from dpfit.privacy import Budget, BudgetUnreachable
from dpfit.privacy import event as events
from dpfit.solvers.gradient.dp_sgd import SampledDescent, _batches, dp_sgd

RELATIONS = ("replace", "add_remove")


def logistic(n: int, n_features: int, **options) -> Minimize:
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=n_features, **options)


def pulling(n: int, n_features: int = 1, **options) -> Minimize:
    """Labels far below every margin make the absolute loss linear: each record pulls by its row."""
    return Minimize(
        n=n, loss=Absolute(), bounds=Bounds(1.0, -1e6, 1e6), n_features=n_features, **options
    )


def pulled(rows: np.ndarray) -> InMemory:
    return InMemory(np.asarray(rows, dtype=np.float64), np.full(len(rows), -1e6))


class TestPromise:
    def test_add_remove_agrees_with_the_reference_accountant(self):
        """The reference rejects 10% less noise; ours is within 0.5% of its smallest."""
        plan = dp_sgd.plan(
            logistic(10_000, 5),
            Budget(epsilon=1.0, delta=1e-6, relation="add_remove"),
            batch=200,
            steps=300,
        )
        noise = plan.mechanism.noise_multiplier
        assert plan.event == events.Repeated(events.Sampled(events.Gaussian(noise), 0.02), 300)

        def epsilon(multiplier: float) -> float:
            step = dp_accounting.PoissonSampledDpEvent(
                0.02, dp_accounting.GaussianDpEvent(multiplier)
            )
            return PLDAccountant().compose(step, 300).get_epsilon(1e-6)

        assert epsilon(noise) <= 1.0 * (1 + 1e-3)
        assert epsilon(noise * 0.995) > 1.0
        assert epsilon(noise * 0.9) > 1.05

    @pytest.mark.parametrize(("rate", "noise"), [(0.1, 0.7), (0.5, 1.5), (0.9, 1.0)])
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_one_step_keeps_its_curve_and_would_not_with_a_tenth_less_noise(
        self, rate, noise, relation
    ):
        """The noisy sum's law by quadrature, for a record at the clip that leaves or reverses."""
        problem = logistic(100, 1)
        mechanism = SampledDescent(problem, relation, noise, 1, rate * 100, 1.0, 1.0)
        promise = Step(
            mechanism, dp_sgd.plan(problem, Budget(epsilon=1, delta=0.1, relation=relation)).why
        ).guarantee
        levels = np.array([0.0, 0.1, 0.5, 1.0, 2.0])
        promised = promise.curve.delta(levels)

        def true(deviation: float) -> np.ndarray:
            x, width = np.linspace(-14, 14, 400_001, retstep=True)
            absent, present = norm.pdf(x, 0, deviation), norm.pdf(x, 1, deviation)
            other = absent if relation == "add_remove" else norm.pdf(x, -1, deviation)
            p, q = (1 - rate) * absent + rate * present, (1 - rate) * absent + rate * other
            both = [
                np.maximum(a - np.exp(e) * b, 0).sum() * width
                for e in levels
                for a, b in ((p, q), (q, p))
            ]
            return np.reshape(both, (len(levels), 2)).max(axis=1)

        # Half a grid cell belongs to the sensitivity: the noise covers a record that moves the sum
        # by 1 + 2**-14.
        deviation = noise * mechanism.sensitivity
        assert np.all(true(deviation) <= promised * (1 + 1e-6))
        assert np.any(true(deviation * 0.9) > promised * (1 + 1e-3))

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_the_plan_meets_its_budget_and_little_less_noise_would_not(self, relation):
        budget = Budget(epsilon=0.7, delta=1e-5, relation=relation)
        plan = dp_sgd.plan(logistic(5000, 4), budget, batch=500, steps=100)
        assert plan.guarantee.meets(budget)
        less = replace(plan.mechanism, noise_multiplier=plan.mechanism.noise_multiplier * 0.999)
        assert not Step(less, plan.why).guarantee.meets(budget)
        assert plan.mechanism.event.event.zero_out == (0.5 if relation == "replace" else 1.0)

    def test_budgets_it_cannot_promise_are_refused_with_the_way_out(self):
        for budget in (Budget(epsilon=1.0), Budget(mu=1.0), Budget(rho=0.5)):
            with pytest.raises(BudgetUnreachable, match="noisy_gd"):
                dp_sgd.plan(logistic(100, 2), budget)


class TestReach:
    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize(
        "loss", [Logistic(), Squared(), Hinge(), Absolute(), Huber(0.3)], ids=lambda loss: loss.kind
    )
    @pytest.mark.parametrize(("n_features", "clip"), [(1, 0.4), (2, 0.25), (3, 0.4)])
    def test_no_extreme_neighbour_moves_the_sum_by_more_than_the_sensitivity(
        self, relation, loss, n_features, clip
    ):
        """Corners, bad and non-finite records, both labels, several theta; attained."""
        problem = Minimize(n=4, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=n_features)
        mechanism = SampledDescent(problem, relation, 1.0, 1, 4, clip, 1.0)
        entries = (
            [-1.0, 0.577, 1e200, math.nan, -math.inf] if n_features < 3 else [-1.0, 0.577, math.inf]
        )
        records = [
            (*row, label)
            for row in itertools.product(entries, repeat=n_features)
            for label in (-1.0, 7.0)
        ]
        step = mechanism.grid.step
        largest = 0.0
        for scale in (0.0, -1.3, 40.0):
            theta = scale * np.arange(1.0, n_features + 1)
            alone = []
            for record in records:
                batch_sum = mechanism._epoch(
                    InMemory(np.array([record[:-1]]), [record[-1]])
                ).batch_sum
                alone.append(batch_sum(theta, np.array([0])) * step)
            points = np.array(alone)
            # Sums are exact, so that the change of a sum is what the records that differ
            # contribute.
            pairs = points[:, None] - points[None] if relation == "replace" else points[:, None]
            largest = max(largest, float(np.linalg.norm(pairs, axis=-1).max()))
        assert largest <= mechanism.sensitivity
        assert largest >= 0.99 * min(clip, loss.width if isinstance(loss, Huber) else 1) * (
            1 + (relation == "replace")
        )

    def test_a_sum_changes_by_what_the_record_contributes_wherever_it_is(self):
        rng = np.random.default_rng(0)
        rows, labels = rng.normal(size=(6, 3)), np.array([1.0, -1, 1, -1, 1, 1])
        mechanism = SampledDescent(logistic(6, 3), "add_remove", 1.0, 1, 6, 0.5, 1.0)
        theta = rng.normal(size=3)
        whole = mechanism._epoch(InMemory(rows, labels)).batch_sum(theta, np.arange(6))
        for i in range(6):
            rest = np.delete(np.arange(6), i)
            others = mechanism._epoch(InMemory(rows[rest], labels[rest])).batch_sum(
                theta, np.arange(5)
            )
            alone = mechanism._epoch(InMemory(rows[[i]], labels[[i]])).batch_sum(
                theta, np.array([0])
            )
            assert np.array_equal(others + alone, whole)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_the_quick_sum_is_the_sum_of_the_kernels_bit_for_bit(self, dtype):
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(3000, 7)).astype(dtype)
        rows[::17], rows[5, 2], rows[6], rows[7] = 1e-30, np.nan, np.inf, 0.0
        labels = rng.normal(size=3000)
        labels[11] = np.nan
        data, grid = (
            InMemory(rows, labels),
            SampledDescent(logistic(3000, 7), "replace", 1.0, 1, 30, 0.3, 1.0).grid,
        )
        for loss in (Logistic(), Squared(), Logistic().enveloped(0.5)):
            guards = {
                "row_norm": 2.0,
                "clip": 0.3,
                "label_lower": -1.0,
                "label_upper": 1.0,
                "binary": loss.binary_labels,
            }
            quick = Epoch(rows, labels, loss, grid=grid, **guards).batch_sum
            for size in (0, 1, 3, 64, 3000):
                index = np.sort(rng.choice(3000, size, replace=False)).astype(np.int64)
                theta = rng.normal(size=7)
                assert np.array_equal(
                    quick(theta, index),
                    data.clipped_sum(loss, theta, grid=grid, index=index, **guards),
                )
        assert not in_place(np.asfortranarray(rows))

    @pytest.mark.parametrize("sparse", [False, True])
    def test_many_steps_in_one_call_are_single_steps_bit_for_bit(self, sparse, monkeypatch):
        """Batches of none to all, ridge, momentum, a late mean, several draws."""
        rng = np.random.default_rng(3)
        rows, labels = (
            rng.normal(size=(80, 5)) * (rng.random((80, 5)) < 0.6),
            np.sign(rng.normal(size=80)),
        )
        data = InMemory(csr_array(rows) if sparse else rows, labels)
        monkeypatch.setattr("dpfit.solvers.gradient.dp_sgd._DRAWN", 70)
        for batch, ridge in itertools.product((0.5, 20, 80), (0.0, 0.1)):
            mechanism = SampledDescent(
                logistic(80, 5, ridge=ridge), "replace", 1.0, 23, batch, 0.4, 0.3, 0.9, 0.4
            )
            assert mechanism.iterations > 1 or batch < 1
            at_once = mechanism.run(data, Run(Source(5)))
            with monkeypatch.context() as one_by_one:
                one_by_one.setattr(Epoch, "descends", lambda *_: False)
                assert np.array_equal(mechanism.run(data, Run(Source(5))), at_once)

    def test_large_batches_are_left_to_several_threads(self):
        epoch = Epoch(np.eye(50), np.zeros(50), Squared(), grid=Grid(-5), clip=1.0)
        assert epoch.descends(256 * 100, 100)
        assert not epoch.descends(4096 * 100, 100)
        # In one block of more than 2**22 records a sum could be inexact.
        assert not epoch.descends(2**22 + 1, 10**6)

    def test_arrays_of_any_layout_and_blocks_give_the_same_release(self):
        rng = np.random.default_rng(2)
        rows, labels = rng.normal(size=(50, 3)), np.sign(rng.normal(size=50))
        plan = dp_sgd.plan(logistic(50, 3), Budget(epsilon=1, delta=1e-3), batch=10, steps=30)
        blocks = Blocks(50, 3, lambda: iter([(rows[:20], labels[:20]), (rows[20:], labels[20:])]))
        forms = [
            InMemory(rows, labels),
            InMemory(np.asfortranarray(rows), labels),
            blocks,
        ]
        values = [plan.run(form, random_state=3).value for form in forms]
        assert all(np.array_equal(value, values[0]) for value in values)

    def test_sparse_rows_and_softmax_are_covered(self):
        rng = np.random.default_rng(7)
        rows, labels = (
            rng.normal(size=(60, 4)) * (rng.random((60, 4)) < 0.5),
            np.sign(rng.normal(size=60)),
        )
        plan = dp_sgd.plan(logistic(60, 4), Budget(epsilon=1, delta=1e-3), batch=10, steps=30)
        dense, sparse = (
            plan.run(InMemory(x, labels), random_state=3).value for x in (rows, csr_array(rows))
        )
        assert np.allclose(dense, sparse, rtol=0, atol=1e-3 * np.abs(dense).max())
        several = Minimize(n=60, loss=Softmax(3), bounds=Bounds(1.0), n_features=4)
        plan = dp_sgd.plan(several, Budget(epsilon=1, delta=1e-3), batch=10, steps=30)
        value = plan.run(InMemory(rows, rng.integers(3, size=60)), random_state=3).value
        assert value.shape == (12,)
        assert np.isfinite(value).all()


class TestSampling:
    def test_each_record_is_in_each_batch_by_a_coin_of_its_own(self):
        """4,000 batches of 11 records: frequencies, sizes and pairs of independent coins."""
        table = np.zeros((4000, 11))
        for k, picks in enumerate(_batches(successes(0.3, 11 * 4000, Source(4)), 11, 4000)):
            table[k, picks] = 1
        deviation = math.sqrt(0.21 / 4000)
        assert np.all(np.abs(table.mean(axis=0) - 0.3) < 6.2 * deviation)
        assert np.abs(table.sum(axis=1).var() / (11 * 0.21) - 1) < 6.2 * math.sqrt(2 / 4000) * 1.2
        correlations = np.corrcoef(table.T)[np.triu_indices(11, 1)]
        assert np.all(np.abs(correlations) < 6.8 / math.sqrt(4000))

    @pytest.mark.parametrize("records", [50, 100, 200])
    def test_the_public_batch_size_divides_not_the_realised_one(self, records):
        """Records pull by one: a step has mean records / n and a binomial's variance."""
        problem, rate, steps = pulling(100), 0.2, 5
        mechanism = SampledDescent(problem, "add_remove", 1e-4, steps, rate * 100, 1.0, 0.5)
        data = pulled(np.ones((records, 1)))
        ends = np.array([mechanism.run(data, Run(Source(seed)))[0] for seed in range(1000)])
        mean = -0.5 * steps * records / 100
        deviation = 0.5 * math.sqrt(steps * records * rate * (1 - rate)) / (rate * 100)
        assert abs(ends.mean() - mean) < 6.2 * deviation / math.sqrt(1000)
        assert abs(ends.std() / deviation - 1) < 6.2 / math.sqrt(2 * 1000)

    def test_empty_batches_and_empty_data_give_a_result(self):
        mechanism = SampledDescent(pulling(1000), "add_remove", 1.0, 5, 1.0, 1.0, 1.0)
        assert np.isfinite(mechanism.run(pulled(np.zeros((0, 1))), Run(Source(0)))).all()


class TestNoise:
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_the_noise_has_the_planned_law(self, relation):
        """Zero rows leave the noise: chi-square, 20 cells, 20,000 draws; rejects 10% off."""
        mechanism = SampledDescent(logistic(10, 2000), relation, 3.0, 1, 5, 0.25, 2.0)
        data = InMemory(np.zeros((10, 2000)), np.ones(10))
        draws = np.concatenate([mechanism.run(data, Run(Source(seed))) for seed in range(10)])
        planned = 2.0 * 3.0 * 0.25 * (2 if relation == "replace" else 1) / 5

        def statistic(scale: float) -> float:
            cells = np.histogram(norm.cdf(draws / (planned * scale)), bins=20, range=(0, 1))[0]
            return float(np.sum((cells - 1000.0) ** 2 / 1000.0))

        limit = chi2.isf(1e-9, 19)
        assert statistic(1.0) < limit
        assert statistic(1.1) > limit
        assert statistic(0.9) > limit

    def test_noise_of_different_steps_is_independent(self):
        """The sum over 16 steps has 16 times the variance (4 or 256 times if reused)."""
        mechanism = SampledDescent(logistic(10, 4000), "add_remove", 1.0, 16, 10, 1.0, 1.0)
        end = mechanism.run(InMemory(np.zeros((10, 4000)), np.ones(10)), Run(Source(5)))
        assert abs(float(end.var()) / (16 / 100) - 1) < 6.2 * math.sqrt(2 / 4000)

    def test_the_noise_is_that_of_add_gaussian_on_the_same_grid(self):
        mechanism = SampledDescent(logistic(10, 5), "replace", 1.7, 1, 5, 0.3, 1.0)
        drawn = rounded(Gaussian(), mechanism._noise_scale, (4, 5), Source(6))
        added = add_gaussian(
            np.zeros((4, 5), dtype=np.int64),
            l2_sensitivity=mechanism.sensitivity,
            noise_multiplier=1.7,
            source=Source(6),
            grid=mechanism.grid,
        )
        assert np.array_equal(mechanism.grid.values(drawn), added)

    def test_drawing_in_several_goes_changes_nothing_in_law(self, monkeypatch):
        from dpfit.solvers.gradient import dp_sgd as module

        monkeypatch.setattr(module, "_DRAWN", 40)
        mechanism = SampledDescent(pulling(100), "add_remove", 1e-4, 23, 10.0, 1.0, 1.0)
        assert mechanism.iterations == 8
        seen: list[float] = []
        data = pulled(np.ones((100, 1)))
        ends = [mechanism.run(data, Run(Source(seed), seen.append))[0] for seed in range(400)]
        assert seen[:8] == pytest.approx([k / 8 for k in range(1, 9)])
        deviation = math.sqrt(23 * 100 * 0.1 * 0.9) / 10
        assert abs(np.mean(ends) + 23) < 6.2 * deviation / 20
        assert abs(np.std(ends) / deviation - 1) < 6.2 / math.sqrt(800)


class TestDescent:
    @pytest.mark.parametrize(
        ("momentum", "averaged", "ridge"), [(0.0, 0.0, 0.0), (0.9, 0.5, 0.1), (0.5, 1.0, 0.3)]
    )
    def test_full_batches_without_noise_follow_the_recursion(self, momentum, averaged, ridge):
        """One record of squared loss in one dimension; the ridge is outside of the clip."""
        problem = Minimize(
            n=1, loss=Squared(), bounds=Bounds(1.0, -2.0, 2.0), n_features=1, ridge=ridge
        )
        mechanism = SampledDescent(problem, "replace", 1e-5, 40, 1, 1.0, 0.3, momentum, averaged)
        theta, velocity, path = 0.0, 0.0, []
        for _ in range(40):
            velocity = momentum * velocity + min(max(theta - 2.0, -1.0), 1.0) + ridge * theta
            theta -= 0.3 * velocity
            path.append(theta)
        expected = np.mean(path[-max(1, round(averaged * 40)) :])
        assert mechanism.run(InMemory([[1.0]], [2.0]), Run(Source(0)))[0] == pytest.approx(
            expected, abs=2e-3
        )

    def test_iterates_and_their_average_stay_in_the_domain(self):
        domain = L2Ball(2, 0.01)
        plan = dp_sgd.plan(logistic(50, 2, domain=domain), Budget(epsilon=1, delta=1e-3), batch=10)
        rng = np.random.default_rng(3)
        value = plan.run(InMemory(rng.normal(size=(50, 2)), np.ones(50)), random_state=1).value
        assert domain.contains(value)

    @pytest.mark.parametrize(
        "loss", [Logistic(), Huber(0.5), Squared()], ids=lambda loss: loss.kind
    )
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_at_a_huge_budget_it_is_the_optimum(self, loss, relation):
        rng = np.random.default_rng(4)
        rows = rng.normal(size=(2000, 4))
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        labels = np.clip(rows @ [1.0, -0.5, 0.3, 0.0] + 0.3 * rng.normal(size=2000), -1, 1)
        labels = np.sign(labels) if loss.binary_labels else labels
        problem = Minimize(
            n=2000, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=4, ridge=0.01
        )

        def objective(theta):
            margins = rows @ theta
            gradient = rows.T @ loss.slope(margins, labels) / 2000 + 0.01 * theta
            return loss.value(margins, labels).mean() + 0.005 * theta @ theta, gradient

        best = minimize(objective, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-10}).x
        plan = dp_sgd.plan(problem, Budget(epsilon=1e6, delta=1e-6, relation=relation))
        value = plan.run(InMemory(rows, labels), random_state=1).value
        assert np.linalg.norm(value - best) <= 1e-3 * np.linalg.norm(best)

    @pytest.mark.parametrize("n", [2000, 10_000])
    def test_the_default_is_better_than_predicted_and_than_nothing(self, n):
        rng = np.random.default_rng(5)
        rows = rng.normal(size=(n, 10)) / math.sqrt(10)
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        labels = np.where(
            rng.random(n) < 1 / (1 + np.exp(-rows @ np.linspace(-6, 6, 10))), 1.0, -1.0
        )

        def objective(theta):
            margins = rows @ theta
            return Logistic().value(margins, labels).mean(), rows.T @ Logistic().slope(
                margins, labels
            ) / n

        best = minimize(objective, np.zeros(10), jac=True).fun
        plan = dp_sgd.plan(logistic(n, 10), Budget(epsilon=1.0, delta=1e-6, relation="add_remove"))
        found = np.mean(
            [objective(plan.run(InMemory(rows, labels), random_state=s).value)[0] for s in range(3)]
        )
        assert found - best < plan.risk.expected
        assert found - best < 0.5 * (math.log(2) - best)

    @pytest.mark.slow
    def test_the_excess_falls_with_records_and_budget_and_grows_with_the_dimension(self):
        """Promised: excess ~ dimension / (epsilon n); smooth losses do better in n, epsilon."""

        def excess(n: int, n_features: int, epsilon: float) -> float:
            rng = np.random.default_rng(6)
            rows = rng.normal(size=(n, n_features))
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            direction = rng.normal(size=n_features)
            margins = 1.5 * math.sqrt(n_features) * rows @ (direction / np.linalg.norm(direction))
            labels = np.where(rng.random(n) < 1 / (1 + np.exp(-margins)), 1.0, -1.0)

            def objective(theta):
                margins = rows @ theta
                return Logistic().value(margins, labels).mean(), rows.T @ Logistic().slope(
                    margins, labels
                ) / n

            best = minimize(objective, np.zeros(n_features), jac=True).fun
            plan = dp_sgd.plan(
                logistic(n, n_features), Budget(epsilon=epsilon, delta=1e-6, relation="add_remove")
            )
            found = [
                objective(plan.run(InMemory(rows, labels), random_state=s).value)[0]
                for s in range(8)
            ]
            return float(np.mean(found)) - best

        middle = excess(8000, 10, 1.0)
        assert math.log(middle / excess(1000, 10, 1.0)) / math.log(8) < -0.9
        assert math.log(middle / excess(8000, 10, 0.125)) / math.log(8) < -0.7
        assert 0.5 < math.log(excess(8000, 80, 1.0) / middle) / math.log(8) < 2.5

    def test_the_predicted_risk_is_the_textbook_formula(self):
        mechanism = SampledDescent(logistic(100, 4), "add_remove", 2.0, 50, 20, 1.0, 0.1, 0.5)
        time, distance = 50 * 0.1 / 0.5, 0.75 * 4 * 2
        noise = 4 * (2.0 / 20) ** 2 + 0.8 / 20
        expected = distance**2 / (2 * time) + time / 50 * noise / 2
        assert mechanism.risk.expected == pytest.approx(expected, rel=1e-3)


class TestHostileInput:
    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, 5e-324, 0.0])
    def test_records_of_any_kind_give_a_model(self, relation, bad):
        rows, labels = np.full((8, 3), bad), np.array([1.0, -1, bad, 1, 1, 1, 1, 1])
        plan = dp_sgd.plan(
            logistic(8, 3), Budget(epsilon=1, delta=0.01, relation=relation), steps=20, batch=4
        )
        value = plan.run(InMemory(rows, labels), random_state=1).value
        assert value.shape == (3,)
        assert np.isfinite(value).all()

    @pytest.mark.parametrize(("n", "n_features"), [(1, 1), (1, 20), (5, 40)])
    @pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6])
    def test_few_records_one_class_and_any_budget_give_a_model(self, n, n_features, epsilon):
        plan = dp_sgd.plan(logistic(n, n_features), Budget(epsilon=epsilon, delta=1e-6))
        value = plan.run(InMemory(np.ones((n, n_features)), np.ones(n)), random_state=1).value
        assert np.isfinite(value).all()

    def test_under_add_remove_the_declared_n_is_never_compared_with_the_data(self):
        plan = dp_sgd.plan(
            logistic(30, 2), Budget(epsilon=1, delta=0.01, relation="add_remove"), batch=3, steps=4
        )
        for n in (0, 1, 30, 500):
            assert plan.run(InMemory(np.ones((n, 2)), np.ones(n))).value.shape == (2,)

    def test_public_facts_that_do_not_fit_are_said(self):
        plan = dp_sgd.plan(logistic(30, 2), Budget(epsilon=1, delta=0.01), batch=3, steps=4)
        with pytest.raises(ValueError, match="n = 30 records, the data have 29"):
            plan.run(InMemory(np.ones((29, 2)), np.ones(29)))
        with pytest.raises(ValueError, match="rows of 2 entries, got 5"):
            plan.run(InMemory(np.ones((30, 5)), np.ones(30)))
        with pytest.raises(ValueError, match="must be a Dataset, got list") as error:
            plan.run([["Alice Smith", "secret"]])
        assert "Alice" not in str(error.value)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"batch": 31}, "batch"),
            ({"batch": 0}, "batch"),
            ({"batch": 1e-20}, "batch"),
            ({"steps": 0}, "steps"),
            ({"clip_norm": -1.0}, "clip_norm"),
            ({"clip_norm": 9e-101}, "clip_norm must be"),
            ({"learning_rate": math.inf}, "learning_rate"),
            ({"learning_rate": 1e260}, "overflow"),
            ({"momentum": 1.0}, "momentum"),
            ({"averaged": 1.5}, "averaged"),
            ({"learning_rate": 11.0}, "1 / ridge"),
        ],
    )
    def test_options_out_of_range_are_refused(self, options, message):
        ridge = 0.1 if message == "1 / ridge" else 0.0
        with pytest.raises(ValueError, match=message):
            dp_sgd.plan(logistic(30, 2, ridge=ridge), Budget(epsilon=1, delta=0.01), **options)

    def test_a_loss_without_a_bound_needs_a_clip(self):
        problem = Minimize(n=30, loss=Squared(), bounds=Bounds(1.0), n_features=2)
        with pytest.raises(ValueError, match="pass clip_norm"):
            dp_sgd.plan(problem, Budget(epsilon=1, delta=0.01))
        assert (
            dp_sgd.plan(problem, Budget(epsilon=1, delta=0.01), clip_norm=2.0).mechanism.clip_norm
            == 2.0
        )


@dataclass(frozen=True)
class QuietSGD(SampledDescent):
    """Half of the noise that it says."""

    kind = "test_quiet_sgd"

    @cached_property
    def _noise_scale(self) -> float:
        return super()._noise_scale / 2


@dataclass(frozen=True)
class GreedySGD(SampledDescent):
    """Takes every record into every batch, and says that it samples."""

    kind = "test_greedy_sgd"

    def step(self, state, index, data, run):
        return SampledDescent.step(self._greedy, state, index, data, run)

    def run_many(self, data, run, count):
        return SampledDescent.run_many(self._greedy, data, run, count)

    @property
    def _greedy(self):
        return replace(self, batch=float(self.problem.n))


class TestAudit:
    """Two steps at rate 1/2 on a record that pulls alone."""

    def audit(self, kind: type[SampledDescent], relation: str):
        options = {
            "batch": 2,
            "steps": 2,
            "clip_norm": 1.0,
            "learning_rate": 1.0,
            "momentum": 0.0,
            "averaged": 0.0,
        }
        plan = dp_sgd.plan(
            pulling(4), Budget(epsilon=1.0, delta=0.05, relation=relation), **options
        )
        given = {
            field.name: getattr(plan.mechanism, field.name) for field in fields(SampledDescent)
        }
        rows = np.array([[0.0]] * 3 + [[1.0]])
        other = rows[:-1] if relation == "add_remove" else np.vstack([rows[:-1], [[-1.0]]])
        plan = Step(kind(**given), plan.why)
        return audit_plan(plan, pulled(rows), pulled(other), runs=2000, delta=0.05, random_state=7)

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_the_promise_is_kept_on_a_real_sample(self, relation):
        audit = self.audit(SampledDescent, relation)
        assert audit.verdict == "kept", str(audit)
        assert audit.lower <= audit.promised

    @pytest.mark.parametrize(
        ("kind", "relation"),
        [
            (QuietSGD, "add_remove"),
            (GreedySGD, "replace"),
            pytest.param(QuietSGD, "replace", marks=pytest.mark.slow),
            pytest.param(GreedySGD, "add_remove", marks=pytest.mark.slow),
        ],
    )
    def test_planted_faults_are_found(self, kind, relation):
        assert self.audit(kind, relation).verdict == "broken"

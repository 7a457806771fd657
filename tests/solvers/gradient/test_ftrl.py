"""One pass on private running sums: each record once, the planned noise, tables and streams."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import InteractionClosed, Minimize, resume
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Logistic, Squared
from dpfit.models import LogisticRegression
from dpfit.privacy import Budget, gaussian
from dpfit.solvers.auto import auto
from dpfit.solvers.descents.leader import Leader
from dpfit.solvers.gradient.ftrl import ftrl
from dpfit.solvers.gradient.noisy_gd import noisy_gd


def problem(n=2000, d=3, **facts):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=d, **facts)


def records(n=2000, d=3, seed=1):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) / math.sqrt(d)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
    return InMemory(rows, np.where(rng.random(n) < 1 / (1 + np.exp(-4 * rows[:, 0])), 1.0, -1.0))


def batches(data, count):
    return [InMemory(data.matrix[k::count], data.labels[k::count]) for k in range(count)]


def test_a_table_and_a_stream_have_one_event():
    asked, data = problem(), records()
    table, stream = (ftrl.plan(asked, Budget(mu=1.0), stream=arrives) for arrives in (False, True))
    assert table.event == stream.event
    assert table.guarantee.mu == pytest.approx(1.0)
    assert [each.status for each in table.basis.assumptions] == ["enforced", "enforced"]
    assert [each.status for each in stream.basis.assumptions] == ["enforced", "declared"]
    rounds = stream.mechanism.rounds
    assert stream.run(batches(data, rounds), random_state=1).value.shape == (3,)
    with pytest.raises(ValueError, match="sequence of batches"):
        stream.run(data)
    with pytest.raises(ValueError, match="call step"):
        table.open(data).observe(data)
    assert table.work.passes == 1.0


def test_without_noise_it_is_the_leader_on_exact_gradients():
    """The points follow from the records by hand."""
    data, asked = records(40), problem(40, ridge=0.1)
    plan = ftrl.plan(asked, Budget(mu=1e9), rounds=4, step_size=0.5, clip_norm=9.0, stream=True)
    parts = batches(data, 4)
    point, total, points = np.zeros(3), np.zeros(3), []
    for part in parts:
        margins = part.labels * (part.matrix @ point)
        slopes = -part.labels / (1 + np.exp(margins))
        total += part.matrix.T @ slopes / 10 + 0.1 * point
        point = -0.5 * total
        points.append(point)
    count = max(1, math.floor(plan.mechanism.optimizer.average * 4))
    expected = np.mean(points[-count:], axis=0)
    np.testing.assert_allclose(plan.run(parts).value, expected, atol=1e-3)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_noise_of_a_point_has_the_planned_size(relation):
    """Rows of zero: the last point is noise alone."""
    d, rounds = 400, 16
    asked = problem(160, d)
    plan = ftrl.plan(
        asked,
        Budget(mu=0.5, relation=relation),
        rounds=rounds,
        step_size=1.0,
        clip_norm=1.0,
        stream=True,
    )
    moves = replace(plan.mechanism.optimizer, average=0.0)
    plan = replace(plan, mechanism=replace(plan.mechanism, optimizer=moves))
    empty = [InMemory(np.zeros((10, d)), np.ones(10))] * rounds
    point = np.concatenate([plan.run(empty, random_state=seed).value for seed in range(5)])
    change = 2.0 if relation == "replace" else 1.0
    # 1.9439 is the factor of 16 steps; a batch has ten records. 2,000 entries: six deviations.
    assert np.std(point) == pytest.approx(1.9439 / 0.5 * change / 10, rel=0.1 * 0.95)


def test_one_record_changes_one_batch_only():
    data, asked = records(200), problem(200)
    plan = ftrl.plan(asked, Budget(mu=1e9), rounds=5, clip_norm=1.0)
    rows = data.matrix.copy()
    rows[7] = -rows[7]
    session, other = (
        plan.open(each, random_state=6) for each in (data, InMemory(rows, data.labels))
    )
    first = [session.step() for _ in range(5)]
    second = [other.step() for _ in range(5)]
    moved = [np.linalg.norm(a - b) > 0 for a, b in zip(first, second, strict=True)]
    # Equal answers before the batch of the record, different ones from there on.
    assert moved == sorted(moved)
    assert moved[-1]
    assert not moved[0]


def test_a_stream_is_stored_resumed_and_ends(tmp_path):
    data, asked = records(), problem()
    plan = ftrl.plan(asked, Budget(mu=1.0), stream=True, rounds=6)
    parts = batches(data, 6)
    session = plan.open(store=tmp_path / "s")
    for part in parts[:3]:
        session.observe(part)
    early = session.value
    assert early.shape == (3,)
    again = resume(plan, tmp_path / "s")
    np.testing.assert_array_equal(again.value, early)
    for part in parts[3:]:
        again.observe(part)
    with pytest.raises(InteractionClosed):
        again.observe(parts[0])
    assert np.isfinite(again.close().value).all()


def test_the_order_of_records_does_not_enter_the_guarantee_and_little_the_error():
    data = records(20_000)
    plan = ftrl.plan(problem(20_000), Budget(mu=1.0), stream=True)
    order = np.argsort(data.labels, kind="stable")
    rounds = plan.mechanism.rounds
    ordered = [
        InMemory(data.matrix[part], data.labels[part]) for part in np.array_split(order, rounds)
    ]
    assert np.isfinite(plan.run(ordered, random_state=1).value).all()


def test_it_learns_and_stays_in_its_domain():
    asked, data = problem(20_000), records(20_000)
    zero = data.gradient(Logistic(), np.zeros(3))[0]
    found = ftrl.plan(asked, Budget(epsilon=1, delta=1e-6)).run(data, random_state=1).value
    exact = noisy_gd.plan(asked, Budget(mu=1e6)).run(data, random_state=1).value
    best, here = (data.gradient(Logistic(), each)[0] for each in (exact, found))
    assert here - best < 0.1 * (zero - best)
    ball = replace(asked, domain=L2Ball(3, 0.5))
    value = ftrl.plan(ball, Budget(epsilon=1, delta=1e-6)).run(data, random_state=1).value
    assert np.linalg.norm(value) <= 0.5 * (1 + 1e-9)


def test_its_predicted_risk_falls_with_the_records_and_the_budget():
    budgets = (Budget(epsilon=0.5, delta=1e-6), Budget(epsilon=4, delta=1e-6))
    risks = [
        [ftrl.plan(problem(n), each).risk.expected for each in budgets] for n in (2000, 50_000)
    ]
    assert risks[0][0] > risks[0][1] > risks[1][1] > 0
    assert risks[0][0] > risks[1][0]


def test_auto_takes_it_where_one_pass_is_allowed():
    asked = problem(50_000, 20)
    plan = auto.plan(asked, Budget(epsilon=1, delta=1e-6), max_passes=1)
    assert plan.algorithm == "ftrl"
    assert plan.work.passes <= 1
    many = auto.plan(asked, Budget(epsilon=1, delta=1e-6))
    assert "ftrl" not in [each.name for each in many.considered]


def test_a_model_takes_it_as_its_solver():
    data = records(20_000)
    model = LogisticRegression(2.0, 1e-6, bounds=(-1.0, 1.0), solver="ftrl")
    model.fit(data.matrix, data.labels > 0)
    assert model.plan_.algorithm == "ftrl"
    assert np.mean(model.predict(data.matrix) == (data.matrix[:, 0] > 0)) > 0.85


def test_invalid_arguments_raise_with_a_hint():
    budget = Budget(mu=1.0)
    with pytest.raises(ValueError, match="at most n = 10"):
        ftrl.plan(problem(10), budget, rounds=11)
    squared = Minimize(n=10, loss=Squared(), bounds=Bounds(row_norm=1.0), n_features=2)
    with pytest.raises(ValueError, match="gradients with a bound"):
        ftrl.plan(squared, budget)
    descent = noisy_gd.plan(problem(), budget).mechanism
    with pytest.raises(ValueError, match="running sums"):
        replace(descent, optimizer=Leader(1.0, 1.0))
    with pytest.raises(ValueError, match="delta"):
        ftrl.plan(problem(), Budget(epsilon=1.0))
    assert gaussian.mu(1, 1e-6) == pytest.approx(0.2367, rel=1e-3)

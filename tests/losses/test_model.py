"""Pytrees as parameters: form, fingerprint, errors before anything is charged."""

import json
import sys

import numpy as np
import pytest

from dpfit.core import Minimize, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.ledger import Ledger
from dpfit.losses import Bounds, JaxLoss
from dpfit.privacy import Budget
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

jax = pytest.importorskip("jax")
BUDGET = Budget(epsilon=1.0, delta=1e-6)
TEMPLATE = {
    "hidden": np.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]], dtype=np.float32),
    "out": np.array([0.7, -0.1], dtype=np.float32),
}


def network(params, example):
    row, label = example
    return 0.5 * (jax.numpy.tanh(row @ params["hidden"]) @ params["out"] - label) ** 2


def planned(loss, n=40):
    problem = Minimize(n=n, loss=loss, bounds=Bounds(2.0, -1.0, 1.0), n_features=3)
    return noisy_gd.plan(problem, BUDGET, clip_norm=1.0, max_passes=3)


def records(n=40):
    rng = np.random.default_rng(0)
    return InMemory(rng.uniform(-1, 1, (n, 3)), rng.uniform(-1, 1, n))


def test_a_tree_is_a_flat_vector_and_comes_back_with_its_types():
    form = JaxLoss(function=network, template=TEMPLATE).parameters(3)
    assert form.size == 8
    back = form.unravel(form.start)
    for name, layer in TEMPLATE.items():
        assert back[name].dtype == np.float32
        np.testing.assert_array_equal(back[name], layer)
    doubled = form.unravel(2 * form.start)
    np.testing.assert_array_equal(doubled["out"], 2 * TEMPLATE["out"])


def test_gradients_are_those_of_jax_on_the_tree():
    loss, data = JaxLoss(function=network, template=TEMPLATE), records()
    start = loss.parameters(3).start
    found = loss.gradient(start, data.matrix, data.labels)
    for row, label, gradient in zip(data.matrix[:5], data.labels, found, strict=False):
        tree = jax.grad(network)(TEMPLATE, (row.astype(np.float32), np.float32(label)))
        expected = jax.flatten_util.ravel_pytree(tree)[0]
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


def test_a_plan_is_charged_written_and_gets_its_code_back(tmp_path):
    loss = JaxLoss(function=network, template=TEMPLATE)
    plan = planned(loss)
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", BUDGET)
    released = plan.run(records(), account=ledger.account("people"), random_state=1).value
    ledger.verify()
    stored = ledger.entries("people")[1].facts["plan"]
    again = plan_from_json(json.loads(json.dumps(stored)))
    assert again.guarantee == plan.guarantee
    assert again.mechanism.problem.dimension == 8
    twin = JaxLoss(function=network, template={k: v.copy() for k, v in TEMPLATE.items()})
    assert again.with_loss(twin) == plan
    np.testing.assert_array_equal(
        again.with_loss(twin).run(records(), random_state=1).value, released
    )
    for changed in ({"hidden": TEMPLATE["hidden"], "out": 2 * TEMPLATE["out"]}, TEMPLATE["out"]):
        other = JaxLoss(function=network, template=changed)
        with pytest.raises(ValueError, match="function_fingerprint"):
            again.with_loss(other)


@pytest.mark.parametrize(
    ("template", "match"),
    [
        ({"w": np.arange(3)}, r"template\['w'\] must hold float32 or float64 numbers, got int64"),
        ([np.ones(2), "tanh"], r"template\[1\] must hold float32 or float64"),
        ({"w": np.array([1.0, np.nan])}, r"template\['w'\] must be finite; initialize"),
        ({}, "template must hold at least one array"),
    ],
)
def test_invalid_templates_are_refused_by_name(template, match):
    with pytest.raises(ValueError, match=match):
        JaxLoss(function=network, template=template)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda p, e: p["out"] * e[1], r"one number for one example, got shape \(2,\).*batch axis"),
        (lambda p, e: (e[1] * p["out"][0], 0.0), "must return one float, got tuple"),
        (lambda p, e: jax.numpy.argmax(p["out"]), "must return one float, got int"),
        (lambda p, e: e[1] if p["out"][0] > 0 else 0.0, r"cannot be traced by JAX \(Tracer"),
        (lambda p, e: jax.lax.pmean(p["out"][0], "batch"), "cannot be traced by JAX"),
        (lambda p, e: e[0] @ p["missing"], "cannot be traced by JAX"),
    ],
)
def test_functions_that_are_no_losses_are_refused_when_planned(function, match):
    loss = JaxLoss(function=function, template=TEMPLATE)
    with pytest.raises(ValueError, match=match) as error:
        planned(loss)
    assert "function" in str(error.value)


def test_another_shape_of_parameters_at_run_time_is_refused():
    loss = JaxLoss(function=network, template=TEMPLATE)
    problem = planned(loss).mechanism.problem
    data = records()
    with pytest.raises(ValueError, match=r"theta must have shape \(8,\)"):
        data.gradient(problem.loss, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="start must have 8 entries, got 3"):
        Minimize(n=9, loss=loss, bounds=Bounds(1.0), n_features=3, start=(0.0, 0.0, 0.0))


def test_pure_budgets_and_missing_bounds_are_refused_with_a_hint():
    loss = JaxLoss(function=network, template=TEMPLATE)
    problem = Minimize(n=40, loss=loss, bounds=Bounds(2.0, -1.0, 1.0), n_features=3, ridge=0.1)
    with pytest.raises(ValueError, match="give a delta"):
        noisy_gd.plan(problem, Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="convex"):
        output_perturbation.plan(problem, BUDGET)
    with pytest.raises(ValueError, match="pass clip_norm, or declare lipschitz_bound"):
        problem.constants("replace").require_sensitivity()


def test_without_jax_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r'pip install "dpfit\[jax\]"'):
        JaxLoss(function=network, template=TEMPLATE)

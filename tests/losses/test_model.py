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
from dpfit.solvers.gradient.dp_sgd import dp_sgd
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

jax = pytest.importorskip("jax")
BUDGET = Budget(epsilon=1.0, delta=1e-6)
TEMPLATE = {
    "hidden": np.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]], dtype=np.float32),
    "out": np.array([0.7, -0.1], dtype=np.float32),
}


HAS_REFERENCES = hasattr(jax, "new_ref")
"""Whether JAX has mutable arrays, as releases of 2025 do."""


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


def read_by(host):
    """Losses that hand their record to the function ``host`` of the interpreter."""
    jnp, row = jax.numpy, jax.ShapeDtypeStruct((3,), np.float32)

    def printed(p, e):
        jax.debug.print("{}", e[1])
        return network(p, e)

    def debugged(p, e):
        # Inside a branch of a compiled part of the loss.
        jax.lax.cond(e[1] > 0, jax.jit(lambda: jax.debug.callback(host, e[0])), lambda: None)
        return network(p, e)

    def ordered(p, e):
        jax.experimental.io_callback(host, None, e[0], ordered=True)
        return network(p, e)

    def pure(p, e):
        same = jax.pure_callback(host, row, e[0], vmap_method="sequential")
        return network(p, (jax.lax.stop_gradient(same), e[1]))

    def in_a_loop(p, e):
        def add(i, total):
            return total + jax.pure_callback(host, row, e[0], vmap_method="sequential")[i]

        return network(p, e) + jax.lax.fori_loop(0, 3, add, jnp.float32(0))

    derivative = jax.custom_vjp(network)

    def backward(kept, slope):
        jax.debug.callback(host, kept[1][0])
        return jax.tree_util.tree_map(jnp.zeros_like, kept)

    derivative.defvjp(lambda p, e: (network(p, e), (p, e)), backward)
    batches = jax.custom_batching.custom_vmap(lambda row: row.sum())

    @batches.def_vmap
    def in_a_batch(size, batched, rows):
        jax.debug.callback(host, rows)
        return rows.sum(axis=1), True

    held = jax.new_ref(jnp.zeros(3, "float32")) if HAS_REFERENCES else None

    def kept_outside(p, e):
        held[...] = e[0]
        return network(p, e)

    def stopped(p, e):
        return network(p, e) + batches(jax.lax.stop_gradient(e[0]))

    found = [
        (printed, "debug_(print|callback)"), (debugged, "debug_callback"),
        (ordered, "io_callback"), (derivative, "debug_callback"), (stopped, "debug_callback"),
    ]  # fmt: skip
    if HAS_REFERENCES:
        # Older releases have no ``vmap_method``, too.
        found += [(pure, "pure_callback"), (in_a_loop, "pure_callback")]
        found += [(kept_outside, "WriteEffect")]
    return found


@pytest.mark.parametrize(("function", "name"), read_by(print), ids=lambda each: str(each)[:20])
def test_functions_that_hand_records_to_the_interpreter_are_refused(function, name):
    hint = f"must not hand records to code outside of JAX, got {name}; remove callbacks"
    loss = JaxLoss(function=function, template=TEMPLATE)
    for algorithm in (noisy_gd, dp_sgd):
        problem = Minimize(n=40, loss=loss, bounds=Bounds(2.0, -1.0, 1.0), n_features=3)
        with pytest.raises(ValueError, match=hint):
            algorithm.plan(problem, BUDGET)


@pytest.mark.parametrize("algorithm", [noisy_gd, dp_sgd])
def test_a_stored_plan_refuses_an_edit_that_prints_records(algorithm):
    """A named version stands for the code, so the fingerprint does not see the edit."""
    before, after = (
        JaxLoss(function=function, template=TEMPLATE, name="mine", version="1")
        for function in (network, read_by(print)[0][0])
    )
    problem = Minimize(n=40, loss=before, bounds=Bounds(2.0, -1.0, 1.0), n_features=3)
    plan = plan_from_json(algorithm.plan(problem, BUDGET).to_json())
    with pytest.raises(ValueError, match="must not hand records"):
        plan.with_loss(after)


@pytest.mark.skipif(not HAS_REFERENCES, reason="this JAX has no mutable arrays")
def test_functions_may_draw_loop_branch_and_keep_arrays_of_their_own():
    def busy(p, e):
        own = jax.new_ref(jax.numpy.zeros((), "float32"))
        own[...] = p["out"][0] * jax.random.normal(jax.random.key(0), dtype="float32")
        rest = jax.lax.scan(lambda total, x: (total + x, None), own[...], e[0])[0]
        return jax.checkpoint(network)(p, e) + jax.lax.cond(
            e[1] > 0, lambda: rest, lambda: 0 * rest
        )

    assert planned(JaxLoss(function=busy, template=TEMPLATE)).work.passes == 3


def test_a_function_object_that_has_no_hash_is_refused_with_a_hint():
    class Layers(list):
        def __call__(self, p, e):
            return network(p, e)

    with pytest.raises(ValueError, match="function must be hashable, got an object of Layers"):
        JaxLoss(function=Layers(), template=TEMPLATE)


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

"""Networks: fits, plans, ledger, files, the command line, and an audit."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_friedman1

from dpfit.audit.auditor import audit_plan
from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.kernels import dense, jax_sums
from dpfit.ledger import Ledger
from dpfit.losses import Bounds, DenseLayers, JaxLoss
from dpfit.models import NetworkClassifier, NetworkRegressor, save
from dpfit.privacy import Budget
from dpfit.solvers.auto import auto
from dpfit.solvers.gradient.dp_sgd import dp_sgd
from dpfit.solvers.gradient.noisy_gd import noisy_gd

RANGES = {"bounds": (-1.0, 1.0), "y_bounds": (0.0, 1.0)}
X = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
Y = X[:, 0] ** 2


def small(**changed):
    given = {"epsilon": 8.0, "hidden": (8,), "max_passes": 100, "random_state": 1} | RANGES
    return NetworkRegressor(**(given | changed))


def test_a_network_fits_what_no_line_can():
    with pytest.warns(UserWarning, match="random_state"):
        model = small().fit(X, Y)
    assert 1 - np.mean((model.predict(X) - Y) ** 2) / Y.var() > 0.8
    assert [layer.weights.shape for layer in model.layers_] == [(2, 8), (8, 1)]
    assert model.plan_.work.passes == 100
    assert Budget(epsilon=8.0, delta=1e-6).admits(model.guarantee_.event)
    assert model.guarantee_.basis.arithmetic == "idealised"
    assert not hasattr(model, "coef_")


@pytest.mark.filterwarnings("ignore:.*random_state")
@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 2)])
def test_classes_have_probabilities_and_missing_outcomes_add_nothing(classes):
    labels = np.digitize(np.abs(X[:, 0]), (0.5,) if len(classes) == 2 else (0.33, 0.66)) * 1.0
    model = NetworkClassifier(
        8.0, bounds=(-1, 1), classes=classes, hidden=(8,), max_passes=150, random_state=1
    )
    labels[:300] = np.nan
    fitted = model.fit(X, labels)
    assert np.mean(fitted.predict(X[300:]) == labels[300:]) > 0.8
    chances = fitted.predict_proba(X)
    assert chances.shape == (3000, len(classes))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_the_start_is_public_and_the_same_everywhere():
    first, again = (DenseLayers((4,)).parameters(3).start for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, DenseLayers((4,), start=1).parameters(3).start)
    # Fixed for good: stored plans start here.
    np.testing.assert_allclose(first[:3], FIRST, rtol=1e-12)
    many = DenseLayers((400,)).parameters(100).start[:40_000] * 10
    assert abs(many.mean()) < 0.03
    assert abs(many.std() - 1) < 0.03


FIRST = (0.7226380286257612, 0.207435980856545, -0.20131828634858462)


def test_many_records_are_sampled():
    plans = [small(max_passes=None).plan(n, 2) for n in (100_000, 200_000)]
    assert [plan.algorithm for plan in plans] == ["noisy_gd", "dp_sgd"]
    assert [plan.work.passes for plan in plans] == [200, pytest.approx(20)]
    assert small(max_passes=50).plan(200_000, 2).work.passes == 50


def test_plans_advise_a_linear_model_at_little_data_or_budget():
    said = "records times epsilon are 3,000, below 10,000: a linear model is predicted to be better"
    assert said in "".join(small(epsilon=1.0).plan(3000, 2).explain())
    assert "use LinearRegression" in "".join(small(epsilon=1.0).plan(3000, 2).explain())
    assert "linear model" not in "".join(small(epsilon=1.0).plan(10_000, 2).explain())
    plan = NetworkClassifier(1.0, bounds=(-1, 1)).plan(3000, 2)
    assert "use LogisticRegression" in "".join(plan.explain())


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"delta": 0.0}, "cannot guarantee pure epsilon; give a delta"),
        ({"hidden": ()}, "hidden must be a tuple with one number of units"),
        ({"hidden": 3}, "hidden must have one number of units for each layer"),
        ({"hidden": (0,)}, "hidden must be a whole number of at least 1"),
        ({"start": -1}, "start must be a whole number of at least 0"),
        ({"l1_radius": 1.0}, "l1_radius must be left out for a network; use LinearRegression"),
        ({"public": (X, Y)}, "public must be left out for a network"),
        (
            {"solver": "output_perturbation", "max_passes": None},
            "output_perturbation needs a convex loss",
        ),
    ],
)
def test_invalid_parameters_raise_with_a_hint_before_anything_is_charged(changed, match, tmp_path):
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", Budget(epsilon=10.0, delta=1e-5))
    model = small(random_state=None, ledger=ledger, dataset="people", **changed)
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y)
    assert len(ledger.entries("people")) == 1


def test_a_fit_is_charged_and_read_in_a_fresh_process(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", Budget(epsilon=10.0, delta=1e-5))
    model = small(random_state=None, max_passes=5, ledger=ledger, dataset="people").fit(X, Y)
    kinds = [entry.kind for entry in ledger.entries("people")]
    assert kinds == ["register", "reserve", "release"]
    ledger.verify()
    save(model, tmp_path / "model.json")
    code = (
        "import sys, json; from dpfit.models import load; model = load(sys.argv[1]);"
        "print(json.dumps([model.predict([[0.3, 0.1]]).tolist(), str(model.guarantee_),"
        "'jax' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.json")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found == [model.predict([[0.3, 0.1]]).tolist(), str(model.guarantee_), False]


def test_users_and_private_ranges_work_as_in_other_models():
    users = np.arange(3000) // 3
    model = small(random_state=None, max_passes=5, max_rows_per_user=3, y_bounds=None)
    model.set_params(bounds="private").fit(X, Y, user_ids=users)
    assert model.guarantee_.basis.unit == "user"
    means = small(random_state=None, max_passes=5, rows_per_user=3).fit(X, Y, user_ids=users)
    assert means.guarantee_.basis.unit == "user"


def test_added_records_and_sparse_rows_are_taken():
    model = small(random_state=None, max_passes=5, relation="add_remove", n_declared=3000)
    assert model.fit(sparse.csr_array(X), Y).predict(sparse.csr_array(X)).shape == (3000,)
    assert model.guarantee_.basis.relation == "add_remove"
    none = model.fit(X[:0], Y[:0])
    assert np.isfinite(none.weights_).all()


def problem_of(loss, n=4, n_features=2):
    return Minimize(n=n, loss=loss, bounds=Bounds(2.0, -1.0, 1.0), n_features=n_features)


def test_auto_and_step_sizes_say_what_they_are_for():
    budget = Budget(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="pass solver='noisy_gd'"):
        auto.plan(problem_of(DenseLayers((2,))), budget)
    plan = noisy_gd.plan(problem_of(DenseLayers((2,))), budget, step_size=0.25, max_passes=7)
    assert plan.mechanism.optimizer.step_size == 0.25
    many = problem_of(DenseLayers((2,)), n=1000)
    rule = dp_sgd.plan(many, budget).mechanism
    assert (rule.steps, rule.batch, rule.clip_norm) == (1000, 20.0, 1.0)
    sampled = dp_sgd.plan(many, budget, steps=10, batch=100, learning_rate=0.5)
    assert sampled.risk is None
    assert sampled.run(InMemory(X[:1000], Y[:1000]), random_state=1).value.shape == (9,)


@pytest.mark.filterwarnings("ignore:.*seed")
@pytest.mark.slow
@pytest.mark.parametrize("loss", ["dense", "jax"])
@pytest.mark.parametrize("fault", [False, True])
def test_an_audit_at_mu_1_stays_below_the_promise_and_reaches_most_of_it(loss, fault, monkeypatch):
    """One step on records whose gradients point opposite ways; a fault multiplies gradients."""
    losses = {"dense": lambda: DenseLayers((2,), label_scale=4.0), "jax": jax_loss}
    rows = np.full((4, 2), 0.7)
    data = InMemory(rows, np.ones(4))
    neighbour = InMemory(rows, np.array([1.0, 1.0, 1.0, -1.0]))
    if fault:
        weights, clipped = dense.record_weights, jax_sums.clipped_rows
        monkeypatch.setattr(dense, "record_weights", lambda *given: 2 * weights(*given))
        monkeypatch.setattr(jax_sums, "clipped_rows", lambda *given: 2 * clipped(*given))
        monkeypatch.setattr(jax_sums, "within", lambda steps, radius: steps)
    jax_sums._programs.cache_clear()
    plan = noisy_gd.plan(problem_of(losses[loss]()), Budget(mu=1.0), max_passes=1, clip_norm=0.5)
    found = audit_plan(plan, data, neighbour, runs=30_000, random_state=3)
    jax_sums._programs.cache_clear()
    assert found.broken == fault
    assert fault or 0.8 * found.promised <= found.lower <= found.promised


def jax_loss():
    pytest.importorskip("jax")
    template = {"hidden": 0.5 * np.ones((2, 2)), "out": np.array([0.1, -0.1])}
    return JaxLoss(function=jax_network, template=template)


def jax_network(params, example):
    import jax.numpy as jnp

    output = jnp.tanh(example[0] @ params["hidden"]) @ params["out"]
    return 0.5 * (output - 4 * example[1]) ** 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*random_state")
def test_defaults_reach_the_quality_of_the_benchmark_on_a_curved_function():
    rows, values = make_friedman1(10_000, n_features=10, noise=1.0, random_state=0)
    model = NetworkRegressor(4.0, bounds=(0, 1), y_bounds=(0, 30), random_state=2)
    model.fit(rows[:5000], values[:5000])
    off = np.mean((model.predict(rows[5000:]) - values[5000:]) ** 2)
    assert 1 - off / values[5000:].var() > 0.85

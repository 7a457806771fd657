"""Models reach `phased_sgd` through ``max_passes`` alone, without being told of a solver."""

import numpy as np
import pytest

from dpfit.models import HuberRegressor, LinearSVC, LogisticRegression, QuantileRegressor

MODELS = {
    LinearSVC: {"classes": (0, 1)},
    LogisticRegression: {"classes": (0, 1)},
    HuberRegressor: {"y_bounds": (0, 1)},
    QuantileRegressor: {"y_bounds": (0, 1)},
}


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("kind", MODELS)
def test_one_pass_of_a_model_is_that_of_phased_sgd(kind, delta, relation):
    model = kind(
        1.0, delta, bounds=(0, 1), max_passes=1, relation=relation, n_declared=10**6, **MODELS[kind]
    )
    plan = model.plan(10**6, 10)
    assert plan.algorithm == "phased_sgd"
    assert plan.work.passes == pytest.approx(1.0)
    assert 0.9 < plan.guarantee.epsilon(delta) <= 1.0


@pytest.mark.parametrize("kind", [LinearSVC, QuantileRegressor])
def test_kinks_go_to_phased_sgd_where_a_few_passes_are_allowed(kind):
    """One pass has the least predicted risk, not only the least work."""
    for passes in (3, 10):
        plan = kind(1.0, 1e-9, bounds=(0, 1), max_passes=passes, **MODELS[kind]).plan(10**6, 10)
        assert plan.algorithm == plan.considered[0].name == "phased_sgd"
        assert len(plan.considered) > 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MODELS)
def test_a_fit_of_one_pass_learns(kind):
    rng = np.random.default_rng(1)
    rows = rng.uniform(0, 1, (1_000_000, 4))
    outcome = rows @ [0.5, 0.5, 0.0, 0.0]
    labels = (outcome > 0.5).astype(int) if "classes" in MODELS[kind] else outcome
    model = kind(1.0, 1e-7, bounds=(0, 1), max_passes=1, random_state=1, **MODELS[kind])
    coefficients = np.ravel(model.fit(rows, labels).coef_)
    assert model.plan_.algorithm == "phased_sgd"
    assert coefficients[:2].min() > 3 * np.abs(coefficients[2:]).max()

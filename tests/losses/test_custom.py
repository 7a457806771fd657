"""Losses of the caller: NumPy functions, and JAX functions where JAX is installed."""

import sys
from fractions import Fraction

import numpy as np
import pytest

from dpfit.losses import Bounds, CustomLoss, JaxLoss, Logistic, SquaredDistance, clip_gradients


def logistic(**declared):
    return CustomLoss(
        value_function=lambda theta, rows, labels: Logistic().value(rows @ theta, labels),
        gradient_function=lambda theta, rows, labels: (
            Logistic().slope(rows @ theta, labels)[:, None] * rows
        ),
        **({"lipschitz_bound": 1.0, "is_convex": True} | declared),
    )


def data(n=50, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=d), rng.normal(size=(n, d)) * 3, rng.choice([-1.0, 1.0], n)


def test_declared_constants_are_returned_as_declared():
    loss = logistic(smoothness_bound=0.25)
    assert (loss.status, loss.convex, loss.is_glm) == ("declared", True, False)
    assert loss.lipschitz(Bounds(1.0)).value == 1.0
    assert not loss.lipschitz(Bounds(1.0)).exact
    assert loss.lipschitz_diff(Bounds(1.0)).value == 2.0
    assert loss.smoothness(Bounds(1.0)).value == 0.25
    assert logistic(lipschitz_diff_bound=1.5).lipschitz_diff(Bounds(1.0)).value == 1.5
    assert logistic().smoothness(Bounds(1.0)) is None
    for bad in (
        {"lipschitz_bound": -1.0},
        {"lipschitz_diff_bound": 2.5},
        {"smoothness_bound": float("nan")},
    ):
        with pytest.raises(ValueError, match="bound"):
            logistic(**bad)


def test_wrong_shapes_of_results_are_said():
    theta, rows, labels = data()
    wrong = CustomLoss(
        value_function=lambda *_: np.zeros(3),
        gradient_function=lambda *_: np.zeros(3),
        lipschitz_bound=1.0,
    )
    with pytest.raises(
        ValueError, match=r"value_function must return an array of shape \(50,\), got \(3,\)"
    ):
        wrong.value(theta, rows, labels)
    with pytest.raises(ValueError, match=r"gradient_function .* \(50, 4\)"):
        wrong.gradient(theta, rows, labels)
    text = CustomLoss(
        value_function=lambda *_: ["x4111"],
        gradient_function=lambda *_: "x4111",
        lipschitz_bound=1.0,
    )
    for method in (text.value, text.gradient):
        with pytest.raises(
            ValueError, match=r"what \w+_function returns must be an array of numbers"
        ) as error:
            method(theta, rows, labels)
        assert "4111" not in str(error.value)
    with pytest.raises(ValueError, match="as many labels"):
        wrong.value(theta, rows, labels[:3])


def test_clipped_sums():
    theta, rows, labels = data()
    loss = logistic()
    expected = clip_gradients(loss.gradient(theta, rows, labels), 0.5).sum(axis=0)
    assert np.array_equal(loss.clipped_sum(theta, rows, labels, 0.5), expected)
    assert loss.clipped_sum(theta, rows[:0], labels[:0], 0.5).tolist() == [0.0] * 4


def test_jax_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    loss = JaxLoss(function=lambda theta, example: 0.0, lipschitz_bound=1.0)
    with pytest.raises(ImportError, match=r"dpfit\[jax\]"):
        loss.value(np.zeros(2), np.zeros((3, 2)))


class TestJax:
    """Agreement of the JAX path with the NumPy path, to 1e-10."""

    @pytest.fixture(autouse=True)
    def _needs_jax(self):
        pytest.importorskip("jax")

    @pytest.fixture
    def jax_logistic(self):
        import jax

        return JaxLoss(
            function=lambda theta, example: jax.nn.softplus(-example[1] * (example[0] @ theta)),
            lipschitz_bound=1.0,
        )

    def test_values_gradients_and_clipped_sums_agree_with_numpy(self, jax_logistic):
        theta, rows, labels = data(2000, 7)
        for method, options in (("value", ()), ("gradient", ()), ("clipped_sum", (0.5,))):
            found = getattr(jax_logistic, method)(theta, rows, labels, *options)
            expected = getattr(logistic(), method)(theta, rows, labels, *options)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)

    def test_losses_without_labels(self):
        theta, rows, _ = data()
        loss = JaxLoss(
            function=lambda theta, row: 0.5 * ((theta - row) ** 2).sum(), lipschitz_bound=1.0
        )
        np.testing.assert_allclose(
            loss.gradient(theta, rows), SquaredDistance().gradient(theta, rows), atol=1e-12
        )
        assert loss.clipped_sum(theta, rows[:0], None, 1.0).tolist() == [0.0] * 4

    @pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300, 1e-300, 5e-324])
    def test_one_example_adds_at_most_the_bound(self, bad):
        loss = JaxLoss(function=lambda theta, row: row @ theta, lipschitz_bound=1.0)
        for row in ([bad, 1.0, -bad], [bad, bad, bad], [0.1, 1e300, bad]):
            total = loss.clipped_sum(np.zeros(3), [row], None, 0.7)
            assert np.isfinite(total).all()
            assert sum(Fraction(value) ** 2 for value in total.tolist()) <= Fraction(0.7) ** 2

    def test_the_same_function_is_compiled_once(self, jax_logistic):
        from dpfit.losses.model import batched

        assert batched(jax_logistic.function) is batched(jax_logistic.flat_function)

"""Dense sums: right against extended precision, in all layouts, equal for any threads."""

import math
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
from kernel_references import BINARY, LOSSES, close, glm, repaired

from dpfit.kernels.passes import (
    clipped_sum,
    curvature_trace,
    gradient,
    gradients,
    gram,
    hessian,
    hessian_vector,
    margins,
)
from dpfit.losses import Logistic, Squared
from dpfit.noise import Grid

LOGISTIC, SQUARED = Logistic(), Squared()

GUARDS = [
    {},
    {"row_norm": 1.5},
    {"clip": 0.4},
    {"row_norm": 2.0, "clip": 0.7, "label_lower": -0.5, "label_upper": 1.0},
]


def sample(n=150, d=7, hostile=True):
    rng = np.random.default_rng(3)
    X, y, theta = rng.standard_normal((n, d)), rng.standard_normal(n), rng.standard_normal(d)
    if hostile:
        X[3, 2], X[5, 0], X[9, 1], y[11] = np.nan, np.inf, -np.inf, np.nan
        X[20] *= 1e-300
        X[21] = 0.0
        X[22], X[23] = 5e-324, 1e5
    return X, y, theta


class TestAgainstExtendedPrecision:
    @pytest.mark.parametrize("name", LOSSES)
    @pytest.mark.parametrize("guards", GUARDS, ids=str)
    def test_value_gradient_and_curvature(self, name, guards):
        X, y, theta = sample()
        guards = {**guards, "binary": name in BINARY}
        loss = LOSSES[name]
        value, slope, square = glm(X, y, theta, loss, **guards)
        sums = gradient(X, y, theta, loss, **guards)
        assert close(sums[0], value)
        assert close(sums[1], slope)
        if not loss.has_hessian:
            return
        assert close(hessian(X, y, theta, loss, **guards), square)
        assert close(hessian_vector(X, y, theta, theta + 1, loss, **guards), square @ (theta + 1))
        assert close(curvature_trace(X, y, theta, loss, **guards), np.trace(square))

    def test_rows_whose_squares_overflow(self):
        X = np.array([[1e300, -1e300], [1e308, 1e308], [3e200, 4e200], [1e-200, 1e-200]])
        slope = gradient(X, np.ones(4), np.ones(2), LOGISTIC, binary=True, row_norm=1.0)[1]
        assert close(slope, glm(X, np.ones(4), np.ones(2), LOGISTIC, binary=True, row_norm=1.0)[1])
        steps = clipped_sum(X, np.ones(4), np.ones(2), SQUARED, clip=1.0, grid=Grid(-20))
        assert np.abs(steps).max() <= 4 * 2**20

    def test_gram(self):
        X, y, _ = sample()
        guards = {"row_norm": 1.0, "label_lower": -1.0, "label_upper": 0.5}
        records = [repaired(x, label, **guards) for x, label in zip(X, y, strict=True)]
        square, cross = gram(X, y, **guards)
        assert close(square, sum(np.outer(x, x) for x, _ in records).astype(float))
        assert close(cross, sum(x * label for x, label in records).astype(float))
        assert np.array_equal(square, square.T)

    def test_margins(self):
        X, _, theta = sample()
        expected = [float(repaired(x, 0.0, row_norm=2.0)[0] @ theta) for x in X]
        assert close(margins(X, theta, row_norm=2.0), expected)
        assert close(margins(np.asfortranarray(X), theta, index=[4, 2]), margins(X, theta)[[4, 2]])

    # No margin of this sample is within a step of a corner.
    @pytest.mark.parametrize("name", LOSSES)
    def test_finite_differences(self, name):
        X, y, theta = sample(40, 3, hostile=False)
        loss = LOSSES[name]
        guards = {"binary": name in BINARY, "row_norm": 1.0}
        direction, h = np.array([0.3, -0.5, 0.2]), 1e-6

        def at(t):
            return gradient(X, y, theta + t * direction, loss, **guards)

        assert (at(h)[0] - at(-h)[0]) / (2 * h) == pytest.approx(
            at(0)[1] @ direction, rel=1e-6, abs=1e-6
        )
        if not loss.has_hessian:
            return
        product = hessian_vector(X, y, theta, direction, loss, **guards)
        assert (at(h)[1] - at(-h)[1]) / (2 * h) == pytest.approx(product, rel=1e-5, abs=1e-5)
        assert close(hessian(X, y, theta, loss, **guards) @ direction, product)

    def test_values_can_be_left_out(self):
        X, y, theta = sample()
        value, slope = gradient(X, y, theta, SQUARED, values=False)
        assert math.isnan(value)
        assert np.array_equal(slope, gradient(X, y, theta, SQUARED)[1])


class TestWays:
    """The same records in another way give the same sums."""

    def test_several_points(self):
        X, y, theta = sample()
        thetas = np.stack([theta, 0 * theta, -2 * theta])
        guards = {"clip": 0.5, "row_norm": 3.0}
        values, slopes = gradients(X, y, thetas, SQUARED, **guards)
        steps = clipped_sum(X, y, thetas, SQUARED, grid=Grid(-20), **guards)
        for k, point in enumerate(thetas):
            value, slope = gradient(X, y, point, SQUARED, **guards)
            assert value == values[k]
            assert np.array_equal(slope, slopes[k])
            assert np.array_equal(
                clipped_sum(X, y, point, SQUARED, grid=Grid(-20), **guards), steps[k]
            )

    def test_minibatch(self):
        X, y, theta = sample(1000)
        index = np.random.default_rng(0).integers(0, 1000, 333)
        for actual, expected in [
            (
                gradient(X, y, theta, SQUARED, index=index),
                gradient(X[index], y[index], theta, SQUARED),
            ),
            (gram(X, y, index=index), gram(X[index], y[index])),
        ]:
            assert close(actual[0], expected[0])
            assert close(actual[1], expected[1])
        assert close(
            hessian_vector(X, y, theta, theta, LOGISTIC, index=index),
            hessian_vector(X[index], y[index], theta, theta, LOGISTIC),
        )

    @pytest.mark.parametrize("d", [1, 3, 50, 67])
    def test_layouts(self, d):
        X, y, theta = sample(300, max(d, 3))
        X, theta = np.ascontiguousarray(X[:, :d]), theta[:d]
        wide = np.zeros((600, 2 * d))
        wide[::2, 1::2] = X
        frozen = X.copy()
        frozen.flags.writeable = False
        guards = {"clip": 0.6, "row_norm": 2.0}
        expected = gradient(X, y, theta, SQUARED, **guards)
        steps = clipped_sum(X, y, theta, SQUARED, grid=Grid(-20), **guards)
        for other in (
            np.asfortranarray(X),
            wide[::2, 1::2],
            frozen,
            X[::-1][::-1],
            X.astype(">f8"),
        ):
            actual = gradient(other, y, theta, SQUARED, **guards)
            assert close(actual[0], expected[0])
            assert close(actual[1], expected[1])
            assert np.array_equal(
                clipped_sum(other, y, theta, SQUARED, grid=Grid(-20), **guards), steps
            )

    def test_pieces_of_large_copies(self):
        X = np.asfortranarray(np.random.default_rng(0).standard_normal((30_000, 40)))
        y, theta, index = X[:, 0].copy(), X[0].copy(), np.arange(29_000)
        assert close(gradient(X, y, theta, SQUARED)[1], X.T @ (X @ theta - y))
        assert close(
            gradient(X, y, theta, SQUARED, index=index)[1],
            X[index].T @ (X[index] @ theta - y[index]),
        )
        assert close(margins(X, theta), X @ theta)

    def test_float32_is_accumulated_in_float64(self):
        X, y, theta = sample(5000, 6, hostile=False)
        single = X.astype(np.float32)
        guards = {"clip": 0.6, "row_norm": 2.0}
        for actual, expected in zip(
            gradient(single, y, theta, SQUARED, **guards),
            gradient(single.astype(float), y, theta, SQUARED, **guards),
            strict=True,
        ):
            assert close(actual, expected)
        assert close(gram(single, y)[0], gram(single.astype(float), y)[0])
        big = np.full((2, 3), 3e38, dtype=np.float32)
        assert np.isfinite(gradient(big, y[:2], theta[:3], LOGISTIC, binary=True)[1]).all()

    @pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint16, bool, np.float16])
    def test_other_numbers_are_converted(self, dtype):
        X = np.random.default_rng(0).integers(0, 2, (20, 3)).astype(dtype)
        expected = gradient(X.astype(float), X[:, 0].astype(float), [1, 2, 3], SQUARED)
        assert close(gradient(X, X[:, 0], [1, 2, 3], SQUARED)[1], expected[1])


class TestThreads:
    def test_sums_do_not_depend_on_their_number(self, monkeypatch):
        X, y, theta = sample(20_011, 23)
        index = np.random.default_rng(0).permutation(20_011)[:9_000]
        results = []
        for count in (1, 2, 3, 7):
            monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", count)
            results.append(
                (
                    *gradient(X, y, theta, SQUARED, row_norm=3.0),
                    gradient(X, y, theta, LOGISTIC, index=index, values=False)[1],
                    hessian_vector(X, y, theta, theta, LOGISTIC),
                    margins(X, theta),
                )
            )
        for result in results:
            assert all(np.array_equal(a, b) for a, b in zip(result, results[0], strict=True))

    def test_processes_with_one_and_two_threads(self):
        program = (
            "import numpy as np\n"
            "from dpfit.kernels.passes import gradient\n"
            "from dpfit.losses import Squared\n"
            "rng = np.random.default_rng(0)\n"
            "X, y = rng.standard_normal((15003, 9)), rng.standard_normal(15003)\n"
            "value, slope = gradient(X, y, X[0], Squared())\n"
            "import sys; sys.stdout.write(value.hex() + slope.tobytes().hex())\n"
        )
        outputs = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "NUMBA_NUM_THREADS": threads},
                capture_output=True,
                check=True,
            ).stdout
            for threads in ("1", "2")
        }
        assert len(outputs) == 1

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_has_threads_of_its_own(self, monkeypatch):
        monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", 2)
        X, y, theta = sample(20_011, 23)
        expected = gradient(X, y, theta, SQUARED)[1]
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=lambda: sender.send(gradient(X, y, theta, SQUARED)[1]))
        child.start()
        assert receiver.poll(60)
        assert np.array_equal(receiver.recv(), expected)
        child.join()


class TestHostileShapes:
    def test_no_records(self):
        for X in (np.empty((0, 3)), np.empty((0, 3), order="F"), np.empty((0, 3), dtype=int)):
            value, slope = gradient(X, [], np.ones(3), SQUARED)
            assert value == 0.0
            assert np.array_equal(slope, np.zeros(3))
            assert not clipped_sum(X, [], np.ones(3), SQUARED, clip=1.0, grid=Grid(-3)).any()
            assert not hessian(X, [], np.ones(3), SQUARED).any()
            assert len(margins(X, np.ones(3))) == 0

    def test_an_empty_minibatch(self):
        X, y, theta = sample(30, 3)
        assert not gradient(X, y, theta, SQUARED, index=[])[1].any()
        assert not gradient(X, y, theta, SQUARED, index=np.empty(0, dtype=np.int64))[1].any()

    def test_one_record(self):
        assert gradient([[2.0]], [1.0], [3.0], SQUARED) == (12.5, np.array([10.0]))

    def test_no_features(self):
        X, y = np.empty((4, 0)), [1.0, 2.0, 3.0, math.nan]
        value, slope = gradient(X, y, [], SQUARED)
        assert value == 7.0
        assert slope.shape == (0,)
        assert hessian(X, y, [], SQUARED).shape == (0, 0)
        assert clipped_sum(X, y, [], SQUARED, clip=1.0, grid=Grid(-3)).shape == (0,)
        assert np.array_equal(margins(X, []), np.zeros(4))

    @pytest.mark.parametrize(
        ("arguments", "keywords", "match"),
        [
            (([1.0], [1.0], [1.0], SQUARED), {}, "X must be a matrix"),
            (([["a"]], [1.0], [1.0], SQUARED), {}, "X must hold real numbers"),
            ((np.array([[None]]), [1.0], [1.0], SQUARED), {}, "X must hold real numbers"),
            (([[1j]], [1.0], [1.0], SQUARED), {}, "X must hold real numbers"),
            (([[1.0]], [None], [1.0], SQUARED), {}, "y must hold real numbers"),
            (([[1.0]], [1.0, 2.0], [1.0], SQUARED), {}, "one label for each"),
            (([[1.0]], [1.0], [1.0, 2.0], SQUARED), {}, "must have shape"),
            (([[1.0]], [1.0], [[1.0]], SQUARED), {}, "must have shape"),
            (([[1.0]], [1.0], [math.nan], SQUARED), {}, "must be finite"),
            (([[1.0]], [1.0], [1.0], "logistic"), {}, "no pass over the data for 'str'"),
            (([[1.0]], [1.0], [1.0], SQUARED), {"index": [1]}, r"index must be in \[0, 1\)"),
            (([[1.0]], [1.0], [1.0], SQUARED), {"index": [-1]}, r"index must be in \[0, 1\)"),
            (([[1.0]], [1.0], [1.0], SQUARED), {"index": [0.0]}, "vector of integers"),
            (([[1.0]], [1.0], [1.0], SQUARED), {"row_norm": 0.0}, "row_norm"),
            (([[1.0]], [1.0], [1.0], SQUARED), {"clip": math.nan}, "clip"),
            (
                ([[1.0]], [1.0], [1.0], SQUARED),
                {"label_lower": 1.0, "label_upper": 0.0},
                "interval",
            ),
        ],
    )
    def test_public_facts_are_checked(self, arguments, keywords, match):
        with pytest.raises(ValueError, match=match):
            gradient(*arguments, **keywords)

    def test_unknown_guards(self):
        with pytest.raises(TypeError, match="norm"):
            gradient([[1.0]], [1.0], [1.0], SQUARED, norm=1.0)

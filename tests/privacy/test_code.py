"""Fingerprints of code: what they cover, and that they read no data."""

import functools
import subprocess
import sys

import numpy as np
import pytest

from dpfit.privacy.code import code_fingerprint


def scaled(by):
    return lambda theta, row: by * (row @ theta)


def other(by):
    return lambda theta, row: by * (row @ theta) ** 2


def test_code_constants_closures_and_defaults_count():
    same = code_fingerprint(scaled(2.0))
    assert code_fingerprint(scaled(2.0)) == same == code_fingerprint(scaled(np.float64(2.0)))
    changed = [
        scaled(2.5),
        scaled("2.0"),
        other(2.0),
        lambda theta, row, by=2.0: by,
        lambda theta, row, by=3.0: by,
    ]
    assert len({same, *map(code_fingerprint, changed)}) == 6
    assert code_fingerprint(functools.partial(max, 1)) != code_fingerprint(
        functools.partial(max, 2)
    )
    assert code_fingerprint(scaled(scaled(1.0))) != code_fingerprint(scaled(scaled(2.0)))


@pytest.mark.parametrize("wrap", [np.array, list, tuple, lambda values: {"rows": values}])
def test_what_may_be_data_is_not_read(wrap):
    one, two = wrap([1.0, 2.0]), wrap([1.0, 2.5])
    assert (
        code_fingerprint(scaled(one))
        == code_fingerprint(scaled(two))
        != code_fingerprint(scaled(1.0))
    )


def test_functions_that_hold_themselves_and_objects_have_one():
    def again(n):
        return 0 if n == 0 else again(n - 1)

    class Loss:
        def __call__(self, theta, row):
            return row @ theta

    assert code_fingerprint(again) == code_fingerprint(again)
    assert code_fingerprint(Loss()) == code_fingerprint(Loss()) != code_fingerprint(Loss().__call__)
    assert code_fingerprint(abs) != code_fingerprint(max)


def test_it_is_the_same_in_another_process():
    code = (
        "from dpfit.privacy.code import code_fingerprint as f; print(f(lambda x: x in {'a', "
        "'b', 'c', 'd'}))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**env}
        )
        for env in (
            {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)} for seed in (1, 2, 3)
        )
    ]
    assert len({run.stdout for run in runs}) == 1

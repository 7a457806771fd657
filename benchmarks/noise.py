"""Throughput of the exact samplers against OpenDP's and NumPy's, and rounding errors.

Run with ``python benchmarks/noise.py [--quick] [--json]``. All draws are made by one thread, in
vectors of 10,000, side by side at the same scale.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp
from randomgen import ChaCha
from scipy import special

from bars import at_least, at_most, finish
from dpfit.noise import (
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Source,
    add_gaussian,
    add_generalized_gaussian,
    add_l2_laplace,
    add_laplace,
    discrete_gaussian,
    discrete_laplace,
    rounded,
    rounded_l2_laplace,
)
from dpfit.noise.laws import precision
from dpfit.noise.rounded import MixtureScale

VECTOR = 10_000
SCALES = (8.0, 2.0**20)
TARGET = 50.0
RELEASED = f"values per second of whole mechanisms, dimension {VECTOR}, noise multiplier 1"


def draws_per_second(draw: Callable[[], Any], seconds: float) -> float:
    """Repeat a draw of one vector for some time and return the best rate of five parts of it."""
    draw()
    best = 0.0
    for _ in range(5):
        rounds, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds / 5:
            draw()
            rounds += 1
        best = max(best, rounds * VECTOR / elapsed)
    return best


def opendp_integers(make: Callable[..., Any], metric: Any, scale: float) -> Callable[[], Any]:
    space = dp.vector_domain(dp.atom_domain(T=int)), metric
    measurement = make(*space, scale=scale)
    zeros = [0] * VECTOR
    return lambda: measurement(zeros)


def samplers(scale: float) -> dict[str, Callable[[], Any]]:
    source, rng, chacha = Source(), np.random.default_rng(), np.random.Generator(ChaCha())
    return {
        "rounded Laplace": lambda: rounded(Laplace(), scale, VECTOR, source),
        "rounded Gaussian": lambda: rounded(Gaussian(), scale, VECTOR, source),
        "rounded generalized Gaussian, shape 3": lambda: rounded(
            GeneralizedGaussian(3.0), scale, VECTOR, source
        ),
        "rounded l2-Laplace": lambda: rounded_l2_laplace(scale, VECTOR, source),
        "discrete Laplace": lambda: discrete_laplace(scale, VECTOR, source),
        "discrete Gaussian": lambda: discrete_gaussian(scale, VECTOR, source),
        "OpenDP integer Laplace": opendp_integers(dp.m.make_laplace, dp.l1_distance(T=int), scale),
        "OpenDP integer Gaussian": opendp_integers(
            dp.m.make_gaussian, dp.l2_distance(T=float), scale
        ),
        "NumPy Laplace (unsafe)": lambda: rng.laplace(scale=scale, size=VECTOR),
        "NumPy Gaussian (unsafe)": lambda: rng.normal(scale=scale, size=VECTOR),
        "NumPy Gaussian on ChaCha20 (unsafe)": lambda: chacha.normal(scale=scale, size=VECTOR),
    }


def releases(dimension: int) -> dict[str, Callable[[], Any]]:
    """Whole mechanisms, rounding of the values included, on the grid that fits the dimension."""
    source, zeros = Source(), np.zeros(dimension)
    common: dict[str, Any] = {"noise_multiplier": 1.0, "source": source}
    return {
        "add_laplace": lambda: add_laplace(zeros, l1_sensitivity=1.0, **common),
        "add_gaussian": lambda: add_gaussian(zeros, l2_sensitivity=1.0, **common),
        "add_l2_laplace": lambda: add_l2_laplace(zeros, l2_sensitivity=1.0, **common),
        "add_generalized_gaussian, shape 3": lambda: add_generalized_gaussian(
            zeros, linf_sensitivity=1.0, shape=3.0, **common
        ),
    }


RIVALS = {
    "rounded Laplace": "OpenDP integer Laplace",
    "discrete Laplace": "OpenDP integer Laplace",
    "rounded Gaussian": "OpenDP integer Gaussian",
    "discrete Gaussian": "OpenDP integer Gaussian",
}


def largest_errors(points: int) -> dict[str, tuple[float, float]]:
    """Measure each quantile's relative error by multiprecision; return it with its bound."""
    source = Source(1)
    tail = np.concatenate(
        [
            source.uniform(points) + 2.0**-64,
            2.0 ** (-63 * source.uniform(points)),
            1 - 2.0 ** (-1 - 52 * source.uniform(points)),
        ]
    )
    laws = [
        Laplace(),
        Gaussian(),
        *(GeneralizedGaussian(p) for p in (1.0, 1.2, 1.5, 2.0, 3.0, 7.0, 20.0, 100.0)),
    ]
    errors = {repr(law): (_law_error(law, tail), law.error) for law in laws}
    for dimension in (1, 2, 10, 100, 1000, 10_000):
        few = tail[:: max(1, len(tail) // 300)]
        errors[f"chi-square mixing, dimension {dimension}"] = (
            _gamma_error((dimension + 1) / 2, few[few < 1 - 2.0**-40]),
            MixtureScale._QUANTILE_ERROR,
        )
    return errors


def _law_error(law: Any, tail: np.ndarray) -> float:
    context = precision(250)
    worst = 0.0
    for probability, proposal in zip(tail, law.quantile(tail), strict=True):
        x = context.mpf(float(proposal))
        step = x * context.ldexp(1, -80)
        density = (law.survival(x - step, context) - law.survival(x + step, context)) / (2 * step)
        residual = law.survival(x, context) - context.mpf(float(probability))
        worst = max(worst, float(abs(residual / (density * x))))
    return worst


def _gamma_error(shape: float, tail: np.ndarray) -> float:
    context = precision(250)
    worst = 0.0
    for probability, proposal in zip(tail, special.gammainccinv(shape, tail), strict=True):
        x = context.mpf(float(proposal))
        density = context.exp((shape - 1) * context.log(x) - x - context.loggamma(shape))
        residual = context.gammainc(shape, x, regularized=True) - context.mpf(float(probability))
        worst = max(worst, float(abs(residual / (density * x))))
    return worst


def measure(quick: bool) -> dict[str, Any]:
    dp.enable_features("contrib")
    seconds = 0.3 if quick else 3.0
    rates = {
        scale: {name: draws_per_second(draw, seconds) for name, draw in samplers(scale).items()}
        for scale in SCALES
    }
    errors = largest_errors(100 if quick else 2000)
    bars = [
        at_least(
            f"{ours} against {theirs} at scale {scale:g}",
            rates[scale][ours] / rates[scale][theirs],
            TARGET,
        )
        for scale in SCALES
        for ours, theirs in RIVALS.items()
    ] + [
        at_most(f"relative error of {name}", worst, bound)
        for name, (worst, bound) in errors.items()
    ]
    released = {name: draws_per_second(draw, seconds) for name, draw in releases(VECTOR).items()}
    figures = {f"draws per second at scale {scale:g}": rate for scale, rate in rates.items()}
    return {"bars": bars, "vector": VECTOR, "quick": quick, **figures, RELEASED: released}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="finish in less than 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    result = measure(arguments.quick)
    if not arguments.json:
        for heading in (*(f"draws per second at scale {scale:g}" for scale in SCALES), RELEASED):
            print(heading)
            for name, rate in result[heading].items():
                print(f"  {name:<40}{rate / 1e6:>12.3f} million")
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

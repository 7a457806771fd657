"""Counting queries: largest errors of the chosen and Gaussian noise, and calibration time.

    python benchmarks/queries.py            all sizes, simulated errors, timing
    python benchmarks/queries.py --quick    fewer repeats, under 45 seconds
    python benchmarks/queries.py --json     machine-readable, with the bars
    python benchmarks/queries.py --figure docs/figures/largest-error.svg

Every query may move by one when a record changes (k of k), (epsilon, delta) = (1, 1e-6). Errors are
predicted by the exact law of the noise and, up to 100,000 queries, simulated with the noise that is
released. The rival is the Gaussian mechanism calibrated by its exact curve. Times are minima over
repeats, side by side in one run.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from bars import at_least, at_most, finish
from dpfit.core import Answer, Run
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.counts import counts
from dpfit.mechanisms.gaussian_counts import gaussian_counts
from dpfit.mechanisms.generalized_gaussian import generalized_gaussian
from dpfit.noise import GeneralizedGaussian, Source, rounded
from dpfit.privacy import Budget, accountant
from dpfit.theory.best_shape import best_shape

BUDGET = Budget(epsilon=1.0, delta=1e-6)
GAINS = {1_000: 0.12, 10_000: 0.18, 100_000: 0.22, 1_000_000: 0.25}
EVERYWHERE = (1, 2, 5, 10, 20, 50, 100, 110, 115, 120, 125, 130, 150, 200, 300, 500)
SIMULATED = (100, 1_000, 10_000, 100_000)


def problem(number: int) -> Answer:
    return Answer(workload=Flags(number))


def gaussian_error(number: int) -> float:
    """The expected largest error of the exactly calibrated Gaussian mechanism."""
    return gaussian_counts.plan(problem(number), BUDGET).risk.expected  # type: ignore[union-attr]


def compare(number: int) -> dict[str, Any]:
    plan = counts.plan(problem(number), BUDGET)
    ours, theirs = plan.risk.expected, gaussian_error(number)  # type: ignore[union-attr]
    return {
        "queries": number,
        "chosen": plan.considered[0].name,
        "ours": ours,
        "gaussian": theirs,
        "gain": 1 - ours / theirs,
    }


def simulate(number: int, repeats: int) -> dict[str, Any]:
    """Mean largest error of released noise, next to the prediction, in standard errors."""
    mechanism = counts.plan(problem(number), BUDGET).mechanism  # type: ignore[attr-defined]
    zeros, run = np.zeros(number, dtype=np.int64), Run(Source(1))
    change = mechanism.workload.change("replace")
    largest = np.array(
        [np.max(np.abs(mechanism.noise.add(zeros, change, run.noise))) for _ in range(repeats)]
    )
    expected = mechanism.errors.expected_max
    error = float(largest.std() / math.sqrt(repeats))
    return {
        "queries": number,
        "simulated": float(largest.mean()),
        "standard_error": error,
        "predicted": expected,
        "apart": abs(float(largest.mean()) - expected) / error,
    }


def slopes(numbers: list[int]) -> dict[str, float]:
    """Least-squares slope of log(largest error) against log(k), and of sqrt(k log k)."""
    x = np.log(numbers)
    best = np.log([generalized_gaussian.plan(problem(k), BUDGET).risk.expected for k in numbers])  # type: ignore[union-attr]
    return {
        "generalized Gaussian": float(np.polyfit(x, best, 1)[0]),
        "Gaussian": float(np.polyfit(x, np.log([gaussian_error(k) for k in numbers]), 1)[0]),
        "sqrt(k log k)": float(np.polyfit(x, 0.5 * (x + np.log(x)), 1)[0]),
        "sqrt(k)": 0.5,
    }


def fastest(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def dp_accounting_delta(number: int, shape: float, scale: float) -> float:
    """delta(1) by dp-accounting: our coordinate self-composed, by connecting dots."""
    from dpfit.privacy.laws import GeneralizedGaussian as Coordinate
    from dpfit.privacy.laws import Laplace as LaplaceCoordinate

    curve = LaplaceCoordinate(1 / scale) if shape == 1 else Coordinate(1 / scale, shape)
    step = 2e-5
    epsilons = step * np.arange(-int(curve.reach / step) - 1, int(curve.reach / step) + 2)
    # delta at a negative epsilon follows from the reverse direction, which is the same by symmetry.
    positive = curve.profile(np.abs(epsilons))[0]
    deltas = np.where(epsilons >= 0, positive, 1 - np.exp(epsilons) * (1 - positive))
    masses = pld.pld_pmf.create_pmf_pessimistic_connect_dots(
        step, np.rint(epsilons / step).astype(int), deltas
    )
    composed = pld.PrivacyLossDistribution(masses).self_compose(number)
    return float(composed.get_delta_for_epsilon(1.0))


def timing(quick: bool) -> dict[str, Any]:
    number, repeats = 100_000, 2 if quick else 5
    shape = best_shape(number, number, BUDGET, "max")
    plan = generalized_gaussian.plan(problem(number), BUDGET)
    scale = plan.mechanism.noise.scale  # type: ignore[attr-defined]
    source, rng = Source(), np.random.default_rng()
    law = GeneralizedGaussian(shape)
    rounded(law, scale, number, source)

    def numpy_noise() -> Any:
        magnitude = rng.standard_gamma(1 / shape, number) ** (1 / shape)
        return scale * magnitude * np.where(rng.random(number) < 0.5, -1, 1)

    def calibrated() -> Any:
        accountant.privacy_curve.cache_clear()
        best_shape.cache_clear()
        return generalized_gaussian.plan(problem(number), BUDGET)

    def accounted() -> float:
        accountant.privacy_curve.cache_clear()
        return float(accountant.privacy_curve(plan.event, "replace").delta(np.array([1.0]))[0])

    ours = accounted()
    start = time.perf_counter()
    theirs = dp_accounting_delta(number, shape, scale)
    peer = time.perf_counter() - start
    return {
        "queries": number,
        "noise_million_per_second": number
        / fastest(lambda: rounded(law, scale, number, source), repeats)
        / 1e6,
        "numpy_million_per_second": number / fastest(numpy_noise, repeats) / 1e6,
        "plan_seconds": fastest(calibrated, repeats),
        "delta_seconds": fastest(accounted, repeats),
        "dp_accounting_delta_seconds": peer,
        "delta": ours,
        "dp_accounting_delta": theirs,
    }


def draw(file: str, numbers: list[int]) -> None:
    """Largest error / sqrt(k) against k queries; sqrt(k log k) meets the last Gaussian point."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "queries"
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    k = np.array(numbers, dtype=float)
    gaussian = np.array([gaussian_error(number) for number in numbers]) / np.sqrt(k)
    best = np.array(
        [counts.plan(problem(number), BUDGET).risk.expected for number in numbers]
    ) / np.sqrt(k)  # type: ignore[union-attr]
    rate = np.sqrt(np.log(k))
    axes.semilogx(k, gaussian, "o-", label="Gaussian, exactly calibrated")
    axes.semilogx(k, best, "s-", label="chosen: K-norm, then generalized Gaussian")
    axes.semilogx(
        k, rate * gaussian[-1] / rate[-1], "--", color="0.6", label="proportional to sqrt(k log k)"
    )
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("number k of queries, all of which one record can move")
    axes.set_ylabel("expected largest error / sqrt(k)")
    axes.set_title("epsilon = 1, delta = 1e-6")
    axes.legend()
    figure.savefig(file, metadata={"Date": None} if file.endswith("svg") else None)


def run(quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    sizes = (1, 10, 100, 120, 150, 500) if quick else EVERYWHERE
    figures = [compare(number) for number in (*sizes, *GAINS)]
    simulated = [
        simulate(number, 40 if quick else 400) for number in (SIMULATED[:3] if quick else SIMULATED)
    ]
    decades = [10**3, 10**4, 10**5, 10**6] if quick else [10**2, 10**3, 10**4, 10**5, 10**6]
    gains = {row["queries"]: row["gain"] for row in figures}
    apart = max(row["apart"] for row in simulated)
    bars = [at_least(f"gain over Gaussian at k = {k}", gains[k], bar) for k, bar in GAINS.items()]
    bars.append(at_most("simulation apart from prediction, standard errors", apart, 5.0))
    return {
        "benchmark": "queries",
        "quick": quick,
        "figures": figures,
        "simulated": simulated,
        "slopes": slopes(decades),
        "timing": timing(quick),
        "bars": bars,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--figure", help="write the figure to this file and stop")
    arguments = parser.parse_args()
    if arguments.figure:
        draw(arguments.figure, [int(k) for k in np.rint(np.geomspace(10, 10**6, 16))])
        return 0
    result = run(arguments.quick)
    if not arguments.json:
        for row in result["figures"]:
            print(
                f"k = {row['queries']:>8}: {row['chosen']:<32} {row['ours']:>10.1f}, Gaussian "
                f"{row['gaussian']:>10.1f}, "
                f"{100 * row['gain']:.1f}% less"
            )
        for row in result["simulated"]:
            print(
                f"k = {row['queries']:>8}: simulated {row['simulated']:.1f} +- "
                f"{row['standard_error']:.1f}, "
                f"predicted {row['predicted']:.1f}"
            )
        for name, slope in result["slopes"].items():
            print(f"slope of log error against log k, {name}: {slope:.3f}")
        for name, value in result["timing"].items():
            print(f"{name}: {value if isinstance(value, str) else f'{value:.4g}'}")
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

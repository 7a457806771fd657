"""Calibration of Poisson-sampled Gaussian noise, side by side with dp_accounting in one run.

    python benchmarks/accounting.py            the four settings, three repeats
    python benchmarks/accounting.py --quick    two settings, under 45 seconds
    python benchmarks/accounting.py --json     machine-readable, with the bars

Both sides calibrate the noise of T steps at sampling rate q to (epsilon, delta) = (1, 1e-6) under
add/remove. Ours is timed cold (first call, nothing cached) and warm (minimum over repeats,
accounting cache emptied before each, so that only libraries are warm). Theirs is timed once, after
one small call that loads it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import dp_accounting
from dp_accounting.pld import PLDAccountant

from bars import at_least, at_most, finish
from dpfit.privacy import Basis, Budget, Guarantee, accountant, calibrate, event

SETTINGS = [(0.01, 1_000), (0.001, 100_000), (1.0, 100), (0.05, 200)]
QUICK = [(0.01, 1_000), (0.05, 200)]
EPSILON, DELTA = 1.0, 1e-6
FASTER, CLOSER = 5.0, 0.005


def ours(rate: float, steps: int) -> float:
    """Noise multiplier by dpfit."""
    accountant.privacy_curve.cache_clear()
    template = event.Repeated(event.Sampled(event.Gaussian(1.0), rate), steps)
    budget = Budget(epsilon=EPSILON, delta=DELTA, relation="add_remove")
    chosen = calibrate(template, budget)
    if not Guarantee(chosen, Basis("benchmark", "add_remove")).meets(budget):
        raise RuntimeError("the calibrated event does not meet its budget")
    return float(chosen.event.event.noise_multiplier)  # type: ignore[attr-defined]


def theirs(rate: float, steps: int) -> float:
    """Noise multiplier by dp_accounting's PLD accountant, with defaults and equal tolerance."""

    def make(noise: float) -> Any:
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        return dp_accounting.SelfComposedDpEvent(step, steps)

    return float(
        dp_accounting.calibrate_dp_mechanism(PLDAccountant, make, EPSILON, DELTA, tol=1e-4)
    )


def timed(call: Callable[[float, int], float], rate: float, steps: int) -> tuple[float, float]:
    start = time.perf_counter()
    value = call(rate, steps)
    return value, time.perf_counter() - start


def run(quick: bool, repeats: int) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    figures, bars = [], []
    timed(theirs, 1.0, 2)
    for rate, steps in QUICK if quick else SETTINGS:
        noise, first = timed(ours, rate, steps)
        warm = min(timed(ours, rate, steps)[1] for _ in range(repeats))
        peer_noise, peer = timed(theirs, rate, steps)
        name = f"q={rate:g}, T={steps}"
        excess = noise / peer_noise - 1
        figures.append(
            {
                "setting": name,
                "ours_noise": noise,
                "theirs_noise": peer_noise,
                "ours_first_seconds": first,
                "ours_warm_seconds": warm,
                "theirs_seconds": peer,
            }
        )
        bars += [
            at_least(f"speed-up, {name}", peer / warm, FASTER),
            at_most(f"|noise gap|, {name}", abs(excess), CLOSER),
        ]
    return {"benchmark": "accounting", "quick": quick, "figures": figures, "bars": bars}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two settings, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    result = run(arguments.quick, arguments.repeats)
    if not arguments.json:
        for row in result["figures"]:
            print(
                f"{row['setting']:>18}: ours {row['ours_noise']:.5f} in "
                f"{row['ours_first_seconds']:.3f} s first, "
                f"{row['ours_warm_seconds']:.3f} s warm; "
                f"dp_accounting {row['theirs_noise']:.5f} in {row['theirs_seconds']:.2f} s"
            )
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

"""Power and speed of the auditor: the share of a tight promise that it finds, and what a run costs.

Run with ``python benchmarks/audit.py [--quick] [--json]``. Power: projection, threshold held out, confidence
1 - 1e-6, budget mu = 1 or epsilon = 1, through the shipped runner. The full run makes 100,000 runs a side.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from dpfit.audit import PlanRuns, Projection, audit_callable, audit_entry, audit_plan
from dpfit.catalogue import entry
from dpfit.core import Minimize, Run, Step
from dpfit.data.records import Arrays
from dpfit.losses import Bounds, LinearLoss, Logistic, Loss
from dpfit.noise import Source
from dpfit.privacy import Basis, Budget, Guarantee
from dpfit.privacy.event import Gaussian
from dpfit.solvers.gradient.noisy_gd import NoisyGD, trajectory_basis

SHARES = {10_000: 0.80, 100_000: 0.93}
STEPS = 20


def descent(n: int, d: int, loss: Loss) -> tuple[Step, Arrays, Arrays]:
    """The shipped noisy gradient descent, last iterate, and two data sets with opposite records."""
    problem = Minimize(n=n, loss=loss, bounds=Bounds(1.0), features=d)
    mechanism = NoisyGD(problem, "replace", 1.0, STEPS, 1.0, 1.0, average=0.0)
    rows = np.zeros((n, d))
    rows[0, 0] = 1.0
    labels = np.zeros(n)
    return Step(mechanism, trajectory_basis(Budget(mu=1.0))), Arrays(rows, labels), Arrays(-rows, labels)


def power(runs: int, jobs: int) -> list[dict[str, Any]]:
    """The share of the promise found for each mechanism with a tight analysis."""
    options = {"runs": runs, "attacks": (Projection(),), "random_state": 1}
    audits = [audit_entry(name, n_jobs=jobs, **options) for name in ("gaussian_mean", "laplace_mean")]
    plan, data, neighbour = descent(4, 2, LinearLoss())
    audits.append(audit_plan(plan, data, neighbour, subject="noisy GD, linear loss", **options))
    return [
        {"subject": a.subject, "runs": runs, "share": a.lower / a.promised, "verdict": a.verdict, "seconds": a.seconds}
        for a in audits
    ]


def overhead(runs: int) -> dict[str, float]:
    """Microseconds a run: of a mechanism alone, of the audit's loop around it, and in batches."""
    algorithm = entry("gaussian_mean").load()
    problem, data, _ = algorithm.example("replace")
    plan = algorithm.plan(problem, Budget(mu=1.0))

    def clock(call: Any) -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) / runs * 1e6

    solver, records, _ = descent(1000, 20, Logistic())
    few = runs // 10
    promise = Guarantee(Gaussian(1.0), Basis("Gaussian mechanism"))
    zeros, one = np.zeros(4), np.eye(4)[0]
    shared = Source()
    return {
        "plan.run": clock(lambda: [plan.run(data) for _ in range(runs)]),
        "audit loop around plan.run": clock(lambda: PlanRuns(plan)(data, runs, None)),
        "plan.execute, one noise stream": clock(lambda: [plan.execute(data, Run(shared)) for _ in range(runs)]),
        "noisy GD, n = 1,000, d = 20, run": 10 * clock(lambda: [solver.run(records) for _ in range(few)]),
        "noisy GD, n = 1,000, d = 20, run_many": clock(lambda: PlanRuns(solver)(records, runs, None)),
        "all default attacks": clock(
            lambda: audit_callable(lambda d, s: np.rint(d.sum() + 8 * s.gaussian(1)), zeros, one, promise, runs=runs)
        ),
    }


def run(quick: bool, jobs: int) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    figures: dict[str, Any] = {"power": [], "microseconds_a_run": overhead(1000 if quick else 5000)}
    for runs in (10_000,) if quick else SHARES:
        figures["power"] += power(runs, jobs)
    bars = [
        {
            "name": f"share of the promise, {row['subject']}, {row['runs']:,} runs a side",
            "value": row["share"],
            "target": SHARES[row["runs"]],
            "holds": SHARES[row["runs"]] <= row["share"] <= 1,
        }
        for row in figures["power"]
    ]
    cost = figures["microseconds_a_run"]
    for name, value, target, holds in (
        ("audit loop over plan.run", cost["audit loop around plan.run"] / cost["plan.run"], 1.2, "at most"),
        (
            "speed-up by run_many, noisy GD, n = 1,000, d = 20",
            cost["noisy GD, n = 1,000, d = 20, run"] / cost["noisy GD, n = 1,000, d = 20, run_many"],
            20.0,
            "at least",
        ),
    ):
        kept = value <= target if holds == "at most" else value >= target
        bars.append({"name": name, "value": value, "target": target, "holds": kept})
    return {"benchmark": "audit", "quick": quick, "figures": figures, "bars": bars}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10,000 runs a side only, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    result = run(arguments.quick, arguments.jobs)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for row in result["figures"]["power"]:
        print(
            f"{row['subject']:>22}, {row['runs']:>7,} runs: {row['share']:.3f} of the promise in {row['seconds']:.1f} s"
        )
    for name, value in result["figures"]["microseconds_a_run"].items():
        print(f"{name:>32}: {value:8.1f} microseconds a run")
    for bar in result["bars"]:
        print(f"{'ok ' if bar['holds'] else 'NO '} {bar['name']}: {bar['value']:.4g} (bar {bar['target']:g})")


if __name__ == "__main__":
    main()

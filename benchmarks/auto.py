"""How good is the solver that `auto` picks, against the best one in hindsight?

    python benchmarks/auto.py            60 problems, 20 runs of each solver (ten minutes)
    python benchmarks/auto.py --quick    the smallest problems, 10 runs, under 45 seconds
    python benchmarks/auto.py --json     machine-readable, with the bars

The problems are those of auto_grid.json, written before anything was calibrated; calibrate_auto.py
uses others. The ratio is between mean excess risks: mean loss at the released parameter minus the
least mean loss on the same data.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bars import at_least, at_most, finish
from dpfit.core.examples import opposite_records
from dpfit.privacy import BudgetUnreachable
from dpfit.solvers.auto import auto, candidates
from synthetic import Case

GRID = Path(__file__).with_name("auto_grid.json")
ANY_PROBLEM = opposite_records("replace").problem
SOLVERS: dict[str, Any] = {each.name: each for each in candidates(ANY_PROBLEM)}
CLOSE, SHARE, FAR, SECONDS = 1.1, 0.8, 2.0, 0.5
QUICK = 60_000
"""Numbers in the rows of a small problem, at most."""


def grid() -> list[Case]:
    """The problems on which the choice is judged."""
    return [Case(**fields) for fields in json.loads(GRID.read_text())]


def measured(case: Case, runs: int) -> dict[str, float]:
    """Mean excess risk of every solver that can keep the budget."""
    risks = {}
    for name, solver in SOLVERS.items():
        try:
            plan = solver.plan(case.problem, case.budget)
        except BudgetUnreachable:
            continue
        risks[name] = float(case.excess(plan, runs).mean())
    return risks


def judged(case: Case, runs: int) -> dict[str, Any]:
    """One problem: what each solver and auto reached, and how much worse auto is than the best."""
    start = time.perf_counter()
    chosen = auto.plan(case.problem, case.budget)
    seconds = time.perf_counter() - start
    picked = chosen.considered[0].name
    alone = SOLVERS[picked].plan(case.problem, case.budget)
    planned = replace(chosen, notes=alone.notes, predicted=None, algorithm=picked)
    if planned != replace(alone, predicted=None):
        raise RuntimeError("auto does not plan what its solver plans")
    risks = measured(case, runs)
    return {
        "loss": case.loss, "n": case.n, "d": case.d, "design": case.design, "size": case.size,
        "epsilon": case.epsilon, "delta": case.delta, "relation": case.relation,
        "risks": risks, "predicted": {c.name: c.risk for c in chosen.considered},
        "picked": picked, "ratio": risks[picked] / min(risks.values()), "plan_seconds": seconds,
    }  # fmt: skip


def run(quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    cases = [case for case in grid() if not quick or case.n * case.d <= QUICK]
    auto.plan(cases[0].problem, cases[0].budget)
    figures = [judged(case, 10 if quick else 20) for case in cases]
    ratios = np.array([figure["ratio"] for figure in figures])
    share, worst = float(np.mean(ratios <= CLOSE)), float(ratios.max())
    usual = float(np.median([figure["plan_seconds"] for figure in figures]))
    bars = [
        at_least(f"share of problems within {CLOSE}", share, SHARE),
        at_most("largest ratio", worst, FAR),
        at_most("seconds to plan (median)", usual, SECONDS),
    ]
    return {
        "benchmark": "auto",
        "quick": quick,
        "figures": figures,
        "bars": bars,
        "fixed": fixed(figures),
    }


def fixed(figures: list[dict[str, Any]]) -> dict[str, float]:
    """Geometric mean ratios, where all solvers apply, of auto and of each fixed solver."""
    open_to_all = [figure for figure in figures if len(figure["risks"]) == len(SOLVERS)]
    ratios = {"auto": [figure["ratio"] for figure in open_to_all]}
    for name in SOLVERS:
        ratios[name] = [
            figure["risks"][name] / min(figure["risks"].values()) for figure in open_to_all
        ]
    return {name: float(np.exp(np.mean(np.log(values)))) for name, values in ratios.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="the smallest problems, under 45 seconds"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    result = run(arguments.quick)
    if not arguments.json:
        for row in sorted(result["figures"], key=lambda row: row["ratio"]):
            risks = ", ".join(
                f"{name} {risk:.3g} ({row['predicted'][name]:.2g})"
                for name, risk in row["risks"].items()
            )
            print(
                f"{row['ratio']:5.2f} {row['picked']:<22} {row['loss']:<14} n={row['n']:<5} "
                f"d={row['d']:<2} "
                f"{row['design']:<9} {row['size']:<5} eps={row['epsilon']:<4} "
                f"delta={row['delta']:g} {row['relation']}: "
                f"{risks}"
            )
        print("geometric mean ratios where all solvers can be used:", result["fixed"])
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

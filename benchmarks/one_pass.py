"""What one pass costs in accuracy and saves in time: `phased_sgd` against descents of many passes.

    python benchmarks/one_pass.py            all bars, 20 seeds (about twenty minutes)
    python benchmarks/one_pass.py --quick    10,000 records, 3 seeds, under 45 seconds
    python benchmarks/one_pass.py --json     machine-readable, with the bars
    python benchmarks/one_pass.py --file     a file of four times the memory, alone
    python benchmarks/one_pass.py --tune     the rule of `phased_sgd`, on problems drawn apart

Epsilon 1, delta 1e-6, replace-one, 20 columns. Excess risk is over the best parameter on the test
set, 1e6 records that all solvers of a row share. Solvers of a row get the same training records.
No number of `phased_sgd` was set on these problems. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from bars import Bar, at_least, at_most, finish
from dpfit.core import Algorithm, Minimize
from dpfit.data.dataset import InMemory
from dpfit.data.files import scan_parquet
from dpfit.data.schema import Number, Schema
from dpfit.kernels.passes import gradient
from dpfit.losses import Absolute, Bounds, GaussianSmoothed, Hinge, Logistic
from dpfit.losses.glm import GLM
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.privacy import Budget, calibrate
from dpfit.solvers.descents import phases
from dpfit.solvers.gradient.localized import localized
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.phased_sgd import phased_sgd
from dpfit.solvers.gradient.preconditioned_gd import preconditioned_gd
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

Floats = NDArray[np.float64]
BUDGET = Budget(epsilon=1, delta=1e-6)
COLUMNS, TEST_SEED = 20, 1_000_003


@dataclass(frozen=True)
class Task:
    """A loss and a law of records; ``power`` makes the scale of column k fall like k**-power."""

    loss: GLM
    norm: float
    power: float = 0.0
    n_test: int = 1_000_000
    columns: int = COLUMNS
    truth: int = 7

    def problem(self, n: int) -> Minimize:
        bounds = Bounds(1.0) if self.loss.binary_labels else Bounds(1.0, -1.0, 1.0)
        return Minimize(n=n, loss=self.loss, bounds=bounds, n_features=self.columns)

    def draw(self, seed: int, n: int) -> tuple[Floats, Floats]:
        """Rows on the unit sphere, with labels by a logistic model or by a contaminated line."""
        rng = np.random.default_rng([seed, 20])
        rows = rng.standard_normal((n, self.columns))
        rows /= np.arange(1.0, self.columns + 1) ** self.power
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        theta = np.random.default_rng(self.truth).standard_normal(self.columns)
        margins = rows @ (self.norm * theta / np.linalg.norm(theta))
        if self.loss.binary_labels:
            return rows, np.where(rng.random(n) < expit(margins), 1.0, -1.0)
        labels = margins + 0.05 * rng.standard_normal(n)
        outliers = rng.random(n) < 0.1
        return rows, np.clip(np.where(outliers, rng.uniform(-1, 1, n), labels), -1, 1)

    @cached_property
    def test(self) -> tuple[Floats, Floats]:
        return self.draw(TEST_SEED, self.n_test)

    @cached_property
    def least(self) -> float:
        """The least risk on the test set; a kink is smoothed over 0.01 to find it."""
        rows, labels = self.test
        smooth = GaussianSmoothed(self.loss, 0.01) if self.loss.kink else self.loss

        def objective(theta: Floats) -> tuple[float, Floats]:
            value, slope = gradient(rows, labels, theta, smooth)
            return value / len(labels), slope / len(labels)

        found = minimize(objective, np.zeros(self.columns), jac=True, method="L-BFGS-B").x
        return self.risk(found)

    def risk(self, theta: Floats) -> float:
        rows, labels = self.test
        return float(self.loss.value(rows @ theta, labels).mean())

    def excess(self, theta: Any) -> float:
        return self.risk(np.asarray(theta)) - self.least


def measured(task: Task, n: int, solver: Algorithm[Minimize], seeds: int) -> dict[str, float]:
    """Mean excess risk with its standard error, and the median time of a fit, planning apart."""
    plan = solver.plan(task.problem(n), BUDGET)
    excess, seconds = [], []
    for seed in range(seeds):
        data = InMemory(*task.draw(seed, n))
        start = time.perf_counter()
        value = plan.output(plan.run(data, random_state=seed).value)
        seconds.append(time.perf_counter() - start)
        excess.append(task.excess(value))
    error = float(np.std(excess)) / math.sqrt(max(1, seeds - 1))
    return {
        "excess": float(np.mean(excess)),
        "standard_error": error,
        "seconds": float(np.median(seconds)),
    }


ROUND = {"hinge": (Hinge(), 7.0), "logistic": (Logistic(), 6.6), "absolute": (Absolute(), 1.0)}
"""Loss and norm of the true parameter of the problems whose rows have no preferred direction."""

RATIOS = {
    10_000: {"logistic": 6.5, "absolute": 12.0},
    100_000: {"hinge": 1.7, "logistic": 4.5, "absolute": 3.0},
}
"""Largest excess risk over that of `noisy_gd` with 300 passes, by number of records and problem."""


class Report:
    """Rows and bars as they are found; each row is shown at once."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self.rows: dict[str, dict[str, float]] = {}
        self.bars: list[Bar] = []

    def row(
        self, name: str, task: Task, n: int, solver: Algorithm[Minimize], seeds: int = 0
    ) -> dict[str, float]:
        """Measure a solver."""
        each = self.rows[name] = measured(task, n, solver, seeds or self.seeds)
        print(
            f"{name:44} {each['excess']:10.3g} +- {each['standard_error']:.1g} "
            f"{each['seconds']:8.3f} s",
            file=sys.stderr,
            flush=True,
        )
        return each

    def bar(self, name: str, value: float, target: float) -> None:
        """Keep a figure that must be at most its target."""
        self.bars.append(at_most(name, value, target))


def round_rows(report: Report, tasks: dict[str, Task], sizes: tuple[int, ...]) -> None:
    """One pass against 300 and 20 passes where rows have no preferred direction."""
    for n in sizes:
        for name, most in RATIOS[n].items():
            task = tasks[name]
            one = report.row(f"{name} {n} phased_sgd", task, n, phased_sgd)
            many = report.row(f"{name} {n} noisy_gd 300", task, n, noisy_gd)
            ratio = one["excess"] / many["excess"]
            report.bar(f"{name} {n}: excess over that of 300 passes", ratio, most)
            if n == 100_000:
                few = report.row(f"{name} {n} noisy_gd 20", task, n, noisy_gd.using(max_passes=20))
                ratio = one["excess"] / few["excess"]
                report.bar(f"{name} {n}: excess over that of 20 passes", ratio, 0.1)
                ratio = one["seconds"] / many["seconds"]
                report.bar(f"{name} {n}: time over that of 300 passes", ratio, 1 / 30)


def skewed_rows(report: Report, n: int = 100_000) -> None:
    """Columns whose scales fall like 1 / k: two passes behind a map."""
    task = Task(Logistic(), 13.5, power=1.0)
    mapped = report.row("power law phased_sgd mapped", task, n, phased_sgd.using(mapped=True))
    report.row("power law phased_sgd", task, n, phased_sgd)
    many = report.row("power law noisy_gd 300", task, n, noisy_gd)
    ratio = mapped["excess"] / many["excess"]
    report.bar("power law: mapped, excess over that of 300 passes", ratio, 2.0)
    for passes in (5, 20, 300):
        solver = preconditioned_gd.using(max_passes=passes)
        report.row(f"power law preconditioned_gd {passes}", task, n, solver)


def localizations(report: Report, task: Task, seeds: int = 5) -> None:
    """`localized` around three solvers, beside `noisy_gd` on all records."""
    solvers = {
        "noisy_gd 300": noisy_gd,
        "localized noisy_gd": localized,
        "localized noisy_gd, copies": localized.using(preset="copies"),
        "localized noisy_gd, same records": localized.using(preset="same_records"),
        "localized phased_sgd": localized.using(solver=phased_sgd),
        "localized output_perturbation": localized.using(solver=output_perturbation),
    }
    for n in (10_000, 100_000):
        for name, solver in solvers.items():
            report.row(f"logistic {n} {name}, {seeds} seeds", task, n, solver, seeds)


def pure_noise() -> float:
    """Root mean square norm of the noise, in sensitivities, in 5 columns for epsilon 1."""
    pure = calibrate(VectorNoise("l2_laplace", 1.0, 5).event, Budget(epsilon=1))
    variance = VectorNoise("l2_laplace", pure.noise_multiplier, 5).mean_square(1.0)
    return math.sqrt(5 * variance)


def measure(quick: bool) -> dict[str, Any]:
    """All rows and bars."""
    report = Report(3 if quick else 20)
    n_test = 100_000 if quick else 1_000_000
    tasks = {name: Task(loss, norm, n_test=n_test) for name, (loss, norm) in ROUND.items()}
    report.bar("pure, 5 columns: noise in sensitivities", pure_noise(), 5.5)
    file = parquet_fit(0.02 if quick else 2.5, limited=not quick)
    report.bars += file_bars(file, limited=not quick)
    round_rows(report, tasks, (10_000,) if quick else (10_000, 100_000))
    if not quick:
        million = report.row("hinge 1000000 phased_sgd", tasks["hinge"], 1_000_000, phased_sgd)
        report.bar("hinge 1000000: excess", million["excess"], 1e-4)
        skewed_rows(report)
        localizations(report, tasks["logistic"])
    return {"seeds": report.seeds, "rows": report.rows, "file": file, "bars": report.bars}


FILE_COLUMNS = 50
SCHEMA = Schema(
    tuple(Number(f"x{j}", -4, 4) for j in range(FILE_COLUMNS)),
    target=Number("y", -1, 1),
    scale="symmetric",
    row_norm=1.0,
)


def parquet_fit(gigabytes: float, limited: bool) -> dict[str, Any]:
    """Fit a hinge to a file in a process of its own; report its peak memory and what it read.

    With ``limited`` the process may allocate a quarter of the size of the file; ``completed`` says
    whether that was enough.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, rng, rows = Path(folder) / "rows.parquet", np.random.default_rng(0), 65_536
        names = [f"x{j}" for j in range(FILE_COLUMNS)]
        fields = [(name, pa.float64()) for name in (*names, "y")]
        options = {"compression": "none", "use_dictionary": False}
        groups = math.ceil(gigabytes * 1e9 / (8 * rows * len(fields)))
        with parquet.ParquetWriter(path, pa.schema(fields), **options) as file:
            for _ in range(groups):
                columns = dict(zip(names, rng.standard_normal((FILE_COLUMNS, rows)), strict=True))
                columns["y"] = np.sign(columns["x0"] - columns["x1"])
                file.write_table(pa.table(columns), row_group_size=rows)
        size = path.stat().st_size
        limit = size // 4 if limited else 0
        command = [sys.executable, __file__, "--fit", str(path), "--limit", str(limit)]
        # The default allocator of Arrow reserves more than it uses, which counts against a limit.
        environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        child = subprocess.run(command, capture_output=True, text=True, env=environment)
    found: dict[str, Any] = {"completed": child.returncode == 0, "file_bytes": size, "limit": limit}
    return found | (json.loads(child.stdout) if found["completed"] else {"error": child.stderr})


def file_bars(file: dict[str, Any], limited: bool) -> list[Bar]:
    """Return the bars of the file: a fit that fails breaks all of them."""
    absent = math.nan
    bars = [
        at_most("file: largest number of reads of a block", file.get("most_reads", absent), 1),
        at_least("file: blocks read over blocks", file.get("share_read", absent), 1),
        at_least("file: right signs of two weights", file.get("right_signs", absent), 2),
    ]
    if limited:
        peak = file.get("peak_bytes", absent) / file["file_bytes"]
        bars.append(at_most("file: peak memory of the process over its size", peak, 0.25))
    return bars


def fit_file(path: str, limit: int) -> dict[str, Any]:
    """Fit in one pass by blocks; count the reads of each block."""
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    data, reads = scan_parquet(path, SCHEMA), Counter[int]()

    def counted(number: int) -> Any:
        reads[number] += 1
        return data.read_block(number)  # type: ignore[misc]

    watched = replace(data, read_block=counted)
    problem = Minimize(n=data.n, loss=Hinge(), bounds=Bounds(1.0), n_features=data.width)
    plan, start = phased_sgd.plan(problem, BUDGET, by_blocks=True), time.perf_counter()
    theta = np.asarray(plan.run(watched, random_state=1).output)
    blocks = -(-data.n // (data.block_size or data.n))
    return {
        "seconds": time.perf_counter() - start,
        "rows": data.n,
        "blocks": blocks,
        "share_read": len(reads) / blocks,
        "most_reads": max(reads.values()),
        "peak_bytes": peak_memory(),
        "right_signs": int(theta[0] > 0) + int(theta[1] < 0),
    }


def peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes.

    The figure of `resource.getrusage` may be that of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def tune(seeds: int = 4) -> None:
    """Print the geometric mean excess for candidates of the rule, rows round and skewed."""
    losses: dict[str, GLM] = {"logistic": Logistic(), "hinge": Hinge(), "absolute": Absolute()}
    drawn = {
        "round": (
            ("logistic", 3.0, 0.0, 8, 30_000), ("logistic", 5.0, 0.0, 30, 150_000),
            ("hinge", 5.0, 0.0, 12, 60_000), ("absolute", 0.7, 0.0, 10, 40_000),
            ("absolute", 0.9, 0.0, 30, 200_000), ("logistic", 5.0, 0.3, 15, 12_000),
        ),
        "skewed": (
            ("logistic", 5.0, 0.7, 12, 60_000), ("logistic", 12.0, 1.3, 30, 150_000),
            ("hinge", 8.0, 1.0, 15, 100_000), ("logistic", 9.0, 0.8, 25, 80_000),
        ),
        "many": (
            ("logistic", 3.0, 0.0, 8, 2_000_000), ("logistic", 4.0, 0.0, 10, 1_000_000),
            ("hinge", 4.0, 0.0, 6, 1_000_000), ("absolute", 0.7, 0.0, 5, 1_000_000),
        ),
    }  # fmt: skip
    usual = phases.TUNING
    for kind, cases in drawn.items():
        tasks = [
            (Task(losses[loss], norm, power, 300_000, columns, truth=77), n)
            for loss, norm, power, columns, n in cases
        ]
        tried = [
            *({"growth": growth} for growth in (1.0, 1.5, 2.0)),
            *({"skewed": skewed} for skewed in (0.0, 0.002, 0.01, 0.05, 1.0)),
            *({"tails": (tail,)} for tail in (0.5, 0.25, 0.1, 0.05, 0.02)),
        ]
        for changed in tried:
            phases.TUNING = replace(usual, **changed)  # type: ignore[arg-type]
            found = [measured(task, n, phased_sgd, seeds)["excess"] for task, n in tasks]
            mean = math.exp(float(np.mean(np.log(np.maximum(found, 1e-6)))))
            print(f"{kind:8} {changed}: {mean:.3g}", flush=True)
    phases.TUNING = usual


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--file", action="store_true")
    parser.add_argument("--fit", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(fit_file(options.fit, options.limit)))
        return 0
    if options.tune:
        tune()
        return 0
    if options.file:
        file = parquet_fit(2.5, limited=True)
        return finish({"file": file, "bars": file_bars(file, limited=True)}, options.json)
    return finish(measure(options.quick), options.json)


if __name__ == "__main__":
    sys.exit(main())

"""What one pass costs in accuracy and saves in time: `phased_sgd` against descents of many passes.

    python benchmarks/one_pass.py            all bars, 20 seeds (about fifteen minutes)
    python benchmarks/one_pass.py --quick    10,000 records, 3 seeds, under 45 seconds
    python benchmarks/one_pass.py --json     machine-readable, with the bars
    python benchmarks/one_pass.py --localized   `localized` against `noisy_gd`
    python benchmarks/one_pass.py --parquet 2.5  a file of four times the memory that may be used

Epsilon 1, delta 1e-6, replace-one, 20 columns. Excess risk is over the best parameter on the test
set, 1e6 records that all solvers of a row share. Solvers of a row get the same training records.
No number of `phased_sgd` was set on these problems.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
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

from dpfit.core import Algorithm, Minimize
from dpfit.data.dataset import InMemory
from dpfit.data.files import scan_parquet
from dpfit.data.schema import Number, Schema
from dpfit.kernels.passes import gradient
from dpfit.losses import Absolute, Bounds, GaussianSmoothed, Hinge, Logistic
from dpfit.losses.glm import GLM
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.privacy import Budget, calibrate
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

    def problem(self, n: int) -> Minimize:
        bounds = Bounds(1.0) if self.loss.binary_labels else Bounds(1.0, -1.0, 1.0)
        return Minimize(n=n, loss=self.loss, bounds=bounds, n_features=COLUMNS)

    def draw(self, seed: int, n: int) -> tuple[Floats, Floats]:
        """Rows on the unit sphere, with labels by a logistic model or by a contaminated line."""
        rng = np.random.default_rng([seed, 20])
        rows = rng.standard_normal((n, COLUMNS)) / np.arange(1.0, COLUMNS + 1) ** self.power
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        theta = np.random.default_rng(7).standard_normal(COLUMNS)
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

        found = minimize(objective, np.zeros(COLUMNS), jac=True, method="L-BFGS-B").x
        return self.risk(found)

    def risk(self, theta: Floats) -> float:
        rows, labels = self.test
        return float(self.loss.value(rows @ theta, labels).mean())

    def excess(self, theta: Any) -> float:
        return self.risk(np.asarray(theta)) - self.least


def measured(task: Task, n: int, solver: Algorithm[Minimize], seeds: int) -> dict[str, float]:
    """Mean excess risk with its standard error, and the mean time of a fit, planning apart."""
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


def bars(quick: bool) -> dict[str, Any]:
    """All rows, and for each bar the figure, the bar and whether it holds."""
    seeds, n_test = (3, 100_000) if quick else (20, 1_000_000)
    tasks = {
        "hinge": Task(Hinge(), 7.0, n_test=n_test),
        "logistic": Task(Logistic(), 6.6, n_test=n_test),
        "absolute": Task(Absolute(), 1.0, n_test=n_test),
    }
    skewed = Task(Logistic(), 13.5, power=1.0, n_test=n_test)
    rows: dict[str, Any] = {}
    found: dict[str, tuple[float, float]] = {}

    def row(name: str, task: Task, n: int, solver: Algorithm[Minimize], runs: int = seeds) -> Any:
        rows[name] = measured(task, n, solver, runs)
        return rows[name]

    sizes = {10_000: {"logistic": 6.5, "absolute": 12.0}}
    if not quick:
        sizes[100_000] = {"hinge": 1.7, "logistic": 4.5, "absolute": 3.0}
    for n, ratios in sizes.items():
        for name, most in ratios.items():
            task = tasks[name]
            one = row(f"{name} {n} phased_sgd", task, n, phased_sgd)
            many = row(f"{name} {n} noisy_gd 300", task, n, noisy_gd)
            found[f"{name} {n}: excess over that of 300 passes"] = (
                one["excess"] / many["excess"], most,
            )  # fmt: skip
            if n == 100_000:
                few = row(f"{name} {n} noisy_gd 20", task, n, noisy_gd.using(max_passes=20))
                found[f"{name} {n}: excess over that of 20 passes"] = (
                    one["excess"] / few["excess"], 0.1,
                )  # fmt: skip
                found[f"{name} {n}: time over that of 300 passes"] = (
                    one["seconds"] / many["seconds"], 1 / 30,
                )  # fmt: skip
    if not quick:
        million = row("hinge 1000000 phased_sgd", tasks["hinge"], 1_000_000, phased_sgd)
        found["hinge 1000000: excess"] = (million["excess"], 1e-4)
        if "mapped" in phased_sgd.options:
            mapped = row(
                "power law phased_sgd mapped", skewed, 100_000, phased_sgd.using(mapped=True)
            )
            many = row("power law noisy_gd 300", skewed, 100_000, noisy_gd)
            found["power law: excess over that of 300 passes"] = (
                mapped["excess"] / many["excess"], 2.0,
            )  # fmt: skip
            for passes in (5, 20, 300):
                solver = preconditioned_gd.using(max_passes=passes)
                row(f"power law preconditioned_gd {passes}", skewed, 100_000, solver)
        row("power law phased_sgd", skewed, 100_000, phased_sgd)
    pure = calibrate(VectorNoise("l2_laplace", 1.0, 5).event, Budget(epsilon=1))
    variance = VectorNoise("l2_laplace", pure.noise_multiplier, 5).mean_square(1.0)
    found["pure, 5 columns: noise in sensitivities"] = (math.sqrt(5 * variance), 5.5)
    return {
        "rows": rows,
        "bars": {
            name: {"figure": figure, "bar": bar, "holds": figure <= bar}
            for name, (figure, bar) in found.items()
        },
    }


def localizations(seeds: int = 5) -> dict[str, Any]:
    """Excess risk of `localized` around three solvers, beside `noisy_gd` on all records."""
    solvers = {
        "noisy_gd 300": noisy_gd,
        "localized noisy_gd": localized,
        "localized noisy_gd, copies": localized.using(preset="copies"),
        "localized noisy_gd, same records": localized.using(preset="same_records"),
        "localized phased_sgd": localized.using(solver=phased_sgd),
        "localized output_perturbation": localized.using(solver=output_perturbation),
    }
    task = Task(Logistic(), 6.6, n_test=200_000)
    return {
        f"logistic {n} {name}": measured(task, n, solver, seeds)
        for n in (10_000, 100_000)
        for name, solver in solvers.items()
    }


FILE_COLUMNS = 50
SCHEMA = Schema(
    tuple(Number(f"x{j}", -4, 4) for j in range(FILE_COLUMNS)),
    target=Number("y", -1, 1),
    scale="symmetric",
    row_norm=1.0,
)


def parquet_fit(gigabytes: float) -> dict[str, Any]:
    """Fit a hinge to a file in a process of its own; report its peak memory and what it read."""
    with tempfile.TemporaryDirectory() as folder:
        path, rng, rows = Path(folder) / "rows.parquet", np.random.default_rng(0), 65_536
        names = [f"x{j}" for j in range(FILE_COLUMNS)]
        fields = [(name, pa.float64()) for name in (*names, "y")]
        options = {"compression": "none", "use_dictionary": False}
        with parquet.ParquetWriter(path, pa.schema(fields), **options) as file:
            for _ in range(math.ceil(gigabytes * 1e9 / (8 * rows * len(fields)))):
                columns = dict(zip(names, rng.standard_normal((FILE_COLUMNS, rows)), strict=True))
                columns["y"] = np.sign(columns["x0"] - columns["x1"])
                file.write_table(pa.table(columns), row_group_size=rows)
        size = path.stat().st_size
        command = [sys.executable, __file__, "--fit", str(path)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found | {"file_bytes": size, "file_over_peak": size / found["peak_bytes"]}


def fit_file(path: str) -> dict[str, Any]:
    """Fit in one pass by blocks; count the blocks that are read."""
    data, read = scan_parquet(path, SCHEMA), []

    def counted(number: int) -> Any:
        read.append(number)
        return data.read_block(number)  # type: ignore[misc]

    watched = replace(data, read_block=counted)
    problem = Minimize(n=data.n, loss=Hinge(), bounds=Bounds(1.0), n_features=data.width)
    plan, start = phased_sgd.plan(problem, BUDGET, by_blocks=True), time.perf_counter()
    theta = np.asarray(plan.run(watched, random_state=1).output)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": time.perf_counter() - start,
        "rows": data.n,
        "blocks": -(-data.n // (data.block_size or data.n)),
        "blocks_read": len(read),
        "peak_bytes": peak,
        "signs": bool(theta[0] > 0 > theta[1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--localized", action="store_true")
    parser.add_argument("--parquet", type=float, metavar="GB")
    parser.add_argument("--fit", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit or options.parquet or options.localized:
        other = localizations if options.localized else lambda: parquet_fit(options.parquet)
        print(json.dumps(fit_file(options.fit) if options.fit else other(), indent=1))
        return
    result = bars(options.quick)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name, each in result["rows"].items():
        print(
            f"{name:36} {each['excess']:10.3g} +- {each['standard_error']:.1g} "
            f"{each['seconds']:8.3f} s"
        )
    for name, each in result["bars"].items():
        verdict = "holds" if each["holds"] else "FAILS"
        print(f"{verdict} {name}: {each['figure']:.3g} (at most {each['bar']:.3g})")


if __name__ == "__main__":
    main()

"""One-pass kernels against machine limits (read-only sum, BLAS) and plain NumPy.

Run with ``python benchmarks/kernels.py [--quick] [--json]``. Data comes from a fixed RNG seed:
standard normal rows, labels from a logistic model. Everything that is compared is timed in turns,
and the best of all rounds counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from scipy.linalg import blas
from scipy.sparse import random_array

from bars import at_least as bound_below
from bars import at_most, finish
from dpfit.kernels import passes
from dpfit.kernels.prefetch import prefetch
from dpfit.kernels.rows import AHEAD
from dpfit.losses import Logistic, Squared
from dpfit.noise import Grid

SIZES = ((1_000_000, 50), (100_000, 500))
DENSITY = 0.05
LOGISTIC, SQUARED = Logistic(), Squared()


@numba.njit(fastmath=True)
def total(piece: np.ndarray) -> float:
    part = 0.0
    for entry in piece:
        part += entry
    return part


@numba.njit(parallel=True)
def read(flat: np.ndarray) -> float:
    """Sum an array in one loop for each thread."""
    parts = np.zeros(64)
    for b in numba.prange(64):
        parts[b] = total(flat[b * len(flat) // 64 : (b + 1) * len(flat) // 64])
    return parts.sum()


@numba.njit(parallel=True)
def read_fast(flat: np.ndarray) -> float:
    """Sum an array in pieces of 64 entries, the fastest size tried: the memory's speed."""
    parts = np.zeros(64)
    for b in numba.prange(64):
        part, stop = 0.0, (b + 1) * len(flat) // 64
        for start in range(b * len(flat) // 64, stop, 64):
            part += total(flat[start : min(start + 64, stop)])
        parts[b] = part
    return parts.sum()


@numba.njit(parallel=True, fastmath=True)
def read_rows(X: np.ndarray, picks: np.ndarray) -> float:
    """Sum some rows of a matrix, asked for ahead: what the memory can deliver of a minibatch."""
    parts = np.zeros(64)
    for b in numba.prange(64):
        part = 0.0
        for p in range(b * len(picks) // 64, (b + 1) * len(picks) // 64):
            prefetch(X, picks[min(p + AHEAD, len(picks) - 1)])
            for j in range(X.shape[1]):
                part += X[picks[p], j]
        parts[b] = part
    return parts.sum()


def best(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the shortest time of each call.

    Calls take turns, so that all see the same moods of the machine, and run five times in each
    turn, after a pause: the threads of BLAS and of numba wait busily for a while after their work
    and slow down whoever comes next.
    """
    for call in calls.values():
        call()
    times = dict.fromkeys(calls, np.inf)
    rounds, start = 0, time.perf_counter()
    while rounds < 2 or time.perf_counter() - start < seconds:
        for name, call in calls.items():
            time.sleep(0.1)
            for _ in range(5):
                begin = time.perf_counter()
                call()
                times[name] = min(times[name], time.perf_counter() - begin)
        rounds += 1
    return times


def numpy_pass(X: Any, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The gradient of the logistic loss as one would write it: two passes over the data."""
    return X.T @ (-y / (1.0 + np.exp(y * (X @ theta))))


def measure_dense(n: int, d: int, seconds: float) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((n, d)), rng.standard_normal(d) / np.sqrt(d)
    y = np.where(X @ theta + rng.logistic(size=n) > 0, 1.0, -1.0)
    single, theta32, y32 = X.astype(np.float32), theta.astype(np.float32), y.astype(np.float32)
    fortran, picks = np.asfortranarray(X), np.sort(rng.choice(n, n // 10, replace=False))
    clip: dict[str, Any] = {"clip": 0.3 * np.sqrt(d), "row_norm": 1.1 * np.sqrt(d)}
    grid = Grid.fitting(clip["clip"], d, "l2")
    common: dict[str, Any] = {"binary": True, "values": False}
    times = best(
        {
            "read": lambda: read(X.reshape(-1)),
            "read, fastest": lambda: read_fast(X.reshape(-1)),
            "read 10% of the rows": lambda: read_rows(X, picks),
            "read, float32": lambda: read(single.reshape(-1)),
            "NumPy": lambda: numpy_pass(X, y, theta),
            "NumPy, float32": lambda: numpy_pass(single, y32, theta32),
            "gradient": lambda: passes.gradient(X, y, theta, LOGISTIC, **common),
            "gradient of the squared loss": lambda: passes.gradient(
                X, y, theta, SQUARED, values=False
            ),
            "gradient and value": lambda: passes.gradient(X, y, theta, LOGISTIC, binary=True),
            "gradient, float32": lambda: passes.gradient(single, y, theta, LOGISTIC, **common),
            "gradient, Fortran order": lambda: passes.gradient(
                fortran, y, theta, LOGISTIC, **common
            ),
            "clipped": lambda: passes.gradient(X, y, theta, LOGISTIC, **common, **clip),
            "clipped, exact": lambda: passes.clipped_sum(
                X, y, theta, LOGISTIC, binary=True, grid=grid, **clip
            ),
            "minibatch of 10%": lambda: passes.gradient(
                X, y, theta, LOGISTIC, index=picks, **common
            ),
            "Hessian times vector": lambda: passes.hessian_vector(
                X, y, theta, theta, LOGISTIC, binary=True
            ),
        },
        seconds,
    )
    times |= best(
        {
            "syrk": lambda: blas.dsyrk(1.0, X.T),
            "Hessian": lambda: passes.hessian(X, y, theta, LOGISTIC, binary=True),
        },
        seconds / 4,
    )
    return {
        "milliseconds": {name: 1e3 * elapsed for name, elapsed in times.items()},
        "GB/s": {
            name: X.nbytes / times[name] / 1e9
            for name in ("read", "gradient", "clipped", "clipped, exact", "NumPy")
        }
        | {
            name: single.nbytes / times[name] / 1e9
            for name in ("read, float32", "gradient, float32")
        },
        "share of read bandwidth": {
            "float64": times["read"] / times["gradient"],
            "float64, squared loss": times["read"] / times["gradient of the squared loss"],
            "float32": times["read, float32"] / times["gradient, float32"],
            "Fortran order": times["read"] / times["gradient, Fortran order"],
        },
        "share of the fastest reading": times["read, fastest"] / times["gradient"],
        "speedup over NumPy": {
            "float64": times["NumPy"] / times["gradient"],
            "float32": times["NumPy, float32"] / times["gradient, float32"],
        },
        "clipped over unclipped": times["clipped"] / times["gradient"],
        "clipped and exact over unclipped": times["clipped, exact"] / times["gradient"],
        "minibatch over full pass": times["minibatch of 10%"] / times["gradient"],
        "reading the minibatch over full pass": times["read 10% of the rows"] / times["gradient"],
        "Hessian over syrk": times["Hessian"] / times["syrk"],
    }


def measure_sparse(n: int, d: int, seconds: float) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = random_array(
        (n, d), density=DENSITY, format="csr", rng=rng, data_sampler=rng.standard_normal
    )
    theta = rng.standard_normal(d)
    y = np.where(X @ theta + rng.logistic(size=n) > 0, 1.0, -1.0)
    nbytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    common: dict[str, Any] = {"binary": True, "values": False}
    memory = np.zeros(nbytes // 8)
    times = best(
        {
            "read": lambda: read(memory),
            "NumPy": lambda: numpy_pass(X, y, theta),
            "gradient": lambda: passes.gradient(X, y, theta, LOGISTIC, **common),
            "clipped": lambda: passes.gradient(X, y, theta, LOGISTIC, clip=0.5, **common),
        },
        seconds,
    )
    return {
        "milliseconds": {name: 1e3 * elapsed for name, elapsed in times.items()},
        "GB/s": {name: nbytes / times[name] / 1e9 for name in times},
        "share of read bandwidth": times["read"] / times["gradient"],
        "speedup over SciPy": times["NumPy"] / times["gradient"],
        "clipped over unclipped": times["clipped"] / times["gradient"],
    }


def measure(quick: bool) -> dict[str, Any]:
    seconds, shrink = (2.0, 5) if quick else (25.0, 1)
    load = os.getloadavg()[0]
    full = [measure_dense(n // shrink, d, seconds) for n, d in SIZES]
    compressed = [measure_sparse(n // shrink, d, seconds / 2) for n, d in SIZES]
    bars = []

    def bar(name: str, value: float, target: float, at_least: bool) -> None:
        bars.append((bound_below if at_least else at_most)(name, value, target))

    for (n, d), figures in zip(SIZES, full, strict=True):
        size = f"n={n // shrink}, d={d}"
        bar(
            f"gradient, share of read bandwidth, {size}",
            figures["share of read bandwidth"]["float64"],
            0.8,
            True,
        )
        if d == 50:
            bar(
                f"gradient, speedup over NumPy, {size}",
                figures["speedup over NumPy"]["float64"],
                2.0,
                True,
            )
        bar(f"clipped over unclipped, {size}", figures["clipped over unclipped"], 1.15, False)
        bar(
            f"clipped and exact over unclipped, {size}",
            figures["clipped and exact over unclipped"],
            1.15,
            False,
        )
        bar(
            f"minibatch of 10% over full pass, {size}",
            figures["minibatch over full pass"],
            0.2,
            False,
        )
        bar(f"Hessian over BLAS syrk, {size}", figures["Hessian over syrk"], 2.0, False)
    return {
        "bars": bars,
        "quick": quick,
        "threads": numba.config.NUMBA_NUM_THREADS,
        "load average at start": load,
        **{
            f"dense, n={n // shrink}, d={d}": figures
            for (n, d), figures in zip(SIZES, full, strict=True)
        },
        **{
            f"CSR at 5%, n={n // shrink}, d={d}": figures
            for (n, d), figures in zip(SIZES, compressed, strict=True)
        },
    }


def show(figures: dict[str, Any], indent: str = "  ") -> None:
    for name, figure in figures.items():
        if isinstance(figure, dict):
            print(f"{indent}{name}")
            show(figure, indent + "  ")
        else:
            print(f"{indent}{name:<40}{figure:>12.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="finish in less than 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    result = measure(arguments.quick)
    if not arguments.json:
        show({name: figures for name, figures in result.items() if name != "bars"}, "")
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

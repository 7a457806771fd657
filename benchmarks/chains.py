"""Steps per second of single chains on a logistic posterior, side by side with blackjax in one run.

    python benchmarks/chains.py --blackjax /path/to/python    hundreds of short rounds
    python benchmarks/chains.py --blackjax ... --quick        fewer rounds, under 45 seconds
    python benchmarks/chains.py --blackjax ... --json         machine-readable, with the bars

The peer has an environment of its own (`pip install blackjax jax`), named by its interpreter: it is
not a dependency. Both sides get the same records and the same density in float64, on all cores. The
peer's chain is one jitted scan; its compilation, and ours, happen before the clock starts. The two
take turns in short rounds, and each side's best round counts: whoever else uses the machine can
only slow a round down. The load is printed with the figures. A chain of blackjax without adjustment
is its SGLD with the gradient of all records. Without `--blackjax` only our own figures are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bars import at_least, finish

SIZES = {"n=1e4, d=20": (10_000, 20, 25), "n=1e5, d=50": (100_000, 50, 5)}
"""Records, dimensions, and steps of a round: few, so that some rounds are not interrupted on a busy
machine.
"""
ROUNDS = {"n=1e4, d=20": 400, "n=1e5, d=50": 60}
BARS = {"n=1e4, d=20": 1.0, "n=1e5, d=50": 2.0}
STEP = 1e-4
KERNELS = ("mala", "ula")


def records(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm one and labels of a logistic model with parameter of norm 3."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    chance = 1 / (1 + np.exp(-rows @ np.full(d, 3 / np.sqrt(d))))
    return rows, np.where(random.random(n) < chance, 1.0, -1.0)


def timed(call: Callable[[], object], steps: int) -> tuple[float, float]:
    """Steps per second, and processor time of a step in microseconds, over all threads."""
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return steps / (time.perf_counter() - wall), (time.process_time() - processor) / steps * 1e6


class Ours:
    """Chains of dpfit, on a ball that is too large to matter."""

    def __init__(self) -> None:
        from dpfit.core import Minimize
        from dpfit.data.dataset import InMemory
        from dpfit.geometry import L2Ball
        from dpfit.losses import Bounds, Logistic
        from dpfit.samplers.constrained_mala import MetropolisLangevin
        from dpfit.samplers.markov import chain_target
        from dpfit.samplers.ula_sampler import LangevinSampler

        self.runs: dict[tuple[str, str], tuple[Any, Any]] = {}
        for size, (n, d, steps) in SIZES.items():
            problem = Minimize(
                n=n,
                loss=Logistic(),
                bounds=Bounds(1.0),
                n_features=d,
                domain=L2Ball(d, 1e3),
                ridge=1 / n,
            )
            target = chain_target(problem, InMemory(*records(n, d)), 1.0)
            for kernel, chain in (("mala", MetropolisLangevin), ("ula", LangevinSampler)):
                self.runs[size, kernel] = (chain(steps, STEP), target)
                self.speed(size, kernel)

    def speed(self, size: str, kernel: str) -> tuple[float, float]:
        """One round."""
        from dpfit.noise import Source

        chain, target = self.runs[size, kernel]
        return timed(lambda: chain.draw(target, 1, Source(1)), chain.steps)


class Theirs:
    """Chains of blackjax, in this process: run by its own interpreter."""

    def __init__(self) -> None:
        import blackjax
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        self.jax = jax
        self.runs: dict[tuple[str, str], tuple[Any, Any, Any, int]] = {}
        for size, (n, d, steps) in SIZES.items():
            X, y = (jnp.asarray(part) for part in records(n, d))

            def density(theta: Any, X: Any = X, y: Any = y) -> Any:
                return -jnp.logaddexp(0.0, -y * (X @ theta)).sum() - theta @ theta / 2

            mala, sgld = (
                blackjax.mala(density, STEP),
                blackjax.sgld(lambda at, _, f=density: jax.grad(f)(at)),
            )
            steppers = {
                "mala": (
                    mala.init(jnp.zeros(d)),
                    lambda state, key, kernel=mala: (kernel.step(key, state)[0], None),
                ),
                "ula": (
                    jnp.zeros(d),
                    lambda at, key, kernel=sgld: (kernel.step(key, at, None, STEP), None),
                ),
            }
            for kernel, (start, stepper) in steppers.items():
                scan = jax.jit(
                    lambda state, keys, stepper=stepper: jax.lax.scan(stepper, state, keys)[0]
                )
                keys = jax.random.split(jax.random.key(1), steps)
                self.runs[size, kernel] = (scan, start, keys, steps)
                self.speed(size, kernel)

    def speed(self, size: str, kernel: str) -> tuple[float, float]:
        """One round."""
        scan, state, keys, steps = self.runs[size, kernel]
        return timed(lambda: self.jax.block_until_ready(scan(state, keys)), steps)


class Peer:
    """`Theirs` in another interpreter, asked over pipes, one run at a time."""

    def __init__(self, python: str) -> None:
        command = [python, __file__, "--serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def speed(self, size: str, kernel: str) -> tuple[float, float]:
        """One round."""
        if self.process.stdin is None:
            raise RuntimeError("the peer takes no questions")
        self.process.stdin.write(json.dumps([size, kernel]) + "\n")
        self.process.stdin.flush()
        speed, processor = json.loads(self._answer())
        return speed, processor

    def _answer(self) -> str:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError("the peer stopped: does its environment have blackjax and jax?")
        return line

    def close(self) -> None:
        """End it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def serve() -> None:
    """Answer questions on the standard input until it is closed."""
    side = Theirs()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(side.speed(*json.loads(line))), flush=True)


def run(python: str | None, quick: bool) -> dict[str, Any]:
    """All figures, and whether the bars hold."""
    load = os.getloadavg()[0]
    ours, peer = Ours(), Peer(python) if python else None
    figures, bars = [], []
    for size in SIZES:
        for kernel in KERNELS:
            mine, other = [], []
            for _ in range(ROUNDS[size] // (4 if quick else 1)):
                mine.append(ours.speed(size, kernel))
                if peer:
                    other.append(peer.speed(size, kernel))
            figures.append(
                {"size": size, "kernel": kernel, **_best("ours", mine), **_best("blackjax", other)}
            )
            if other:
                ratio = max(mine)[0] / max(other)[0]
                name = f"{kernel} against blackjax, {size}"
                bars.append(at_least(name, ratio, BARS[size]))
    if peer:
        peer.close()
    return {"benchmark": "chains", "quick": quick, "load": load, "figures": figures, "bars": bars}


def _best(side: str, rounds: list[tuple[float, float]]) -> dict[str, float]:
    if not rounds:
        return {}
    speeds, processor = zip(*rounds, strict=True)
    return {
        f"{side}_steps_per_second": max(speeds),
        f"{side}_processor_microseconds": min(processor),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--blackjax", metavar="PYTHON", help="an interpreter that has blackjax and jax"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under 45 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return 0
    result = run(arguments.blackjax, arguments.quick)
    if not arguments.json:
        print(f"load at the start: {result['load']:.1f}")
        for row in result["figures"]:
            sides = [
                f"{side} {speed:,.0f} steps/s ({row[f'{side}_processor_microseconds']:,.0f} us CPU)"
                for side in ("ours", "blackjax")
                if (speed := row.get(f"{side}_steps_per_second")) is not None
            ]
            print(f"{row['kernel']:>5}, {row['size']}: {', '.join(sides)}")
    return finish(result, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

"""Streams: errors of private running sums, users, speed, memory, intervals, and one-pass learning.

    python benchmarks/streams.py           all figures, about ten minutes
    python benchmarks/streams.py --quick   fewer runs, under 45 seconds
    python benchmarks/streams.py --json    machine-readable, with the bars
    python benchmarks/streams.py --tune    the rule of `ftrl`, on problems drawn apart

Deviations are for sensitivity 1 and in units 1 / mu. Learning is at epsilon 1, delta 1e-6,
replace-one. OpenDP's b-ary tree is compared where opendp is installed.
The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bars import at_most, finish
from dpfit.core import Interact, Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Huber, Logistic
from dpfit.mechanisms.aggregates.encoders import Encoder, Exponentials, Toeplitz, Tree, encoder_for
from dpfit.mechanisms.prefix_sums import StreamSums, prefix_sums
from dpfit.privacy import Budget
from dpfit.solvers.descents.leader import Leader
from dpfit.solvers.gradient import ftrl as rule
from dpfit.solvers.gradient.ftrl import ftrl
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.theory import factorizations as theory

Floats = NDArray[np.float64]

WORST = {16: 1.94, 64: 2.39, 256: 2.83, 1024: 3.27, 4096: 3.71}
YEAR = {(7, 1): 15.6, (30, 1): 52.1, (52, 7): 43.9, (12, 30): 12.8}
SECONDS = 10.0
COVERAGE = 0.005
EXCESS = {20_000: 5.0, 200_000: 4.0}
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def worst(encoder: Encoder) -> float:
    """The deviation of the last running sum, for one step of each unit."""
    return encoder.norm(1, 1) * float(encoder.window_deviations(None).max())


SAMPLES = {16: 400_000, 64: 400_000, 256: 400_000, 1024: 400_000, 4096: 200_000}
"""Noises of the last running sum that are drawn: three standard errors are below 0.5%."""


def measured_worst(rounds: int, samples: int) -> float:
    """The deviation of the last running sum over independent entries, for sensitivity 1.

    Entries of wide streams stand for streams of their own; beyond 64 steps they have the encoder of
    wide streams, six exponentials.
    """
    width = min(samples, 16_384 if rounds < 1024 else 8000)
    plan = prefix_sums.plan(
        Interact(workload=StreamSums(width), rounds=rounds), Budget(mu=1.0, relation="add_remove")
    )
    empty, drawn = InMemory(np.zeros((0, width)), np.zeros(0)), []
    for run in range(-(-samples // width)):
        session = plan.open(random_state=1000 * rounds + run)
        for _ in range(rounds):
            session.observe(empty)
        drawn.append(session.last)
    aggregate = plan.mechanism.aggregate  # type: ignore[attr-defined]
    unit = aggregate.scale(width).sensitivity / aggregate.encoder.norm(1, 1)
    return float(np.sqrt(np.mean(np.square(drawn))) / unit)


def factors(quick: bool) -> list[dict[str, Any]]:
    """The worst deviation against the table, predicted and measured, and what others have."""
    rows = []
    for rounds, bar in WORST.items():
        row: dict[str, Any] = {
            "steps": rounds,
            "bar": bar,
            "predicted": worst(Toeplitz(rounds)),
            "tree": float(np.sqrt(theory.levels(rounds)) * np.sqrt(_most_nodes(rounds))),
            "independent": float(np.sqrt(rounds)),
        }
        if not quick or rounds <= 64:
            row["samples"] = 16_384 if quick else SAMPLES[rounds]
            row["measured"] = measured_worst(rounds, row["samples"])
        rows.append(row)
    return rows


def _most_nodes(rounds: int) -> int:
    """The largest number of nodes of a running sum."""
    return max(step.bit_count() for step in range(1, rounds + 1))


def long_streams() -> list[dict[str, float]]:
    """Six exponentials over the square root."""
    rows = []
    for rounds in (1000, 10_000, 100_000):
        ideal = float(np.sum(theory.powers(rounds, 0.5) ** 2))
        rows.append({"steps": rounds, "loss": worst(Exponentials.of(rounds)) / ideal - 1})
    return rows


def year() -> list[dict[str, Any]]:
    """A year of users in several steps: rms deviations, beside the tree and independent noise."""
    rows = []
    for (times, apart), bar in YEAR.items():
        encoders = {
            "searched": encoder_for(365, 1, times, apart),
            "square root": Toeplitz(365),
            "tree": Tree(365),
            "independent": Toeplitz(365, 0.0, 1),
        }
        errors = {
            name: each.norm(times, apart) * theory.rms(each.window_deviations(None))
            for name, each in encoders.items()
        }
        rows.append({"times": times, "apart": apart, "bar": bar, **errors})
    return rows


def opendp_tree(quick: bool) -> dict[str, float]:
    """OpenDP's b-ary tree over a year, released at once: rms of running sums at mu = 1.

    Every node has noise of deviation sqrt(layers). The consistent version uses later steps, too.
    """
    try:
        import opendp.prelude as dp
    except ImportError:
        return {}
    dp.enable_features("contrib")
    branching = int(dp.t.choose_branching_factor(365))
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    tree = dp.t.make_b_ary_tree(*space, leaf_count=365, branching_factor=branching)
    consistent = dp.t.make_consistent_b_ary_tree(branching_factor=branching)
    nodes, width, layers = len(tree([0] * 365)), 1, 1
    while width < 365:
        width, layers = width * branching, layers + 1
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(200 if quick else 2000):
        # It takes integers: noise in thousandths.
        noise = np.rint(1000 * np.sqrt(layers) * rng.standard_normal(nodes)).astype(int)
        errors.append(np.cumsum(consistent(noise.tolist())[:365]) / 1000)
    rms = float(np.sqrt(np.mean(np.square(errors))))
    return {"branching": branching, "layers": layers, "rms": rms}


def speed(quick: bool) -> dict[str, float]:
    """Processor time of a scalar stream, without store; numbers kept for wide vectors."""
    rounds = 100_000
    plan = prefix_sums.plan(Interact(workload=StreamSums(1), rounds=rounds), Budget(mu=1.0))
    batch, session = InMemory(np.ones((1, 1)), np.zeros(1)), plan.open()
    done = 20_000 if quick else rounds
    start = time.process_time()
    session.feed([batch] * done)
    seconds = (time.process_time() - start) * rounds / done
    session, start = plan.open(), time.process_time()
    for _ in range(2000):
        session.observe(batch)
    alone = (time.process_time() - start) * rounds / 2000
    state = encoder_for(1000, 10**6, 1, 1).init(10**6)
    kept = sum(part.size for part in state.values() if isinstance(part, np.ndarray))
    return {
        "steps": rounds,
        "timed": done,
        "seconds": seconds,
        "seconds, observed one by one": alone,
        "numbers per entry at d = 1e6": kept / 10**6,
    }


def coverage(quick: bool) -> dict[str, float]:
    """Share of 95% intervals that hold their value, over independent streams of 64 steps."""
    streams = 2000 if quick else 20_000
    plan = prefix_sums.plan(
        Interact(workload=StreamSums(streams), rounds=64), Budget(mu=1.0, relation="add_remove")
    )
    # Entries of one wide stream have independent noise of the size of a stream of its own.
    row = np.random.default_rng(1).uniform(0, 1 / streams, (1, streams))
    session = plan.open(random_state=2)
    for _ in range(64):
        session.observe(InMemory(row, np.zeros(1)))
    sums, found = plan.mechanism, {}
    for name, window in (("total", None), ("week", 7), ("step", 1)):
        values, width = session.value[-1], sums.half_widths(window=window)[-1]  # type: ignore[attr-defined]
        if window is not None:
            values = values - session.value[-1 - window]
        exact = row[0] * (window or 64)
        found[name] = float(np.mean(np.abs(values - exact) <= width))
    return {"streams": streams, **found}


# Learning.


def direction(d: int, norm: float) -> Floats:
    """The parameter that labels follow."""
    drawn = np.random.default_rng(11).standard_normal(d)
    return np.asarray(norm * drawn / np.linalg.norm(drawn))


def student(rng: np.random.Generator, n: int, d: int = 20) -> tuple[Floats, Floats]:
    """Student rows, 3 degrees of freedom, mean square 1; log-odds of deviation 2."""
    rows = rng.standard_t(3, (n, d)) / np.sqrt(3 * d)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True) / 10)
    odds = np.sqrt(d) * rows @ direction(d, 2.0)
    return rows, np.where(rng.random(n) < expit(odds), 1.0, -1.0)


def excess(runs: int) -> list[dict[str, float]]:
    """Excess population risk of `ftrl` and `noisy_gd`, both with clip norm 1.

    The row bound is 10 times the usual length. `ftrl` reads off the clip norm that rows are
    shorter; `noisy_gd` does not, so it is told, too: its steps are planned for rows of norm 1.
    """
    test, _ = student(np.random.default_rng(99), 200_000)
    best = np.sqrt(20) * direction(20, 2.0)
    odds = expit(test @ best)

    def risk(theta: Floats) -> float:
        margins = test @ theta
        return float(
            np.mean(odds * np.logaddexp(0, -margins) + (1 - odds) * np.logaddexp(0, margins))
        )

    rows = []
    for n, bar in EXCESS.items():
        wide = Minimize(n=n, loss=Logistic(), bounds=Bounds(row_norm=10.0), n_features=20)
        usual = replace(wide, bounds=Bounds(row_norm=1.0))
        plans: dict[str, Any] = {
            "ftrl": ftrl.plan(wide, BUDGET, clip_norm=1.0),
            "noisy_gd": noisy_gd.plan(usual, BUDGET, clip_norm=1.0),
            "noisy_gd, not told": noisy_gd.plan(wide, BUDGET, clip_norm=1.0),
        }
        told = plans["noisy_gd"]
        plans["noisy_gd"] = replace(told, mechanism=replace(told.mechanism, problem=wide))
        found: dict[str, list[float]] = {name: [] for name in plans}
        for seed in range(runs):
            data = InMemory(*student(np.random.default_rng([n, seed]), n))
            for name, plan in plans.items():
                found[name].append(risk(plan.run(data, random_state=seed).value) - risk(best))
        means = {name: float(np.mean(each)) for name, each in found.items()}
        rows.append({"n": n, "bar": bar, **means, "ratio": means["ftrl"] / means["noisy_gd"]})
    return rows


def tuning_problems() -> Iterator[tuple[Minimize, InMemory, Callable[[Floats], float]]]:
    """Problems drawn apart: normal and sign rows, decaying spectra, logistic and Huber losses."""
    rng = np.random.default_rng(31)
    for n, d, decay, kind in (
        (5000, 5, 0.0, "logistic"), (20_000, 30, 0.5, "logistic"), (60_000, 10, 1.0, "logistic"),
        (20_000, 10, 0.5, "huber"), (60_000, 30, 0.0, "huber"),
    ):  # fmt: skip
        scales = np.arange(1, d + 1) ** -decay
        scales /= np.linalg.norm(scales)
        rows = rng.standard_normal((n, d)) * scales
        if kind == "logistic":
            rows = np.where(rng.random((n, d)) < 0.5, rows, np.sign(rows) * scales)
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True) / 2)
        theta = rng.standard_normal(d) / scales
        theta *= 1.5 / np.std(rows @ theta)
        if kind == "logistic":
            labels = np.where(rng.random(n) < expit(rows @ theta), 1.0, -1.0)
            loss: Any = Logistic()
            bounds = Bounds(row_norm=2.0)
        else:
            labels = np.clip(0.2 * rows @ theta + 0.1 * rng.standard_normal(n), -1, 1)
            loss, bounds = Huber(0.2), Bounds(2.0, -1.0, 1.0)
        problem = Minimize(n=n, loss=loss, bounds=bounds, n_features=d)
        data = InMemory(rows, labels)
        exact = (
            noisy_gd.plan(problem, Budget(mu=1e6), max_passes=400).run(data, random_state=1).value
        )

        def over(
            theta: Floats, data: InMemory = data, loss: Any = loss, exact: Floats = exact
        ) -> float:
            there, here = (data.gradient(loss, each)[0] / data.n for each in (theta, exact))
            return max(there - here, 1e-6)

        yield problem, data, over


def tune() -> None:
    """Print the geometric mean excess for candidates of the rule."""
    problems = list(tuning_problems())
    for noise in (0.1, 0.2, 0.35, 0.7):
        for longest in (0.5, 1.0, 2.0):
            tuning = replace(rule.TUNING, collected_noise=noise, longest_step=longest)
            logs: dict[float, list[float]] = {}
            for problem, data, over in problems:
                for epsilon in (0.5, 2.0):
                    budget = Budget(epsilon=epsilon, delta=1e-6)
                    plan = ftrl.plan(problem, budget)
                    mechanism: Any = plan.mechanism  # type: ignore[attr-defined]
                    clip = mechanism.optimizer.clip_norm
                    steps, size = rule.one_pass(
                        problem,
                        "replace",
                        mechanism.aggregate.noise_multiplier,
                        clip,
                        tuning=tuning,
                    )
                    plan = ftrl.plan(problem, budget, clip_norm=clip, rounds=steps, step_size=size)
                    for average in (0.3, 0.5, 0.7):
                        moves = Leader(size, clip, average)
                        changed = replace(plan, mechanism=replace(plan.mechanism, optimizer=moves))  # type: ignore[attr-defined, type-var]
                        logs.setdefault(average, []).append(
                            np.log(over(changed.run(data, random_state=5).value))
                        )
            print(
                noise,
                longest,
                {k: round(float(np.exp(np.mean(v))), 5) for k, v in logs.items()},
                flush=True,
            )


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Each bar with its figure and whether it holds."""
    found: list[tuple[str, float, float]] = []
    for row in result["factors"]:
        name = f"worst deviation at {row['steps']}"
        found.append((f"{name}, predicted", abs(row["predicted"] / row["bar"] - 1), 0.005))
        if "measured" in row:
            # Few samples have errors of their own.
            slack = 0.005 + (3 / np.sqrt(2 * row["samples"]) if result["quick"] else 0.0)
            found.append((f"{name}, measured", abs(row["measured"] / row["bar"] - 1), slack))
    found.append(("six exponentials at 1e5", result["long"][-1]["loss"], 0.005))
    found += [
        (f"rms at (k, b) = ({row['times']}, {row['apart']})", row["searched"], row["bar"])
        for row in result["year"]
    ]
    speed = result["speed"]
    found.append(("seconds for 1e5 steps", speed["seconds"], SECONDS))
    found.append(("numbers per entry at d = 1e6", speed["numbers per entry at d = 1e6"], 13.0))
    slack = COVERAGE if not result["quick"] else 0.015
    found += [
        (f"coverage of a {name}", abs(result["coverage"][name] - 0.95), slack)
        for name in ("total", "week", "step")
    ]
    found += [
        (f"excess over noisy_gd at n = {row['n']}", row["ratio"], row["bar"])
        for row in result["excess"]
    ]
    return [at_most(name, value, target) for name, value, target in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for flag in ("--quick", "--json", "--tune"):
        parser.add_argument(flag, action="store_true")
    asked = parser.parse_args()
    if asked.tune:
        tune()
        return 0
    result: dict[str, Any] = {
        "quick": asked.quick,
        "factors": factors(asked.quick),
        "long": long_streams(),
        "year": year(),
        "opendp": opendp_tree(asked.quick),
        "speed": speed(asked.quick),
        "coverage": coverage(asked.quick),
        "excess": excess(2 if asked.quick else 20),
    }
    result["bars"] = bars(result)
    if not asked.json:
        for name in ("factors", "long", "year", "excess"):
            print(name)
            for row in result[name]:
                print("  ", {key: float(f"{value:.4g}") for key, value in row.items()})
        for name in ("opendp", "speed", "coverage"):
            print(name, result[name])
    return finish(result, asked.json)


if __name__ == "__main__":
    sys.exit(main())

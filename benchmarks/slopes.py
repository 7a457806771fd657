"""How excess risk scales with records, budget and dimension, for every minimizer.

    python benchmarks/slopes.py            all solvers, five values of each of n, d and the budget
    python benchmarks/slopes.py --quick    three of each, strongly convex, under 45 seconds
    python benchmarks/slopes.py --json     machine-readable, with the bars
    python benchmarks/slopes.py --figure   also writes docs/figures/slopes.svg

Three families of problems whose minimizer is known in closed form, in the unit ball, records of
slope at most one, add/remove neighbours:

- strong: regression on rows that are uniform on the sphere, with a ridge of 1; losses have slope 1
  at most, and at the minimizer none is beyond that, so it is that of ridge regression;
- curved: the same without a ridge. The data have curvature 1 / d in every direction;
- linear: losses are linear in the ball and cancel but for a mean pull of norm 2 sqrt(d) / (n
  level), about the noise of one release of the mean gradient: the kind of problem that makes the
  lower bound for convex losses. It changes with n, d and the level.

The budget is mu of Gaussian DP (for dp_sgd the epsilon that has the same mu at delta = 1e-6), or
epsilon. Slopes are those of the logarithms, by least squares; intervals (95%) are for the noise of
the runs, over all data sets.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars import at_most, finish
from dpfit.core import Minimize, Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Huber, LinearLoss, Squared
from dpfit.noise import Source
from dpfit.privacy import Budget, gaussian
from dpfit.solvers.gibbs.asap_perturb import asap_perturb
from dpfit.solvers.gibbs.localized_asap import localized_asap
from dpfit.solvers.gibbs.posterior_release import posterior_release
from dpfit.solvers.gradient.dp_sgd import dp_sgd
from dpfit.solvers.gradient.langevin import langevin
from dpfit.solvers.gradient.last_iterate_gd import last_iterate_gd
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.perturbation.objective_perturbation import objective_perturbation
from dpfit.solvers.perturbation.output_perturbation import output_perturbation
from dpfit.solvers.perturbation.sufficient_statistics import sufficient_statistics

Floats = NDArray[np.float64]
Point = tuple[int, int, float]
"""n, d and the level of the budget."""

AXES = ("n", "d", "level")
BASE: Point = (4000, 16, 0.5)
FULL: tuple[tuple[Any, ...], ...] = (
    (500, 1000, 2000, 4000, 8000),
    (4, 8, 16, 32, 64),
    (0.125, 0.25, 0.5, 1.0, 2.0),
)
QUICK: tuple[tuple[Any, ...], ...] = ((1000, 4000, 8000), (4, 16, 64), (0.125, 0.5, 2.0))
DELTA = 1e-6
SIZE, SPREAD, LABELS, FAR, PULL = 0.5, 0.1, 1.5, 10.0, 2.0
"""Norm of the true parameter, deviation of the labels, their bound; labels of linear losses, and
their pull.
"""
SEED = 20261116
MANY = 20
"""How many times as many runs where they are cheap."""
AGREES = 0.15
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "slopes.svg"


@dataclass(frozen=True)
class Regression:
    """Labels that are linear in rows on the sphere, but for noise."""

    n: int
    d: int
    ridge: float
    rng_seed: int

    @cached_property
    def records(self) -> InMemory:
        rng = np.random.default_rng([self.rng_seed, self.n, self.d])
        rows = rng.standard_normal((self.n, self.d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        true = rng.standard_normal(self.d)
        true *= SIZE / np.linalg.norm(true)
        return InMemory(rows, rows @ true + SPREAD * rng.standard_normal(self.n))

    def problem(self, loss: Any) -> Minimize:
        bounds = Bounds(1.0 + 1e-9, -LABELS, LABELS)
        return Minimize(
            n=self.n,
            loss=loss,
            bounds=bounds,
            n_features=self.d,
            domain=L2Ball(self.d, 1.0),
            ridge=self.ridge,
        )

    def excess(self, thetas: Floats) -> Floats:
        """Excess mean squared loss: the Huber loss wherever residuals are below one."""
        rows, labels = self.records.matrix, self.records.labels
        whole = rows.T @ rows / self.n + self.ridge * np.eye(self.d)
        best = np.linalg.solve(whole, rows.T @ labels / self.n)
        if np.abs(rows @ best - labels).max() >= 1 or np.linalg.norm(best) >= 1:
            raise RuntimeError("this draw has another minimizer than that of the squared loss")
        offset = thetas - best
        return np.asarray(np.sum(offset @ whole * offset, axis=1) / 2)


@dataclass(frozen=True)
class Pulled:
    """Linear losses that cancel in pairs, but for some that pull along one direction."""

    n: int
    d: int
    level: float
    rng_seed: int

    @property
    def pull(self) -> float:
        """The length of the sum of all gradients."""
        return PULL * math.sqrt(self.d) / self.level

    @cached_property
    def direction(self) -> Floats:
        rng = np.random.default_rng([self.rng_seed, self.d])
        direction = rng.standard_normal(self.d)
        return np.asarray(direction / np.linalg.norm(direction))

    @cached_property
    def signed(self) -> Floats:
        """Rows times the signs of their labels: minus the gradients."""
        rng = np.random.default_rng([self.rng_seed, self.n, self.d])
        pulling = math.ceil(self.pull) + (self.n - math.ceil(self.pull)) % 2
        pairs = rng.standard_normal(((self.n - pulling) // 2, self.d))
        pairs /= np.linalg.norm(pairs, axis=1, keepdims=True)
        return np.vstack(
            [np.tile(self.pull / pulling * self.direction, (pulling, 1)), pairs, -pairs]
        )

    @cached_property
    def records(self) -> InMemory:
        return InMemory(self.signed, np.full(self.n, FAR))

    @cached_property
    def linear_records(self) -> InMemory:
        return InMemory(-self.signed, np.zeros(self.n))

    def problem(self, loss: Any) -> Minimize:
        bounds = Bounds(1.0 + 1e-9, -FAR, FAR)
        return Minimize(
            n=self.n, loss=loss, bounds=bounds, n_features=self.d, domain=L2Ball(self.d, 1.0)
        )

    def excess(self, thetas: Floats) -> Floats:
        return np.asarray(self.pull / self.n * (1 - thetas @ self.direction))


@lru_cache(maxsize=64)
def case(family: str, point: Point, rng_seed: int) -> Any:
    n, d, level = point
    return (
        Pulled(n, d, level, rng_seed)
        if family == "linear"
        else Regression(n, d, float(family == "strong"), rng_seed)
    )


@dataclass(frozen=True)
class Line:
    """A solver on a family: its proven rate on all problems, and the predicted one on these.

    ``promised`` are exponents of n, d and the level; ``foreseen`` is a function of them, up to a
    constant. ``bounded`` is False for a solver that finds its own ball.
    """

    solver: Any
    family: str
    promised: tuple[float, float, float]
    foreseen: Callable[[float, float, float], float] | None = None
    promise: str = "gdp"
    loss: Any = None
    bounded: bool = True

    @property
    def cheap(self) -> bool:
        """Whether many runs cost little more than one."""
        return self.solver in (
            output_perturbation,
            asap_perturb,
            posterior_release,
            sufficient_statistics,
        )

    @property
    def name(self) -> str:
        return f"{self.solver.name}{', pure' if self.promise == 'pure' else ''}"

    def plan(self, known: Any, level: float) -> Any:
        problem = known.problem(self.loss or HUBER)
        return self.solver.plan(
            problem if self.bounded else replace(problem, domain=None), self.budget(level)
        )

    def budget(self, level: float) -> Budget:
        if self.promise == "pure":
            return Budget(epsilon=level, relation="add_remove")
        if self.promise == "approximate":
            return Budget(
                epsilon=gaussian.epsilon(level, DELTA), delta=DELTA, relation="add_remove"
            )
        return Budget(mu=level, relation="add_remove")


HUBER = Huber(1.0)


def perturbed_objective(n: float, d: float, mu: float) -> float:
    """Closed form of `objective_perturbation` on curved problems, with its plan's numbers."""
    budget = Budget(mu=mu, relation="add_remove")
    planned: Any = objective_perturbation.plan(
        Regression(int(n), int(d), 0.0, SEED).problem(HUBER), budget
    )
    ridge, noise = planned.mechanism.ridge, planned.mechanism.scale / n
    return float((d * noise**2 + (ridge * SIZE) ** 2) / (1 / d + ridge) ** 2 / (2 * d))


def posterior_sample(n: float, d: float, mu: float) -> float:
    """Closed form of `posterior_release` on curved problems: variance, and the ridge's bias."""
    steepest = LABELS + 1.0
    ridge = math.sqrt(2 * d) * steepest / (n * mu)
    colder = ridge * (n * mu / steepest) ** 2
    return 0.5 / (colder * (1 / d + ridge)) + (ridge * SIZE / (1 / d + ridge)) ** 2 / (2 * d)


STRONG, CONVEX = (-2.0, 1.0, -2.0), (-1.0, 0.5, -1.0)
LINES = (
    Line(noisy_gd, "strong", STRONG, lambda n, d, mu: d / (1 + 1 / d) / (n * mu) ** 2),
    Line(langevin, "strong", STRONG),
    Line(last_iterate_gd, "strong", STRONG, lambda n, d, mu: d / (3 - 1 / d) / (n * mu) ** 2),
    Line(dp_sgd, "strong", STRONG, promise="approximate"),
    Line(output_perturbation, "strong", STRONG, lambda n, d, mu: (1 + d) / (n * mu) ** 2),
    Line(
        objective_perturbation, "strong", STRONG, lambda n, d, mu: d / (1 + 1 / d) / (n * mu) ** 2
    ),
    Line(
        sufficient_statistics,
        "strong",
        STRONG,
        lambda n, d, mu: d / (1 + 1 / d) / (n * mu) ** 2,
        loss=Squared(),
    ),
    Line(asap_perturb, "strong", STRONG, lambda n, d, mu: d / (n * mu) ** 2),
    Line(
        output_perturbation,
        "strong",
        (-2, 2, -2),
        lambda n, d, e: (d + 1) ** 2 / (n * e) ** 2,
        promise="pure",
    ),
    Line(asap_perturb, "strong", (-1, 1, -1), lambda n, d, e: d / (n * e), promise="pure"),
    Line(localized_asap, "strong", (-2, 2, -2), promise="pure", bounded=False),
    Line(noisy_gd, "curved", CONVEX, lambda n, d, mu: (d / (n * mu)) ** 2),
    Line(langevin, "curved", CONVEX),
    Line(dp_sgd, "curved", CONVEX, promise="approximate"),
    Line(
        output_perturbation,
        "curved",
        (-2 / 3, 1 / 3, -2 / 3),
        lambda n, d, mu: (n * mu) ** (-2 / 3),
    ),
    Line(objective_perturbation, "curved", CONVEX, perturbed_objective),
    Line(
        sufficient_statistics,
        "curved",
        (-2, 2, -2),
        lambda n, d, mu: (d / (n * mu)) ** 2,
        loss=Squared(),
    ),
    Line(posterior_release, "curved", CONVEX, posterior_sample, loss=Squared()),
    Line(noisy_gd, "linear", CONVEX),
    Line(langevin, "linear", CONVEX),
    Line(dp_sgd, "linear", CONVEX, promise="approximate"),
    Line(output_perturbation, "linear", (-2 / 3, 1 / 3, -2 / 3)),
    Line(objective_perturbation, "linear", CONVEX),
    Line(posterior_release, "linear", CONVEX, loss=LinearLoss()),
)


def points(grid: tuple[tuple[Any, ...], ...], axis: int) -> list[Point]:
    """The base point with one coordinate replaced by each value of a grid."""
    return [tuple(value if k == axis else BASE[k] for k in range(3)) for value in grid[axis]]  # type: ignore[misc]


def thetas(plan: Any, records: InMemory, runs: int, rng_seed: int) -> Floats:
    """Parameters from independent runs: side by side where the mechanism can."""
    many = getattr(getattr(plan, "mechanism", None), "run_many", None)
    if many is not None:
        return np.asarray(many(records, Run(Source(rng_seed)), runs))
    values = [plan.run(records, random_state=rng_seed + run).value for run in range(runs)]
    # A chain releases what each stage found, the parameter last.
    return np.asarray([value[-1] if isinstance(value, tuple | list) else value for value in values])


def measured(line: Line, point: Point, datasets: int, runs: int) -> dict[str, Any]:
    """Mean excess over runs and data sets, standard error, and the proven bound if any."""
    start, excesses, plan = time.perf_counter(), [], None
    for dataset in range(datasets):
        known = case(line.family, point, SEED + dataset)
        plan = plan or line.plan(known, point[2])
        records = known.linear_records if isinstance(line.loss, LinearLoss) else known.records
        excesses.append(known.excess(thetas(plan, records, runs, SEED + 1000 * dataset)))
    values = np.concatenate(excesses)
    risk = getattr(plan, "risk", None)
    return {
        "n": point[0],
        "d": point[1],
        "level": point[2],
        "excess": float(values.mean()),
        "error": float(values.std(ddof=1) / math.sqrt(len(values))),
        "proven": risk.expected if risk is not None and "proven" in risk.meaning else None,
        "seconds": time.perf_counter() - start,
    }


def slope(
    sizes: list[float], values: list[float], errors: list[float] | None = None
) -> tuple[float, float]:
    """Least-squares slope of log(values) against log(sizes), with its 95% half-width."""
    logs = np.log(sizes)
    weights = (logs - logs.mean()) / np.sum((logs - logs.mean()) ** 2)
    relative = np.zeros(len(values)) if errors is None else np.asarray(errors) / np.asarray(values)
    return float(weights @ np.log(values)), float(1.96 * np.linalg.norm(weights * relative))


def summary(
    line: Line, grid: tuple[tuple[Any, ...], ...], datasets: int, runs: int
) -> dict[str, Any]:
    """All points of a line and its three slopes."""
    wanted = dict.fromkeys(point for axis in range(3) for point in points(grid, axis))
    found = {point: measured(line, point, datasets, runs) for point in wanted}
    slopes = {}
    for axis, name in enumerate(AXES):
        along = points(grid, axis)
        sizes = [float(point[axis]) for point in along]
        value, half = slope(
            sizes, [found[p]["excess"] for p in along], [found[p]["error"] for p in along]
        )
        foreseen = (
            None if line.foreseen is None else slope(sizes, [line.foreseen(*p) for p in along])[0]
        )
        slopes[name] = {
            "measured": value,
            "interval": half,
            "promised": line.promised[axis],
            "foreseen": foreseen,
        }
    return {
        "solver": line.name,
        "family": line.family,
        "slopes": slopes,
        "points": list(found.values()),
    }


def bars_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Slopes agree with closed forms, and excess is below bounds that are proven."""
    bars = []
    for axis, cell in row["slopes"].items():
        if cell["foreseen"] is not None:
            value, allowed = abs(cell["measured"] - cell["foreseen"]), AGREES + cell["interval"]
            name = f"|slope in {axis} - closed form|, {row['solver']}, {row['family']}"
            bars.append(at_most(name, value, allowed))
    ratios = [
        point["excess"] / point["proven"] for point in row["points"] if point["proven"] is not None
    ]
    if ratios:
        name = f"largest excess over proven bound, {row['solver']}, {row['family']}"
        bars.append(at_most(name, max(ratios), 1.0))
    return bars


def run(quick: bool, datasets: int, runs: int, only: str | None) -> dict[str, Any]:
    """All lines, and whether the bars hold."""
    grid = QUICK if quick else FULL
    lines = [line for line in LINES if only in (None, line.family) and not (quick and _slow(line))]
    figures = []
    for line in lines:
        print(f"{line.family}: {line.name}", file=sys.stderr, flush=True)
        figures.append(summary(line, grid, datasets, MANY * runs if line.cheap else runs))
    bars = [bar for row in figures for bar in bars_of(row)]
    return {
        "benchmark": "slopes",
        "quick": quick,
        "rng_seed": SEED,
        "datasets": datasets,
        "runs": runs,
        "many": MANY,
        "figures": figures,
        "bars": bars,
    }


def joined(files: list[Path]) -> dict[str, Any]:
    """The results of several runs as one."""
    results = [json.loads(file.read_text()) for file in files]
    parts = {
        key: [part for result in results for part in result[key]] for key in ("figures", "bars")
    }
    merged: dict[str, Any] = results[0] | parts
    return merged


def _slow(line: Line) -> bool:
    return line.family != "strong" or line.promise == "approximate"


def draw(figures: list[dict[str, Any]]) -> None:
    """The figure of the docs: a row of panels for each family."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "slopes"
    families = list(dict.fromkeys(row["family"] for row in figures))
    figure, panels = plt.subplots(
        len(families), 3, figsize=(10.8, 3.1 * len(families)), squeeze=False
    )
    names = list(dict.fromkeys(row["solver"] for row in figures))
    colours = [*plt.cm.tab10.colors, "black", "gold"]
    looks = {name: (colours[k % 12], "osv^D<>Pp*Xh"[k % 12]) for k, name in enumerate(names)}
    for down, family in enumerate(families):
        for across, axis in enumerate(AXES):
            axes = panels[down, across]
            for row in (row for row in figures if row["family"] == family):
                chosen = [
                    p
                    for p in row["points"]
                    if all(p[o] == BASE[k] for k, o in enumerate(AXES) if o != axis)
                ]
                chosen.sort(key=lambda point: point[axis])
                colour, mark = looks[row["solver"]]
                axes.errorbar(
                    [p[axis] for p in chosen],
                    [p["excess"] for p in chosen],
                    yerr=[1.96 * p["error"] for p in chosen],
                    color=colour, marker=mark, ms=4, capsize=2, lw=1, label=row["solver"],
                )  # fmt: skip
            sizes, promised = (
                [p[axis] for p in chosen],
                _first(figures, family)["slopes"][axis]["promised"],
            )
            middle = float(
                np.median([_base(row)["excess"] for row in figures if row["family"] == family])
            )
            shape = [middle * (size / BASE[across]) ** promised for size in sizes]
            axes.plot(
                sizes,
                shape,
                "k--",
                lw=0.8,
                label=f"slope promised to {_first(figures, family)['solver']}",
            )
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
            axes.minorticks_off()
            if down == len(families) - 1:
                axes.set_xlabel("mu (or epsilon)" if axis == "level" else axis)
        panels[down, 0].set_ylabel(f"{family}: excess risk")
        panels[down, 2].legend(
            frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})


def _first(figures: list[dict[str, Any]], family: str) -> dict[str, Any]:
    return next(row for row in figures if row["family"] == family)


def _base(row: dict[str, Any]) -> dict[str, Any]:
    return next(
        point for point in row["points"] if (point["n"], point["d"], point["level"]) == BASE
    )


def show(result: dict[str, Any]) -> None:
    """Tables: measured slopes with intervals, closed forms in brackets, rates after a bar."""
    for row in result["figures"]:
        cells = []
        for axis, cell in row["slopes"].items():
            form = "" if cell["foreseen"] is None else f" ({cell['foreseen']:.2f})"
            cells.append(
                f"{axis} {cell['measured']:.2f} +- {cell['interval']:.2f}{form} | "
                f"{cell['promised']:.2f}"
            )
        seconds = sum(p["seconds"] for p in row["points"])
        print(
            f"{row['family']:>7} {row['solver']:<28}",
            "; ".join(cells),
            f"; at base {_base(row)['excess']:.3g}; {seconds:.0f} s",
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="three values of each, strong family, under 45 seconds"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--figure", action="store_true", help="write the figure of the docs (full runs only)"
    )
    parser.add_argument("--family", choices=("strong", "curved", "linear"), default=None)
    parser.add_argument(
        "--saved", type=Path, nargs="+", help="show and draw what earlier runs printed with --json"
    )
    parser.add_argument("--datasets", type=int, default=None, help="data sets for each problem")
    parser.add_argument(
        "--runs",
        type=int,
        default=None,
        help="runs on each data set; 20 times as many of cheap solvers",
    )
    given = parser.parse_args()
    datasets, runs = (
        given.datasets or (1 if given.quick else 2),
        given.runs or (3 if given.quick else 5),
    )
    result = joined(given.saved) if given.saved else run(given.quick, datasets, runs, given.family)
    if given.figure and not given.quick:
        draw(result["figures"])
    if not given.json:
        show(result)
    return finish(result, given.json)


if __name__ == "__main__":
    sys.exit(main())

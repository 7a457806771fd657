"""Wine quality as in [ASAP], Appendix D.2: posterior samples, minimizers and descent.

    python benchmarks/wine_asap.py            both wines, six budgets, pure and Gaussian DP
    python benchmarks/wine_asap.py --quick    red wine, three budgets, under 45 seconds
    python benchmarks/wine_asap.py --json     machine-readable, with the bars; the exit status is 1
    if a bar fails
    python benchmarks/wine_asap.py --figure   also writes docs/figures/asap-on-wine.svg
    python benchmarks/wine_asap.py --data DIRECTORY    where winequality-red.csv and
    winequality-white.csv are

11 standardized features, standardized quality, loss (margin - label)**2 / 2 + (alpha / 2)
norm(theta)**2 for each record, alpha = 100 (red, 1,599 records) and 32 (white, 4,898). Figures are
excess empirical risks of the sum over all records, as in the reference, with add/remove neighbours
and the number of records public. Means and deviations of the columns are taken from the records, as
in the reference: here they stand for public facts.

The squared loss has no Lipschitz constant, so every method gets the guarded one: rows are scaled
into a ball, labels clamped, residuals beyond the width of a Huber loss count linearly. "wide"
guards leave 94% of the records as they are, "tight" guards (one budget only) change most of them a
little. Excess is that of the guarded objective, which all methods minimize; `squared` is that of
the squared loss of the records as they are, bias by the guards included.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma as gamma_law

from bars import at_most, finish
from dpfit.core import Minimize, Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Huber
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.descents.scales import gradient_bound
from dpfit.solvers.gibbs.asap_perturb import asap_perturb
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.perturbation.minimizer import Accuracy, Objective
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

Floats = NDArray[np.float64]

ALPHA = {"red": 100.0, "white": 32.0}
LEVELS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
QUICK_LEVELS = (0.1, 1.0, 4.0)
LABELS = 4.0
GUARDS = {"wide": (5.0, 4.0), "tight": (3.0, 1.5)}
"""Bounds on the norm of a row and on the slope of the loss."""
LOCALIZING = 0.47
"""The share of epsilon that finds the ball of a localized sample."""
MISSED = 0.01
"""The chance, in the reference, that the ball does not hold the minimizer."""
SEED = 20261116
METHODS = {
    "gdp": ("ASAP", "output perturbation", "noisy GD", "noisy GD, not clipped"),
    "pure": ("ASAP, public ball", "ASAP, localized", "output perturbation"),
}
LOOKS = {
    "ASAP": ("tab:blue", "o"),
    "ASAP, public ball": ("tab:cyan", "D"),
    "ASAP, localized": ("tab:blue", "o"),
    "output perturbation": ("tab:orange", "s"),
    "noisy GD": ("tab:green", "^"),
    "noisy GD, not clipped": ("tab:olive", "v"),
}
AGREES = 0.05
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "asap-on-wine.svg"
DATA = Path(__file__).parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Wine:
    """One table with its guards, and the objective that all methods share."""

    kind: str
    guards: str
    folder: Path

    @cached_property
    def table(self) -> Floats:
        """Standardized columns, the quality last."""
        table = np.loadtxt(self.folder / f"winequality-{self.kind}.csv", delimiter=",")
        return np.asarray((table - table.mean(axis=0)) / table.std(axis=0))

    @cached_property
    def records(self) -> InMemory:
        return InMemory(np.ascontiguousarray(self.table[:, :-1]), self.table[:, -1].copy())

    @cached_property
    def problem(self) -> Minimize:
        """The ball of the minimizers of all data: alpha norm(theta) <= a record's slope."""
        row_norm, width = GUARDS[self.guards]
        alpha, (n, columns) = ALPHA[self.kind], self.table.shape
        bounds, ball = (
            Bounds(row_norm, -LABELS, LABELS),
            L2Ball(columns - 1, row_norm * width / alpha),
        )
        return Minimize(
            n=n, loss=Huber(width), bounds=bounds, n_features=columns - 1, domain=ball, ridge=alpha
        )

    @property
    def slope(self) -> float:
        """G of the reference."""
        return self.problem.lipschitz("add_remove")

    @property
    def unit(self) -> float:
        """G**2 / (alpha n): rates are this times d**2 / epsilon**2, or d / mu**2."""
        return self.slope**2 / (self.problem.ridge * self.problem.n)

    @cached_property
    def touched(self) -> float:
        """The share of the records that the guards change, at the origin."""
        rows, labels = np.linalg.norm(self.table[:, :-1], axis=1), np.abs(self.table[:, -1])
        row_norm, width = GUARDS[self.guards]
        return float(np.mean((rows > row_norm) | (labels > min(width, LABELS))))

    def risk(self, thetas: Floats) -> Floats:
        """The guarded objective at some parameters."""
        problem = self.problem
        parts = [
            self.records.gradients(problem.loss, part, **problem.guards)[0]
            for part in _blocks(thetas)
        ]
        return np.asarray(np.concatenate(parts)) + problem.n * problem.ridge / 2 * np.sum(
            thetas**2, axis=1
        )

    @cached_property
    def best(self) -> Floats:
        """The minimizer of the guarded objective."""
        problem = replace(self.problem, domain=None)
        strength = problem.n * problem.ridge
        objective = Objective(problem, self.records, strength, np.zeros(problem.dimension))
        return objective.minimize(Accuracy.of(problem, strength, "add_remove"))

    @cached_property
    def least(self) -> float:
        return float(self.risk(self.best[None])[0])

    def excess(self, thetas: Floats) -> Floats:
        """Excess of the guarded objective."""
        return self.risk(thetas) - self.least

    def squared_excess(self, thetas: Floats) -> Floats:
        """Excess of the squared loss of the records as they are."""
        rows, labels, n = self.table[:, :-1], self.table[:, -1], len(self.table)
        whole = rows.T @ rows + n * self.problem.ridge * np.eye(rows.shape[1])
        offset = thetas - np.linalg.solve(whole, rows.T @ labels)
        return np.asarray(np.sum(offset @ whole * offset, axis=1) / 2)

    @cached_property
    def curvatures(self) -> Floats:
        """Eigenvalues of the Hessian of the mean loss at the minimizer, without the ridge."""
        hessian = self.records.hessian(self.problem.loss, self.best, **self.problem.guards)
        return np.asarray(np.linalg.eigvalsh(np.asarray(hessian)) / self.problem.n)


def _blocks(thetas: Floats, size: int = 1000) -> list[Floats]:
    return [thetas[first : first + size] for first in range(0, len(thetas), size)]


def drawn(plan: Any, wine: Wine, draws: int, rng_seed: int) -> Floats:
    """Parameters from independent runs of a plan."""
    return np.asarray(plan.mechanism.run_many(wine.records, Run(Source(rng_seed)), draws))


def ball_around(wine: Wine, epsilon: float, share: float, missed: float = MISSED) -> float:
    """The radius that l2-Laplace noise of a share of epsilon exceeds with that chance."""
    d, problem = wine.problem.dimension, wine.problem
    return (
        float(gamma_law.ppf(1 - missed, d))
        * wine.slope
        / (problem.n * problem.ridge * share * epsilon)
    )


def localized(wine: Wine, epsilon: float, draws: int, rng_seed: int) -> Floats:
    """A noisy minimizer for a share of epsilon, then a sample in a ball around it."""
    first = output_perturbation.plan(
        wine.problem, _budget("pure", LOCALIZING * epsilon), ridge=wine.problem.ridge
    )
    radius = ball_around(wine, epsilon, LOCALIZING)
    samples = []
    for index, centre in enumerate(drawn(first, wine, draws, rng_seed)):
        ball = L2Ball(len(centre), radius, tuple(centre))
        second = asap_perturb.plan(
            replace(wine.problem, domain=ball), _budget("pure", (1 - LOCALIZING) * epsilon)
        )
        samples.append(drawn(second, wine, 1, rng_seed + 1 + index)[0])
    return np.array(samples)


def _budget(promise: str, level: float) -> Budget:
    if promise == "pure":
        return Budget(epsilon=level, relation="add_remove")
    return Budget(mu=level, relation="add_remove")


def released(
    method: str, wine: Wine, promise: str, level: float, draws: int, rng_seed: int
) -> Floats:
    """Parameters from independent runs of a method."""
    problem, budget = wine.problem, _budget(promise, level)
    if method == "ASAP, localized":
        return localized(wine, level, draws, rng_seed)
    if method == "output perturbation":
        plan: Any = output_perturbation.plan(problem, budget, ridge=problem.ridge)
    elif method == "noisy GD":
        plan = noisy_gd.plan(problem, budget)
    elif method == "noisy GD, not clipped":
        plan = noisy_gd.plan(problem, budget, clip_norm=gradient_bound(problem))
    else:
        plan = asap_perturb.plan(problem, budget)
    return drawn(plan, wine, draws, rng_seed)


def draws_of(method: str, quick: bool) -> int:
    """Many where a draw is cheap."""
    if "GD" in method:
        return 12 if quick else 24
    if method == "ASAP, localized":
        return 20 if quick else 50
    return 1000 if quick else 6000


def foreseen(method: str, wine: Wine, promise: str, level: float) -> float | None:
    """Closed-form excess for a quadratic that the domain does not cut; None otherwise.

    A sample has variance 1 / (t n (alpha + h)) along a curvature h, so its excess is d / (2 t)
    whatever the curvatures.
    """
    problem, d = wine.problem, wine.problem.dimension
    whole = float(np.sum(problem.ridge + wine.curvatures)) / problem.ridge
    if method == "ASAP":
        return wine.unit * d / (2 * level**2)
    if method == "output perturbation":
        return wine.unit * whole / 2 * (1 / level**2 if promise == "gdp" else (d + 1) / level**2)
    return None


def as_printed(wine: Wine, promise: str, level: float) -> dict[str, float]:
    """Excess with the reference's constants: twice the sensitivity, a budget in three parts.

    Output perturbation (Algorithm 4) has sensitivity 2 G / (alpha n), and i.i.d. Laplace noise of
    scale sqrt(d) times that over epsilon. The sample (Algorithm 3) has gamma = mu**2 alpha n / G**2
    at mu / sqrt(3), or gamma = epsilon / (2 G B) at epsilon / 3 with the smallest B of Appendix C.
    """
    problem, d = wine.problem, wine.problem.dimension
    whole = float(np.sum(problem.ridge + wine.curvatures)) / problem.ridge
    if promise == "gdp":
        return {
            "output perturbation": wine.unit * 2 * whole / level**2,
            "ASAP": wine.unit * 3 * d / (2 * level**2),
        }
    third, step = level / 3, wine.slope / (problem.ridge * problem.n)
    linear, constant = (
        8 * math.sqrt(2 * d * step / third),
        2 * d * step / third * math.log(d / MISSED),
    )
    ball = ((linear + math.sqrt(linear**2 + 4 * constant)) / 2) ** 2
    return {
        "output perturbation": wine.unit * 4 * d * whole / level**2,
        "ASAP": d * wine.slope * ball / third,
    }


def best_localization(
    d: int, rng_seed: int, centres: int = 2000, points: int = 300
) -> dict[str, float]:
    """Excess of a localized sample over that of output perturbation, at its best epsilon.

    For a quadratic in which alpha is all the curvature there is, both excesses are G**2 / (alpha n
    epsilon**2) times a number that depends on d, on the share of the budget that localizes and on
    the radius. Samples are weighted points.
    """
    rng = np.random.default_rng(rng_seed)
    directions = rng.standard_normal((centres, points + 1, d))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    lengths, inside = rng.gamma(d, 1.0, (centres, 1)), rng.random((centres, points, 1)) ** (1 / d)
    best: dict[str, float] = {"ratio": math.inf}
    for share in (0.5, 0.7, 0.8, 0.9, 0.95):
        for radius in (1.0, 2.0, 4.0, 8.0, 16.0):
            middle = directions[:, 0] * lengths / share
            squares = np.sum((middle[:, None] + radius * inside * directions[:, 1:]) ** 2, axis=2)
            weights = -(1 - share) / (4 * radius) * squares
            weights = np.exp(weights - weights.max(axis=1, keepdims=True))
            ratio = float(
                np.mean(np.sum(weights * squares, axis=1) / weights.sum(axis=1))
            ) / np.mean(lengths**2)
            if ratio < best["ratio"]:
                best = {"ratio": float(ratio), "share": share, "radius": radius}
    return best


def measured(wine: Wine, promise: str, level: float, quick: bool) -> dict[str, Any]:
    """All methods at one budget, with 95% intervals."""
    print(f"{wine.kind}, {wine.guards}, {promise} {level:g}", file=sys.stderr, flush=True)
    row: dict[str, Any] = {
        "wine": wine.kind,
        "guards": wine.guards,
        "promise": promise,
        "level": level,
    }
    for index, method in enumerate(METHODS[promise]):
        rng_seed = SEED + 1000 * index + round(100 * level)
        thetas = released(method, wine, promise, level, draws_of(method, quick), rng_seed)
        excess = wine.excess(thetas)
        row[method] = {
            "excess": float(excess.mean()),
            "interval": float(1.96 * excess.std(ddof=1) / math.sqrt(len(excess))),
            "squared": float(wine.squared_excess(thetas).mean()),
            "draws": len(thetas),
            "foreseen": foreseen(method, wine, promise, level),
        }
    row["release nothing"] = float(wine.excess(np.zeros((1, wine.problem.dimension)))[0])
    row["rate"] = wine.unit * (
        wine.problem.dimension / level**2
        if promise == "gdp"
        else (wine.problem.dimension / level) ** 2
    )
    row["as printed"] = as_printed(wine, promise, level)
    return row


def claims(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Whether a sample is the best method in each setting: below, not clearly above, not."""
    found = []
    for row in rows:
        names = METHODS[row["promise"]]
        sample = min(
            (name for name in names if name.startswith("ASAP")),
            key=lambda name: row[name]["excess"],
        )
        rival = min(
            (name for name in names if not name.startswith("ASAP")),
            key=lambda name: row[name]["excess"],
        )
        found.append(
            {
                "setting": f"{row['wine']}, {row['guards']}, {row['promise']} {row['level']:g}",
                "sample": sample,
                "rival": rival,
                "ratio": row[sample]["excess"] / row[rival]["excess"],
                "error": row[sample]["excess"]
                / row[rival]["excess"]
                * math.hypot(*(_relative(row[m]) for m in (sample, rival))),
            }
        )
    return found


def _relative(cell: dict[str, float]) -> float:
    return cell["interval"] / cell["excess"]


def run(folder: Path, quick: bool) -> dict[str, Any]:
    """All figures, and the claims of the page as bars."""
    kinds, levels = (("red",), QUICK_LEVELS) if quick else (tuple(ALPHA), LEVELS)
    wines = [
        Wine(kind, guards, folder)
        for kind in kinds
        for guards in (("wide",) if quick else tuple(GUARDS))
    ]
    rows = [
        measured(wine, promise, level, quick)
        for wine in wines
        for promise in METHODS
        for level in (levels if wine.guards == "wide" else (1.0,))
    ]
    bars = bars_of(rows)
    facts = [
        {
            "wine": wine.kind,
            "guards": wine.guards,
            "n": wine.problem.n,
            "alpha": wine.problem.ridge,
            "slope": wine.slope,
            "touched": wine.touched,
            "mean curvature": float(wine.curvatures.mean()),
            "norm of minimizer": float(np.linalg.norm(wine.best)),
            "bias": float(wine.squared_excess(wine.best[None])[0]),
        }
        for wine in wines
    ]
    dimension = wines[0].problem.dimension
    localization = best_localization(dimension, SEED, *((300, 100) if quick else ()))
    bars.append(at_most("noisy minimizer / best localized sample", 1 / localization["ratio"], 1.0))
    return {
        "benchmark": "wine_asap",
        "quick": quick,
        "rng_seed": SEED,
        "facts": facts,
        "figures": rows,
        "claims": claims(rows),
        "best localization": localization,
        "bars": bars,
    }


def bars_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The claims of the page, wine by wine: its verdict stands as long as these hold."""
    bars = [at_most("largest distance from a closed form, in allowed ones", _off(rows), 1.0)]
    for wine in dict.fromkeys(row["wine"] for row in rows):
        gdp, pure = (
            [
                row
                for row in rows
                if (row["wine"], row["guards"], row["promise"]) == (wine, "wide", promise)
            ]
            for promise in METHODS
        )
        gained = float(np.mean([_ratio(row, "ASAP", "output perturbation") for row in gdp]))
        foretold = [row["ASAP"]["foreseen"] / row["output perturbation"]["foreseen"] for row in gdp]
        allowed = 1.5 * max(_relative(row["ASAP"]) for row in gdp)
        bars.append(
            at_most(f"{wine}: |sample / minimizer - foreseen|", abs(gained - foretold[0]), allowed)
        )
        descents = {row["level"]: _ratio(row, "noisy GD", "ASAP") for row in gdp}
        early = max(ratio for level, ratio in descents.items() if level <= 1)
        bars.append(at_most(f"{wine}: descent / sample up to mu = 1, largest", early, 1.0))
        bars.append(at_most(f"{wine}: sample / descent at mu = 4", 1 / descents[4.0], 0.85))
        if 2.0 in descents:
            bars.append(
                at_most(f"{wine}: |descent / sample - 1| at mu = 2", abs(descents[2.0] - 1), 0.3)
            )
        whole = [_ratio(row, "noisy GD, not clipped", "output perturbation") for row in gdp]
        bars.append(at_most(f"{wine}: unclipped descent / minimizer, largest", max(whole), 2.5))
        localized_, public = (
            [_ratio(row, *pair) for row in pure]
            for pair in (
                ("output perturbation", "ASAP, localized"),
                ("ASAP, localized", "ASAP, public ball"),
            )
        )
        bars.append(
            at_most(f"{wine}: minimizer / localized sample, largest", max(localized_), 1 / 7)
        )
        bars.append(at_most(f"{wine}: localized sample / public ball, largest", max(public), 0.5))
    return bars


def _off(rows: list[dict[str, Any]]) -> float:
    """The largest relative distance from a closed form, over 5% and two intervals."""
    cells = [row[m] for row in rows for m in METHODS[row["promise"]] if row[m]["foreseen"]]
    return max(
        abs(cell["excess"] / cell["foreseen"] - 1) / (AGREES + 2 * _relative(cell))
        for cell in cells
    )


def _ratio(row: dict[str, Any], one: str, other: str) -> float:
    return float(row[one]["excess"] / row[other]["excess"])


def draw(rows: list[dict[str, Any]]) -> None:
    """The figure of the docs: both wines, both promises, wide guards."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "asap-on-wine"
    figure, panels = plt.subplots(2, 2, figsize=(8.4, 7.6), sharex=True)
    for across, promise in enumerate(METHODS):
        for down, kind in enumerate(ALPHA):
            axes = panels[down, across]
            chosen = [
                r for r in rows if (r["wine"], r["guards"], r["promise"]) == (kind, "wide", promise)
            ]
            levels = [row["level"] for row in chosen]
            for method in METHODS[promise]:
                values, halves = (
                    [row[method][key] for row in chosen] for key in ("excess", "interval")
                )
                colour, mark = LOOKS[method]
                axes.errorbar(
                    levels,
                    values,
                    yerr=halves,
                    color=colour,
                    marker=mark,
                    ms=4,
                    capsize=2,
                    label=method,
                )
            for name, style in (("output perturbation", ":"), ("ASAP", "-.")):
                printed = [row["as printed"][name] for row in chosen]
                axes.plot(
                    levels,
                    printed,
                    style,
                    color="grey",
                    lw=1,
                    label=f"{name}, constants as printed",
                )
            axes.plot(
                levels, [row["rate"] for row in chosen], "k--", lw=1, label="rate, constant 1"
            )
            axes.axhline(
                chosen[0]["release nothing"], color="tab:red", lw=0.8, label="releasing zero"
            )
            axes.set(
                xscale="log",
                yscale="log",
                title=f"{kind}, {'Gaussian DP' if promise == 'gdp' else 'pure DP'}",
            )
            axes.set_xticks(levels, [f"{level:g}" for level in levels])
            axes.minorticks_off()
            if down:
                axes.set_xlabel("mu" if promise == "gdp" else "epsilon")
                axes.legend(
                    frameon=False,
                    fontsize=7,
                    ncol=2,
                    loc="upper center",
                    bbox_to_anchor=(0.5, -0.18),
                )
            if not across:
                axes.set_ylabel("excess risk (sum over records)")
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})


def show(result: dict[str, Any]) -> None:
    """Tables for people."""
    for fact in result["facts"]:
        print(
            ", ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else f"{value}"
                for name, value in fact.items()
            )
        )
    for row in result["figures"]:
        cells = (
            f"{m}: {row[m]['excess']:.3g} +- {row[m]['interval']:.1g}"
            for m in METHODS[row["promise"]]
        )
        print(
            f"{row['wine']:>5} {row['guards']:>5} {row['promise']:>4} {row['level']:<4g}",
            "; ".join(cells),
        )
        printed = "; ".join(f"{name} {value:.3g}" for name, value in row["as printed"].items())
        print(
            f"{'':>21}zero {row['release nothing']:.3g}; rate {row['rate']:.3g}; as printed: "
            f"{printed}"
        )
    for claim in result["claims"]:
        print(
            f"{claim['setting']}: {claim['sample']} / {claim['rival']} = {claim['ratio']:.3f} +- "
            f"{claim['error']:.3f}"
        )
    print("best localization:", result["best localization"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="red wine, three budgets, under 45 seconds"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--figure", action="store_true", help="write the figure of the docs (full runs only)"
    )
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    missing = [kind for kind in ALPHA if not (given.data / f"winequality-{kind}.csv").is_file()]
    if missing:
        told = (
            f"skipped: no winequality-{missing[0]}.csv in {given.data} (UCI Wine Quality; "
            "commas, no header)"
        )
        print(told, file=sys.stderr)
        return finish({"benchmark": "wine_asap", "skipped": told, "bars": []}, given.json)
    result = run(given.data, given.quick)
    if given.figure and not given.quick:
        draw(result["figures"])
    if not given.json:
        show(result)
    return finish(result, given.json)


if __name__ == "__main__":
    sys.exit(main())

"""Excess risk of `sparse_descent` against noisy descent on all columns.

    python benchmarks/sparse.py                20 runs of each problem, with the bars
    python benchmarks/sparse.py --quick        4 runs of each problem, without the two largest ones
    python benchmarks/sparse.py --json         machine-readable
    python benchmarks/sparse.py --figure       only docs/figures/sparse.svg
    python benchmarks/sparse.py --csr          time and memory of a model of 1e5 x 1e4 sparse rows
    python benchmarks/sparse.py --tune         the rule for k and the split, on other problems

Logistic loss, (epsilon, delta) = (1, 1e-6) or pure epsilon = 1, replace-one. Entries of rows are -1
or 1; the truth has equal weights of alternating sign on evenly spaced columns. The excess is the
empirical risk above its minimum in the ball of the truth's l1 norm, and solvers are told 1.5 times
that norm. The reference is the better of two noisy descents of 100 passes, with and without the
ball, whose rows are bounded at their norm. Four draws of the data share the runs evenly; the
reference has at most two runs on each, since its error is steady.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bars import at_most, finish
from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import L1Ball
from dpfit.losses import Bounds, Logistic
from dpfit.models import LogisticRegression
from dpfit.privacy import Budget
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.sparse_descent import COLUMNS, TUNING, sparse_descent

Floats = NDArray[np.float64]
APPROXIMATE, PURE = Budget(epsilon=1.0, delta=1e-6), Budget(epsilon=1.0)
DRAWS, REFERENCE_RUNS = 4, 2
"""Draws of the data, and runs of the reference on each."""
TOLD = 1.5
"""The radius that solvers are told, over the l1 norm of the truth."""
JUDGED, TUNED = 900, 40
"""First RNG seeds of the problems that judge the rule, and of those that set it."""


@dataclass(frozen=True)
class Case:
    """A problem: its design, sizes and truth, and the bar on the ratio of excess risks."""

    name: str
    n: int
    d: int
    design: str = "independent"
    true: int = 5
    radius: float = 2.6
    budget: Budget = APPROXIMATE
    bar: float | None = None
    large: bool = False

    @property
    def truth(self) -> Floats:
        """Equal weights of alternating sign on evenly spaced columns."""
        theta = np.zeros(self.d)
        places = np.linspace(0, self.d - 1, self.true).astype(int)
        theta[places] = np.where(np.arange(self.true) % 2, -1.0, 1.0) * self.radius / self.true
        return theta

    def draw(self, seed: int) -> InMemory:
        """Draw rows of signs and their labels."""
        rng = np.random.default_rng([seed, 20])
        rows = np.where(latent(rng, self.n, self.d, self.design) > 0, 1.0, -1.0)
        likely = 1 / (1 + np.exp(-rows @ self.truth))
        return InMemory(rows, np.where(rng.random(self.n) < likely, 1.0, -1.0))


CASES = (
    Case("2e3 x 200", 2000, 200, bar=0.45),
    Case("1e4 x 400 independent", 10_000, 400, bar=0.15),
    Case("1e4 x 400 autoregressive", 10_000, 400, "autoregressive", bar=0.15),
    Case("1e4 x 400 common factor", 10_000, 400, "common factor", bar=0.15),
    Case("1e4 x 1000", 10_000, 1000, bar=0.2, large=True),
    Case("4e4 x 200", 40_000, 200, bar=0.7, large=True),
    Case("1e4 x 400, 20 true columns", 10_000, 400, true=20, bar=1.15),
    Case("1e4 x 400, pure", 10_000, 400, budget=PURE, bar=0.4),
    Case("1e4 x 400, 100 true columns", 10_000, 400, true=100, radius=6.0),
)


def latent(rng: np.random.Generator, n: int, d: int, design: str) -> Floats:
    """Draw normal rows whose signs are the entries."""
    normal = rng.standard_normal((n, d))
    if design == "autoregressive":
        for column in range(1, d):
            normal[:, column] = 0.8 * normal[:, column - 1] + 0.6 * normal[:, column]
    elif design == "common factor":
        normal = 0.7 * rng.standard_normal((n, 1)) + np.sqrt(0.51) * normal
    return normal


def mean_loss(theta: Floats, data: InMemory) -> float:
    """Return the empirical risk."""
    return float(np.mean(np.logaddexp(0.0, -data.labels * (data.matrix @ theta))))


def least_loss(data: InMemory, radius: float, start: Floats, steps: int = 150) -> float:
    """Return the least risk in the l1 ball, by accelerated projected descent from the truth."""
    ball, rows, labels = L1Ball(data.width, radius), data.matrix, data.labels
    vector = rows[0] / np.linalg.norm(rows[0])
    for _ in range(20):
        vector = rows.T @ (rows @ vector)
        size = np.linalg.norm(vector)
        vector /= size
    rate, theta, ahead, pace = 4 * len(labels) / (1.05 * size), start, start, 1.0
    best = mean_loss(start, data)
    for _ in range(steps):
        slopes = -labels / (1 + np.exp(labels * (rows @ ahead)))
        moved = ball.project(ahead - rate * (rows.T @ slopes) / len(labels))
        following = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        ahead = moved + (pace - 1) / following * (moved - theta)
        theta, pace = moved, following
    return min(best, mean_loss(theta, data))


def problem_of(case: Case, rows: InMemory) -> Minimize:
    """Return the public facts; rows are bounded at their norm."""
    norm = float(np.sqrt(case.d))
    ball = L1Ball(case.d, TOLD * case.radius)
    bounds = Bounds(norm, row_max=1.0)
    return Minimize(n=case.n, loss=Logistic(), bounds=bounds, n_features=case.d, domain=ball)


def measure(case: Case, runs: int, first: int) -> dict[str, Any]:
    """Return mean excess risks, their ratio, and how often all true columns were chosen."""
    excess: dict[str, list[float]] = {"zero": [], "ball": [], "free": [], "sparse": []}
    found = []
    started = time.perf_counter()
    for draw in range(DRAWS):
        data = case.draw(first + draw)
        problem = problem_of(case, data)
        least = least_loss(data, case.radius, case.truth)
        excess["zero"].append(mean_loss(np.zeros(case.d), data) - least)
        gaussian = replace(problem, bounds=replace(problem.bounds, row_max=None))
        plans = {
            "ball": noisy_gd.plan(gaussian, APPROXIMATE, max_passes=100),
            "free": noisy_gd.plan(replace(gaussian, domain=None), APPROXIMATE, max_passes=100),
            "sparse": sparse_descent.plan(problem, case.budget),
        }
        for run in range(-(-runs // DRAWS)):
            for name, plan in plans.items():
                if name != "sparse" and run >= REFERENCE_RUNS:
                    continue
                release = plan.run(data, random_state=1000 * draw + run)
                excess[name].append(mean_loss(release.output, data) - least)
                if name == "sparse":
                    true = np.flatnonzero(case.truth)
                    found.append(np.isin(true, release.stages[COLUMNS]).mean())
    means = {name: float(np.mean(values)) for name, values in excess.items()}
    better = min(means["ball"], means["free"])
    spread = float(np.std(excess["sparse"]) / np.sqrt(len(excess["sparse"])) / better)
    return {
        "problem": case.name,
        **means,
        "ratio": means["sparse"] / better,
        "error": spread,
        "bar": case.bar,
        "all_found": float(np.mean(np.array(found) == 1)),
        "found": float(np.mean(found)),
        "runs": len(found),
        "seconds": time.perf_counter() - started,
    }


def shown(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    excess = "  ".join(f"{row[name]:.4f}" for name in ("zero", "ball", "free", "sparse"))
    bar = "    " if row["bar"] is None else f"{row['bar']:.2f}"
    chosen = f"{row['found']:.2f} found, all in {row['all_found']:.2f} of the runs"
    return (
        f"{row['problem']:<30} {excess}  {row['ratio']:.3f} +- {row['error']:.3f}  bar {bar}  "
        f"{chosen}  {row['seconds']:.0f} s"
    )


def tuning_problems() -> Iterator[tuple[InMemory, Minimize, float]]:
    """Yield problems of another kind: uniform entries in groups, weights that fall off."""
    for n, d, true in (
        *((3000, 150, 4), (8000, 300, 6), (20_000, 300, 8)),
        *((3000, 150, 8), (8000, 300, 12), (20_000, 300, 16)),
    ):
        for seed in range(2):
            rng = np.random.default_rng([TUNED + seed, n])
            group = rng.uniform(-1, 1, (n, -(-d // 10)))[:, np.arange(d) // 10]
            rows = 0.6 * rng.uniform(-1, 1, (n, d)) + 0.4 * group
            theta = np.zeros(d)
            weights = 0.8 ** (np.arange(true) * 8 / max(true, 8))
            theta[rng.permutation(d)[:true]] = rng.choice([-1, 1], true) * weights
            theta *= 8.0 / np.abs(theta).sum()
            likely = 1 / (1 + np.exp(-rows @ theta))
            data = InMemory(rows, np.where(rng.random(n) < likely, 1.0, -1.0))
            bounds = Bounds(float(np.sqrt(d)), row_max=1.0)
            ball = L1Ball(d, 12.0)
            problem = Minimize(n=n, loss=Logistic(), bounds=bounds, n_features=d, domain=ball)
            yield data, problem, least_loss(data, 8.0, theta)


FACTORS, SHARES = (0.15, 0.2, 0.3), (0.5, 0.65, 0.8)
"""Columns per sqrt(n mu), and fractions of the budget for the choice, that are compared."""


def tune(runs: int) -> dict[str, Any]:
    """Return the mean excess over that of zero for each setting, and the shipped over the best.

    The shipped number of columns is that of few true columns; there is no bar.
    """
    problems, rows, shipped = list(tuning_problems()), [], {}
    for budget in (APPROXIMATE, PURE):
        means = {}
        for factor, share in itertools.product(FACTORS, SHARES):
            ratios = [relative_excess(each, budget, factor, share, runs) for each in problems]
            mean = float(np.exp(np.mean(np.log(np.maximum(ratios, 1e-3)))))
            means[factor, share] = mean
            row = {"budget": budget.kind, "factor": factor, "share": share, "mean": mean}
            rows.append(row | {"ratios": ratios})
            shown = " ".join(f"{ratio:.3f}" for ratio in ratios)
            line = f"{budget.kind:<12} {factor:.2f} {share:.2f}  {mean:.4f}  {shown}"
            print(line, file=sys.stderr, flush=True)
        shipped[budget.kind] = means[TUNING.columns, TUNING.share] / min(means.values())
    found = {"runs": runs, "figures": rows, "shipped_over_best": shipped}
    return {"benchmark": "sparse --tune", **found, "bars": []}


def relative_excess(
    each: tuple[InMemory, Minimize, float], budget: Budget, factor: float, share: float, runs: int
) -> float:
    """Return the mean excess of some runs over that of zero."""
    data, problem, least = each
    columns = int(np.ceil(factor * np.sqrt(problem.n * APPROXIMATE.gaussian_mu)))
    plan = sparse_descent.plan(problem, budget, columns=columns, share=share)
    values = [mean_loss(plan.run(data, random_state=run).output, data) for run in range(runs)]
    return (float(np.mean(values)) - least) / (mean_loss(np.zeros(data.width), data) - least)


def figure(runs: int) -> str:
    """Return the figure of error against the number of columns."""
    sizes = (50, 100, 200, 400, 800)
    rows = [measure(Case(str(d), 10_000, d), runs, JUDGED + 50) for d in sizes]
    lines: dict[str, Callable[[dict[str, Any]], float]] = {
        "all columns": lambda row: min(row["ball"], row["free"]),
        "sparse_descent": lambda row: row["sparse"],
    }
    return drawn(sizes, {name: [line(row) for row in rows] for name, line in lines.items()})


def drawn(sizes: tuple[int, ...], lines: dict[str, list[float]]) -> str:
    """Return excess risks on logarithmic axes as SVG."""
    low, high = 1e-3, 2e-1

    def at(d: float, value: float) -> tuple[float, float]:
        across = np.log(d / sizes[0]) / np.log(sizes[-1] / sizes[0])
        up = np.log(np.clip(value, low, high) / low) / np.log(high / low)
        return 60 + 300 * across, 200 - 170 * up

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 240" font-family="sans-serif"'
        ' font-size="11">',
        '<rect width="480" height="240" fill="white"/>',
        '<text x="60" y="18">Excess risk by number of columns (10,000 records, five matter)</text>',
    ]
    for level in (1e-3, 1e-2, 1e-1):
        x, y = at(sizes[0], level)
        parts.append(f'<line x1="{x}" x2="360" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="52" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>')
    parts += [
        f'<text x="{at(d, low)[0]:.1f}" y="218" text-anchor="middle">{d}</text>' for d in sizes
    ]
    for (name, values), colour in zip(lines.items(), ("#b04020", "#2060a0"), strict=True):
        points = [at(d, value) for d, value in zip(sizes, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = points[-1]
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def compressed(n: int = 100_000, d: int = 10_000, entries: int = 20) -> dict[str, Any]:
    """Return seconds, memory and columns of a model of CSR rows; popular columns come first."""
    rng = np.random.default_rng(JUDGED)
    popular = 1 / np.arange(10, d + 10)
    places = rng.choice(d, (n, entries), p=popular / popular.sum())
    pointers = np.arange(0, n * entries + 1, entries)
    rows = csr_array((np.ones(n * entries), places.ravel(), pointers), shape=(n, d))
    rows.sum_duplicates()
    rows.data[:] = 1.0
    theta = np.zeros(d)
    theta[:5] = (2.0, -2.0, 2.0, -2.0, 2.0)
    labels = rng.random(n) < 1 / (1 + np.exp(-rows @ theta))
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    model = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), l1_radius=15.0, random_state=1)
    model.fit(rows, labels)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "seconds": time.perf_counter() - started,
        "megabytes": used / 1024,
        "dense_megabytes": n * d * 8 / 2**20,
        "true_found": int(np.isin(np.arange(5), model.chosen_columns_).sum()),
        "chosen": len(model.chosen_columns_),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--figure", action="store_true")
    parser.add_argument("--csr", action="store_true")
    parser.add_argument("--runs", type=int, default=None)
    options = parser.parse_args()
    runs = options.runs or (4 if options.quick else 20)
    if options.csr:
        print(json.dumps(compressed()))
        return 0
    if options.tune:
        return finish(tune(runs), options.json)
    if options.figure:
        place = Path(__file__).resolve().parents[1] / "docs" / "figures" / "sparse.svg"
        place.write_text(figure(runs))
        return 0
    rows = []
    for case in CASES:
        if case.large and options.quick:
            continue
        rows.append(measure(case, runs, JUDGED))
        if not options.json:
            print(shown(rows[-1]), flush=True)
    bars = [
        at_most(row["problem"], row["ratio"], row["bar"]) for row in rows if row["bar"] is not None
    ]
    result = {"benchmark": "sparse", "quick": options.quick, "figures": rows, "bars": bars}
    return finish(result, options.json)


if __name__ == "__main__":
    sys.exit(main())

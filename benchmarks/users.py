"""How good are user means? Fits, means and passes that protect users, against capped rows.

    python benchmarks/users.py --quick --json

Error of a fit: mean test loss above that of the fit without privacy on the same records. A ratio
divides it by that of the best of caps at 1, 3 and 10 rows of a user, each planned by `auto` with
the exact number of kept rows. epsilon = 1, delta = 1e-6, add/remove unless said; 20 runs.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bars import Bar, at_least, at_most, finish
from dpfit.core import Answer, Minimize, Plan, Run, TransformedPlan
from dpfit.data.dataset import InMemory
from dpfit.kernels import passes
from dpfit.kernels.user_sums import clipped_total, user_means, user_sums
from dpfit.losses import Bounds, Logistic
from dpfit.mechanisms.aggregates import inlier_levels
from dpfit.mechanisms.aggregates.filtered_mean import FilteredMean
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.mechanisms.aggregates.user_vectors import UserVectors
from dpfit.mechanisms.filtered_mean import filtered_mean
from dpfit.mechanisms.staged_user_mean import staged_user_mean
from dpfit.models import LogisticRegression
from dpfit.models.users import UserCap, cap_and_budgets
from dpfit.noise import Grid, Source
from dpfit.privacy import Budget, gaussian
from dpfit.solvers.auto import auto
from dpfit.solvers.gradient.noisy_gd import noisy_gd

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]
BUDGET = Budget(epsilon=1, delta=1e-6, relation="add_remove", unit="user")
CAPS = (1, 3, 10)


class People:
    """Users with rows in the unit ball and labels of a logistic model, for training and testing.

    ``apart`` says how far the parameters and the typical rows of users lie apart.
    """

    def __init__(
        self,
        seed: int,
        sizes: Sizes,
        d: int,
        apart: float = 0.0,
        corrupted: float = 0.0,
        *,
        norm: float = 8.0,
        truth: int = 7,
    ) -> None:
        rng = np.random.default_rng([seed, 20])
        weights = np.random.default_rng(truth).normal(size=d)
        weights *= norm / np.linalg.norm(weights)
        self.train = self._draw(rng, sizes, weights, apart)
        self.test = self._draw(rng, sizes, weights, apart)
        rows, labels, ids = self.train
        flipped = (rng.random(len(sizes)) < corrupted)[ids]
        self.clean, self.train = self.train, (rows, np.where(flipped, -labels, labels), ids)
        self.sizes = sizes

    @staticmethod
    def _draw(
        rng: np.random.Generator, sizes: Sizes, weights: Floats, apart: float
    ) -> tuple[Floats, Floats, Sizes]:
        n, d = len(sizes), len(weights)
        ids = np.repeat(np.arange(n), sizes)
        rows = rng.normal(size=(len(ids), d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows += 0.5 * apart * (rng.normal(size=(n, d)) / math.sqrt(d))[ids]
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        own = weights + 2 * apart * rng.normal(size=(n, d)) / math.sqrt(d)
        chance = 1 / (1 + np.exp(-np.einsum("ij,ij->i", rows, own[ids])))
        return rows, np.where(rng.random(len(ids)) < chance, 1.0, -1.0), ids

    def loss(self, theta: Floats) -> float:
        """Mean loss on the test records."""
        rows, labels, _ = self.test
        return float(np.logaddexp(0, -labels * (rows @ theta)).mean())

    def data(self) -> InMemory:
        return InMemory(*self.train)

    def problem(self, **facts: Any) -> Minimize:
        d = self.train[0].shape[1]
        return Minimize(loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=d, **facts)


def best_without_privacy(records: tuple[Floats, Floats, Sizes]) -> Floats:
    rows, labels, _ = records

    def objective(theta: Floats) -> tuple[float, Floats]:
        margins = labels * (rows @ theta)
        slopes = -labels / (1 + np.exp(margins))
        return float(np.logaddexp(0, -margins).mean()), slopes @ rows / len(rows)

    return np.asarray(minimize(objective, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x)


def by_means(people: People, *, factor: float = 1.0, rows: float | None = None) -> Plan:
    """The plan on user means; ``factor`` multiplies the radius of the rule."""
    typical = float(np.median(people.sizes)) if rows is None else rows
    problem = people.problem(n=len(people.sizes), rows_per_user=typical)
    plan = noisy_gd.plan(problem, BUDGET)
    if factor == 1.0:
        return plan
    return noisy_gd.plan(problem, BUDGET, clip_norm=factor * plan.mechanism.optimizer.clip_norm)


def by_cap(people: People, most: int) -> Plan:
    cap, budgets = cap_and_budgets(BUDGET, most)
    kept = int(np.minimum(people.sizes, most).sum())
    plans = [
        auto.plan(people.problem(n=kept), budget) for budget in budgets if budget.kind != "pure"
    ]
    return TransformedPlan.of(cap, plans[0])


def long_tail(users: int) -> Sizes:
    """Sizes with a Pareto tail: most users have few rows, some hundreds."""
    tail = np.random.default_rng(11).pareto(1.0, users)
    return np.clip(np.round(1 + 3.3 * tail), 1, 300).astype(np.int64)


SETTINGS: dict[str, tuple[Sizes, int, float]] = {
    "1000 x 50, d 20, same": (np.full(1000, 50), 20, 0.0),
    "1000 x 50, d 20, different": (np.full(1000, 50), 20, 0.5),
    "4000 x 10, d 20, different": (np.full(4000, 10), 20, 0.5),
    "500 x 200, d 5, same": (np.full(500, 200), 5, 0.0),
    "2000, long tail, d 20, different": (long_tail(2000), 20, 0.5),
}
BARS = dict(zip(SETTINGS, (1 / 40, 1 / 40, 1 / 8, 1 / 50, 0.6), strict=True))


def fits(runs: int) -> list[dict[str, Any]]:
    """Errors of user means, over those of the best cap."""
    found = []
    for name, (sizes, d, apart) in SETTINGS.items():
        everyone = [People(seed, sizes, d, apart) for seed in range(runs)]
        base = [people.loss(best_without_privacy(people.train)) for people in everyone]

        def error(
            make: Callable[[People], Plan], everyone: Any = everyone, base: Any = base
        ) -> float:
            plan, data = make(everyone[0]), [people.data() for people in everyone]
            values = [plan.run(each, random_state=seed).output for seed, each in enumerate(data)]
            losses = [people.loss(value) for people, value in zip(everyone, values, strict=True)]
            return float(np.mean(np.subtract(losses, base)))

        caps = {most: error(lambda people, most=most: by_cap(people, most)) for most in CAPS}
        best = min(caps.values())
        factors = (1.0, 0.5, 2.0) if "different" in name and "1000" in name else (1.0,)
        for factor in factors:
            means = error(lambda people, factor=factor: by_means(people, factor=factor))
            found.append({
                "name": name + ("" if factor == 1.0 else f", radius x {factor:g}"),
                "value": means / best, "target": BARS[name] if factor == 1.0 else 1 / 12,
                "error": means, "caps": caps,
            })  # fmt: skip
    return found


def corrupted(runs: int) -> list[dict[str, Any]]:
    """A twentieth of the users have all labels flipped; the fit on clean records is the base."""
    private, open_fit = [], []
    for seed in range(runs):
        people = People(seed, np.full(1000, 50), 20, 0.5, corrupted=0.05)
        base = people.loss(best_without_privacy(people.clean))
        value = by_means(people).run(people.data(), random_state=seed).value
        private.append(people.loss(value) - base)
        open_fit.append(people.loss(best_without_privacy(people.train)) - base)
    ratio = float(np.mean(private) / np.mean(open_fit))
    return [{"name": "5% of users corrupted", "value": ratio, "target": 0.5}]


def vectors(seed: int, away: float, outliers: float) -> tuple[InMemory, Floats]:
    """3000 values in ten dimensions, mean distance of two about 1, the outliers far beyond."""
    rng, n, d = np.random.default_rng([seed, 5]), 3000, 10
    direction = rng.normal(size=(2, d))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    values = away * direction[0] + rng.normal(size=(n, d)) / math.sqrt(2 * d)
    number = round(outliers * n)
    values[:number] += 100 * away * direction[1]
    return InMemory(values, np.zeros(n), np.arange(n)), values[number:].mean(axis=0)


def means(runs: int) -> list[dict[str, Any]]:
    budget = Budget(epsilon=1, delta=1e-6, unit="user")
    found = []
    for what, away, outliers, bar in (
        ("filter, 1e4 spreads away, 5% outliers", 1e4, 0.05, 0.15),
        ("3 stages, 100 spreads away", 100.0, 0.0, 0.03),
    ):
        # The radius is that of pairs of honest values: their 99.9% quantile, from other draws.
        workload = UserVectors(10, 1e3 * away, spread=0.9)
        problem = Answer(n=3000, workload=workload)
        plan = (
            filtered_mean.plan(problem, budget, outliers=outliers)
            if outliers
            else staged_user_mean.plan(problem, budget, radius=2 * away)
        )
        errors, halts = [], 0
        for seed in range(runs):
            data, target = vectors(seed, away, outliers)
            release = plan.run(data, random_state=seed)
            if release.halted:
                halts += 1
            else:
                errors.append(float(np.linalg.norm(release.value - target)))
        found.append({"name": what, "value": float(np.median(errors)), "target": bar})
        if outliers:
            found.append(halting(plan.final.aggregate, runs**2))
    return found


def halting(mean: FilteredMean, draws: int) -> dict[str, Any]:
    """The share of honest data that halt: data and noise of the test are drawn afresh."""
    halted = 0
    for seed in range(draws):
        data, _ = vectors(10_000 + seed, 1e4, 0.05)
        score = mean.score(mean.counts(mean.rounded(np.asarray(data.matrix)))[0])
        run = Run(Source(seed))
        halted += not mean.test.compare(mean.test.init(None, run), score, run)[1]
    bar = 0.05 + 3 * math.sqrt(0.05 * 0.95 / draws)
    return {"name": "share of honest data that halts", "value": halted / draws, "target": bar}


OVERHEAD = {
    (1, 1): (14.5, 6.7, 4.0, 2.95, 2.31, 2.14),
    (1, 100): (None, 23.9, 9.3, 4.80, 2.68, 2.24),
    (1, 1000): (None, 30.5, 10.1, 5.15, 2.74, 2.26),
    (4, 1): (6.4, 3.7, 2.85, 2.45, 2.17, 2.10),
    (4, 100): (19.2, 8.0, 4.4, 3.09, 2.33, 2.14),
    (4, 1000): (23.4, 8.6, 4.7, 3.20, 2.36, 2.15),
}


SENSITIVITIES = {
    2 / 3: (24.0, 24.0),
    0.75: (16.0, 16.0),
    0.80: (13.3, 13.3),
    0.85: (11.4, 11.4),
    0.90: (10.0, 9.00),
    0.95: (8.89, 6.22),
    0.98: (8.33, 4.83),
}
"""Sensitivity of the filtered mean in radii / n by the floor / n, with two radii and with one."""


def beyond_rounding(found: float, tabulated: float) -> float:
    """Relative distance from a table's entry, less half of its last digit."""
    half = 0.5 * 10.0 ** -len(f"{tabulated}".split(".")[1])
    return max(0.0, abs(found - tabulated) - half) / tabulated


def sensitivities() -> list[dict[str, Any]]:
    """Largest relative distance from the tabulated sensitivities; n is large."""
    n, worst = 10**6, 0.0
    for share, tabulated in SENSITIVITIES.items():
        floor = share * n
        tops = np.linspace(n // 2 + 1, n, 4000)
        ramps = [
            [inlier_levels.Ramp(n // 2, math.floor(floor) - 1, True)],
            [inlier_levels.Ramp(n // 2, int(top), False) for top in tops],
        ]
        for each, expected in zip(ramps, tabulated, strict=True):
            found = n * min(inlier_levels.sensitivity(n, floor, ramp) for ramp in each)
            worst = max(worst, beyond_rounding(found, expected))
    return [{"name": "sensitivity, largest relative distance", "value": worst, "target": 0.01}]


def calibration() -> list[dict[str, Any]]:
    """Largest relative distance from the tabulated overhead over clipping, rounding apart.

    The table leaves half of delta to false passes; the event divides that by the overlap.
    """
    worst = 0.0
    for (epsilon, rounds), row in OVERHEAD.items():
        for n, expected in zip((300, 1000, 3000, 10**4, 10**5, 10**6), row, strict=True):
            with mock.patch.object(inlier_levels, "least_overlap", return_value=1.0):
                levels = inlier_levels.plan_levels(n, rounds, epsilon, 1e-6)
            if expected is None or levels is None:
                worst = max(worst, 0.0 if expected is None and levels is None else math.inf)
                continue
            ratio = levels.noise * n * gaussian.mu(epsilon, 1e-6) / (2 * math.sqrt(rounds))
            worst = max(worst, beyond_rounding(ratio, expected))
    return [{"name": "calibration, largest relative distance", "value": worst, "target": 0.01}]


def speed(repeats: int) -> list[dict[str, Any]]:
    """One pass over users, over one pass over records: 1e6 rows of 20 columns, 50 rows a user."""
    rng, n, d = np.random.default_rng(0), 1_000_000, 20
    rows = rng.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels, theta = rng.choice([-1.0, 1.0], n), rng.normal(size=d)
    ids = np.repeat(np.arange(n // 50), 50)
    shuffled, fine = rng.permutation(ids), Grid(-25)

    def records() -> object:
        guards = {"clip": 0.5, "row_norm": 1.0, "binary": True}
        return passes.clipped_sum(rows, labels, theta, Logistic(), grid=Grid(-17), **guards)

    def users(codes: Sizes) -> object:
        guards = {"clip": 1.0, "row_norm": 1.0, "binary": True}
        sums = user_sums(rows, labels, codes, n // 50, theta, Logistic(), grid=fine, **guards)
        return clipped_total(user_means(*sums, fine), 0.0, radius=0.1, grid=Grid(-20))

    tasks = {"records": records, "sorted": lambda: users(ids), "unsorted": lambda: users(shuffled)}
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for name, task in tasks.items():  # in turns: a busy machine slows all of them
            start = time.perf_counter()
            task()
            if turn:
                times[name].append(time.perf_counter() - start)
    least = {name: min(each) for name, each in times.items()}
    return [
        {"name": f"pass over users / records, {name}", "value": least[name] / least["records"],
         "target": bar, "milliseconds": {k: 1e3 * v for k, v in least.items()}}
        for name, bar in (("sorted", 1.6), ("unsorted", 2.5))
    ]  # fmt: skip


def slope(runs: int) -> list[dict[str, Any]]:
    """How the privacy error of a descent falls with the rows of a user.

    The error is the distance of the noisy fit from the same descent with hardly any noise. With
    the same steps for all sizes only the clip norm of the plan differs; the shipped plan has steps
    and shrinkage of its own for each size.
    """
    schedule = Schedule(300, momentum=0.8, average=0.6)

    def same_steps(plan: Plan) -> Plan:
        moves = replace(plan.mechanism.optimizer, schedule=schedule, step_size=2.0, shrinkage=0.0)
        mean = replace(plan.mechanism.aggregate, schedule=schedule)
        return replace(plan, mechanism=replace(plan.mechanism, aggregate=mean, optimizer=moves))

    return [
        slope_of("slope of the privacy error against rows a user", same_steps, runs),
        slope_of("the same slope, shipped steps", lambda plan: plan, runs),
    ]


def slope_of(name: str, change: Callable[[Plan], Plan], runs: int) -> dict[str, Any]:
    """Return the slope for plans on user means that are changed in one way."""
    sizes, distances = (4, 16, 64), []
    for rows in sizes:
        gaps = []
        for seed in range(runs):
            people = People(seed, np.full(1000, rows), 20)
            plan = change(by_means(people))
            quiet = replace(plan.mechanism.aggregate, noise_multiplier=1e-4)
            values = [
                each.run(people.data(), random_state=seed).value
                for each in (
                    plan,
                    replace(plan, mechanism=replace(plan.mechanism, aggregate=quiet)),
                )
            ]
            gaps.append(np.linalg.norm(values[0] - values[1]))
        distances.append(float(np.sqrt(np.mean(np.square(gaps)))))
    found = float(np.polyfit(np.log(sizes), np.log(distances), 1)[0])
    return {"name": name, "value": found, "target": [-0.6, -0.4], "errors": distances}


CHOICES: tuple[tuple[int, int, int, float, int], ...] = (
    (800, 40, 15, 0.2, 10),
    (1500, 30, 10, 0.4, 3),
    (3000, 12, 20, 0.3, 10),
    (600, 100, 8, 0.0, 5),
    (2500, 3, 8, 0.3, 1),
    (4000, 2, 6, 0.0, 2),
    (8000, 1, 10, 0.0, 1),
    (2500, 6, 12, 0.3, 1),
    (1500, 6, 8, 0.0, 6),
    (1200, 25, 40, 0.2, 3),
)
"""Users, rows of each, columns, how far users lie apart, cap."""


def choices(runs: int) -> list[dict[str, Any]]:
    """How often a model takes the better of the two ways: both are run.

    Ways within 10% of each other, or within two standard errors, count as equal: ``ties`` says how
    many of the right choices are of this kind.
    """
    right, ties, details = 0, 0, []
    for n, rows, d, apart, most in CHOICES:
        facts = {"max_rows_per_user": most, "rows_per_user": rows, "n_users": n}
        model = LogisticRegression(
            1.0, 1e-6, relation="add_remove", row_norm=1.0, fit_intercept=False, **facts
        )
        chosen = model.plan(n, d, by_user=True)
        takes_means = not any(
            isinstance(part, TransformedPlan) and isinstance(part.transformation, UserCap)
            for part in (chosen, *chosen.parts)
        )
        gaps = []
        for seed in range(runs):
            people = People(seed + 100, np.full(n, rows), d, apart)
            losses = [
                people.loss(plan.run(people.data(), random_state=seed).output)
                for plan in (by_means(people), by_cap(people, most))
            ]
            base = people.loss(best_without_privacy(people.train))
            gaps.append([loss - base for loss in losses])
        errors = np.mean(gaps, axis=0)
        doubt = 2 * np.std(np.subtract(*np.transpose(gaps))) / math.sqrt(runs)
        equal = abs(errors[0] - errors[1]) <= max(0.1 * min(errors), doubt)
        ties += bool(equal)
        right += bool(equal or (errors[0] < errors[1]) == takes_means)
        details.append([n, rows, d, apart, most, bool(takes_means), *map(float, errors)])
    return [{"name": "auto takes the better way, of 10", "value": right, "target": 9,
             "ties": ties, "details": details}]  # fmt: skip


TUNED: tuple[tuple[int, int, int, float, float], ...] = (
    (400, 60, 15, 0.5, 9.0),
    (1200, 12, 40, 0.3, 6.0),
    (700, 40, 10, 0.3, 6.0),
    (1500, 8, 15, 0.4, 5.0),
    (3000, 15, 30, 0.3, 10.0),
    (2500, 80, 10, 1.0, 6.0),
    (6000, 6, 10, 0.5, 6.0),
)
"""Users, rows of each, columns, how far users lie apart, norm of the parameter."""


def tune(runs: int) -> None:
    """Print errors by the radius in units of 0.4 L / sqrt(rows), with the level of noise.

    None of the problems is one of those that judge the rule.
    """
    factors = (0.7, 1.0, 1.25, 1.5, 2.0)
    for n, rows, d, apart, norm in TUNED:
        drawn = [
            People(200 + seed, np.full(n, rows), d, apart, norm=norm, truth=13)
            for seed in range(runs)
        ]
        base = [people.loss(best_without_privacy(people.train)) for people in drawn]
        problem, errors = drawn[0].problem(n=n, rows_per_user=float(rows)), []
        for factor in factors:
            plan = noisy_gd.plan(problem, BUDGET, clip_norm=factor * 0.4 / math.sqrt(rows))
            losses = [
                people.loss(plan.run(people.data(), random_state=seed).output)
                for seed, people in enumerate(drawn)
            ]
            errors.append(float(np.mean(np.subtract(losses, base))))
        level = plan.mechanism.aggregate.noise_multiplier * math.sqrt(d) / n
        shown = " ".join(f"{error:9.2e}" for error in errors)
        print(f"{n:5} x {rows:3}, d {d:2}: noise {level:.4f}  {shown}", flush=True)


def judged(row: dict[str, Any]) -> list[Bar]:
    """The bars of a figure: an interval, at least 9 choices, or an upper bound."""
    name, value, target = row["name"], row["value"], row["target"]
    if isinstance(target, list):
        return [at_least(f"{name}, least", value, target[0]), at_most(name, value, target[1])]
    return [(at_least if target == 9 else at_most)(name, value, target)]


PARTS: dict[str, Callable[[bool], list[dict[str, Any]]]] = {
    "calibration": lambda quick: sensitivities() + calibration(),
    "means": lambda quick: means(5 if quick else 20),
    "speed": lambda quick: speed(5 if quick else 15),
    "slope": lambda quick: slope(3 if quick else 20),
    "fits": lambda quick: fits(2 if quick else 20),
    "corrupted": lambda quick: corrupted(2 if quick else 20),
    "choices": lambda quick: [] if quick else choices(10),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs, no choices; under 45 s")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--tune", action="store_true", help="errors by radius, on other problems")
    options = parser.parse_args()
    if options.tune:
        tune(2 if options.quick else 8)
        return 0
    chosen = [part for name, part in PARTS.items() if not options.only or name in options.only]
    figures = [row for part in chosen for row in part(options.quick)]
    bars = [bar for row in figures for bar in judged(row)]
    result = {"benchmark": "users", "quick": options.quick, "figures": figures, "bars": bars}
    return finish(result, options.json)


if __name__ == "__main__":
    sys.exit(main())

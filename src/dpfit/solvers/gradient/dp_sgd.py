"""Stochastic gradient descent on Poisson samples, with clipped gradients and Gaussian noise.

Guarantee: that of ``steps`` adaptively composed Gaussian mechanisms, each on a Poisson sample, for
all iterates together, by privacy-loss distributions. It holds for any loss and any data, since the
clip norm is enforced. Reference: [LD] Algorithm 1, repaired (docs/errata.md); Abadi et al. (2016);
docs/explanation/sampled-descent.md.

At each step every record is in the batch with probability ``batch / n``, independently. Gradients
of the batch are clipped to norm ``clip_norm``, rounded to a grid and summed exactly. Noise is added
to the sum. The public ``batch`` divides the result: the number of records in a batch is private.

Sensitivity: s = clip_norm + half a grid cell for a record that is added or removed, 2 s for a
replaced one. The noise multiplier of the event refers to s under add/remove and to 2 s under
replace-one. Under replace-one a record that leaves the sample changes the sum by s, half of that
(``zero_out``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Loop, Minimize, Plan, Risk, Run, Step, Tuning, Work
from dpfit.core.algorithm import Requirement
from dpfit.core.problem import Problem
from dpfit.data.dataset import Dataset, InMemory
from dpfit.data.view import View
from dpfit.kernels.minibatch import BatchSum, Epoch, Pace, in_place
from dpfit.losses.base import Bounds
from dpfit.losses.custom import declared_basis
from dpfit.losses.glm import GLM, Huber, Logistic, Squared
from dpfit.mechanisms.aggregates.contribution import clipped_sums
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Gaussian, Grid, rounded
from dpfit.noise.coins import LEAST, successes
from dpfit.noise.lattice import LIMIT
from dpfit.noise.rounded import checked_scale
from dpfit.privacy import Assumption, Basis, Budget, calibrate, event
from dpfit.privacy.calibrate import AtLevel
from dpfit.privacy.validate import in_safe_range, integer, option, positive, real
from dpfit.solvers.descents.descent import USER_MEAN
from dpfit.solvers.descents.network_rule import TUNING as NETWORK
from dpfit.solvers.descents.network_rule import sampled_rule
from dpfit.solvers.descents.rule import TUNING as DESCENT
from dpfit.solvers.descents.rule import default_clip_norm
from dpfit.solvers.descents.sampled import sampled_users
from dpfit.solvers.descents.scales import TUNING as SCALES

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]


@dataclass(frozen=True)
class SampledTuning(Tuning):
    """Tuned numbers of `dp_sgd`.

    Parameters
    ----------
    momentum, averaged : float
        Momentum, and the fraction of the last points that the output averages.
    fewest, most : int
        Bounds on the number of steps where it is not given.
    clipped : float
        Fraction of the Lipschitz constant that is clipped away at a small signal-to-noise ratio.
    quiet : float
        Signal-to-noise ratio, strength * n / sqrt(dimension), above which clipping fades.
    drift : float
        Noise that a direction without curvature may collect, in natural units of the parameter.
    faint : float
        Signal-to-noise ratio below which the total step size is reduced: a parameter would be
        mostly noise.
    entries, passes : float
        Matrix entries read in all, if these are at least this many passes over the data.
    """

    kind = "sampled_tuning"
    set_by: str = "rules of thumb; measured by benchmarks/slopes.py"
    momentum: float = 0.9
    averaged: float = 0.25
    fewest: int = 100
    most: int = 4000
    clipped: float = 0.3
    quiet: float = 700.0
    drift: float = 0.75
    faint: float = 30.0
    entries: float = 4e8
    passes: float = 20.0


TUNING = SampledTuning()

_DRAWN = 2**18
"""Random numbers drawn in one call: enough to make its overhead small, few enough to stay in the
cache.
"""

_FEW = 5000
"""Number of records up to which one pass over all of them is faster than one call for each batch.
"""


class Walk(NamedTuple):
    """State of the descent: the point, and how batches of these records are summed."""

    theta: Floats
    velocity: Floats
    mean: Floats
    records: int
    batch_sum: BatchSum
    epoch: Epoch | None


@dataclass(frozen=True)
class SampledDescent(Loop):
    """Average of the last iterates of noisy gradient descent on Poisson samples.

    Guarantee: ``steps`` Gaussian mechanisms on Poisson samples at rate ``batch / n``, composed.
    Sensitivity: ``clip_norm`` plus half a grid cell, in l2; twice that under replace-one.

    Parameters
    ----------
    problem : Minimize
        Its ridge is not part of a record's gradient and is not clipped.
    noise_multiplier : float
        Standard deviation of the noise / sensitivity.
    steps, batch : int, float
        Number of steps; expected number of records in a batch, at most ``problem.n``.
    clip_norm : float
        Bound on the norm of each record's gradient.
    learning_rate, momentum : float
        ``velocity <- momentum * velocity + gradient; theta <- theta - learning_rate * velocity``.
    averaged : float
        Fraction of the steps, from the end, whose iterates are averaged; 0 gives the last iterate.
    """

    kind = "noisy_sgd"
    former: ClassVar = {"clip": "clip_norm"}
    problem: Minimize
    relation: str
    noise_multiplier: float
    steps: int
    batch: float
    clip_norm: float
    learning_rate: float
    momentum: float = 0.0
    averaged: float = 0.0

    def __post_init__(self) -> None:
        option("relation", self.relation, ("replace", "add_remove"))
        integer("steps", self.steps)
        if not LEAST <= positive("batch", self.batch) / self.problem.n <= 1:
            raise ValueError(
                f"batch must lie between 2**-50 n and n = {self.problem.n}, got {self.batch!r}"
            )
        in_safe_range("clip_norm", self.clip_norm)
        if not 0 <= real("momentum", self.momentum) < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum!r}")
        positive("learning_rate", self.learning_rate)
        if not 0 <= real("averaged", self.averaged) <= 1:
            raise ValueError(f"averaged must lie between 0 and 1, got {self.averaged!r}")
        if self.learning_rate * self.problem.ridge > 1:
            raise ValueError(
                f"learning_rate must be at most 1 / ridge = {1 / self.problem.ridge:g}, got "
                f"{self.learning_rate!r}"
            )
        checked_scale(self._noise_scale)
        _ = self.event
        farthest = (
            self.steps
            * self.learning_rate
            / (1 - self.momentum)
            * (4 * LIMIT * self.grid.step / self.batch)
        )
        if farthest > 1e250:
            raise ValueError(
                "steps * learning_rate / (1 - momentum) could overflow; reduce learning_rate"
            )

    @property
    def event(self) -> event.Event:
        # Under replace-one a record that leaves the sample changes the sum by half of what
        # replacing it does.
        half = 0.5 if self.relation == "replace" else 1.0
        rate = self.batch / self.problem.n
        return event.Repeated(
            event.Sampled(event.Gaussian(self.noise_multiplier), rate, zero_out=half), self.steps
        )

    def basis(self, budget: Budget) -> Basis:
        """Return why the descent is private."""
        clipped = "the gradient of each record" if budget.unit == "record" else USER_MEAN
        coins = f"each {budget.unit} is in a batch by a coin of its own; no batch size is used"
        assumptions = [
            Assumption(f"{clipped} is clipped", "enforced"),
            Assumption(coins, "enforced"),
        ]
        if budget.relation == "add_remove":
            assumptions.append(
                Assumption(
                    "the number n behind the sampling rate was not read off the data", "declared"
                )
            )
        theorem = (
            "Poisson-sampled Gaussian steps, composed by privacy-loss distributions "
            "(docs/explanation/sampled-descent.md)"
        )
        return declared_basis(
            Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "exact"),
            self.problem.loss,
        )

    @property
    def work(self) -> Work:
        gradients = self.steps * self.batch
        return Work(gradients=gradients, passes=gradients / self.problem.n)

    @property
    def risk(self) -> Risk | None:
        """Textbook estimate for averaged descent, at most the start's: ``distance * clip_norm``.

        distance**2 / (2 S) + S / steps * (variance of the noise + variance of the sampling) / 2,
        for a total step size S = steps * learning_rate / (1 - momentum).
        """
        problem, rate = self.problem, self.batch / self.problem.n
        if problem.loss.has_own_parameters:
            return None
        time = self.steps * self.learning_rate / (1 - self.momentum)
        noise = problem.dimension * (self.noise_multiplier * self.sensitivity / self.batch) ** 2
        sampling = (1 - rate) * self.clip_norm**2 / self.batch
        distance = _distance(problem, self.relation)
        expected = distance**2 / (2 * time) + time / self.steps * (noise + sampling) / 2
        return Risk(min(expected, distance * self.clip_norm), "excess of the objective (predicted)")

    @cached_property
    def grid(self) -> Grid:
        """The grid to which contributions are rounded."""
        return Grid.fitting(self.clip_norm, self.problem.dimension, "l2")

    @cached_property
    def sensitivity(self) -> float:
        """Largest change of the sum of a batch by a record in it, rounding included, rounded up."""
        alone = math.nextafter(
            self.clip_norm + self.grid.rounding(self.problem.dimension, "l2") / 2, math.inf
        )
        return alone if self.relation == "add_remove" else 2 * alone

    @cached_property
    def _noise_scale(self) -> float:
        """Noise standard deviation in grid steps, rounded up as in `dpfit.noise.add_gaussian`."""
        return math.nextafter(self.noise_multiplier * (self.sensitivity / self.grid.step), math.inf)

    @property
    def _drawn_at_once(self) -> int:
        return min(self.steps, max(1, int(_DRAWN / (self.batch + self.problem.dimension))))

    @property
    def iterations(self) -> int:
        """Number of draws of randomness, each for many steps."""
        return -(-self.steps // self._drawn_at_once)

    def init(self, data: View, run: Run) -> Walk:
        problem, epoch = self.problem, self._epoch(data)
        theta = (
            problem.project(problem.parameters.start.copy())
            if problem.start is None
            else problem.origin
        )
        batch_sum = self._pass_over(data) if epoch is None else epoch.batch_sum
        return Walk(theta, np.zeros_like(theta), np.zeros_like(theta), data.n, batch_sum, epoch)

    def step(self, state: Walk, index: int, data: View, run: Run) -> Walk:
        theta, velocity, mean, records, batch_sum, epoch = state
        first = index * self._drawn_at_once
        size = min(self._drawn_at_once, self.steps - first)
        chosen = successes(self.batch / self.problem.n, size * records, run.noise)
        noise = rounded(Gaussian(), self._noise_scale, (size, self.problem.dimension), run.noise)
        if epoch is not None and self.problem.region is None and epoch.descends(len(chosen), size):
            theta, velocity, mean = epoch.descend(
                np.stack([theta, velocity, mean]), chosen, noise, first, self._pace
            )
            return Walk(theta, velocity, mean, records, batch_sum, epoch)
        for step, (picks, drawn) in enumerate(
            zip(_batches(chosen, records, size), noise, strict=True), start=first
        ):
            theta, velocity, mean = self._move(
                theta, velocity, mean, batch_sum(theta, picks) + drawn, step
            )
        return Walk(theta, velocity, mean, records, batch_sum, epoch)

    def _move(
        self, theta: Floats, velocity: Floats, mean: Floats, noisy: Steps, step: int
    ) -> tuple[Floats, Floats, Floats]:
        """Move one or stacked points by noisy sums, bit for bit as `Epoch.descend` does."""
        # Integers were added exactly; the public batch size divides after the release.
        gradient = self._pace.unit * noisy
        if self.problem.ridge:
            gradient = gradient + self.problem.ridge * theta
        velocity = self.momentum * velocity + gradient
        theta = self.problem.project(theta - self.learning_rate * velocity)
        if (number_kept := step - self._pace.kept + 1) > 0:
            mean = mean + (theta - mean) / number_kept
        return theta, velocity, mean

    @cached_property
    def _pace(self) -> Pace:
        kept = self.steps - max(1, round(self.averaged * self.steps))
        return Pace(
            self.grid.step / self.batch, self.problem.ridge, self.momentum, self.learning_rate, kept
        )

    def finish(self, state: Walk) -> Floats:
        return state.mean

    def run_many(self, data: View, run: Run, count: int) -> Sequence[Floats]:
        """Draw independent outputs, vectorized: each run has its own batches, noise and point."""
        start = self.init(data, run)
        if start.records > _FEW:
            return [self.run(data, run) for _ in range(count)]
        guards = self.problem.guards | {"clip": self.clip_norm}
        theta, velocity, mean = (np.tile(part, (count, 1)) for part in start[:3])
        for step in range(self.steps):
            taken = np.zeros((count, start.records), dtype=np.bool_)
            taken.flat[successes(self.batch / self.problem.n, taken.size, run.noise)] = True
            sums = clipped_sums(
                data, self.problem.loss, theta, grid=self.grid, taken=taken, **guards
            )
            drawn = rounded(Gaussian(), self._noise_scale, theta.shape, run.noise)
            theta, velocity, mean = self._move(theta, velocity, mean, sums + drawn, step)
            run.progress((step + 1) / self.steps)
        return list(mean)

    def _epoch(self, data: Dataset) -> Epoch | None:
        """Return the records prepared for many batches, where that takes no copy of them."""
        loss, whole = self.problem.loss, data.whole
        if whole is None or not isinstance(loss, GLM) or not in_place(whole.rows):
            return None
        guards = self.problem.guards | {"clip": self.clip_norm}
        return Epoch(whole.rows, whole.labels, loss, grid=self.grid, **guards)

    def _pass_over(self, data: Dataset) -> BatchSum:
        """Return sums of batches, each by a pass over the data."""
        loss, grid, guards = (
            self.problem.loss,
            self.grid,
            self.problem.guards | {"clip": self.clip_norm},
        )
        return lambda theta, index: data.clipped_sum(loss, theta, grid=grid, index=index, **guards)


def _batches(chosen: Steps, records: int, number: int) -> list[Steps]:
    """Return each batch's records; coin ``k * records + i`` is record ``i``'s in batch ``k``."""
    starts = np.arange(number + 1) * records
    ends = np.searchsorted(chosen, starts)
    return [chosen[ends[k] : ends[k + 1]] - starts[k] for k in range(number)]


def _steepest(problem: Minimize, relation: str) -> float:
    """Largest gradient norm of one record at parameters that predict better than zero."""
    steepest = problem.constants(relation).lipschitz
    if isinstance(problem.loss, Squared | Huber):
        # Errors above the largest label come from parameters that predict worse than zero.
        steepest = min(steepest, problem.bounds.row_norm * problem.bounds.label_size)
    return steepest


_BOUNDED = Requirement(
    "gradients with a bound",
    "pass clip_norm, or bound the labels or the domain",
    lambda problem, budget, options: (
        options.get("clip_norm") is not None
        or problem.loss.has_own_parameters
        or math.isfinite(_steepest(problem, budget.relation))
    ),
)


class DPSGD(Algorithm[Minimize]):
    """Gradient descent on Poisson samples with clipped gradients and Gaussian noise.

    Use it for tables so large that a full-batch pass for each step takes long; use `noisy_gd`
    otherwise. Guarantee: (epsilon, delta)-DP by privacy-loss distributions, for any loss and any
    data. Reference: [LD] Algorithm 1, repaired; proof in docs/explanation/sampled-descent.md.
    Work: ``steps * batch`` gradients of single records. Of users ``batch`` is a number of users,
    and the mean gradient of each is clipped.
    """

    name = "dp_sgd"
    summary = (
        "gradient descent on Poisson samples with clipped gradients and noise; nothing to tune"
    )
    use_for = "tables so large that full passes take too long"
    reference = "[LD] Algorithm 1, repaired; Abadi et al. (2016); Balle, Barthe and Gaboardi (2018)"
    solves = Minimize
    guarantees = ("approximate",)
    units = ("record", "user")
    requires = (_BOUNDED,)
    supports = frozenset({"ridge", "domain"})
    tier = "recommended"
    tunings = (TUNING, DESCENT, NETWORK, SCALES)

    def _hint(self, kind: str, problem: Problem) -> str:
        return (
            "give epsilon and a delta below 0.01 / n, or use "
            f"{'output_perturbation (pure) or noisy_gd' if kind == 'pure' else 'noisy_gd'}"
        )

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        steps: int | None = None,
        batch: float | None = None,
        clip_norm: float | None = None,
        learning_rate: float | None = None,
        momentum: float = TUNING.momentum,
        averaged: float = TUNING.averaged,
    ) -> Plan:
        """Plan a descent; options that are not given follow from public facts.

        With strength, the mu of the budget for a release that sees each record once, a direction
        without curvature collects noise of standard deviation S * clip_norm / (strength * n) over
        the total step size S = steps * learning_rate / (1 - momentum). S makes this a fixed
        fraction of the natural unit of the parameter, less at a small signal-to-noise ratio. Steps
        are as large as is stable. A batch is as large as reading 4e8 entries in all allows, and so
        large that the noise stays above the sensitivity.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(
        ...     n=100_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=50
        ... )
        >>> plan = dp_sgd.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.guarantee.epsilon(1e-6), 3), plan.mechanism.batch < problem.n
        (1.0, True)
        """
        relation, constants = budget.relation, problem.constants(budget.relation)
        if problem.loss.has_own_parameters:
            rule = sampled_rule(problem, budget, steps, momentum, clip_norm)
            steps, clip_norm = rule.steps, rule.clip_norm
            batch = rule.batch if batch is None else batch
            learning_rate = rule.learning_rate if learning_rate is None else learning_rate
        strength = budget.gaussian_mu / (2 if relation == "replace" else 1)
        signal = strength * problem.n / math.sqrt(problem.dimension)
        curvature = constants.smoothness + problem.ridge
        rows = 1.0 if budget.unit == "record" else problem.rows_per_user or 1.0
        given = clip_norm is not None
        limit = positive("clip_norm", clip_norm) if given else _clip_norm(problem, budget, signal)
        time = (
            TUNING.drift
            * constants.natural_unit
            * signal
            / (signal + TUNING.faint)
            * strength
            * problem.n
            / limit
        )
        if steps is None:
            wanted = time * (1 - momentum) * curvature if constants.smooth else TUNING.most
            steps = math.ceil(min(max(wanted, TUNING.fewest), TUNING.most))
        integer("steps", steps)
        if learning_rate is None:
            # A non-smooth loss takes steps of Nemirovski's length: larger ones jump over its kinks.
            rough = _distance(problem, relation) / (limit * math.sqrt(steps)) * (1 - momentum)
            learning_rate = min(
                time * (1 - momentum) / steps, 1 / curvature if constants.smooth else rough
            )
            learning_rate = (
                min(learning_rate, 1 / problem.ridge) if problem.ridge else learning_rate
            )
        if batch is None:
            passes = max(TUNING.entries / (problem.n * rows * problem.n_features), TUNING.passes)
            batch = problem.n * min(1.0, max(passes / steps, strength / math.sqrt(steps)))
        template = SampledDescent(
            problem,
            relation,
            1.0,
            int(steps),
            float(batch),
            limit,
            learning_rate,
            momentum,
            averaged,
        )
        found = calibrate(lambda level: AtLevel(template.event.scaled(level), level), budget)
        mechanism = replace(template, noise_multiplier=found.level)
        if budget.unit == "record":
            return Step(mechanism, mechanism.basis(budget))
        schedule = Schedule(mechanism.steps, momentum, averaged)
        descent = sampled_users(
            problem, relation, found.level, mechanism.batch, limit, learning_rate, schedule,
            mechanism.risk,
        )  # fmt: skip
        return Step(descent, mechanism.basis(budget))

    def example(self, relation: str) -> Example:
        """Return 20 equal records, the last of which has the opposite label or is removed."""
        problem = Minimize(n=20, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=2)
        rows, labels = np.tile([0.6, 0.8], (20, 1)), np.ones(20)
        data = InMemory(rows, labels)
        if relation == "add_remove":
            return Example(problem, data, InMemory(rows[:-1], labels[:-1]))
        return Example(problem, data, InMemory(rows, np.append(labels[:-1], -1.0)))


def _distance(problem: Minimize, relation: str) -> float:
    """Distance to a good parameter: natural units in all directions, at most the diameter."""
    free = TUNING.drift * problem.constants(relation).natural_unit * math.sqrt(problem.dimension)
    return free if problem.region is None else min(free, problem.region.diameter())


def _clip_norm(problem: Minimize, budget: Budget, signal: float) -> float:
    """Return the default clip norm; its fraction of the Lipschitz constant grows to 1.

    The fraction grows as the noise falls: clipping a smooth convex margin loss gives another one on
    which outliers weigh less. That is a bias, which must vanish with the noise. Clipping a
    non-smooth loss would only change the weight of the ridge.
    """
    if budget.unit == "user" and (problem.rows_per_user or 1.0) > 1:
        return default_clip_norm(problem, budget.relation, 1 / budget.gaussian_mu, per="user")
    steepest = _steepest(problem, budget.relation)
    smooth = problem.constants(budget.relation).smooth
    return steepest * (1 - TUNING.clipped * min(1.0, TUNING.quiet / signal)) if smooth else steepest


dp_sgd = DPSGD()

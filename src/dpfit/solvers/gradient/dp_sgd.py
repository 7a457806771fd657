"""Stochastic gradient descent on Poisson samples, with clipped gradients and Gaussian noise.

Guarantee: that of ``steps`` adaptively composed Gaussian mechanisms, each on a Poisson sample, accounted by
privacy-loss distributions; the whole trajectory is covered, so momentum, averages and projections are free. No
assumption on the loss or the records survives: the clip is enforced.
Reference: [LD] Algorithm 1, repaired (docs/errata.md); Abadi et al. (2016); docs/explanation/sampled-descent.md.

At each step every record is in the batch with probability ``batch / n``, by a coin of its own. The gradients of those
that are in are clipped to norm ``clip``, rounded to a grid and summed exactly; noise is added to the sum, and the
result is divided by ``batch``, a public number: how many records came is private. A record moves the sum by at most
``s = clip + half a grid cell`` when it comes or goes and by ``2 s`` when it is replaced. The noise multiplier of the
event refers to ``s`` under add/remove and to ``2 s`` under replace-one, where a record that leaves the sample moves
the sum by half of that (``zero_out``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Iterative, Minimize, Plan, Risk, Run, Step, Work
from dpfit.data.dataset import Dataset, InMemory
from dpfit.kernels.epoch import BatchSum, Epoch, Pace, in_place
from dpfit.losses.base import Bounds, Loss
from dpfit.losses.custom import vouched
from dpfit.losses.glm import GLM, Huber, Logistic, Squared
from dpfit.noise import Gaussian, Grid, rounded
from dpfit.noise.coins import LEAST, successes
from dpfit.noise.lattice import LIMIT
from dpfit.noise.rounded import checked_scale
from dpfit.privacy import Assumption, Basis, Budget, NotReachable, calibrate, event, gaussian
from dpfit.privacy.calibrate import AtLevel
from dpfit.privacy.check import count, moderate, number, one_of, positive
from dpfit.solvers.gradient.many_points import clipped_sums
from dpfit.solvers.gradient.noisy_gd import require_minimize
from dpfit.solvers.gradient.scales import natural_unit, unclipped

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

MOMENTUM, AVERAGED = 0.9, 0.25
FEWEST, MOST = 100, 4000
"""Steps, when their number is not given."""

_CLIPPED = 0.3
"""How much of the Lipschitz constant is clipped away where noise matters."""

_QUIET = 700.0
"""The ratio of signal to noise (strength times records over the root of the dimension) where clipping fades."""

_DRIFT = 0.75
"""Noise that a direction without curvature may collect, in natural units of the parameter."""

_FAINT = 30.0
"""The ratio of signal to noise below which a parameter would be mostly noise, and is kept smaller."""

_ENTRIES, _PASSES = 4e8, 20
"""Numbers read in all, if that is at least so many passes over the data."""

_DRAWN = 2**18
"""About how many numbers are drawn at once: enough to forget the cost of a call, little enough to stay in the cache."""

_FEW = 5000
"""Records up to which a pass over all of them costs less than a call for each of many batches."""


class Walk(NamedTuple):
    """Where the descent is, and how it sums a batch of the records or, if it can, takes many steps at once."""

    theta: Floats
    velocity: Floats
    mean: Floats
    records: int
    batch_sum: BatchSum
    epoch: Epoch | None


@dataclass(frozen=True)
class NoisySGD(Iterative):
    """The descent itself; all fields are public.

    Parameters
    ----------
    problem
        What is minimized; its ridge is not part of a record's gradient and is not clipped.
    relation
        What a neighbour is.
    noise_multiplier
        Standard deviation of the noise over how far one record moves the sum.
    steps, batch
        How many steps, and the expected number of records in each, at most ``problem.n``.
    clip
        Bound on the norm of each record's gradient.
    learning_rate, momentum
        ``velocity <- momentum * velocity + gradient; theta <- theta - learning_rate * velocity``.
    averaged
        The share of the last steps whose iterates are averaged; 0 gives the last iterate.
    """

    kind = "noisy_sgd"
    problem: Minimize
    relation: str
    noise_multiplier: float
    steps: int
    batch: float
    clip: float
    learning_rate: float
    momentum: float = 0.0
    averaged: float = 0.0

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        count("steps", self.steps)
        if not LEAST <= positive("batch", self.batch) / self.problem.n <= 1:
            raise ValueError(f"batch must lie between 2**-50 n and n = {self.problem.n}, got {self.batch!r}")
        moderate("clip", self.clip)
        if not 0 <= number("momentum", self.momentum) < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum!r}")
        positive("learning_rate", self.learning_rate)
        if not 0 <= number("averaged", self.averaged) <= 1:
            raise ValueError(f"averaged must lie between 0 and 1, got {self.averaged!r}")
        if self.learning_rate * self.problem.ridge > 1:
            raise ValueError("a learning rate above 1 / ridge overshoots; take a smaller one")
        checked_scale(self._noise_scale)
        _ = self.event
        farthest = self.steps * self.learning_rate / (1 - self.momentum) * (4 * LIMIT * self.grid.step / self.batch)
        if farthest > 1e250:
            raise ValueError("a parameter could overflow; take a smaller learning rate")

    @property
    def event(self) -> event.Event:
        # Under replace-one a record that leaves moves the sum by half of what replacing it does.
        half = 0.5 if self.relation == "replace" else 1.0
        sampled = event.Sampled(event.Gaussian(self.noise_multiplier), self.batch / self.problem.n, zero_out=half)
        return event.Repeated(sampled, self.steps)

    @property
    def work(self) -> Work:
        gradients = self.steps * self.batch
        return Work(gradients=gradients, passes=gradients / self.problem.n)

    @property
    def risk(self) -> Risk:
        """The textbook bound for averaged descent over the time S of `descent`, or that of staying at the start.

        distance**2 / (2 S) + S / steps * (variance of the noise + variance of the sampling) / 2; distance * clip.
        """
        problem, rate = self.problem, self.batch / self.problem.n
        time = self.steps * self.learning_rate / (1 - self.momentum)
        noise = problem.dimension * (self.noise_multiplier * self.sensitivity / self.batch) ** 2
        sampling = (1 - rate) * self.clip**2 / self.batch
        distance = _distance(problem)
        expected = distance**2 / (2 * time) + time / self.steps * (noise + sampling) / 2
        return Risk(min(expected, distance * self.clip), "excess of the objective (predicted)")

    @cached_property
    def grid(self) -> Grid:
        """Where contributions are rounded to."""
        return Grid.fitting(self.clip, self.problem.dimension, "l2")

    @cached_property
    def sensitivity(self) -> float:
        """How far one record moves the sum of a batch that it is in, rounding included, rounded up."""
        alone = math.nextafter(self.clip + self.grid.rounding(self.problem.dimension, "l2") / 2, math.inf)
        return alone if self.relation == "add_remove" else 2 * alone

    @cached_property
    def _noise_scale(self) -> float:
        """The standard deviation of the noise in steps of the grid, rounded up as `dpfit.noise.add_gaussian` does."""
        return math.nextafter(self.noise_multiplier * (self.sensitivity / self.grid.step), math.inf)

    @property
    def _drawn_at_once(self) -> int:
        return min(self.steps, max(1, int(_DRAWN / (self.batch + self.problem.dimension))))

    @property
    def iterations(self) -> int:
        """How often randomness is drawn, each time for many steps."""
        return -(-self.steps // self._drawn_at_once)

    def init(self, data: Any, run: Run) -> Walk:
        records = _records(data, self.problem.n_features)
        if self.relation == "replace" and records.n != self.problem.n:
            raise ValueError(f"the plan is for n = {self.problem.n} records, the data have {records.n}")
        start = np.zeros(self.problem.dimension)
        theta = start if self.problem.domain is None else self.problem.domain.project(start)
        epoch = self._epoch(records)
        batch_sum = self._pass_over(records) if epoch is None else epoch.batch_sum
        return Walk(theta, np.zeros_like(theta), np.zeros_like(theta), records.n, batch_sum, epoch)

    def step(self, state: Walk, index: int, data: Any, run: Run) -> Walk:
        theta, velocity, mean, records, batch_sum, epoch = state
        first = index * self._drawn_at_once
        size = min(self._drawn_at_once, self.steps - first)
        chosen = successes(self.batch / self.problem.n, size * records, run.noise)
        noise = rounded(Gaussian(), self._noise_scale, (size, self.problem.dimension), run.noise)
        if epoch is not None and self.problem.domain is None and epoch.descends(len(chosen), size):
            theta, velocity, mean = epoch.descend(np.stack([theta, velocity, mean]), chosen, noise, first, self._pace)
            return Walk(theta, velocity, mean, records, batch_sum, epoch)
        for step, (picks, drawn) in enumerate(zip(_batches(chosen, records, size), noise, strict=True), start=first):
            theta, velocity, mean = self._move(theta, velocity, mean, batch_sum(theta, picks) + drawn, step)
        return Walk(theta, velocity, mean, records, batch_sum, epoch)

    def _move(
        self, theta: Floats, velocity: Floats, mean: Floats, noisy: Steps, step: int
    ) -> tuple[Floats, Floats, Floats]:
        """One move by a noisy sum, or by as many as there are points: what `Epoch.descend` does, to the last bit."""
        # Whole numbers of steps were added exactly; dividing by the public batch size comes after the release.
        gradient = self._pace.unit * noisy
        if self.problem.ridge:
            gradient = gradient + self.problem.ridge * theta
        velocity = self.momentum * velocity + gradient
        theta = theta - self.learning_rate * velocity
        if self.problem.domain is not None:
            theta = self.problem.domain.project(theta)
        if (number_kept := step - self._pace.kept + 1) > 0:
            mean = mean + (theta - mean) / number_kept
        return theta, velocity, mean

    @cached_property
    def _pace(self) -> Pace:
        kept = self.steps - max(1, round(self.averaged * self.steps))
        return Pace(self.grid.step / self.batch, self.problem.ridge, self.momentum, self.learning_rate, kept)

    def finish(self, state: Walk) -> Floats:
        return state.mean

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Floats]:
        """Independent runs side by side: at every step each has a batch, noise and a point of its own."""
        start = self.init(data, run)
        if start.records > _FEW:
            return [self.run(data, run) for _ in range(count)]
        records, guards = _records(data, self.problem.n_features), self.problem.guards | {"clip": self.clip}
        theta, velocity, mean = (np.tile(part, (count, 1)) for part in start[:3])
        for step in range(self.steps):
            taken = np.zeros((count, start.records), dtype=np.bool_)
            taken.flat[successes(self.batch / self.problem.n, taken.size, run.noise)] = True
            sums = clipped_sums(records, self.problem.loss, theta, grid=self.grid, taken=taken, **guards)
            drawn = rounded(Gaussian(), self._noise_scale, theta.shape, run.noise)
            theta, velocity, mean = self._move(theta, velocity, mean, sums + drawn, step)
            run.progress((step + 1) / self.steps)
        return list(mean)

    def _epoch(self, records: Dataset) -> Epoch | None:
        """The records prepared for many batches, where that takes no copy of them."""
        loss = self.problem.loss
        if not (isinstance(records, InMemory) and isinstance(loss, GLM) and in_place(records.matrix)):
            return None
        guards = self.problem.guards | {"clip": self.clip}
        return Epoch(records.matrix, records.labels, loss, grid=self.grid, **guards)

    def _pass_over(self, records: Dataset) -> BatchSum:
        """Sums of batches by a pass over the data each."""
        loss, grid, guards = self.problem.loss, self.grid, self.problem.guards | {"clip": self.clip}
        return lambda theta, index: records.clipped_sum(loss, theta, grid=grid, index=index, **guards)


def _batches(chosen: Steps, records: int, number: int) -> list[Steps]:
    """The records of each of a number of batches: coin ``k * records + i`` is that of record ``i`` in batch ``k``."""
    starts = np.arange(number + 1) * records
    ends = np.searchsorted(chosen, starts)
    return [chosen[ends[k] : ends[k + 1]] - starts[k] for k in range(number)]


def _records(data: Any, n_features: int) -> Dataset:
    """The data as records; an array holds one in each row, its label last."""
    if not isinstance(data, Dataset):
        try:
            table = np.asarray(data, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError("the data must be records (dpfit.data.dataset) or an array of numbers") from None
        if table.ndim != 2 or table.shape[1] == 0:
            raise ValueError(f"the data must have rows with a label last, got shape {table.shape}")
        return _records(InMemory(np.ascontiguousarray(table[:, :-1]), table[:, -1]), n_features)
    if data.width != n_features:
        raise ValueError(f"the plan is for rows of {n_features} numbers, the data have {data.width}")
    return data


@dataclass(frozen=True)
class DPSGDAlgorithm:
    """Plans descent on Poisson samples."""

    name: str = "dp_sgd"

    def plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        steps: int | None = None,
        batch: float | None = None,
        clip: float | None = None,
        learning_rate: float | None = None,
        momentum: float = MOMENTUM,
        averaged: float = AVERAGED,
    ) -> Plan:
        """Descent within the budget; what is not given follows from public facts by `descent`.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=100_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=50)
        >>> plan = dp_sgd.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.guarantee.epsilon(1e-6), 3), plan.mechanism.batch < problem.n
        (1.0, True)
        """
        require_minimize(self.name, problem, budget)
        if budget.kind != "approximate" or budget.epsilon is None or budget.delta is None:
            raise NotReachable(
                f"{self.name} promises a curve of epsilon and delta: give both (delta far below 1 / n); what sampling "
                "saves cannot be said by mu or rho (use noisy_gd) nor by a pure epsilon (use output_perturbation)"
            )
        strength = gaussian.mu(budget.epsilon, budget.delta) / (2 if budget.relation == "replace" else 1)
        quiet = descent(
            problem,
            budget.relation,
            strength,
            steps=steps,
            batch=batch,
            clip=clip,
            learning_rate=learning_rate,
            momentum=momentum,
            averaged=averaged,
        )
        found = calibrate(lambda m: AtLevel(quiet.event.scaled(m), m), budget)
        return Step(replace(quiet, noise_multiplier=found.level), sampled_basis(problem.loss, budget))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Records that pull one way, the last of which pulls the other way or leaves."""
        problem = Minimize(n=20, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=2)
        records = np.tile([0.6, 0.8, 1.0], (20, 1))
        if relation == "add_remove":
            return problem, records, records[:-1]
        return problem, records, np.vstack([records[:-1], [0.6, 0.8, -1.0]])


def descent(
    problem: Minimize,
    relation: str,
    strength: float,
    *,
    steps: int | None = None,
    batch: float | None = None,
    clip: float | None = None,
    learning_rate: float | None = None,
    momentum: float = MOMENTUM,
    averaged: float = AVERAGED,
) -> NoisySGD:
    """A descent for a budget worth ``strength`` (the mu of a release that sees each record once), before calibration.

    All from public facts. Over the time S = steps * learning_rate / (1 - momentum), a direction without curvature
    collects noise of deviation S * clip / (strength * n), whatever the steps and the batch; curved directions forget
    theirs. S makes this a fixed part of the parameter's natural unit, less where all would be noise. Steps are as
    large as is stable. A batch is as many records as reading `_ENTRIES` numbers in all allows, and not so
    few that their noise would have to fall below their sensitivity, where sampling stops saving anything.
    """
    signal = strength * problem.n / math.sqrt(problem.dimension)
    smoothness = problem.loss.smoothness(problem.bounds, problem.radius)
    curvature = None if smoothness is None else smoothness.value + problem.ridge
    limit = _clip(problem, signal, smooth=curvature is not None) if clip is None else positive("clip", clip)
    time = _DRIFT * natural_unit(problem) * signal / (signal + _FAINT) * strength * problem.n / limit
    if steps is None:
        wanted = MOST if curvature is None else time * (1 - momentum) * curvature
        steps = math.ceil(min(max(wanted, FEWEST), MOST))
    count("steps", steps)
    if learning_rate is None:
        # Corners cost what the steps that jump over them do: Nemirovski's length for as many steps.
        rough = _distance(problem) / (limit * math.sqrt(steps)) * (1 - momentum)
        learning_rate = min(time * (1 - momentum) / steps, rough if curvature is None else 1 / curvature)
        learning_rate = min(learning_rate, 1 / problem.ridge) if problem.ridge else learning_rate
    if batch is None:
        passes = max(_ENTRIES / (problem.n * problem.n_features), _PASSES)
        batch = problem.n * min(1.0, max(passes / steps, strength / math.sqrt(steps)))
    return NoisySGD(problem, relation, 1.0, int(steps), float(batch), limit, learning_rate, momentum, averaged)


def _distance(problem: Minimize) -> float:
    """How far from the start a good parameter may be: natural units in all directions, inside the domain."""
    free = _DRIFT * natural_unit(problem) * math.sqrt(problem.dimension)
    return free if problem.domain is None else min(free, problem.domain.diameter())


def _clip(problem: Minimize, signal: float, smooth: bool) -> float:
    """A bound on gradients: a part of the Lipschitz constant where noise matters, all of it where it does not.

    Clipping a smooth convex margin loss makes it another one that cares less for outliers. That is a bias,
    which must go away with the noise; for a loss with corners it would only change the weight of the ridge.
    """
    steepest = unclipped(problem)
    if isinstance(problem.loss, Squared | Huber):
        # Errors larger than the largest label come from parameters that predict worse than zero.
        steepest = min(steepest, problem.bounds.row_norm * problem.bounds.label_size)
    if not math.isfinite(steepest):
        raise ValueError("the gradients of this loss have no bound here: give clip=, or bound labels or slopes")
    return steepest * (1 - _CLIPPED * min(1.0, _QUIET / signal)) if smooth else steepest


def sampled_basis(loss: Loss, budget: Budget) -> Basis:
    """Why descent on samples is private."""
    assumptions = [
        Assumption("the gradient of each record is clipped", "enforced"),
        Assumption("each record is in a batch by a coin of its own; the size of a batch is not used", "enforced"),
    ]
    if budget.relation == "add_remove":
        assumptions.append(Assumption("the number n behind the sampling rate was not read off the data", "declared"))
    theorem = (
        "Poisson-sampled Gaussian steps, composed by privacy-loss distributions (docs/explanation/sampled-descent.md)"
    )
    return vouched(Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "exact"), loss)


dp_sgd = DPSGDAlgorithm()

"""Prefix sums of a stream in one file: batches arrive, a noisy running sum leaves after each; stored and resumed.

Guarantee. With c_k = binom(2 k, k) / 4**k, step t releases y_t = sum_k c_k x_(t-k) + noise, and sums of c_k y_(t-k)
estimate x_0 + ... + x_t. A record is in one batch s: it moves x_s by some vector v, the same in all later steps, and
y_t by c_(t-s) v, whatever was released before. All answers together are one adaptive Gaussian mechanism of sensitivity
norm(c) * norm(v), hence mu-GDP with mu = 1 / noise_multiplier. That no record arrives twice is declared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Interact, Interactive, Plan, Run, State, Step
from dpfit.data.chunk import Chunk
from dpfit.data.dataset import Dataset, InMemory
from dpfit.data.tasks import Saturated
from dpfit.data.view import OpaqueView, View
from dpfit.losses.guards import RowBall
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Contribution
from dpfit.mechanisms.aggregates.sampling import Arriving
from dpfit.noise import Grid, add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event, Gaussian
from dpfit.privacy.spec import Spec

Floats = NDArray[np.float64]
ONCE = Assumption("no record arrives twice", "declared")


@dataclass(frozen=True)
class PrefixSums(Aggregate):
    """Running sums of contributions of norm at most ``bound``; each record is in one round, by sampling or arrival."""

    kind = "skeleton_prefix_aggregate"
    bound: float = 1.0

    @property
    def event(self) -> Event:
        if self.sampling.sees_all:
            raise ValueError("sampling must put each record into one round, got all; use SinglePass() or Arriving()")
        return Gaussian(self.noise_multiplier)

    @cached_property
    def coefficients(self) -> Floats:
        """The first entries of the square root of the matrix of prefix sums."""
        return np.cumprod([1.0, *(1 - 0.5 / np.arange(1, self.rounds))])

    def init(self, data: View, run: Run) -> State:
        return super().init(data, run) | {"inputs": [], "released": []}

    def answer(self, state: State, contribution: Contribution, data: View, run: Run) -> tuple[State, Floats]:
        if contribution.bound > self.bound:
            raise ValueError(f"contributions must be bounded by {self.bound}, got {contribution.bound}")
        grid, d = Grid.fitting(self.bound, contribution.dimension, "l2"), contribution.dimension
        inputs = [*state["inputs"], grid.values(contribution.total(data, grid))]
        weights = self.coefficients[: len(inputs)][::-1]
        change = (2 if self.relation == "replace" else 1) * self.bound + grid.rounding(d, "l2")
        # Answers are rounded to a grid again; over all rounds this moves them by at most the second term.
        change = change * float(np.linalg.norm(self.coefficients)) * (1 + math.sqrt(self.rounds) * 2.0**-13)
        noise = {"l2_sensitivity": change, "noise_multiplier": self.noise_multiplier}
        released = [*state["released"], add_gaussian(weights @ np.array(inputs), source=run.noise, **noise)]
        return state | {"inputs": inputs, "released": released}, weights @ np.array(released)


@dataclass(frozen=True)
class Sums(Spec):
    """The workload: the running sum of all rows that have arrived."""

    kind = "skeleton_sums"
    dimension: int
    bound: float


@dataclass(frozen=True)
class Rows(Contribution):
    """A record contributes its row, scaled into the ball of the bound."""

    dimension: int
    bound: float

    def total(self, data: Dataset, grid: Grid) -> NDArray[np.int64]:
        return data.reduce(self._task(grid)).steps

    def _task(self, grid: Grid) -> Any:
        return lambda chunk: Saturated(grid.sum(RowBall(self.bound).apply(_dense(chunk)), self.bound))


def _dense(chunk: Chunk) -> Any:
    return chunk.rows.toarray() if hasattr(chunk.rows, "toarray") else chunk.rows


@dataclass(frozen=True)
class RunningSums(Interactive):
    """A running sum after each batch; the value is the list of all of them."""

    kind = "skeleton_running_sums"
    observes: ClassVar[bool] = True
    workload: Sums
    aggregate: PrefixSums

    @property
    def rounds(self) -> int:
        return self.aggregate.rounds

    @property
    def event(self) -> Event:
        return self.aggregate.event

    def check(self, data: View) -> None:
        if isinstance(data, OpaqueView) or data.width != self.workload.dimension:
            raise ValueError(f"batches must be a Dataset with rows of {self.workload.dimension} entries")

    def init(self, data: View, run: Run) -> State:
        return {"aggregate": self.aggregate.init(data, run), "answers": []}

    def step(self, state: State, given: Any, data: View, run: Run) -> tuple[State, Floats]:
        """Add a batch to the sum."""
        wanted = Rows(self.workload.dimension, self.workload.bound)
        aggregate, answer = self.aggregate.step(state["aggregate"], wanted, data, run)
        return {"aggregate": aggregate, "answers": [*state["answers"], answer]}, answer

    def finish(self, state: State) -> Floats:
        return np.array(state["answers"]).reshape(-1, self.workload.dimension)


class PrefixSumsOfStream(Algorithm[Interact]):
    """Release a running sum of records that arrive, after each batch."""

    name = "prefix_sums"
    summary = "running sums of records that arrive"
    reference = "[Gan22] Fact 15"
    solves = Interact
    workloads = (Sums,)
    guarantees = ("approximate", "gdp", "zcdp")

    def _plan(self, problem: Interact, budget: Budget) -> Plan:
        """Plan one release for each of ``problem.rounds`` batches."""
        work, rounds = problem.workload, problem.rounds
        why = Basis("adaptive Gaussian steps [LD, Lemma C.1]", budget.relation, budget.unit, (ONCE,), "idealised")

        def make(level: float) -> Step:
            sums = PrefixSums(1, level, rounds, budget.relation, Arriving(), bound=work.bound)
            return Step(RunningSums(work, sums), why)

        return calibrate(make, budget)

    def example(self, relation: str) -> Example:
        """Return two streams of three batches; a record of the first batch turns around, or is missing."""
        problem = Interact(workload=Sums(dimension=1, bound=1.0), rounds=3)
        batches = [InMemory(np.full((2, 1), 1.0), np.zeros(2)) for _ in range(3)]
        changed = [[1.0], [-1.0]] if relation == "replace" else [[1.0]]
        return Example(problem, tuple(batches), (InMemory(changed, np.zeros(len(changed))), *batches[1:]))


prefix_sums = PrefixSumsOfStream()

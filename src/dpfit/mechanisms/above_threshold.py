"""Above threshold: answer queries "is it high?" for as long as the answer is no, at the price of one.

Guarantee: epsilon-DP for the whole transcript, however many queries are asked and however they are chosen.
Reference: Dwork and Roth (2014), Theorem 3.23; [Liu24] Algorithms 27 and 34, Lemma 9.2.4 (which halts on the low side).

The threshold is noised once with Laplace noise of scale 2 S / epsilon, each query with fresh noise of scale
4 S / epsilon, where S is the sensitivity of every query; S / scale_1 + 2 S / scale_2 = epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.core import Interact, Interactive, Plan, Run, Session, Step, require_records
from dpfit.noise import Grid, Laplace, rounded
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.check import count, number, one_of, positive
from dpfit.privacy.event import Event, Pure
from dpfit.privacy.spec import Spec


@dataclass(frozen=True)
class ThresholdQueries(Spec):
    """Real queries, each moved by at most ``sensitivity`` by one neighbour change, compared with ``threshold``.

    ``halt`` is the side on which the interaction ends.
    """

    kind = "threshold_queries"
    threshold: float
    sensitivity: float = 1.0
    halt: str = "above"

    def __post_init__(self) -> None:
        if not math.isfinite(number("threshold", self.threshold)):
            raise ValueError(f"threshold must be finite, got {self.threshold!r}")
        positive("sensitivity", self.sensitivity)
        one_of("halt", self.halt, ("above", "below"))


@dataclass(frozen=True)
class AboveThreshold(Interactive):
    """The mechanism: its event is the whole interaction."""

    kind = "above_threshold"
    epsilon: float
    queries: ThresholdQueries
    rounds: int

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        count("rounds", self.rounds)

    @property
    def event(self) -> Event:
        return Pure(self.epsilon)

    def open(self, data: Any, run: Run) -> Session:
        return _Threshold(self, data, run)


class _Threshold(Session):
    """Noise drawn once for the threshold, once for each query; dead after halting."""

    def __init__(self, mechanism: AboveThreshold, data: Any, run: Run) -> None:
        self._mechanism, self._data, self._run = mechanism, data, run
        queries = mechanism.queries
        self._grid = Grid.fitting(queries.sensitivity, 1, "l1")
        # The sensitivity of a query rounded to the grid, in steps.
        charged = (queries.sensitivity + self._grid.rounding(1, "l1")) / self._grid.step
        self._query_scale = math.nextafter(4 * charged / mechanism.epsilon, math.inf)
        scale = math.nextafter(2 * charged / mechanism.epsilon, math.inf)
        self._threshold = int(self._grid.quantize(queries.threshold)) + self._draw(scale)
        self._answers: tuple[bool, ...] = ()

    def step(self, query: Callable[[Any], float]) -> bool:
        """Whether the noisy query is at or above the noisy threshold; the halting answer is the last."""
        if not callable(query):
            raise TypeError("a query is a function from the data to a number")
        noisy = int(self._grid.quantize(float(query(self._data)))) + self._draw(self._query_scale)
        above = noisy >= self._threshold
        self._answers += (above,)
        self.done = above == (self._mechanism.queries.halt == "above") or len(self._answers) >= self._mechanism.rounds
        return above

    def result(self) -> tuple[bool, ...]:
        return self._answers

    def _draw(self, scale: float) -> int:
        return int(rounded(Laplace(), scale, 1, self._run.noise)[0])


@dataclass(frozen=True)
class AboveThresholdAlgorithm:
    """Plans an interaction."""

    name: str = "above_threshold"

    def plan(self, problem: Interact, budget: Budget, **options: Any) -> Plan:
        """One interactive step that spends the whole pure budget.

        >>> problem = Interact(n=100, workload=ThresholdQueries(threshold=50.0), rounds=1000)
        >>> above_threshold.plan(problem, Budget(epsilon=1.0)).guarantee.pure
        1.0
        """
        if options:
            raise TypeError(f"{self.name} has no option {next(iter(options))!r}")
        require_records(self.name, budget)
        if not isinstance(problem.workload, ThresholdQueries):
            raise ValueError(f"above_threshold answers ThresholdQueries, not {problem.workload.kind!r}")
        if budget.epsilon is None:
            raise ValueError("above_threshold promises pure epsilon; give a budget with epsilon")
        basis = Basis(
            "above threshold (Dwork and Roth 2014, Theorem 3.23)",
            budget.relation,
            budget.unit,
            (Assumption("no query moves by more than the declared sensitivity", "declared"),),
            "exact",
        )
        return Step(AboveThreshold(float(budget.epsilon), problem.workload, problem.rounds), basis)

    def example(self, relation: str) -> tuple[Interact, Any, Any]:
        """Counts of ones; a one becomes a zero or leaves."""
        problem = Interact(n=3, workload=ThresholdQueries(threshold=2.0), rounds=4)
        ones = np.ones(3)
        return problem, ones, (ones[:-1] if relation == "add_remove" else np.array([1.0, 1.0, 0.0]))


above_threshold = AboveThresholdAlgorithm()

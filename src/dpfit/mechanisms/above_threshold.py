"""Above threshold: answer yes-or-no queries until the first yes, for the cost of one.

Guarantee: epsilon-DP for the whole transcript, however many queries are asked and however they are
chosen. Reference: Dwork and Roth (2014), Theorem 3.23; [Liu24] Algorithms 27 and 34, Lemma 9.2.4
(which halts on the low side).

The threshold is noised once with Laplace noise of scale S / (share epsilon), each query with fresh
noise of scale 2 S / ((1 - share) epsilon), where S is the sensitivity of every query; S / scale_1 +
2 S / scale_2 = epsilon. A single query needs no noisy threshold: share 0 and scale S / epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from dpfit.core import Algorithm, Example, Interact, Interactive, Plan, Run, State, Step
from dpfit.noise import Grid, Laplace, rounded
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.event import Event, Pure
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, option, positive, real


@dataclass(frozen=True)
class ThresholdQueries(Spec):
    """Real queries of at most this ``sensitivity``, each compared with ``threshold``.

    ``halt`` is the side on which the interaction ends.
    """

    kind = "threshold_queries"
    threshold: float
    sensitivity: float = 1.0
    halt: str = "above"

    def __post_init__(self) -> None:
        if not math.isfinite(real("threshold", self.threshold)):
            raise ValueError(f"threshold must be finite, got {self.threshold!r}")
        positive("sensitivity", self.sensitivity)
        option("halt", self.halt, ("above", "below"))


@dataclass(frozen=True)
class AboveThreshold(Interactive):
    """The mechanism: its event is the whole interaction.

    ``share`` is the fraction of epsilon that the threshold spends; 0 is for one round.
    """

    kind = "above_threshold"
    omitted = ("share",)
    epsilon: float
    queries: ThresholdQueries
    rounds: int
    share: float = 0.5

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        integer("rounds", self.rounds)
        if not 0 <= self.share < 1 or (self.share == 0 and self.rounds > 1):
            raise ValueError(f"share must lie in (0, 1), or be 0 for one round, got {self.share!r}")

    @property
    def event(self) -> Event:
        return Pure(self.epsilon)

    @cached_property
    def grid(self) -> Grid:
        """The grid that queries and threshold are rounded to."""
        return Grid.fitting(self.queries.sensitivity, 1, "l1")

    @cached_property
    def query_scale(self) -> float:
        """Scale of the noise of each query, in steps of the grid."""
        moves = 2.0 if self.share else 1.0
        return math.nextafter(moves * self._charged / ((1 - self.share) * self.epsilon), math.inf)

    @cached_property
    def threshold_scale(self) -> float:
        """Scale of the noise of the threshold, in steps of the grid; 0 without noise."""
        if not self.share:
            return 0.0
        return math.nextafter(self._charged / (self.share * self.epsilon), math.inf)

    @property
    def _charged(self) -> float:
        """The sensitivity of a query rounded to the grid, in steps."""
        return (self.queries.sensitivity + self.grid.rounding(1, "l1")) / self.grid.step

    def init(self, data: Any, run: Run) -> State:
        """Draw the noise of the threshold, once."""
        scale = self.threshold_scale
        noise = int(rounded(Laplace(), scale, 1, run.noise)[0]) if scale else 0
        return {"threshold": int(self.grid.quantize(self.queries.threshold)) + noise, "answers": ()}

    def step(self, state: State, given: Query, data: Any, run: Run) -> tuple[State, bool]:
        """Say whether the noisy query reaches the noisy threshold; the first yes is the last."""
        return self.compare(state, self.value(given, data), run)

    @staticmethod
    def value(query: Query, data: Any) -> float:
        """Return the value of a query on the caller's data."""
        if not callable(query):
            raise TypeError(
                f"a query must be a function from the data to a number, got {type(query).__name__}"
            )
        return float(query(data.given))

    def compare(self, state: State, value: float, run: Run) -> tuple[State, bool]:
        """Compare the value of a query, with fresh noise, with the noisy threshold."""
        noise = int(rounded(Laplace(), self.query_scale, 1, run.noise)[0])
        above = int(self.grid.quantize(value)) + noise >= state["threshold"]
        return state | {"answers": (*state["answers"], above)}, above

    def is_done(self, state: State) -> bool:
        """Whether the last answer halted the interaction."""
        answers = state["answers"]
        return bool(answers) and answers[-1] == (self.queries.halt == "above")

    def finish(self, state: State) -> tuple[bool, ...]:
        return tuple(state["answers"])

    def adversarial(self, data: Any, neighbour: Any) -> tuple[Distance, ...]:
        """Return queries that move towards halting on the neighbour, then one that moves away.

        That the first stay silent and the last one halts is less likely on the neighbour by the
        full noise of the threshold and of the last query, where the proof spends its two halves of
        epsilon. More than four queries come closer to epsilon, on transcripts that are too rare to
        be counted.
        """
        towards = 1.0 if self.queries.halt == "above" else -1.0
        s = towards * self.queries.sensitivity
        near = Distance(data, self.queries.threshold, s)
        last = Distance(data, self.queries.threshold + 2 * s / self.epsilon, -s)
        return (*[near] * (min(self.rounds, 4) - 1), last)


Query = Callable[[Any], float]


@dataclass(frozen=True)
class Distance:
    """The query "level, plus change if the data are not the reference".

    As min(1, number of changed records) times ``change`` it moves by at most ``abs(change)``
    between neighbours.
    """

    reference: Any
    level: float
    change: float

    def __call__(self, data: Any) -> float:
        same = len(data) == len(self.reference) and bool(
            np.all(np.asarray(data) == np.asarray(self.reference))
        )
        return self.level + (0.0 if same else self.change)


class AboveThresholdSearch(Algorithm[Interact]):
    """Find the first query above (or below) a threshold, for the privacy cost of one.

    Guarantee: epsilon-DP for the whole transcript, for any number and any choice of queries.
    Reference: Dwork and Roth (2014) Theorem 3.23; [Liu24] Algorithms 27 and 34.
    """

    name = "above_threshold"
    summary = "which query is the first above (or below) a threshold"
    reference = "Dwork and Roth (2014) Theorem 3.23; [Liu24] Algorithms 27 and 34"
    solves = Interact
    workloads = (ThresholdQueries,)
    guarantees = ("pure",)
    tier = "specialised"

    def _plan(self, problem: Interact, budget: Budget) -> Plan:
        """Plan one interactive step that spends the whole pure budget.

        >>> problem = Interact(n=100, workload=ThresholdQueries(threshold=50.0), rounds=1000)
        >>> above_threshold.plan(problem, Budget(epsilon=1.0)).guarantee.pure
        1.0
        """
        basis = Basis(
            "above threshold (Dwork and Roth 2014, Theorem 3.23)",
            budget.relation,
            budget.unit,
            (Assumption("no query moves by more than the declared sensitivity", "declared"),),
            "exact",
        )
        queries = cast(ThresholdQueries, problem.workload)
        return Step(AboveThreshold(float(budget.epsilon or 0.0), queries, problem.rounds), basis)

    def example(self, relation: str) -> Example:
        """Return counts of ones; a one becomes a zero or leaves."""
        problem = Interact(n=3, workload=ThresholdQueries(threshold=2.0), rounds=4)
        ones = np.ones(3)
        return Example(
            problem, ones, ones[:-1] if relation == "add_remove" else np.array([1.0, 1.0, 0.0])
        )


above_threshold = AboveThresholdSearch()

"""Follow the regularized leader in one file: the aggregate of `prefix_sums`, another optimizer; table or stream.

Guarantee. Each record is in one round: by its random position in a table, or because it arrives once (declared).
Gradients are clipped, so the argument of `prefix_sums` covers all answers: mu-GDP, mu = 1 / noise_multiplier, for
points chosen from earlier answers. The leader is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Minimize, Plan, State, Step
from dpfit.core.algorithm import BOUNDED
from dpfit.core.examples import opposite_records
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.sampling import Arriving, SinglePass
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.optimizer import Optimizer
from skeletons.prefix_sums import ONCE, PrefixSums


@dataclass(frozen=True)
class Leader(Optimizer):
    """The start minus a multiple of the sum of all gradients so far; the output is the mean of the points."""

    kind = "skeleton_leader"
    step_size: float
    clip_norm: float

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        return (self.clip_norm,)

    def init(self, problem: Minimize, aggregate: Aggregate, public: Any) -> State:
        start = problem.project(problem.origin)
        return {"point": start, "total": np.zeros_like(start), "steps": 0}

    def ask(self, problem: Minimize, state: State) -> Gradient:
        return Gradient(problem, state["point"], self.clip_norm)

    def tell(self, problem: Minimize, state: State, answer: NDArray[np.float64]) -> State:
        point = problem.project(problem.origin - self.step_size / problem.n * answer)
        return {"point": point, "total": state["total"] + point, "steps": state["steps"] + 1}

    def result(self, problem: Minimize, state: State) -> NDArray[np.float64]:
        return state["total"] / state["steps"] if state["steps"] else state["point"]


class FTRL(Algorithm[Minimize]):
    """Follow the leader on noisy prefix sums of gradients, in one pass."""

    name = "ftrl"
    summary = "one pass on noisy prefix sums of gradients, over a table or a stream"
    reference = "[LD] Lemma C.1"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (BOUNDED,)
    supports = frozenset({"domain"})

    def _plan(
        self, problem: Minimize, budget: Budget, *, rounds: int = 4, step_size: float = 1.0, stream: bool = False,
        clip_norm: float | None = None,
    ) -> Plan:  # fmt: skip
        """Plan one pass: over the table, or over ``rounds`` batches that arrive."""
        clip_norm = problem.constants(budget.relation).lipschitz if clip_norm is None else clip_norm
        once = ONCE if stream else Assumption("each record is in one round, by its position", "enforced")
        why = Basis("adaptive Gaussian steps [LD, Lemma C.1]", budget.relation, budget.unit, (once,), "idealised")
        sampling, moves = Arriving() if stream else SinglePass(), Leader(step_size, clip_norm)

        def make(level: float) -> Step:
            sums = PrefixSums(problem.n, level, rounds, budget.relation, sampling, bound=clip_norm)
            return Step(Descent(problem, sums, moves), why)

        return calibrate(make, budget)

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        return opposite_records(relation)


ftrl = FTRL()

"""Counts with whichever noise is predicted to err least.

Laplace, Gaussian, generalized Gaussian and K-norm noise are each calibrated to the whole budget, and their errors are
compared before data is seen: expected largest error, a quantile of it, or average error. The choice depends on public
facts only (the workload, the budget), so it costs nothing. Reference: [Gan22] chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dpfit.core import Answer, Plan, Step, require_records
from dpfit.mechanisms.counting import (
    CountingAlgorithm,
    NoisyCounts,
    counting_basis,
    counting_workload,
    moving_counts,
)
from dpfit.mechanisms.gaussian_counts import gaussian_counts
from dpfit.mechanisms.generalized_gaussian import generalized_gaussian
from dpfit.mechanisms.k_norm import k_norm
from dpfit.mechanisms.laplace_counts import laplace_counts
from dpfit.privacy import Budget, NotReachable
from dpfit.privacy.spec import Spec
from dpfit.theory.errors import checked_criterion

L = TypeVar("L")
N = TypeVar("N")

LAWS: dict[str, CountingAlgorithm] = {
    "laplace": laplace_counts,
    "gaussian": gaussian_counts,
    "generalized_gaussian": generalized_gaussian,
    "k_norm": k_norm,
}


@dataclass(frozen=True)
class Considered(Spec):
    """A law that was compared, with its predicted error."""

    kind = "considered_noise"
    label: str
    error: float


@dataclass(frozen=True)
class BestStep(Step):
    """A step whose noise was chosen; it says which laws were compared, best first."""

    kind = "best_step"
    minimize: str | float
    considered: tuple[Considered, ...]

    def explain(self, delta: float = 1e-6) -> str:
        best, *others = self.considered
        measure = {"max": "expected largest error", "average": "average error"}.get(
            str(self.minimize), f"{self.minimize} quantile of the largest error"
        )
        than = "".join(f", {other.label} {other.error:.4g}" for other in others)
        return f"{super().explain(delta)}\nchosen     {best.label} for its {measure}: {best.error:.4g}{than}"


@dataclass(frozen=True)
class BestCounts:
    """Plans counts with the best of several laws."""

    name: str = "counts"

    def plan(
        self, problem: Answer, budget: Budget, *, minimize: str | float = "max", noise: tuple[str, ...] = tuple(LAWS)
    ) -> Plan:
        """One step; ``minimize`` is "max", "average" or a level (a quantile of the largest error).

        >>> from dpfit.mechanisms.counting import Flags
        >>> plan = counts.plan(Answer(n=100, workload=Flags(50)), Budget(epsilon=1.0, delta=1e-6))
        >>> print(plan.explain().splitlines()[-1][:-15])
        chosen     K-norm for its expected largest error: 50, generalized Gaussian (p = 2.48) 73.3, Gaussian 74.97
        """
        require_records(self.name, budget)
        workload = counting_workload(self.name, problem)
        checked_criterion(minimize)
        number, changed = workload.number, workload.changed(budget.relation)
        laws = calibrated_laws(noise, LAWS, lambda law: law.noise(number, changed, budget, minimize))
        ranked = sorted(laws, key=lambda law: law.errors(number, changed).size(minimize))
        considered = tuple(Considered(law.label, law.errors(number, changed).size(minimize)) for law in ranked)
        mechanism = NoisyCounts(ranked[0], workload, budget.relation)
        return BestStep(mechanism, counting_basis(ranked[0].theorem, workload, budget), minimize, considered)

    def example(self, relation: str) -> tuple[Answer, Any, Any]:
        """The example of every counting algorithm."""
        return moving_counts(relation)


def calibrated_laws(names: tuple[str, ...], known: Mapping[str, L], noise: Callable[[L], N]) -> list[N]:
    """The noise of each named law that can keep a budget, calibrated to it by ``noise``."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        named = ", ".join(map(repr, unknown)) or "nothing"
        raise ValueError(f"noise must name some of {', '.join(known)}, got {named}")
    laws, refusals = [], []
    for name in names:
        try:
            laws.append(noise(known[name]))
        except NotReachable as error:
            refusals.append(str(error))
    if not laws:
        raise NotReachable("; ".join(refusals))
    return laws


counts = BestCounts()

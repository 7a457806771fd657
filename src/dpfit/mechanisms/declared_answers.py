"""Real-valued answers of declared sensitivities, with the noise whose predicted error is smallest.

Guarantee: (epsilon, delta)-DP, epsilon-DP, mu-GDP or rho-zCDP.
Assumes: the declared sensitivities, which nothing enforces; the basis says so.

Laplace, Gaussian, generalized Gaussian and K-norm noise are each calibrated to the whole budget,
under all declared norms at once. The choice between them depends on public facts only.
Reference: [Gan22] chapter 2, for l1 and l2 sensitivities as well; docs/explanation/queries.md,
section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from numpy.typing import ArrayLike

from dpfit.data.arrays import as_rows, check_array
from dpfit.data.view import View
from dpfit.mechanisms.additive import BestNoise, Change, Steps, SumQueries
from dpfit.noise import Grid
from dpfit.noise.lattice import ROUNDING_SHARE, Norm
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.validate import integer, positive

_LARGEST = 60
"""Contributions of one record are cut at two to this power steps of the grid."""

_NORMS = {"l1": "l1", "l2": "l2", "linf": "maximum"}


@dataclass(frozen=True)
class DeclaredQueries(SumQueries):
    """``queries`` numbers whose change by one neighbour has these bounds, in the given norms.

    Each record is a row of numbers, what it contributes to each answer, and an answer is the sum of
    its column. Norms that are not given follow from those that are:

    >>> workload = DeclaredQueries(100, l1=4.0, linf=1.0)
    >>> [round(workload.sensitivity(norm), 9) for norm in ("l1", "l2", "linf")]
    [4.0, 2.0, 1.0]
    """

    kind = "declared_queries"
    growth: ClassVar[float] = (1 + ROUNDING_SHARE) * (1 + 2.0**-50)
    queries: int
    l1: float | None = None
    l2: float | None = None
    linf: float | None = None

    def __post_init__(self) -> None:
        integer("the number of queries", self.queries)
        if not self.declared:
            raise ValueError(
                "declare how far one record moves the answers: l1, l2, linf or several of them"
            )
        for norm, bound in self.declared.items():
            positive(norm, bound)

    @property
    def declared(self) -> dict[str, float]:
        """The norms that are given."""
        given = {"l1": self.l1, "l2": self.l2, "linf": self.linf}
        return {norm: bound for norm, bound in given.items() if bound is not None}

    @property
    def number(self) -> int:
        return self.queries

    def change(self, relation: str) -> Change:
        """Return the smallest bounds implied by the declared ones, rounded up, by relation.

        max |v| <= |v|_2 <= |v|_1, |v|_2^2 <= |v|_1 max |v|, and each norm is at most that of equal
        entries.
        """
        l1, l2, linf = (self.declared.get(name, math.inf) for name in _NORMS)
        root, more = math.sqrt(self.queries), 1 + 2.0**-50
        linf = min(linf, l2, l1)
        l1 = min(l1, l2 * root * more, linf * self.queries * more)
        l2 = min(l2, l1, linf * root * more, math.sqrt(l1) * math.sqrt(linf) * more)
        return Change(self.queries, l1, l2, linf)

    @cached_property
    def grid(self) -> Grid:
        """A grid whose rounding costs at most `ROUNDING_SHARE` of the sensitivity in each norm."""
        norms: tuple[Norm, ...] = ("l1", "l2", "linf")
        grids = (Grid.fitting(self.sensitivity(norm), self.queries, norm) for norm in norms)
        return min(grids, key=lambda grid: grid.exponent)

    def sums(self, given: ArrayLike) -> Steps:
        return self.grid.sum(
            as_rows(given, self.queries, "numbers"), bound=math.ldexp(self.grid.step, _LARGEST)
        )

    def check(self, data: View) -> None:
        check_array(data, self.queries, "numbers")

    def basis(self, theorem: str, budget: Budget) -> Basis:
        norms = ", ".join(
            f"{bound:g} in the {_NORMS[norm]} norm" for norm, bound in self.declared.items()
        )
        moved = Assumption(
            f"one neighbour change moves the vector of answers by at most {norms}", "declared"
        )
        return Basis(theorem, budget.relation, budget.unit, (moved,), "exact")

    @staticmethod
    def example() -> DeclaredQueries:
        return DeclaredQueries(4, linf=1.0)


class DeclaredAnswers(BestNoise):
    """Answers of declared sensitivities with the best of several kinds of noise.

    Guarantee: that of the chosen noise, if the declared sensitivities are right. Reference: [Gan22]
    chapter 2.

    >>> from dpfit.core import Answer
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> plan = declared_answers.plan(Answer(workload=DeclaredQueries(1000, l2=1.0)), budget)
    >>> print(plan.explain().splitlines()[-1][:45])
    chosen     Gaussian, for its expected largest
    """

    name = "declared_answers"
    summary = (
        "real-valued sums of declared sensitivities, with the noise of smallest predicted error"
    )
    use_for = "sums whose sensitivities you can bound"
    reference = "[Gan22] chapter 2, under l1, l2 and l-infinity sensitivities"
    workloads = (DeclaredQueries,)


declared_answers = DeclaredAnswers()

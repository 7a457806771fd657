"""A sampler in one file: an exact Gibbs draw on a finite public set of parameters.

Guarantee. A candidate has probability proportional to exp(-beta * sum of losses). One record's loss
varies by at most R over the set, so one that is added or removed moves all exponents within an
interval of length beta * R, one that is replaced within 2 * beta * R: bounded range, hence pure
epsilon-DP ([Gan22] Section 1.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Mechanism, Minimize, Plan, Run, Step
from dpfit.core.algorithm import BOUNDED_DOMAIN, MARGIN_LOSS
from dpfit.core.examples import opposite_records
from dpfit.data.view import View
from dpfit.geometry import L2Ball
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import BoundedRange, Event


@dataclass(frozen=True)
class FiniteGibbs(Mechanism):
    """A draw among the centre of the domain and the points of the axes at its border."""

    kind = "skeleton_finite_gibbs"
    problem: Minimize
    relation: str
    epsilon: float

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon)

    @property
    def candidates(self) -> NDArray[np.float64]:
        """The public set."""
        axes = np.eye(self.problem.dimension) * self.problem.radius
        return np.array(
            [self.problem.project(point) for point in (self.problem.origin, *axes, *-axes)]
        )

    @property
    def beta(self) -> float:
        """The inverse temperature."""
        spread = self.problem.constants(self.relation).value_range
        return self.epsilon / (spread * (2 if self.relation == "replace" else 1))

    def run(self, data: View, run: Run) -> NDArray[np.float64]:
        losses, _ = data.gradients(self.problem.loss, self.candidates, **self.problem.guards)
        # Gumbel noise on the exponents makes the largest one an exact draw.
        return self.candidates[np.argmax(-self.beta * losses + run.noise.gumbel(len(losses)))]


class GibbsToy(Algorithm[Minimize]):
    """Draw a parameter from a finite set, with pure DP."""

    name = "gibbs_toy"
    summary = "an exact draw from a Gibbs distribution on a finite set"
    reference = "[Gan22] Section 1.4; Dong, Durfee and Rogers (2020)"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (MARGIN_LOSS, BOUNDED_DOMAIN)
    supports = frozenset({"domain"})

    def _plan(self, problem: Minimize, budget: Budget) -> Plan:
        """Plan one draw."""
        bounded = Assumption(
            "rows and labels are guarded, so a record's loss varies by at most the range",
            "enforced",
        )
        why = Basis("exponential mechanism, bounded range (Dong, Durfee and Rogers "
                    "2020)", budget.relation, budget.unit,
                    (bounded,), "idealised")  # fmt: skip
        return calibrate(
            lambda level: Step(FiniteGibbs(problem, budget.relation, 1 / level), why), budget
        )

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        problem, data, neighbour = opposite_records(relation)
        return Example(replace(problem, domain=L2Ball(2, 1.0)), data, neighbour)


gibbs_toy = GibbsToy()

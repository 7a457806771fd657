"""Which solver? Decided from public facts alone: the problem, the budget, how many passes may be made.

Reference: none; a choice among private algorithms that depends on public facts costs nothing.

Every solver that can keep the budget is planned and its risk predicted; the prediction is multiplied by a factor
measured on synthetic problems (`CALIBRATION`), and the smallest wins. `explain()` shows them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpfit.core import Cost, Minimize, Plan, Risk, Run
from dpfit.core.mechanism import Session
from dpfit.privacy import Basis, Budget, NotReachable
from dpfit.privacy.event import Event
from dpfit.privacy.record import Record
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.perturbation.objective_perturbation import objective_perturbation
from dpfit.solvers.perturbation.output_perturbation import output_perturbation


@dataclass(frozen=True)
class Candidate(Record):
    """A solver that was considered, with its predicted risk and cost."""

    kind = "candidate"
    name: str
    risk: float
    cost: Cost


@dataclass(frozen=True)
class Chosen(Plan):
    """A plan that was chosen among others, best first."""

    kind = "chosen"
    plan: Plan
    considered: tuple[Candidate, ...]

    @property
    def event(self) -> Event:
        return self.plan.event

    @property
    def basis(self) -> Basis:
        return self.plan.basis

    @property
    def cost(self) -> Cost:
        return self.plan.cost

    @property
    def risk(self) -> Risk | None:
        return Risk(self.considered[0].risk, "excess empirical risk (predicted)")

    def bound(self, released: tuple[Any, ...]) -> Chosen:
        return Chosen(self.plan.bound(released), self.considered)

    def execute(self, data: Any, run: Run) -> Any:
        return self.plan.execute(data, run)

    def session(self, data: Any, run: Run) -> Session:
        return self.plan.session(data, run)

    def explain(self) -> str:
        rows = [f"considered {c.name}: predicted risk {c.risk:.3g}, {c.cost}" for c in self.considered]
        return "\n".join([self.plan.explain(), f"chosen     {self.considered[0].name}", *rows])


@dataclass(frozen=True)
class Auto:
    """Plans with the solver of the smallest predicted risk."""

    name: str = "auto"

    def plan(self, problem: Minimize, budget: Budget, *, max_passes: int = 300) -> Chosen:
        """The best plan within the budget.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=30_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), features=100)
        >>> auto.plan(problem, Budget(epsilon=1.0, delta=1e-6)).considered[0].name
        'objective_perturbation'
        """
        plans: list[tuple[float, str, Plan]] = []
        refusals: list[str] = []
        for name, make in self._makers(max_passes).items():
            try:
                plan = make(problem, budget)
            except (NotReachable, ValueError) as error:
                refusals.append(f"{name}: {error}")
                continue
            plans.append((predicted(name, plan), name, plan))
        if not plans:
            raise ValueError("no solver can do this: " + "; ".join(refusals))
        ranked = sorted(plans, key=lambda triple: triple[:2])
        considered = tuple(Candidate(name, risk, plan.cost) for risk, name, plan in ranked)
        return Chosen(ranked[0][2], considered)

    @staticmethod
    def _makers(max_passes: int) -> dict[str, Any]:
        return {
            "noisy_gd": lambda problem, budget: noisy_gd.plan(problem, budget, max_passes=max_passes),
            "objective_perturbation": objective_perturbation.plan,
            "output_perturbation": output_perturbation.plan,
        }


CALIBRATION = {"noisy_gd": (6.0, 1.0), "objective_perturbation": (1.0, 1.0), "output_perturbation": (1.0, 1.0)}
"""Measured risk is about factor * predicted ** exponent."""


def predicted(name: str, plan: Plan) -> float:
    """The risk that is compared."""
    factor, exponent = CALIBRATION[name]
    if plan.risk is None:
        raise ValueError(f"{name} predicts no risk")
    return float(factor * plan.risk.expected**exponent)


auto = Auto()

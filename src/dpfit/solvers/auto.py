"""Which solver? Decided from public facts alone: the problem, the budget, how many passes may be made.

Reference: none; a choice among private algorithms that depends on public facts costs nothing.

The risk of every solver that can keep the budget is predicted on stand-ins for the data (`dpfit.solvers.supposed`) and
multiplied by a factor measured on synthetic problems (`dpfit.solvers.calibration`); the smallest wins, and only that
solver is calibrated where this takes time. `explain()` shows them all. How good the choice is: docs/explanation/
choosing.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from dpfit.core import Minimize, Plan, Risk, Run, Work
from dpfit.core.mechanism import Session
from dpfit.privacy import Basis, Budget, NotReachable
from dpfit.privacy.event import Event
from dpfit.privacy.spec import Spec
from dpfit.solvers.calibration import FACTORS
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.preconditioned_gd import preconditioned_gd
from dpfit.solvers.perturbation.objective_perturbation import objective_perturbation
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

MOST_COLUMNS, MOST_NUMBERS = 500, 2e7
"""With more of them in a table no second-moment matrix is considered: it takes a dense copy and hundreds of passes."""


@dataclass(frozen=True)
class Candidate(Spec):
    """A solver that was considered, with its predicted risk and cost."""

    kind = "candidate"
    former: ClassVar = {"cost": "work"}
    name: str
    risk: float
    work: Work


@dataclass(frozen=True)
class Chosen(Plan):
    """A plan that was chosen among others, best first; ``left_out`` says which solvers were not, and why."""

    kind = "chosen"
    plan: Plan
    considered: tuple[Candidate, ...]
    left_out: tuple[str, ...] = ()

    @property
    def event(self) -> Event:
        return self.plan.event

    @property
    def basis(self) -> Basis:
        return self.plan.basis

    @property
    def work(self) -> Work:
        return self.plan.work

    @property
    def risk(self) -> Risk | None:
        return Risk(self.considered[0].risk, "excess empirical risk")

    def bound(self, released: tuple[Any, ...]) -> Chosen:
        return replace(self, plan=self.plan.bound(released))

    def execute(self, data: Any, run: Run) -> Any:
        return self.plan.execute(data, run)

    def session(self, data: Any, run: Run) -> Session:
        return self.plan.session(data, run)

    def explain(self, delta: float = 1e-6) -> str:
        rows = [f"considered {c.name}: predicted risk {c.risk:.3g}, {c.work}" for c in self.considered]
        rows += [f"left out   {refusal}" for refusal in self.left_out]
        return "\n".join([self.plan.explain(delta), f"chosen     {self._why()}", *rows])

    def _why(self) -> str:
        best, *others = self.considered
        if not others:
            return f"{best.name}: the only one that can do this"
        return f"{best.name}: the least predicted risk, {best.risk / others[0].risk:.2g} of that of {others[0].name}"


class Prospect(NamedTuple):
    """A solver before it is planned: what it is expected to reach and cost, and how to plan it."""

    risk: float
    name: str
    work: Work
    plan: Callable[[], Plan]


@dataclass(frozen=True)
class Auto:
    """Plans with the solver of the smallest predicted risk."""

    name: str = "auto"

    def plan(self, problem: Minimize, budget: Budget, *, max_passes: int = 300) -> Chosen:
        """The best plan within the budget and ``max_passes`` passes over the data.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=30_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=100)
        >>> auto.plan(problem, Budget(epsilon=0.5, delta=1e-6)).considered[0].name
        'preconditioned_gd'
        >>> auto.plan(problem, Budget(epsilon=0.5)).considered[0].name
        'objective_perturbation'
        """
        prospects: list[Prospect] = []
        refusals: list[str] = []
        for name, foresee in PROSPECTS.items():
            try:
                prospect = foresee(name, problem, budget, max_passes)
            except (NotReachable, ValueError) as error:
                refusals.append(_refusal(name, error))
                continue
            if prospect.work.passes > max_passes:
                refusals.append(f"{name}: takes {prospect.work.passes:g} passes, {max_passes} are allowed")
            else:
                prospects.append(prospect)
        ranked = sorted(prospects, key=lambda prospect: prospect[:2])
        for rank, best in enumerate(ranked):
            try:
                plan = best.plan()
            except (NotReachable, ValueError) as error:
                refusals.append(_refusal(best.name, error))
                continue
            considered = tuple(Candidate(other.name, other.risk, other.work) for other in ranked[rank:])
            return Chosen(plan, considered, tuple(refusals))
        raise ValueError("no solver can do this: " + "; ".join(refusals))


def _refusal(name: str, error: Exception) -> str:
    return str(error) if str(error).startswith(name) else f"{name}: {error}"


def _descent(name: str, problem: Minimize, budget: Budget, max_passes: int) -> Prospect:
    return _planned(name, noisy_gd.plan(problem, budget, max_passes=max_passes))


def _mapped_descent(name: str, problem: Minimize, budget: Budget, max_passes: int) -> Prospect:
    if problem.loss.smoothness(problem.bounds, problem.radius) is None:
        raise ValueError("losses with corners are left to noisy_gd")
    if problem.n_features > MOST_COLUMNS or problem.n * problem.n_features > MOST_NUMBERS:
        raise ValueError("the table is so large that this would take long; ask for it by name")
    return _planned(name, preconditioned_gd.plan(problem, budget, max_passes=max_passes))


def _noisy_output(name: str, problem: Minimize, budget: Budget, max_passes: int) -> Prospect:
    return _planned(name, output_perturbation.plan(problem, budget))


def _noisy_objective(name: str, problem: Minimize, budget: Budget, max_passes: int) -> Prospect:
    """Calibrating this one takes long: foreseen from a sketch, planned only if it is the best."""
    sketch = objective_perturbation.sketch(problem, budget)
    return Prospect(
        FACTORS[name] * sketch.risk.expected,
        name,
        sketch.work,
        lambda: objective_perturbation.plan(problem, budget, ridge=sketch.ridge),
    )


def _planned(name: str, plan: Plan) -> Prospect:
    """A solver whose plan takes no time to make."""
    if plan.risk is None:
        raise ValueError(f"{name} predicts no risk")
    return Prospect(FACTORS[name] * plan.risk.expected, name, plan.work, lambda: plan)


PROSPECTS: dict[str, Callable[[str, Minimize, Budget, int], Prospect]] = {
    "noisy_gd": _descent,
    "objective_perturbation": _noisy_objective,
    "output_perturbation": _noisy_output,
    "preconditioned_gd": _mapped_descent,
}

auto = Auto()

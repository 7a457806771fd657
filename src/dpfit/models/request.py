"""From public facts to a plan: the one way of estimators and of the command line.

A `Request` holds what is public about a fit: numbers of records and columns, budget, ranges, users, and the currency of
the ledger that pays. It decides how the budget is shared and wraps the plan of its objective: scaled records, ranges
that are found first, capped users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from dpfit.catalogue import find
from dpfit.core import (
    Algorithm,
    Answer,
    Composition,
    Leak,
    Minimize,
    Plan,
    Release,
    Stage,
    TransformedPlan,
)
from dpfit.geometry import Domain
from dpfit.ledger import NotChargeable
from dpfit.ledger.price import price
from dpfit.losses import Bounds
from dpfit.losses.base import Loss
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean, laplace_mean
from dpfit.mechanisms.private_bounds import ColumnRanges, private_bounds
from dpfit.models.ranges import is_noiseless, shares
from dpfit.models.scaling import ScaledBy, Scaling
from dpfit.models.users import UserCap, record_budgets
from dpfit.privacy import Budget
from dpfit.privacy.check import count, non_negative
from dpfit.solvers.auto import auto
from dpfit.solvers.public_data.descent import RECORDS_PER_DIMENSION

RANGES, FIT = "ranges", "fit"
"""Names of the stages where ranges are found privately."""

_SAME_COST = 1.01
"""Privacy costs within this factor count as equal: costs of one guarantee differ in the last digits."""


class Objective(Protocol):
    """What is computed from scaled records."""

    def plan(self, n: int, columns: int, scaling: Scaling, budget: Budget, currency: str | None) -> Plan:
        """Return the plan on scaled records, within a budget for one record."""
        ...


@dataclass(frozen=True)
class Request:
    """Public facts of a fit.

    Parameters
    ----------
    n, columns : int
        Declared number of records, and columns before scaling.
    budget : Budget
        Budget of the fit, for a record, or for a user if ``max_rows`` is given.
    scaling : Scaling
        The scaling by declared facts.
    missing : ColumnRanges, optional
        Ranges that the plan finds privately before it fits.
    max_rows : int, optional
        Protect users: at most this many records of each are used.
    currency : str, optional
        Currency of the dataset in the ledger that pays: the plan is the best of those with the lowest privacy cost.
    leaks : tuple of str
        Facts about the records that the guarantee does not cover.
    compare : bool
        Whether several ways to share the budget are compared by predicted risk.
    """

    n: int
    columns: int
    budget: Budget
    objective: Objective
    scaling: Scaling
    missing: ColumnRanges | None = None
    max_rows: int | None = None
    currency: str | None = None
    leaks: tuple[str, ...] = ()
    compare: bool = True

    def plan(self) -> Plan:
        """Return the plan; ValueError with a hint if no solver can make one."""
        cap = None if self.max_rows is None else UserCap(self.max_rows)
        budgets = (self.budget,) if cap is None else record_budgets(self.budget, cap.max_rows)
        ways = [way for one in budgets for way in shares(one, self.missing, compare=self.compare)]
        made = [(fit, partial(self._plan_for_records, ranges, fit)) for ranges, fit in ways]
        # Minimizers without noise are exact. Their pure guarantee has a low cost where epsilons add up, only.
        exact = [plan for fit, plan in made if is_noiseless(fit) and self.currency in (None, "pure")]
        plan = _best(exact, self.currency) or _best([plan for _, plan in made], self.currency, required=True)
        plan = plan.with_notes(*map(Leak, self.leaks))
        plan = plan if cap is None else TransformedPlan.of(cap, plan)
        if not self.budget.admits(plan.event):
            raise RuntimeError("the plan of a model exceeds its budget: this is a defect of dpfit")
        return plan

    def used_scaling(self, release: Release) -> Scaling:
        """Return the scaling of a release of the plan, with the ranges that it found."""
        return self.scaling if self.missing is None else self.scaling.within(self.missing, release.stages[RANGES])

    def _plan_for_records(self, ranges: Budget | None, fit: Budget) -> Plan:
        fitted = TransformedPlan.of(
            self.scaling, self.objective.plan(self.n, self.columns, self.scaling, fit, self.currency)
        )
        if self.missing is None or ranges is None:
            return fitted
        found = private_bounds.plan(Answer(n=self.n, workload=self.missing), ranges)
        stages = (Stage(RANGES, found), Stage(FIT, fitted, ScaledBy(RANGES, self.missing)))
        return Composition(stages, algorithm=fitted.algorithm, notes=fitted.notes, predicted=fitted.predicted)


@dataclass(frozen=True)
class LossObjective:
    """Find the parameter with the least mean loss plus ridge.

    Parameters
    ----------
    losses : callable
        From budget, n and the number of features to losses, the preferred one first.
    solver : str or Algorithm
        The name or the object of a minimizer; it gets the first loss whose facts meet its requirements.
    label_range : tuple
        Bounds of scaled labels.
    public : int, optional
        Number of public records that come with the data.
    """

    losses: Callable[[Budget, int, int], tuple[Loss, ...]]
    solver: str | Algorithm[Any] = "auto"
    label_range: tuple[float, float] | tuple[None, None] = (None, None)
    ridge: float = 0.0
    max_passes: int | None = None
    public: int | None = None
    domain: Domain | None = None

    def plan(self, n: int, columns: int, scaling: Scaling, budget: Budget, currency: str | None) -> Plan:
        features = scaling.width(columns)
        problems = [
            Minimize(
                n=n,
                loss=loss,
                bounds=Bounds(scaling.bound, *self.label_range),
                n_features=features,
                domain=self.domain,
                ridge=non_negative("ridge", self.ridge),
            )
            for loss in self.losses(budget, n, features)
        ]
        if self.public is not None and budget.kind == "pure":
            raise ValueError("a fit that starts from public records needs delta > 0 (far below 1 / n), or no public")
        solver = self._solver_for(problems[0])
        chooses = solver.name == auto.name
        if not chooses:
            problems = [replace(problem, public=self.public) for problem in problems]
        options = self._options(solver, currency)
        refusals: list[ValueError] = []
        for problem in problems:
            try:
                solver.require(problem, budget, options)
                # `auto` declares no requirement: it refuses a loss when none of its solvers can plan with it.
                if chooses:
                    return solver.plan(problem, budget, **options)
            except ValueError as refusal:
                refusals.append(refusal)
                continue
            return solver.plan(problem, budget, **options)
        raise refusals[-1 if chooses else 0]

    def _solver_for(self, problem: Minimize) -> Algorithm[Any]:
        """Return the solver: with `auto` and enough public records one that starts from them.

        With few public records their curvature is a guess, and a plain descent from their fit is safer; with very few
        their fit may be worse than none.
        """
        solver = named_solver(self.solver)
        enough = RECORDS_PER_DIMENSION * problem.dimension
        if self.public is None or solver.name != auto.name or self.public < enough:
            return solver
        return named_solver("pda_dpmd" if self.public > 2 * problem.n_features else "warm_start_gd")

    def _options(self, solver: Algorithm[Any], currency: str | None) -> dict[str, Any]:
        known, options = solver.options, dict[str, Any]()
        if currency is not None and "currency" in known:
            options["currency"] = currency
        if self.max_passes is not None:
            if "max_passes" not in known:
                raise ValueError(
                    f"{solver.name} plans its passes by itself: leave out max_passes, or choose another solver"
                )
            options["max_passes"] = count("max_passes", self.max_passes)
        return options


@dataclass(frozen=True)
class MeanObjective:
    """The mean of each column, scaled to [-1, 1]."""

    def plan(self, n: int, columns: int, scaling: Scaling, budget: Budget, currency: str | None) -> Plan:
        return noisy_mean(n, BoundedMean(-1.0, 1.0, columns), budget)


def noisy_mean(n: int, mean: BoundedMean, budget: Budget) -> Plan:
    """Return the plan of a mean: Laplace noise for a pure budget, Gaussian noise for others."""
    algorithm = laplace_mean if budget.kind == "pure" else gaussian_mean
    return algorithm.plan(Answer(n=n, workload=mean), budget)


def named_solver(solver: str | Algorithm[Any]) -> Algorithm[Any]:
    """Return the minimizer of a name; an object is returned as it is."""
    return auto if solver == auto.name else find(solver, Minimize.kind)


def _best(plans: Sequence[Callable[[], Plan]], currency: str | None, *, required: bool = False) -> Any:
    """Return the plan of least predicted risk among those with the lowest privacy cost; None if none can be made.

    It is the first where none predicts a risk. If ``required``, the first refusal is raised in place of None.
    """
    made: list[Plan] = []
    refusals: list[ValueError] = []
    for plan in plans:
        try:
            made.append(plan())
        except ValueError as refusal:
            refusals.append(refusal)
    if not made and required:
        raise refusals[0]
    affordable = cheapest(made, currency)
    return min(affordable, key=lambda plan: math.inf if plan.risk is None else plan.risk.expected, default=None)


def cheapest(plans: list[Plan], currency: str | None) -> list[Plan]:
    """Return the plans with the lowest privacy cost in a currency; all of them if none has a cost there.

    Guarantees that look alike can differ much in cost: pure epsilon is expensive in a budget that adds up mu squared,
    and Gaussian noise has no cost in one that adds up epsilons.
    """
    costs: list[tuple[float, Plan]] = []
    for plan in plans if currency is not None and len(plans) > 1 else ():
        try:
            costs.append((float(price(plan.guarantee, str(currency)).amount), plan))
        except NotChargeable:
            continue
    least = min((cost for cost, _ in costs), default=0.0)
    return [plan for cost, plan in costs if cost <= _SAME_COST * least] or plans

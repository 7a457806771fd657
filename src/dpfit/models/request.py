"""From public facts to a plan: the one way of estimators and of the command line.

A `Request` holds what is public about a fit: numbers of records and columns, budget, ranges, users,
and the currency of the ledger that pays. It decides how the budget is shared and wraps the plan of
its objective: scaled records, ranges that are found first, capped users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from dpfit.catalogue import find
from dpfit.core import (
    Answer,
    Composition,
    Leak,
    Minimize,
    Plan,
    Release,
    Stage,
    TransformedPlan,
)
from dpfit.core.algorithm import Minimizer
from dpfit.core.notes import Considered, DeclaredRanges, LeftOut, Note
from dpfit.geometry import Domain, L1Ball
from dpfit.ledger import NotChargeable
from dpfit.ledger.cost import cost_in_currency
from dpfit.losses import Bounds
from dpfit.losses.base import Loss
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean, laplace_mean
from dpfit.mechanisms.private_bounds import ColumnRanges, private_bounds
from dpfit.models.leaks import RANGES_LEAK
from dpfit.models.ranges import is_noiseless, shares
from dpfit.models.scaling import ScaledBy, Scaling
from dpfit.models.users import cap_and_budgets
from dpfit.privacy import Budget
from dpfit.privacy.validate import integer, non_negative, positive
from dpfit.solvers.auto import auto
from dpfit.solvers.gradient.phased_sgd import phased_sgd
from dpfit.solvers.public_data.descent import TUNING as PUBLIC

RANGES, FIT = "ranges", "fit"
"""Names of the stages where ranges are found privately."""

_SAME_COST = 1.01
"""Privacy costs within this factor count as equal: costs of one guarantee differ in the last
digits.
"""


class Objective(Protocol):
    """What is computed from scaled records."""

    def plan(
        self, n: int, columns: int, scaling: Scaling, budget: Budget, currency: str | None
    ) -> Plan:
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
        Budget of the fit, for a record or for a user.
    scaling : Scaling
        The scaling by declared facts.
    missing : ColumnRanges, optional
        Ranges that the plan finds privately before it fits.
    max_rows : int, optional
        Of users: at most this many records of each are used, at random, and charged together.
    n_users : int, optional
        Public number of users: their means of gradients are considered, too.
    dropped : float
        Predicted excess risk of a cap because it leaves out rows, whatever the noise.
    currency : str, optional
        Currency of the dataset in the ledger that pays: the plan is the best of those with the
        lowest privacy cost.
    leaks : tuple of str
        Facts about the records that the guarantee does not cover.
    compare : bool
        Whether several ways to share the budget are compared by predicted risk.
    notes : tuple of Note
        What else the plan says about itself.
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
    notes: tuple[Note, ...] = ()
    n_users: int | None = None
    dropped: float = 0.0

    def plan(self) -> Plan:
        """Return the plan; ValueError with a hint if no solver can make one."""
        if self.budget.unit == "user":
            plan = self._plan_for_users()
        else:
            plan = self._plan_within((self.budget,))
        if not self.budget.admits(plan.event):
            raise RuntimeError("the plan of a model exceeds its budget: this is a defect of dpfit")
        return plan

    def _plan_for_users(self) -> Plan:
        """Return the better of two ways: cap the records of a user, or average their gradients."""
        if self.budget.kind == "pure" and self.max_rows is None:
            raise ValueError(
                "means over users cannot guarantee pure epsilon; pass delta, or max_rows_per_user: "
                "capped rows are charged as a group"
            )
        ways: dict[str, Callable[[], Plan]] = {}
        if self.n_users is not None:
            ways["user means"] = lambda: self._plan_within((self.budget,))
        if self.max_rows is not None:
            ways[f"at most {self.max_rows} rows of a user"] = self._plan_capped
        refusals: list[ValueError] = []
        best = _best(list(ways.values()), self.currency, refusals)
        if best is None:
            raise refusals[0]
        return best.with_notes(*self._other_ways(ways, best))

    def _other_ways(self, ways: dict[str, Callable[[], Plan]], best: Plan) -> list[Note]:
        """Return what the ways that were not taken would have reached."""
        notes: list[Note] = []
        for name, way in ways.items() if len(ways) > 1 else ():
            try:
                plan = way()
            except ValueError as refusal:
                notes.append(LeftOut(f"{name}: {refusal}"))
                continue
            if plan.risk is not None:
                algorithm = plan.considered[0].name if plan.considered else plan.algorithm
                notes.append(Considered(f"{algorithm}, {name}", plan.risk.expected, plan.work))
        return notes

    def _plan_capped(self) -> Plan:
        cap, budgets = cap_and_budgets(self.budget, int(self.max_rows or 0))
        plan = TransformedPlan.of(cap, self._plan_within(budgets))
        if plan.risk is None or not self.dropped:
            return plan
        risk = replace(plan.risk, expected=plan.risk.expected + self.dropped)
        return replace(plan, predicted=risk)

    def _plan_within(self, budgets: tuple[Budget, ...]) -> Plan:
        """Return the best plan within one of the budgets."""
        ways = [way for one in budgets for way in shares(one, self.missing, compare=self.compare)]
        made = [(fit, partial(self._plan_for_records, ranges, fit)) for ranges, fit in ways]
        # Minimizers without noise are exact. Their pure guarantee has a low cost where epsilons add
        # up, only.
        exact = [
            plan for fit, plan in made if is_noiseless(fit) and self.currency in (None, "pure")
        ]
        refusals: list[ValueError] = []
        plan = _best(exact, self.currency, []) or _best(
            [plan for _, plan in made], self.currency, refusals
        )
        if plan is None:
            raise refusals[0]
        found = RANGES_LEAK in self.leaks or (self.missing is not None and self.missing.columns)
        declared = () if found else (DeclaredRanges(),)
        return plan.with_notes(*map(Leak, self.leaks), *declared, *self.notes)

    def used_scaling(self, release: Release) -> Scaling:
        """Return the scaling of a release of the plan, with the ranges that it found."""
        return (
            self.scaling
            if self.missing is None
            else self.scaling.within(self.missing, release.stages[RANGES])
        )

    def _plan_for_records(self, ranges: Budget | None, fit: Budget) -> Plan:
        n = int(self.n_users or 0) if fit.unit == "user" else self.n
        fitted = TransformedPlan.of(
            self.scaling, self.objective.plan(n, self.columns, self.scaling, fit, self.currency)
        )
        if self.missing is None or ranges is None:
            return fitted
        found = self._plan_ranges(n, self.missing, ranges)
        stages = (Stage(RANGES, found), Stage(FIT, fitted, ScaledBy(RANGES, self.missing)))
        return Composition(
            stages, algorithm=fitted.algorithm, notes=fitted.notes, predicted=fitted.predicted
        )

    @staticmethod
    def _plan_ranges(n: int, missing: ColumnRanges, budget: Budget) -> Plan:
        """Return the plan of the ranges; of users, from one record of each, drawn at random."""
        problem = Answer(n=n, workload=missing)
        if budget.unit == "record":
            return private_bounds.plan(problem, budget)
        cap, budgets = cap_and_budgets(budget, 1)
        return TransformedPlan.of(cap, private_bounds.plan(problem, budgets[0]))


@dataclass(frozen=True)
class LossObjective:
    """Find the parameter with the least mean loss plus ridge.

    Parameters
    ----------
    losses : callable
        From budget, n and the number of features to losses, the preferred one first.
    solver : str or Algorithm
        The name or the object of a minimizer; it gets the first loss whose facts meet its
        requirements.
    label_range : tuple
        Bounds of scaled labels.
    public : int, optional
        Number of public records that come with the data.
    intercept : float, optional
        What the last column of scaled rows holds in each row, where it is constant.
    rows_per_user : float, optional
        Typical number of records of a user, where users are protected.
    l1_radius : float, optional
        Declares sparsity: the coefficients of the columns, all in [-1, 1], sum to at most this
        number in absolute value. The intercept does not count.
    has_constant : bool
        Whether the last column of the rows is a constant, apart from one that the scaling adds.
    """

    losses: Callable[[Budget, int, int], tuple[Loss, ...]]
    solver: str | Minimizer = "auto"
    label_range: tuple[float, float] | tuple[None, None] = (None, None)
    ridge: float = 0.0
    max_passes: int | None = None
    public: int | None = None
    domain: Domain | None = None
    intercept: float | None = None
    rows_per_user: float | None = None
    l1_radius: float | None = None
    has_constant: bool = False

    def plan(
        self, n: int, columns: int, scaling: Scaling, budget: Budget, currency: str | None
    ) -> Plan:
        features = scaling.width(columns)
        domain, row_max = self.domain, None
        if self.l1_radius is not None:
            free = int(self.has_constant or bool(scaling.constant))
            domain = l1_ball(features, self.l1_radius, free)
            row_max = 1.0
        losses = self.losses(budget, n, features)
        if row_max is not None and losses[0].outputs > 1:
            raise ValueError("l1_radius is for two classes; fit one class against the others")
        problems = [
            Minimize(
                n=n,
                loss=loss,
                bounds=replace(Bounds(scaling.bound, *self.label_range), row_max=row_max),
                n_features=features,
                domain=domain,
                ridge=non_negative("ridge", self.ridge) * loss.slope_span,
                intercept=self.intercept,
                rows_per_user=self.rows_per_user if budget.unit == "user" else None,
            )
            for loss in losses
        ]
        if self.public is not None and budget.kind == "pure":
            raise ValueError(
                "a fit that starts from public records needs delta > 0 (far below 1 / n), or no "
                "public"
            )
        solver = self._solver_for(problems[0])
        chooses = solver.name == auto.name
        if not chooses:
            problems = [replace(problem, public=self.public) for problem in problems]
        options = self._options(solver, currency)
        if problems[0].loss.is_quantile:
            # These losses stand for the same one, and risks are predicted for that one.
            refusals: list[ValueError] = []
            plans = [partial(solver.plan, problem, budget, **options) for problem in problems]
            plan = _best(plans, currency, refusals)
            if plan is None:
                raise refusals[-1]
            return plan
        if chooses:
            return _best_loss(problems, budget, options)
        refusals = []
        for problem in problems:
            try:
                solver.require(problem, budget, options)
            except ValueError as refusal:
                refusals.append(refusal)
                continue
            return solver.plan(problem, budget, **options)
        raise refusals[0]

    def _solver_for(self, problem: Minimize) -> Minimizer:
        """Return the solver: with `auto` and enough public records one that starts from them.

        With few public records their curvature is a guess, and a plain descent from their fit is
        safer; with very few their fit may be worse than none.
        """
        solver = named_solver(self.solver)
        enough = PUBLIC.records_per_dimension * problem.dimension
        if self.public is None or solver.name != auto.name or self.public < enough:
            return solver
        return named_solver("pda_dpmd" if self.public > 2 * problem.n_features else "warm_start_gd")

    def _options(self, solver: Minimizer, currency: str | None) -> dict[str, str | int]:
        known, options = solver.options, dict[str, str | int]()
        if currency is not None and "currency" in known:
            options["currency"] = currency
        if self.max_passes is not None:
            if "max_passes" not in known:
                raise ValueError(
                    f"{solver.name} plans its passes by itself: leave out max_passes, or choose "
                    "another solver"
                )
            options["max_passes"] = integer("max_passes", self.max_passes)
        return options


def _best_loss(problems: Sequence[Minimize], budget: Budget, options: Mapping[str, Any]) -> Plan:
    """Return the plan of `auto` for the first loss that it can plan with.

    One pass can do with losses that no other solver takes. So its plan is compared with those of
    the other losses, by predicted risk over the Lipschitz constant.
    """
    plans: list[tuple[float, Plan]] = []
    for problem in problems:
        try:
            plan = auto.plan(problem, budget, **options)
        except ValueError as error:
            refusal = error
            continue
        risk = math.inf if plan.risk is None else plan.risk.expected
        plans.append((risk / problem.constants("add_remove").lipschitz, plan))
        if plan.algorithm != phased_sgd.name:
            break
    if not plans:
        raise refusal
    return min(plans, key=lambda each: each[0])[1]


def l1_ball(features: int, radius: float, free: int) -> L1Ball:
    """Return the ball of the coefficients; ValueError with a hint if there can be none."""
    if features <= free:
        raise ValueError("l1_radius needs a column apart from the intercept; leave it out")
    return L1Ball(features, positive("l1_radius", radius), free)


@dataclass(frozen=True)
class MeanObjective:
    """The mean of each column, scaled to [-1, 1]."""

    def plan(
        self, n: int, columns: int, scaling: Scaling, budget: Budget, currency: str | None
    ) -> Plan:
        return noisy_mean(n, BoundedMean(-1.0, 1.0, columns), budget)


def noisy_mean(n: int, mean: BoundedMean, budget: Budget) -> Plan:
    """Return the plan of a mean: Laplace noise for a pure budget, Gaussian noise for others."""
    algorithm = laplace_mean if budget.kind == "pure" else gaussian_mean
    return algorithm.plan(Answer(n=n, workload=mean), budget)


def named_solver(solver: str | Minimizer) -> Minimizer:
    """Return the minimizer of a name; an object is returned as it is."""
    return auto if solver == auto.name else find(solver, Minimize.kind)


def _best(
    plans: Sequence[Callable[[], Plan]], currency: str | None, refusals: list[ValueError]
) -> Plan | None:
    """Return the plan of least predicted risk among those of least privacy cost, or None.

    It is the first where none predicts a risk. ``refusals`` collects the errors of plans that
    cannot be made.
    """
    made: list[Plan] = []
    for plan in plans:
        try:
            made.append(plan())
        except ValueError as refusal:
            refusals.append(refusal)
    affordable = cheapest(made, currency)
    return min(
        affordable,
        key=lambda plan: math.inf if plan.risk is None else plan.risk.expected,
        default=None,
    )


def cheapest(plans: list[Plan], currency: str | None) -> list[Plan]:
    """Return the plans of least privacy cost in a currency; all if none has a cost there.

    Guarantees that look alike can differ much in cost: pure epsilon is expensive in a budget that
    adds up mu squared, and Gaussian noise has no cost in one that adds up epsilons.
    """
    costs: list[tuple[float, Plan]] = []
    for plan in plans if currency is not None and len(plans) > 1 else ():
        try:
            costs.append((float(cost_in_currency(plan.guarantee, str(currency)).amount), plan))
        except NotChargeable:
            continue
    least = min((cost for cost, _ in costs), default=0.0)
    return [plan for cost, plan in costs if cost <= _SAME_COST * least] or plans

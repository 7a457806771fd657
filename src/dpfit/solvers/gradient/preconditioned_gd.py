"""Noisy gradient descent in the geometry of second moments, where the data are isotropic.

Guarantee: mu-GDP, the release of the matrix and the descent composed; of the descent alone where
the matrix is public. Reference: adaptive composition ([ASAP] Lemma 14), [LD] Lemma C.1;
docs/explanation/trajectory.md, Theorem 1 and "Another geometry".

The first stage releases the mean of x x^T with noise. From that matrix, or a public one, comes a
map A that shortens directions in which rows are long until all are alike. The second stage is
`noisy_gd` on the records (A x, y), whose gradients are clipped at what rows of the usual length
there can have; it releases A times the parameter. So descent is as fast, and noise as small, along
the short directions as along the long ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpfit.core import (
    Algorithm,
    Binding,
    Composition,
    Example,
    Forecast,
    Minimize,
    Plan,
    Risk,
    Stage,
    Step,
    TransformedPlan,
    Tuning,
)
from dpfit.core.algorithm import BOUNDED, MARGIN_LOSS, NO_DOMAIN
from dpfit.core.examples import opposite_records
from dpfit.core.reference_designs import Design, power_mean_risk, reference_designs
from dpfit.geometry.symmetric import pack
from dpfit.losses.base import Bounds
from dpfit.privacy import Assumption, Budget, calibrate
from dpfit.privacy.event import Composed, Gaussian
from dpfit.privacy.validate import integer, positive
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.predicted import risk_on
from dpfit.solvers.descents.rule import TUNING as DESCENT
from dpfit.solvers.descents.rule import tune_descent
from dpfit.solvers.descents.scales import TUNING as SCALES
from dpfit.solvers.descents.scales import gradient_bound, natural_unit, relative_noise
from dpfit.solvers.descents.second_moments import (
    MappedRows,
    Preconditioner,
    SecondMoments,
    isotropic_preconditioner,
    matrix_basis,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PreconditionerTuning(Tuning):
    """Tuned numbers of the preconditioner.

    Parameters
    ----------
    span : float
        How long a row may be behind the map, over the root mean square of rows there, before its
        gradient is clipped for its length alone.
    easing : float
        ``easing`` over the relative noise is added to ``span``, so that the bias falls with the
        noise.
    share : float
        Fraction of the squared GDP budget that goes to the matrix.
    flattest : float
        Directions whose second moment is below this fraction of the largest one are treated as if
        it were that.
    max_columns, max_entries : int, float
        Sizes above which a plan takes minutes: `forecast` refuses them, and `auto` goes on.
    """

    kind = "preconditioner_tuning"
    set_by: str = "benchmarks/curvature.py"
    span: float = 1.5
    easing: float = 0.0001
    share: float = 0.07
    flattest: float = 1e-5
    max_columns: int = 500
    max_entries: float = 2e7


TUNING = PreconditionerTuning()


@dataclass(frozen=True)
class IsotropicRule:
    """The rule from second moments to a descent behind a map; `_plan` and the binding share it.

    ``floor`` is the second moment below which the matrix says nothing.
    """

    problem: Minimize
    relation: str
    noise_multiplier: float
    steps: int
    floor: float

    def preconditioner(self, values: Floats) -> Preconditioner:
        """Return the geometry for second moments with these eigenvalues."""
        noise = relative_noise(self.problem, self.relation, self.noise_multiplier)
        span = TUNING.span + TUNING.easing / noise
        row_norm = self.problem.bounds.row_norm
        return isotropic_preconditioner(values, self.floor, row_norm, span, TUNING.flattest)

    def tuned(self, geometry: Preconditioner) -> Descent:
        """Return the descent for rows of usual norm after the map; longer rows are clipped."""
        bounds = self.problem.bounds
        seen = replace(
            self.problem,
            bounds=Bounds(geometry.usual, bounds.label_lower, bounds.label_upper),
            start=None,
        )
        return tune_descent(
            seen,
            self.relation,
            self.noise_multiplier,
            max_passes=self.steps,
            moment=geometry.moment,
        )

    def mapped(self, moments: Floats) -> tuple[MappedRows, Descent]:
        """Return the map and the descent behind it for a second-moment matrix."""
        values, vectors = np.linalg.eigh(moments)
        geometry = self.preconditioner(values)
        matrix = (vectors * np.sqrt(geometry.squares)) @ vectors.T
        packed = tuple(pack(matrix).tolist())
        problem = replace(self.problem, ridge_map=packed) if self.problem.ridge else self.problem
        if problem.start is not None:
            problem = replace(
                problem, start=tuple(np.linalg.solve(matrix, np.array(problem.start)).tolist())
            )
        return replace(self.rows, matrix=packed), replace(self.tuned(geometry), problem=problem)

    @property
    def rows(self) -> MappedRows:
        """The map before it is bound."""
        return MappedRows(self.problem.bounds, bool(self.problem.guards.get("binary", False)))

    @property
    def isotropic(self) -> Floats:
        """Second moments of rows that favour no direction, which stand in for released ones."""
        return np.asarray(
            self.problem.bounds.row_norm**2
            / self.problem.n_features
            * np.eye(self.problem.n_features)
        )

    @cached_property
    def risk(self) -> Risk:
        """Power mean of `noisy_gd`'s predicted risks on reference designs, by design's geometry.

        Moments get the noise that the matrix has, so where it is mostly noise it is predicted to do
        harm.
        """
        problem = self.problem

        def risk(design: Design) -> float:
            shares = design.curvatures / design.curvatures.sum()
            moments = (design.length * problem.bounds.row_norm) ** 2 * shares
            geometry = self.preconditioner(moments + self.floor * _spread(len(moments)))
            squares = geometry.squares
            seen = design._replace(
                curvatures=design.curvatures * squares,
                squares=design.squares / squares,
                length=math.sqrt(float(squares @ moments)) / geometry.usual,
            )
            return risk_on(seen, self.tuned(geometry), problem.ridge * squares)

        designs = reference_designs(problem, gradient_bound(problem), natural_unit(problem))
        return Risk(power_mean_risk(designs, risk), "excess empirical risk")


@dataclass(frozen=True)
class IsotropicBy(Binding):
    """Set the map, and the descent behind it, from the second moments that a stage released."""

    kind = "isotropic_by"
    stage: str
    floor: float

    def __post_init__(self) -> None:
        positive("floor", self.floor)

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        descent = plan.final
        if not isinstance(descent, Descent):
            raise ValueError("isotropic_by binds a descent behind a map of rows")
        rows, bound = self._rule(descent).mapped(np.asarray(released[self.stage]))
        bound = replace(bound, predicted=descent.predicted)
        return plan.map_steps(lambda _: bound).map_transformation(lambda _: rows)

    def _rule(self, descent: Descent) -> IsotropicRule:
        aggregate = descent.aggregate
        return IsotropicRule(
            descent.problem,
            aggregate.relation,
            aggregate.noise_multiplier,
            aggregate.rounds,
            self.floor,
        )

    def stand_in(self, plan: Plan) -> Mapping[str, Any] | None:
        descent = plan.final
        return {self.stage: self._rule(descent).isotropic} if isinstance(descent, Descent) else None

    def check(self, plan: Plan) -> None:
        # A composition is copied when notes join it; the rule is tried once for each plan.
        if self.__dict__.get("_tried") != plan:
            super().check(plan)
            object.__setattr__(self, "_tried", plan)


class PreconditionedGD(Algorithm[Minimize]):
    """Noisy gradient descent behind a map that makes rows isotropic.

    Use it where columns are correlated or of unequal size; use `noisy_gd` for many columns and a
    small budget. Guarantee: mu-GDP for matrix and iterates together.
    Reference: [LD] Lemma C.1, [ASAP] Lemma 14; docs/explanation/trajectory.md.
    Work: ``max_passes`` passes over the data, one of them for the matrix.

    Parameters
    ----------
    second_moments : array, optional
        Public mean of x x^T. By default the first stage releases it.
    share : float
        Fraction of the squared GDP budget that goes to the matrix.

    Examples
    --------
    >>> from dpfit.losses import Logistic
    >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=3)
    >>> round(preconditioned_gd.plan(problem, Budget(mu=0.5)).guarantee.mu, 6)
    0.5
    """

    name = "preconditioned_gd"
    summary = "noisy gradient descent in the geometry of a private or public second-moment matrix"
    use_for = "columns that are correlated or of unequal scale"
    reference = "[LD] Lemma C.1; [ASAP] Lemma 14"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (MARGIN_LOSS, NO_DOMAIN, BOUNDED)
    supports = frozenset({"ridge"})
    tier = "recommended"
    tunings = (TUNING, DESCENT, SCALES)
    auto_candidate = True

    def is_candidate(self, problem: Minimize) -> bool:
        # From the origin, a loss that levels off may not see the labels.
        return problem.loss.convex_start is None

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        second_moments: npt.ArrayLike | None = None,
        share: float = TUNING.share,
        max_passes: int = 300,
    ) -> Plan:
        """Return matrix, then descent; with public ``second_moments`` the descent alone.

        The value of the release is matrix and parameter, or the parameter alone.
        """
        integer("max_passes", max_passes)
        # Mapped rows have entries of another size.
        problem = replace(problem, bounds=replace(problem.bounds, row_max=None))
        if second_moments is not None:
            multiplier = calibrate(Gaussian, budget).noise_multiplier
            rule = IsotropicRule(problem, budget.relation, multiplier, max_passes, 1e-300)
            rows, descent = rule.mapped(_checked(second_moments, problem.n_features))
            public = Assumption("the second_moments were not computed from the data", "declared")
            return TransformedPlan.of(
                rows, trajectory_step(replace(descent, predicted=rule.risk), budget, public)
            )
        if max_passes < 2:
            raise ValueError(
                f"{self.name} needs two passes, for the matrix and a step; or give public "
                "second_moments"
            )
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        whole = calibrate(Gaussian, budget).noise_multiplier
        stages = Composed(
            (Gaussian(whole / math.sqrt(share)), Gaussian(whole / math.sqrt(1 - share)))
        )
        first, rest = (each.noise_multiplier for each in calibrate(stages, budget).events)  # type: ignore[attr-defined]
        moments = SecondMoments(problem, budget.relation, "gaussian", first)
        rule = IsotropicRule(
            problem, budget.relation, rest, max_passes - 1, moments.noise_spectral_norm
        )
        # Isotropic moments stand in until the first stage has released others.
        descent = replace(rule.tuned(rule.preconditioner(np.diag(rule.isotropic))), problem=problem)
        behind = TransformedPlan.of(
            rule.rows, trajectory_step(replace(descent, predicted=rule.risk), budget)
        )
        return Composition(
            (
                Stage("moments", Step(moments, matrix_basis(problem, budget))),
                Stage("descent", behind, IsotropicBy("moments", rule.floor)),
            )
        )

    def forecast(self, problem: Minimize, budget: Budget, **options: object) -> Forecast:
        """Return what `plan` would reach; refuse problems where it takes long or gains nothing."""
        self._require_gain(problem, budget)
        return super().forecast(problem, budget, **options)

    def _require_gain(self, problem: Minimize, budget: Budget) -> None:
        if not problem.constants(budget.relation).smooth:
            why = "for losses with kinks"
        elif problem.loss.is_quantile:
            # Behind the map an intercept is as slow as other columns, and quantiles are far away.
            why = "for quantile losses"
        elif (
            problem.n_features > TUNING.max_columns
            or problem.n * problem.n_features > TUNING.max_entries
        ):
            most = f"{TUNING.max_entries:.0e}".replace("e+0", "e")
            why = f"above {TUNING.max_columns} columns or {most} entries"
        else:
            return
        raise ValueError(f"{self.name} is skipped {why}; pass solver={self.name!r} to use it")

    def example(self, relation: str) -> Example:
        """Return records with gradients one way; one record is opposite, or is removed."""
        return opposite_records(relation)


def _spread(number: int) -> Floats:
    """Eigenvalues of a large symmetric noise matrix over the largest, in an arbitrary order.

    Their law is a semicircle (Wigner, 1955).
    """
    values = np.linspace(-1.0, 1.0, 1001)
    below = 0.5 + (values * np.sqrt(1 - values**2) + np.arcsin(values)) / np.pi
    even = np.interp((np.arange(number) + 0.5) / number, below, values)
    return np.asarray(even[np.argsort(np.arange(number) * (math.sqrt(5) - 1) / 2 % 1)])


def _checked(second_moments: npt.ArrayLike, n_features: int) -> Floats:
    matrix = np.asarray(second_moments, dtype=np.float64)
    if (
        matrix.shape != (n_features, n_features)
        or not np.isfinite(matrix).all()
        or not np.array_equal(matrix, matrix.T)
    ):
        raise ValueError(
            f"second_moments must be a finite symmetric matrix of {n_features} rows and columns"
        )
    if not np.linalg.eigvalsh(matrix)[-1] > 0:
        raise ValueError("second_moments must have a positive eigenvalue")
    return matrix


preconditioned_gd = PreconditionedGD()

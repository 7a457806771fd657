"""Localization: any solver, again and again, with a growing ridge around its last output.

Guarantee: that of one phase on disjoint parts, since a record is in one part only; of all phases
together if they share the data. A phase binds centre and start to a released point, which changes
no event: the solver is private for every centre. Proof: docs/explanation/parts.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core import (
    Algorithm,
    Combine,
    Composition,
    Example,
    Last,
    Minimize,
    Plan,
    Stage,
    StartAt,
)
from dpfit.core.algorithm import BOUNDED, Minimizer, minimizer
from dpfit.core.examples import opposite_records
from dpfit.data.view import part_sizes
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import option, positive
from dpfit.solvers.descents.scales import parameter_scale
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.perturbation.output_perturbation import output_perturbation


@dataclass(frozen=True)
class Nearest(Combine):
    """Release the point with the smallest median distance to all points."""

    kind = "nearest"

    def __call__(self, outputs: tuple[NDArray[np.float64], ...]) -> NDArray[np.float64]:
        points = np.array(outputs)
        distances = np.linalg.norm(points[:, np.newaxis] - points, axis=2)
        return np.array(points[np.argmin(np.median(distances, axis=1))])


class Preset(NamedTuple):
    """A row of the table of schedules; a caller's ``solver`` takes the place of the row's.

    Parameters
    ----------
    solver, pure_solver : Algorithm
        What solves a phase, and what does so for pure epsilon.
    shares : tuple of float
        Fraction of the records in each phase. Empty: all phases read all records and share the
        budget.
    ridges : tuple of float
        Ridge of each phase over that of the first one; one number for each phase.
    copies : int
        Number of disjoint parts of a phase that the solver sees apart.
    combine : Combine
        What a phase releases of its copies.
    """

    solver: Minimizer
    pure_solver: Minimizer
    shares: tuple[float, ...]
    ridges: tuple[float, ...]
    copies: int
    combine: Combine


_DESCENT = noisy_gd.using(max_passes=100)

PRESETS = {
    "halving": Preset(
        solver=_DESCENT,
        pure_solver=output_perturbation,
        shares=(1 / 2, 1 / 4, 1 / 8, 1 / 8),
        ridges=(1.0, 8.0, 64.0, 512.0),
        copies=1,
        combine=Last(),
    ),
    "copies": Preset(
        solver=_DESCENT,
        pure_solver=output_perturbation,
        shares=(1 / 2, 1 / 4, 1 / 4),
        ridges=(1.0, 8.0, 64.0),
        copies=3,
        combine=Nearest(),
    ),
    "same_records": Preset(
        solver=_DESCENT,
        pure_solver=output_perturbation,
        shares=(),
        ridges=(1.0, 8.0, 64.0),
        copies=1,
        combine=Last(),
    ),
}
"""Schedules by name; "halving" is [Liu24] Algorithm 5 with times that fall fourfold."""


class Localized(Algorithm[Minimize]):
    """Solve on disjoint parts of the records, with a growing ridge around the last solution.

    Use it to study theorems that need fresh records in every phase; `noisy_gd` on all records had
    two fifths to three quarters of its excess risk where it was measured.
    Guarantee: that of the solver on one part, or of all phases on the same records together.
    Reference: [Liu24] Algorithm 5, Theorem 1.5.1, with the full budget in every phase.
    Work: that of the solver on each part.

    Parameters
    ----------
    preset : {"halving", "copies", "same_records"}, default="halving"
        Row of `PRESETS`: fractions of the records, ridges, copies of the solver, and the solver.
    solver : Algorithm, optional
        A minimizer that supports a ridge around a centre. By default that of the preset: `noisy_gd`
        with 100 passes, or `output_perturbation` for pure epsilon.
    ridge : float, optional
        Ridge of the first phase. By default the step size of [Liu24] Algorithm 5 sets it, times 10,
        for a parameter of usual size.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20)
    >>> plan = localized.plan(problem, Budget(mu=0.5))
    >>> [stage.plan.mechanism.problem.n for stage in plan.stages], plan.guarantee.mu
    ([5000, 2500, 1250, 1250], 0.5)
    """

    name = "localized"
    summary = "any solver, localized around its last output on fresh records"
    reference = "[Liu24] Algorithm 5, Theorem 1.5.1"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (BOUNDED,)
    supports = frozenset({"domain", "population"})

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        preset: str = "halving",
        solver: Minimizer | None = None,
        ridge: float | None = None,
    ) -> Plan:
        """Return the phases of the preset, each around the output of the one before."""
        row = PRESETS[option("preset", preset, tuple(PRESETS))]
        usual = row.pure_solver if budget.kind == "pure" else row.solver
        solver = minimizer("solver", usual if solver is None else solver)
        phases, shared = len(row.ridges), not row.shares
        sizes = (problem.n,) * phases if shared else part_sizes(problem.n, row.shares)
        if min(sizes) < row.copies:
            raise ValueError(
                f"preset={preset!r} needs a record for each copy of the solver, got n = "
                f"{problem.n}; use noisy_gd on all records"
            )
        each = budget.per_call(phases) if shared else budget
        first = default_ridge(problem, each, sizes[0]) if ridge is None else ridge
        stages = []
        for i, (size, times) in enumerate(zip(sizes, row.ridges, strict=True)):
            # The centre is bound late. Set here, too, it refuses a solver that ignores centres.
            around = replace(
                problem,
                n=size,
                ridge=positive("ridge", first) * times,
                centre=tuple(problem.origin.tolist()),
            )
            plan = _copies(around, each, solver, row)
            binding = StartAt(f"phase {i - 1}", ("centre", "start")) if i else None
            stages.append(Stage(f"phase {i}", plan, binding, part=None if shared else i))
        return Composition(tuple(stages), row.shares, Last())

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        return opposite_records(relation)


def _copies(problem: Minimize, budget: Budget, solver: Minimizer, row: Preset) -> Plan:
    """Return one plan, or copies of it on disjoint parts, combined."""
    if row.copies == 1:
        return solver.plan(problem, budget)
    shares = (1 / row.copies,) * row.copies
    plans = [solver.plan(replace(problem, n=n), budget) for n in part_sizes(problem.n, shares)]
    stages: Any = (Stage(f"copy {j}", plan, part=j) for j, plan in enumerate(plans))
    return Composition(tuple(stages), shares, row.combine)


def default_ridge(problem: Minimize, budget: Budget, size: int) -> float:
    """Return 2 / (step size * size) with the step size of [Liu24] Algorithm 5 times 10.

    The step size is D / L times the smaller of 1 / sqrt(n) and 1 / (z sqrt(d)), for a noise
    multiplier z, the Lipschitz constant L and a usual parameter of norm D.
    """
    kind = {"pure": 1 / budget.epsilon if budget.epsilon else 1.0}
    multiplier = kind.get(budget.kind) or calibrate(Gaussian, budget).noise_multiplier
    slowest = max(math.sqrt(problem.n), multiplier * math.sqrt(problem.dimension))
    slope = problem.constants(budget.relation).lipschitz
    slope = slope if math.isfinite(slope) else 1.0
    step_size = 10 * parameter_scale(problem) / (slope * slowest)
    return 2 / (step_size * size)


localized = Localized()

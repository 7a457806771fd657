"""SGD in one pass: phases on disjoint parts of the records, with noise on the output of each.

Each phase averages its last points, adds noise and hands the result to the next one,
whose total step size is 2 to 4 times smaller. Guarantee: that of one phase, since a record is in
one part only; docs/explanation/phases.md has the proof under both relations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import (
    Algorithm,
    Binding,
    Composition,
    Example,
    Last,
    Minimize,
    Plan,
    Risk,
    Run,
    Stage,
    StartAt,
    Step,
    TransformedPlan,
)
from dpfit.core.algorithm import BOUNDED, Requirement
from dpfit.core.examples import opposite_records
from dpfit.core.problem import DataFacts
from dpfit.core.transformed_plan import Transformation
from dpfit.data.view import View
from dpfit.geometry.l2_ball import L2Ball
from dpfit.geometry.symmetric import pack
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Composed, Gaussian
from dpfit.privacy.validate import integer
from dpfit.solvers.descents.phases import TUNING, candidates, least_records, shares_of
from dpfit.solvers.descents.rule import TUNING as DESCENT
from dpfit.solvers.descents.second_moments import (
    MappedRows,
    SecondMoments,
    isotropic_preconditioner,
    matrix_basis,
)

Floats = NDArray[np.float64]

CONVEX_WHEN_CLIPPED = Requirement(
    "a convex generalized linear loss, which stays convex when it is clipped",
    "use a convex loss of dpfit.losses.glm, or noisy_gd or ftrl, which take any loss",
    lambda problem, budget, options: (
        problem.constants(budget.relation, everywhere=True).convex_when_clipped
    ),
)
SMOOTH_OR_CLOSED = Requirement(
    "a smooth loss, or a kink with a closed form under Gaussian shifts",
    "use Absolute, Hinge, Pinball or a smooth loss",
    lambda problem, budget, options: (
        problem.constants(budget.relation, everywhere=True).smooth or problem.loss.kink > 0
    ),
)
BALL = Requirement(
    "the whole space or a ball as its domain",
    "pass an L2Ball, or use noisy_gd",
    lambda problem, budget, options: problem.domain is None or isinstance(problem.domain, L2Ball),
)


@dataclass(frozen=True)
class BlockOrder(Transformation):
    """Positions that keep the records of a block of a file together; see `View.by_blocks`."""

    kind = "block_order"
    draws: ClassVar[bool] = True

    def transform(self, data: View, run: Run) -> View:
        return data.by_blocks()

    def check_part(self) -> None:
        raise ValueError(
            "by_blocks orders the blocks of a whole file, and a stage on a part of the data sees "
            "no whole file; leave by_blocks out"
        )

    def basis(self, inner: Basis) -> Basis:
        if (inner.relation, inner.unit) != ("replace", "record"):
            raise ValueError(
                "by_blocks needs relation='replace' and unit='record': a record that leaves moves "
                "all later block boundaries; leave by_blocks out"
            )
        order = Assumption("the order of rows does not depend on their values", "declared")
        return replace(inner, assumptions=(*inner.assumptions, order))

    def data_facts(self, inner: DataFacts) -> DataFacts:
        return inner


@dataclass(frozen=True)
class BehindMap(Binding):
    """Set the map of rows from released second moments, and scale the steps behind it.

    Rows that are usually ``r`` times as long need steps ``1 / r^2`` and clip norms ``r`` times as
    large.
    ``floor`` is the second moment below which the matrix is mostly noise.
    """

    kind = "behind_map"
    stage: str
    floor: float

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        values, vectors = np.linalg.eigh(np.asarray(released[self.stage]))
        bounds = plan.final.problem.bounds  # type: ignore[attr-defined]
        geometry = isotropic_preconditioner(
            values, self.floor, bounds.row_norm, TUNING.span, TUNING.flattest
        )
        matrix = (vectors * np.sqrt(geometry.squares)) @ vectors.T
        packed = tuple(pack(matrix).tolist())
        ratio = geometry.usual / bounds.row_norm

        def scaled(one: Any) -> Any:
            # As long as its steps allow: a row that is shortened tells of another parameter.
            stable = (1 - 2.0**-40) * math.sqrt(2 / (one.step_size * one.curvature))
            row_norm = bounds.row_norm * min(1.0, ratio * max(1.0, stable))
            return replace(
                one,
                problem=replace(one.problem, bounds=replace(bounds, row_norm=row_norm)),
                step_size=one.step_size / ratio**2 * (1 - 2.0**-40),
                clip_norm=one.clip_norm * ratio,
            )

        mapped = plan.map_transformation(lambda rows: replace(rows, matrix=packed))  # type: ignore[call-arg]
        return mapped.map_steps(scaled)

    def stand_in(self, plan: Plan) -> Mapping[str, Any] | None:
        bounds, d = plan.final.problem.bounds, plan.final.problem.n_features  # type: ignore[attr-defined]
        return {self.stage: bounds.row_norm**2 / d * np.eye(d)}


class PhasedSGD(Algorithm[Minimize]):
    """SGD in one pass over the records, in phases with noise on the output of each.

    Use it for many records (1e5 and more), for data larger than memory, and for losses with kinks;
    use `noisy_gd` for fewer records or where hundreds of passes are affordable.
    Guarantee: mu-GDP, mu = 1 / noise_multiplier, or pure epsilon-DP.
    Reference: [Liu24] Algorithm 43, Lemma 12.8.1; Theorem 1 in docs/explanation/phases.md.
    Work: one pass over the data.

    Parameters
    ----------
    max_passes : int, optional
        Refuse a plan that takes more passes than this.
    phases : int, optional
        Number of phases; by default the one with the least predicted risk, up to 4.
    time : float, optional
        Total step size of the first phase, which halves from phase to phase. By default the least
        predicted risk sets it, whether it falls 2, 3 or 4 times, and the points averaged.
    clip_norm : float, optional
        By default a fraction of the Lipschitz constant that falls as the noise grows.
    mapped : bool, default=False
        Whether a first pass releases second moments, behind which rows have no preferred direction:
        for columns of unequal scales. It takes two passes.
    by_blocks : bool, default=False
        Whether records of a file are visited block by block, in random order: all phases together
        then read a file once. It needs replace-one, and declares that the order of rows does not
        depend on their values: a file that is sorted by a column breaks the guarantee.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Hinge
    >>> problem = Minimize(n=100_000, loss=Hinge(), bounds=Bounds(row_norm=1.0), n_features=20)
    >>> plan = phased_sgd.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> plan.work.passes, round(plan.guarantee.epsilon(1e-6), 3)
    (1.0, 1.0)
    """

    name = "phased_sgd"
    summary = "SGD in one pass over the data: disjoint phases with noise on the output of each"
    use_for = "100,000 records and more; files larger than memory"
    reference = "[Liu24] Algorithm 43, Lemma 12.8.1; Feldman, Koren and Talwar (2020)"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (CONVEX_WHEN_CLIPPED, SMOOTH_OR_CLOSED, BALL, BOUNDED)
    supports = frozenset({"ridge", "domain", "centre", "trust_ball", "population"})
    tier = "recommended"
    tunings = (TUNING, DESCENT)
    auto_candidate = True

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        max_passes: int | None = None,
        phases: int | None = None,
        time: float | None = None,
        clip_norm: float | None = None,
        mapped: bool = False,
        by_blocks: bool = False,
    ) -> Plan:
        """Return phases; their number and length have the least predicted risk."""
        needed = 2 if mapped else 1
        if integer("max_passes", needed if max_passes is None else max_passes) < needed:
            raise ValueError(
                f"mapped takes {needed} passes, got max_passes={max_passes}; raise max_passes, or "
                "leave mapped out"
            )
        counts = range(1, TUNING.most_phases + 1) if phases is None else [integer("phases", phases)]
        if problem.n < least_records(counts[0]):
            raise ValueError(
                f"phases={counts[0]} needs n of at least {least_records(counts[0])}, got n = "
                f"{problem.n}; reduce phases, or use noisy_gd"
            )
        plan = self._mapped if mapped else self._phases
        planned = plan(problem, budget, counts, time, clip_norm)
        return TransformedPlan.of(BlockOrder(), planned) if by_blocks else planned

    def _phases(
        self, problem: Minimize, budget: Budget, counts: Iterable[int], time: float | None,
        clip_norm: float | None, *, mapped: bool = False,
    ) -> Composition:  # fmt: skip
        """Return the phases with the least predicted risk."""
        found = [
            each.best(each.times() if time is None else each.checked_time(time))
            for each in candidates(problem, budget, counts, clip_norm, mapped)
        ]
        best = min(found, key=lambda each: each.score)
        one_passes = best.phases.passes(best.time, best.tail)
        why = _basis(problem, budget, smoothed=one_passes[0].problem.loss != problem.loss)
        stages = tuple(
            Stage(f"phase {i}", Step(one, why), StartAt(f"phase {i - 1}") if i else None, part=i)
            for i, one in enumerate(one_passes)
        )
        risk = Risk(best.risk, "excess empirical risk")
        return Composition(stages, shares_of(len(stages)), Last(), predicted=risk)

    def _mapped(
        self, problem: Minimize, budget: Budget, counts: Iterable[int], time: float | None,
        clip_norm: float | None,
    ) -> Composition:  # fmt: skip
        """Return second moments, then phases on rows that they make isotropic."""
        if problem.facts:
            raise ValueError(
                f"mapped does not support {', '.join(sorted(problem.facts))}: behind the map they "
                "would change their form; leave mapped out"
            )
        if budget.kind == "pure":
            raise ValueError("mapped needs a delta, mu or rho; leave it out for pure epsilon")
        share, whole = TUNING.matrix_share, calibrate(Gaussian, budget).noise_multiplier
        both = [Gaussian(whole / math.sqrt(part)) for part in (share, 1 - share)]
        stages: Any = calibrate(Composed(tuple(both)), budget)
        first, rest = stages.events
        moments = SecondMoments(problem, budget.relation, "gaussian", first.noise_multiplier)
        left = Budget(mu=1 / rest.noise_multiplier, relation=budget.relation, unit=budget.unit)
        phases = self._phases(problem, left, counts, time, clip_norm, mapped=True)
        rows = MappedRows(problem.bounds, bool(problem.guards.get("binary", False)))
        behind = TransformedPlan.of(rows, phases)
        return Composition(
            (
                Stage("moments", Step(moments, matrix_basis(problem, budget))),
                Stage("phases", behind, BehindMap("moments", moments.noise_spectral_norm)),
            ),
            predicted=phases.predicted,
        )

    def example(self, relation: str) -> Example:
        """Return records with gradients one way; one record is opposite, or is removed."""
        return opposite_records(relation)


def _basis(problem: Minimize, budget: Budget, *, smoothed: bool) -> Basis:
    assumptions = [
        Assumption("rows are scaled into the declared bound, gradients are clipped", "enforced"),
        Assumption("no step expands distances: step_size (curvature + ridge) <= 2", "enforced"),
    ]
    if smoothed:
        assumptions.append(
            Assumption("the kink of the loss is smoothed in closed form", "enforced")
        )
    if budget.relation == "add_remove":
        most = problem.max_records(budget.relation)
        assumptions += [
            Assumption("the number n that sets step sizes was not read off the data", "declared"),
            Assumption(f"there are at most {most} records", "declared"),
        ]
    theorem = (
        "steps that do not expand distances [Liu24, Lemma 12.8.1], Feldman, Koren and Talwar (2020)"
    )
    return Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "bounded")


phased_sgd = PhasedSGD()

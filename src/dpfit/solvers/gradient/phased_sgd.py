"""SGD in one pass: phases on disjoint parts of the records, with noise on the output of each.

Each phase averages the second half of its points, adds noise and hands the result to the next one,
whose total step size is 2 to 4 times smaller. Guarantee: that of one phase, since a record is in
one part only; docs/explanation/phases.md has the proof under both relations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

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
    Tuning,
)
from dpfit.core.algorithm import BOUNDED, Requirement
from dpfit.core.examples import opposite_records
from dpfit.core.problem import DataFacts
from dpfit.core.reference_designs import Design, power_mean, reference_designs
from dpfit.core.transformed_plan import Transformation
from dpfit.data.view import View
from dpfit.geometry.l2_ball import L2Ball
from dpfit.geometry.symmetric import pack
from dpfit.losses.glm import GLM
from dpfit.losses.smoothed import GaussianSmoothed, smoothing_width
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Composed, Gaussian
from dpfit.privacy.validate import integer, positive
from dpfit.solvers.descents.one_pass import OnePass
from dpfit.solvers.descents.predicted import clip_bias, effective_curvatures
from dpfit.solvers.descents.rule import default_clip_norm
from dpfit.solvers.descents.scales import isotropic_curvature, natural_unit, slope_bound
from dpfit.solvers.gradient.preconditioned_gd import (
    MappedRows,
    SecondMoments,
    isotropic_preconditioner,
    matrix_basis,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PhasesTuning(Tuning):
    """Limits of the search for phases.

    Parameters
    ----------
    most_phases : int
        Largest number of phases.
    times : tuple of float
        Total step sizes of the first phase that are tried, times the isotropic curvature.
    factors : tuple of float
        Times of a phase over that of the next one that are tried.
    stability : float
        Largest step size of the search, times the curvature of one record; 2 is the bound of the
        proof.
    exponent : float
        Exponent of the power mean of risks by which phases are compared. A negative one favours
        designs on which one pass does well; columns of unequal scales are for ``mapped``.
    matrix_share, span : float
        Fraction of the squared GDP budget for the second moments of ``mapped``, and the norm that
        rows are shortened to behind the map, in root mean squares.
    """

    kind = "phases_tuning"
    set_by: str = "benchmarks/one_pass.py"
    most_phases: int = 4
    times: tuple[float, ...] = tuple(0.25 * 2 ** (k / 2) for k in range(23))
    factors: tuple[float, ...] = (2.0, 3.0, 4.0)
    stability: float = 1.0
    exponent: float = -0.65
    matrix_share: float = 0.07
    span: float = 1.2


TUNING = PhasesTuning()

CONVEX_WHEN_CLIPPED = Requirement(
    "a generalized linear loss, which is convex when it is clipped",
    "use a loss of dpfit.losses.glm, or noisy_gd, which takes any loss",
    lambda problem, budget, options: isinstance(problem.loss, GLM),
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

    Rows that are ``r`` times as long need steps ``1 / r^2`` and clip norms ``r`` times as large.
    ``floor`` is the second moment below which the matrix is mostly noise.
    """

    kind = "behind_map"
    stage: str
    floor: float

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        values, vectors = np.linalg.eigh(np.asarray(released[self.stage]))
        bounds = plan.final.problem.bounds  # type: ignore[attr-defined]
        geometry = isotropic_preconditioner(values, self.floor, bounds.row_norm, TUNING.span)
        matrix = (vectors * np.sqrt(geometry.squares)) @ vectors.T
        packed = tuple(pack(matrix).tolist())
        seen, ratio = replace(bounds, row_norm=geometry.usual), geometry.usual / bounds.row_norm

        def scaled(one: Any) -> Any:
            return replace(
                one,
                problem=replace(one.problem, bounds=seen),
                step_size=one.step_size / ratio**2 * (1 - 2.0**-40),
                clip_norm=one.clip_norm * ratio,
            )

        mapped = plan.map_transformation(lambda rows: replace(rows, matrix=packed))  # type: ignore[call-arg]
        return mapped.map_steps(scaled)

    def stand_in(self, plan: Plan) -> Mapping[str, Any] | None:
        bounds, d = plan.final.problem.bounds, plan.final.problem.n_features  # type: ignore[attr-defined]
        return {self.stage: bounds.row_norm**2 / d * np.eye(d)}


@dataclass(frozen=True)
class Phases:
    """Phases on equal parts of the records, all but the time of the first: its total step size.

    Each phase has ``factor`` times the time of the next one: the first ones approach, the last one
    has little noise.
    """

    problem: Minimize
    relation: str
    noise: VectorNoise
    clip_norm: float
    count: int
    factor: float = 2.0
    mapped: bool = False

    def step_size(self, time: float, phase: int = 0) -> float:
        """Return the step size of a phase."""
        return time / self.factor**phase * self.count / self.problem.n

    def passes(self, time: float) -> list[OnePass]:
        """Return the mechanism of each phase; a kink is smoothed for the longest step."""
        problem, steps = self.problem, [self.step_size(time, i) for i in range(self.count)]
        if not problem.constants(self.relation, everywhere=True).smooth:
            loss: Any = problem.loss
            width = smoothing_width(loss.kink, problem.bounds.row_norm, steps[0], problem.ridge)
            problem = replace(problem, loss=GaussianSmoothed(loss, width))
        kind, multiplier = self.noise.noise, self.noise.noise_multiplier
        return [
            OnePass(problem, self.relation, kind, multiplier, step, self.clip_norm, 1 / self.count)
            for step in steps
        ]

    def times(self) -> Floats:
        """Return the times of the search; the longest keeps steps stable and kinks narrow."""
        problem, row_norm = self.problem, self.problem.bounds.row_norm
        constants = problem.constants(self.relation, everywhere=True)
        curvature = constants.smoothness
        if not constants.smooth:
            kink: float = problem.loss.kink  # type: ignore[attr-defined]
            curvature = smoothing_width(kink, row_norm, 1.0) / _margin_scale(problem)
        most = TUNING.stability / (curvature + problem.ridge) / self.step_size(1.0)
        times = np.array(TUNING.times) / isotropic_curvature(problem, self.clip_norm)
        return np.unique(np.minimum(times, most))

    def risk_on(self, design: Design, times: Floats) -> Floats:
        """Return the predicted excess risk on a reference design for each time of the first phase.

        Exact on a quadratic for short steps: what is left of the start, the noise of the phases, of
        which later ones leave less, and the error of a sample, which enters in the same way.
        """
        problem = self.problem
        felt = effective_curvatures(design, problem, self.clip_norm)
        # Directions that are alike are followed once.
        alike, copies = np.unique(
            [felt, design.curvatures, design.squares], axis=1, return_counts=True
        )
        felt, curvatures, squares = alike
        moved = (2 if self.relation == "replace" else 1) * self.clip_norm
        first = times[:, np.newaxis]
        left, variance = np.ones((len(times), len(felt))), np.zeros((len(times), len(felt)))
        for i in range(self.count):
            time, step = first / self.factor**i, self.step_size(1.0, i) * first
            decay = time * (felt + problem.ridge)
            kept = remaining(decay)
            left *= kept
            sampled = design.gradient_noise * felt * step * time * sampling_variance(decay)
            variance = variance * kept**2 + self.noise.mean_square(moved) * step**2 + sampled
        errors = (left**2 * squares + variance) @ (copies * (curvatures + problem.ridge)) / 2
        bias = clip_bias(problem, self.clip_norm, design)
        return np.asarray(errors + bias + self._smoothing_bias(times))

    def _smoothing_bias(self, times: Floats) -> Floats | float:
        """About the excess risk of the minimizer of the smoothed loss.

        A density of margins that changes over a scale w moves it by width^2 / w at most.
        """
        problem = self.problem
        if problem.constants(self.relation, everywhere=True).smooth:
            return 0.0
        kink: float = problem.loss.kink  # type: ignore[attr-defined]
        widths = smoothing_width(kink, problem.bounds.row_norm, 1.0) * self.step_size(1.0) * times
        return np.asarray(
            0.4 * kink * widths * np.minimum(1.0, widths / _margin_scale(problem)) ** 3
        )

    def best(self, times: Floats) -> Found:
        """Return the time that is best for the choice, with its predicted risk."""
        designs = reference_designs(
            self.problem, slope_bound(self.problem, self.clip_norm), natural_unit(self.problem)
        )
        if self.mapped:
            # Behind the map no direction is preferred.
            designs = tuple(each for each in designs if np.ptp(each.curvatures) == 0)
        risks = np.array(
            [self.risk_on(each, times) / each.unit + each.rounding for each in designs]
        )
        weights = np.array([design.weight for design in designs])
        scores = power_mean(risks, weights, TUNING.exponent)
        best = int(np.argmin(scores))
        risk = float(power_mean(risks[:, best], weights))
        return Found(float(scores[best]), risk, float(times[best]), self)


class Found(NamedTuple):
    """Phases with the time of the first, their score in the choice, and their predicted risk."""

    score: float
    risk: float
    time: float
    phases: Phases


def _margin_scale(problem: Minimize) -> float:
    """Return the scale over which margins are spread around a kink."""
    return natural_unit(problem) * problem.bounds.row_norm


def remaining(decay: Floats) -> Floats:
    """Return the mean of exp(-decay t) over the second half of [0, 1].

    >>> remaining(np.array([0.0, 2.0])).round(4).tolist()
    [1.0, 0.2325]
    """
    half = np.maximum(decay / 2, 1e-12)
    return np.asarray(np.exp(-half) * -np.expm1(-half) / half)


def sampling_variance(decay: Floats) -> Floats:
    """Return the integral over u in [0, 1] of the squared weight of a gradient at u in the average.

    The weight is twice the integral of exp(-decay (t - u)) over the t in [1/2, 1] that come after.

    >>> sampling_variance(np.array([0.0, 2.0, 200.0])).round(6).tolist()
    [0.665543, 0.170421, 5e-05]
    """
    half = np.maximum(decay / 2, 1e-3)
    late = 0.5 - -np.expm1(-half) / half + -np.expm1(-2 * half) / (4 * half)
    early = np.expm1(-half) ** 2 * -np.expm1(-2 * half) / (4 * half)
    return np.asarray((late + early) / half**2)


class PhasedSGD(Algorithm[Minimize]):
    """SGD in one pass over the records, in phases with noise on the output of each.

    Use it for many records (1e5 and more), for data larger than memory, and for losses with kinks;
    use `noisy_gd` for fewer records or where hundreds of passes are affordable.
    Guarantee: mu-GDP, mu = 1 / noise_multiplier, or pure epsilon-DP.
    Reference: [Liu24] Algorithm 43, Lemma 12.8.1; Theorem 1 in docs/explanation/phases.md.
    Work: one pass over the data.

    Parameters
    ----------
    phases : int, optional
        Number of phases; by default the one with the least predicted risk, up to 4.
    time : float, optional
        Total step size of the first phase, which halves from phase to phase. By default the least
        predicted risk sets it, and whether it falls 2, 3 or 4 times.
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
    reference = "[Liu24] Algorithm 43, Lemma 12.8.1; Feldman, Koren and Talwar (2020)"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (CONVEX_WHEN_CLIPPED, SMOOTH_OR_CLOSED, BALL, BOUNDED)
    supports = frozenset({"ridge", "domain", "centre", "trust_ball", "population"})
    tier = "recommended"
    auto_candidate = True

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        max_passes: int = 1,
        phases: int | None = None,
        time: float | None = None,
        clip_norm: float | None = None,
        mapped: bool = False,
        by_blocks: bool = False,
    ) -> Plan:
        """Return phases of equal size; their number and length have the least predicted risk."""
        integer("max_passes", max_passes)
        counts = range(1, TUNING.most_phases + 1) if phases is None else [integer("phases", phases)]
        if problem.n < 2 * counts[0]:
            raise ValueError(
                f"{counts[0]} phases need n of at least {2 * counts[0]}, got n = {problem.n}; "
                "reduce phases, or use noisy_gd"
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
            each.best(each.times() if time is None else np.array([positive("time", time)]))
            for each in candidates(problem, budget, counts, clip_norm, mapped)
        ]
        best = min(found, key=lambda each: each.score)
        one_passes = best.phases.passes(best.time)
        why = _basis(problem, budget, smoothed=one_passes[0].problem.loss != problem.loss)
        stages = (
            Stage(f"phase {i}", Step(one, why), StartAt(f"phase {i - 1}") if i else None, part=i)
            for i, one in enumerate(one_passes)
        )
        count, risk = len(one_passes), Risk(best.risk, "excess empirical risk")
        return Composition(tuple(stages), (1 / count,) * count, Last(), predicted=risk)

    def _mapped(
        self, problem: Minimize, budget: Budget, counts: Iterable[int], time: float | None,
        clip_norm: float | None,
    ) -> Composition:  # fmt: skip
        """Return second moments, then phases on rows that they make isotropic."""
        if problem.facts:
            raise ValueError(
                "mapped needs no ridge, centre, domain or trust ball: they change their form "
                "behind the map; leave mapped out"
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


def candidates(
    problem: Minimize, budget: Budget, counts: Iterable[int], clip_norm: float | None, mapped: bool
) -> Iterator[Phases]:
    """Yield the phases that are compared, for each kind of noise that can meet the budget."""
    for kind, target in VectorNoise.targets(budget):
        unit = VectorNoise(kind, 1.0, problem.dimension)
        noise = replace(unit, noise_multiplier=calibrate(unit.event, target).noise_multiplier)
        clip = clip_norm
        if clip is None:
            root = math.sqrt(noise.mean_square(1.0))
            clip = default_clip_norm(problem, budget.relation, root)
        for count in counts:
            if problem.n >= 2 * count:
                for factor in TUNING.factors if count > 1 else TUNING.factors[:1]:
                    clip = positive("clip_norm", clip)
                    yield Phases(problem, budget.relation, noise, clip, count, factor, mapped)


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

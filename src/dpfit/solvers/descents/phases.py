"""The rule that sets the phases of `phased_sgd` from public facts: how many, and how long.

The rule decides about accuracy, never about privacy. A phase of SGD follows the gradient flow; on a
quadratic what is left of the start, its noise and the error of a sample have closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, Tuning
from dpfit.core.reference_designs import Design, power_mean, reference_designs
from dpfit.losses.smoothed import GaussianSmoothed, smoothing_width
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.validate import positive
from dpfit.solvers.descents.one_pass import OnePass
from dpfit.solvers.descents.predicted import clip_bias, effective_curvatures
from dpfit.solvers.descents.rule import default_clip_norm
from dpfit.solvers.descents.scales import isotropic_curvature, natural_unit, slope_bound

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
    tails : tuple of float
        Last fractions of a phase that are tried for its average: late points have forgotten more of
        the noise of the phase before, an average of many points has less sampling error.
    growth : float
        Number of records of a phase over that of the one before: the last phase decides about the
        noise and the error of a sample, the first ones only approach.
    skewed : float
        Weight in the choice of designs with a preferred direction.
    stability : float
        Largest step size of the search, times the curvature of one record; 2 is the bound of the
        proof.
    matrix_share, span : float
        Fraction of the squared GDP budget for the second moments of ``mapped``, and the norm that
        rows are shortened to behind the map, in root mean squares.
    flattest : float
        Least second moment over the largest one that the map tells apart.
    """

    kind = "phases_tuning"
    set_by: str = "benchmarks/one_pass.py --tune"
    most_phases: int = 4
    times: tuple[float, ...] = tuple(0.25 * 2 ** (k / 2) for k in range(23))
    factors: tuple[float, ...] = (2.0, 3.0, 4.0)
    tails: tuple[float, ...] = (0.5, 0.05)
    growth: float = 1.5
    skewed: float = 0.005
    stability: float = 1.0
    matrix_share: float = 0.07
    span: float = 1.2
    flattest: float = 1e-5


TUNING = PhasesTuning()


def shares_of(count: int) -> tuple[float, ...]:
    """Return the fraction of the records in each of so many phases.

    >>> [round(share, 3) for share in shares_of(3)]
    [0.211, 0.316, 0.474]
    """
    return _shares(count, TUNING.growth)


@cache
def _shares(count: int, growth: float) -> tuple[float, ...]:
    sizes = [growth**i for i in range(count)]
    return tuple(size / sum(sizes) for size in sizes)


def least_records(count: int) -> int:
    """Return the least n for which the first of so many phases has two records."""
    return math.ceil(2 / shares_of(count)[0])


@dataclass(frozen=True)
class Phases:
    """Phases on growing parts of the records, all but the time of the first: its total step size.

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
        """Return the step size of a phase; that of the first one is the longest."""
        return time / self.factor**phase / (shares_of(self.count)[phase] * self.problem.n)

    def passes(self, time: float, tail: float) -> list[OnePass]:
        """Return the mechanism of each phase, for the time of the first one."""
        kind, multiplier = self.noise.noise, self.noise.noise_multiplier
        steps = [self.step_size(time, i) for i in range(self.count)]
        clip = self.clip_norm
        return [
            OnePass(self._smooth(step), self.relation, kind, multiplier, step, clip, share, tail)
            for step, share in zip(steps, shares_of(self.count), strict=True)
        ]

    def _smooth(self, step_size: float) -> Minimize:
        """Return the problem with a kink smoothed for steps of this size."""
        problem = self.problem
        loss: Any = problem.loss
        if problem.constants(self.relation, everywhere=True).smooth:
            return problem
        width = smoothing_width(loss.kink, problem.bounds.row_norm, step_size, problem.ridge)
        return replace(problem, loss=GaussianSmoothed(loss, width))

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

    def checked_time(self, time: float) -> Floats:
        """Return the caller's time as the only one of a search; ValueError if steps expand."""
        problem = self.problem
        constants = problem.constants(self.relation, everywhere=True)
        # The smoothing of a kink follows the step size: only a ridge limits it, and near that
        # limit no width is left.
        smoothness, slack = (constants.smoothness, 2.0**-40) if constants.smooth else (0.0, 1e-3)
        curvature = problem.ridge + smoothness
        most = 2 * (1 - slack) / (curvature * self.step_size(1.0)) if curvature else math.inf
        if not positive("time", time) <= most:
            raise ValueError(
                f"time must be at most {most:.4g}, got {time!r}: longer steps expand distances "
                "between neighbours; reduce time, or leave it out"
            )
        return np.array([float(time)])

    def risk_on(self, design: Design, times: Floats, tails: Floats) -> Floats:
        """Return the predicted excess risk on a reference design for each time and its tail.

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
        first, tail = times[:, np.newaxis], tails[:, np.newaxis]
        left, variance = np.ones((len(times), len(felt))), np.zeros((len(times), len(felt)))
        for i in range(self.count):
            time, step = first / self.factor**i, self.step_size(1.0, i) * first
            decay = time * (felt + problem.ridge)
            kept = remaining(decay, tail)
            left *= kept
            sampled = design.gradient_noise * felt * step * time * sampling_variance(decay, tail)
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
        last = self.step_size(1.0, self.count - 1) * times
        widths = smoothing_width(kink, problem.bounds.row_norm, 1.0) * last
        return np.asarray(
            0.4 * kink * widths * np.minimum(1.0, widths / _margin_scale(problem)) ** 3
        )

    def best(self, times: Floats) -> Found:
        """Return the time and the tail that are best for the choice, with their predicted risk.

        In the choice designs with a preferred direction count little: columns of unequal scales are
        for ``mapped``, behind which there are none. In the prediction all designs count.
        """
        designs = reference_designs(
            self.problem, slope_bound(self.problem, self.clip_norm), natural_unit(self.problem)
        )
        times, tails = (pair.ravel() for pair in np.meshgrid(times, TUNING.tails))
        risks = np.array(
            [self.risk_on(each, times, tails) / each.unit + each.rounding for each in designs]
        )
        weights = np.array([design.weight for design in designs])
        even = np.array([np.ptp(design.curvatures) == 0 for design in designs])
        scores = power_mean(
            risks, np.where(even, weights, 0.0 if self.mapped else TUNING.skewed * weights)
        )
        best = int(np.argmin(scores))
        expected = scores if self.mapped else power_mean(risks, weights)
        score, risk, time, tail = (
            float(values[best]) for values in (scores, expected, times, tails)
        )
        return Found(score, risk, time, tail, self)


class Found(NamedTuple):
    """Phases with the time of the first, the tail, the score in the choice, the predicted risk."""

    score: float
    risk: float
    time: float
    tail: float
    phases: Phases


def _margin_scale(problem: Minimize) -> float:
    """Return the scale over which margins are spread around a kink."""
    return natural_unit(problem) * problem.bounds.row_norm


def remaining(decay: Floats, tail: Floats | float) -> Floats:
    """Return the mean of exp(-decay t) over the last ``tail`` of [0, 1].

    >>> remaining(np.array([0.0, 2.0]), 0.5).round(4).tolist()
    [1.0, 0.2325]
    """
    late = np.maximum(decay * tail, 1e-12)
    return np.asarray(np.exp(-decay * (1 - tail)) * -np.expm1(-late) / late)


def sampling_variance(decay: Floats, tail: Floats | float) -> Floats:
    """Return the integral over u in [0, 1] of the squared weight of a gradient at u in the average.

    The weight is the mean, over the last ``tail`` of [0, 1], of exp(-decay (t - u)) where t > u.

    >>> sampling_variance(np.array([0.0, 2.0, 200.0]), 0.5).round(6).tolist()
    [0.665543, 0.170421, 5e-05]
    """
    late = np.maximum(decay * tail, 1e-3)
    once, twice = -np.expm1(-late) / late, -np.expm1(-2 * late) / (2 * late)
    before = -np.expm1(-2 * late * (1 - tail) / tail) / (2 * late)
    return np.asarray(tail * ((1 - 2 * once + twice) / late**2 + once**2 * before))


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
            if problem.n >= least_records(count):
                for factor in TUNING.factors if count > 1 else TUNING.factors[:1]:
                    clip = positive("clip_norm", clip)
                    yield Phases(problem, budget.relation, noise, clip, count, factor, mapped)

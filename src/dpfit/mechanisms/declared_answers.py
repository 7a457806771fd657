"""Real-valued answers of declared sensitivities, with the noise whose predicted error is smallest.

Guarantee: (epsilon, delta)-DP, epsilon-DP, mu-GDP or rho-zCDP.
Assumes: the declared sensitivities, which nothing enforces; the basis says so.

Laplace, Gaussian, generalized Gaussian and K-norm noise are each calibrated to the whole budget, under all declared
norms at once. The choice between them depends on public facts only.
Reference: [Gan22] chapter 2, for l1 and l2 sensitivities as well; docs/explanation/queries.md, section 6.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Answer, Example, Mechanism, Plan, Risk, Run, Step
from dpfit.data.arrays import array_of, as_rows, check_array
from dpfit.data.view import View
from dpfit.mechanisms.choice import calibrated_noises, choice_notes
from dpfit.mechanisms.generalized_gaussian import best_shape
from dpfit.mechanisms.moved_answers import moved_answers
from dpfit.noise import Grid, Source, add_gaussian, add_generalized_gaussian, add_l2_laplace, add_linf_laplace
from dpfit.noise.lattice import ROUNDING_SHARE, Norm
from dpfit.privacy import Assumption, Basis, Budget, NotReachable, calibrate
from dpfit.privacy.check import count, one_of, positive
from dpfit.privacy.event import Event, Gaussian, GeneralizedGaussian, Pure
from dpfit.privacy.spec import Spec
from dpfit.theory.errors import ErrorLaw, checked_criterion
from dpfit.theory.generalized_gaussian import IndependentErrors
from dpfit.theory.k_norm import CubeErrors
from dpfit.theory.l2_laplace import BallErrors

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

_LARGEST = 60
"""Single contributions are cut at two to this power steps of the grid, which nothing sensible reaches."""


@dataclass(frozen=True)
class DeclaredQueries(Spec):
    """``queries`` numbers that one neighbour change moves by at most this much in each of the norms that are given.

    Each record is a row of numbers, what it contributes to each answer, and an answer is the sum of its column. Norms
    that are not given follow from those that are:

    >>> workload = DeclaredQueries(100, l1=4.0, linf=1.0)
    >>> workload.sensitivity("l1"), round(workload.sensitivity("l2"), 9), workload.sensitivity("linf")
    (4.0, 2.0, 1.0)
    """

    kind = "declared_queries"
    queries: int
    l1: float | None = None
    l2: float | None = None
    linf: float | None = None

    def __post_init__(self) -> None:
        count("the number of queries", self.queries)
        if not self.declared:
            raise ValueError("declare how far one record moves the answers: l1, l2, linf or several of them")
        for norm, bound in self.declared.items():
            positive(norm, bound)

    @property
    def declared(self) -> dict[str, float]:
        """The norms that are given."""
        given = {"l1": self.l1, "l2": self.l2, "linf": self.linf}
        return {norm: bound for norm, bound in given.items() if bound is not None}

    def sensitivity(self, norm: str) -> float:
        """The smallest bound in a norm that follows from the declared ones, rounded up.

        max |v| <= |v|_2 <= |v|_1, |v|_2^2 <= |v|_1 max |v|, and each norm is at most that of equal entries.
        """
        one_of("norm", norm, ("l1", "l2", "linf"))
        l1, l2, linf = (self.declared.get(name, math.inf) for name in ("l1", "l2", "linf"))
        root, more = math.sqrt(self.queries), 1 + 2.0**-50
        linf = min(linf, l2, l1)
        l1 = min(l1, l2 * root * more, linf * self.queries * more)
        l2 = min(l2, l1, linf * root * more, math.sqrt(l1) * math.sqrt(linf) * more)
        return {"l1": l1, "l2": l2, "linf": linf}[norm]

    @cached_property
    def grid(self) -> Grid:
        """A grid on which rounding costs at most `ROUNDING_SHARE` of the sensitivity in each of the norms."""
        norms: tuple[Norm, ...] = ("l1", "l2", "linf")
        grids = (Grid.fitting(self.sensitivity(norm), self.queries, norm) for norm in norms)
        return min(grids, key=lambda grid: grid.exponent)

    def charged(self, norm: str) -> float:
        """The sensitivity after rounding to the grid."""
        return self.sensitivity(norm) * (1 + ROUNDING_SHARE) * (1 + 2.0**-50)

    def rows(self, given: Any) -> Floats:
        """Return the contributions of all records."""
        return as_rows(given, self.queries, "numbers")

    def answers(self, given: Any) -> Steps:
        """Return the sum of all rows, in steps of the grid."""
        return self.grid.sum(self.rows(given), bound=math.ldexp(self.grid.step, _LARGEST))


@dataclass(frozen=True)
class AnswerNoise(Spec, ABC):
    """A law of noise for answers of declared sensitivities: its event, its draws, the law of its errors."""

    theorem: ClassVar[str]

    @property
    @abstractmethod
    def label(self) -> str:
        """The law in words."""

    @abstractmethod
    def event(self, workload: DeclaredQueries) -> Event:
        """What is done."""

    @abstractmethod
    def add(self, answers: Steps, workload: DeclaredQueries, source: Source) -> Floats:
        """The answers, in steps of the workload's grid, with noise."""

    @abstractmethod
    def errors(self, workload: DeclaredQueries) -> ErrorLaw:
        """The law of the noise."""


@dataclass(frozen=True)
class GaussianAnswerNoise(AnswerNoise):
    """Independent normal noise; multiplier = standard deviation / l2 sensitivity."""

    kind = "gaussian_answer_noise"
    theorem = "Gaussian mechanism [Gan22, Fact 15]"
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)

    @property
    def label(self) -> str:
        return "Gaussian"

    def event(self, workload: DeclaredQueries) -> Event:
        return Gaussian(self.noise_multiplier)

    def add(self, answers: Steps, workload: DeclaredQueries, source: Source) -> Floats:
        return add_gaussian(
            answers,
            l2_sensitivity=workload.charged("l2"),
            noise_multiplier=self.noise_multiplier,
            source=source,
            grid=workload.grid,
        )

    def errors(self, workload: DeclaredQueries) -> ErrorLaw:
        scale = self.noise_multiplier * workload.sensitivity("l2") * math.sqrt(2)
        return IndependentErrors(2.0, scale, workload.queries)


@dataclass(frozen=True)
class KNormAnswerNoise(AnswerNoise):
    """One noise vector of density exp(-||x|| / scale), in the maximum or the l2 norm; multiplier = scale / sensitivity.

    (In the l1 norm it is Laplace noise.)
    """

    kind = "k_norm_answer_noise"
    theorem = "K-norm mechanism [Gan22, Section 2.1]"
    noise_multiplier: float
    norm: str = "linf"

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        one_of("norm", self.norm, ("linf", "l2"))

    @property
    def label(self) -> str:
        return "K-norm" if self.norm == "linf" else "K-norm (l2)"

    def event(self, workload: DeclaredQueries) -> Event:
        return Pure((1 + 2.0**-50) / self.noise_multiplier)

    def add(self, answers: Steps, workload: DeclaredQueries, source: Source) -> Floats:
        multiplier, grid, charged = self.noise_multiplier, workload.grid, workload.charged(self.norm)
        if self.norm == "l2":
            return add_l2_laplace(
                answers, l2_sensitivity=charged, noise_multiplier=multiplier, source=source, grid=grid
            )
        return add_linf_laplace(
            answers, linf_sensitivity=charged, noise_multiplier=multiplier, source=source, grid=grid
        )

    def errors(self, workload: DeclaredQueries) -> ErrorLaw:
        scale = self.noise_multiplier * workload.sensitivity(self.norm)
        return (BallErrors if self.norm == "l2" else CubeErrors)(scale, workload.queries)


@dataclass(frozen=True)
class PowerAnswerNoise(AnswerNoise):
    """Independent noise of density exp(-(|x| / scale)^shape); Laplace noise if the shape is one.

    ``bound`` says what the promise goes by. Under an l1 bound one answer that moves by all of it is the worst case;
    under an l-infinity bound all answers that move by it; both are exact. "moments" bounds the Renyi divergence under
    all norms at once (`dpfit.mechanisms.moved_answers`). Shape two is rotationally symmetric: "l2" is exact.
    """

    kind = "power_answer_noise"
    theorem = "generalized Gaussian mechanism [Gan22, Theorem 17], accounted numerically"
    scale: float
    shape: float
    bound: str

    def __post_init__(self) -> None:
        one_of("bound", self.bound, ("l1", "linf", "moments", "l2"))
        GeneralizedGaussian(self.scale, self.shape, 1)
        if self.bound == "l2" and self.shape != 2:
            raise ValueError(f"the l2 norm alone decides for shape 2 only, not for {self.shape!r}")

    @property
    def label(self) -> str:
        return "Laplace" if self.shape == 1 else f"generalized Gaussian (p = {self.shape:g})"

    def event(self, workload: DeclaredQueries) -> Event:
        if self.bound == "moments":
            l1, l2, linf = (workload.sensitivity(norm) / self.scale for norm in ("l1", "l2", "linf"))
            return moved_answers(self.shape, workload.queries, l1, l2, linf)
        moving = workload.queries if self.bound == "linf" else 1
        return GeneralizedGaussian(self.scale / workload.sensitivity(self.bound), self.shape, moving)

    def add(self, answers: Steps, workload: DeclaredQueries, source: Source) -> Floats:
        # All norms grow by the same factor when answers are rounded, so the scale does.
        return add_generalized_gaussian(
            answers,
            linf_sensitivity=workload.charged("linf"),
            noise_multiplier=self.scale / workload.sensitivity("linf") * (1 + 2.0**-50),
            shape=self.shape,
            source=source,
            grid=workload.grid,
        )

    def errors(self, workload: DeclaredQueries) -> ErrorLaw:
        return IndependentErrors(self.shape, self.scale, workload.queries)


@dataclass(frozen=True)
class NoisyAnswers(Mechanism):
    """Sums of contributions plus noise; all fields are public."""

    kind = "noisy_answers"
    noise: AnswerNoise
    workload: DeclaredQueries

    @property
    def event(self) -> Event:
        return self.noise.event(self.workload)

    @property
    def errors(self) -> ErrorLaw:
        """The law of the noise."""
        return self.noise.errors(self.workload)

    @property
    def risk(self) -> Risk:
        return Risk(self.errors.expected_max, f"largest error of the {self.workload.queries} answers")

    def check(self, data: View) -> None:
        check_array(data, self.workload.queries, "numbers")

    def run(self, data: View, run: Run) -> Floats:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: View, run: Run, count: int) -> list[Floats]:
        """Draw independent outputs; the rows are added up once."""
        answers = self.workload.answers(array_of(data))
        return [self.noise.add(answers, self.workload, run.noise) for _ in range(count)]


def power_noise(workload: DeclaredQueries, shape: float, budget: Budget) -> PowerAnswerNoise:
    """The smallest scale for a shape within the budget, over all bounds that apply.

    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> power_noise(DeclaredQueries(1000, l1=2.0), 1.0, Budget(epsilon=1.0)).bound
    'l1'
    >>> power_noise(DeclaredQueries(1000, l1=40.0, linf=1.0), 3.0, budget).bound
    'moments'
    """
    found = []
    for bound in _bounds(workload, shape, budget):
        with suppress(NotReachable):
            found.append(_calibrated(workload, shape, bound, budget))
    if not found:
        raise NotReachable(
            f"noise of shape {shape:g} cannot keep this budget: for pure epsilon use Laplace or K-norm noise, for mu "
            "or rho Gaussian noise"
        )
    return min(found, key=lambda noise: noise.scale)


def _bounds(workload: DeclaredQueries, shape: float, budget: Budget) -> Iterator[str]:
    """The bounds that may give the smallest noise."""
    if shape == 2:
        yield "l2"
        return
    yield "l1"
    l1, linf, number = workload.sensitivity("l1"), workload.sensitivity("linf"), workload.queries
    if number > 1:
        yield "linf"
    # Where one answer may move by all of l1, or all by linf, the others are exact. Moments promise epsilon and delta.
    if budget.kind == "approximate" and linf < l1 < number * linf * (1 - 1e-9):
        yield "moments"


def _calibrated(workload: DeclaredQueries, shape: float, bound: str, budget: Budget) -> PowerAnswerNoise:
    unit = workload.sensitivity("l2" if bound == "moments" else bound)
    best = calibrate(lambda level: NoisyAnswers(PowerAnswerNoise(level * unit, shape, bound), workload), budget)
    return cast(PowerAnswerNoise, best.noise)


def laplace(workload: DeclaredQueries, budget: Budget, minimize: str | float) -> AnswerNoise:
    """The smallest Laplace noise."""
    return power_noise(workload, 1.0, budget)


def gaussian(workload: DeclaredQueries, budget: Budget, minimize: str | float) -> AnswerNoise:
    """The smallest Gaussian noise."""
    return GaussianAnswerNoise(calibrate(Gaussian, budget).noise_multiplier)


def k_norm(workload: DeclaredQueries, budget: Budget, minimize: str | float) -> AnswerNoise:
    """The smallest noise of one vector, in the norm in which it errs less."""
    found = [
        calibrate(lambda level, norm=norm: NoisyAnswers(KNormAnswerNoise(level, norm), workload), budget)  # type: ignore[misc]
        for norm in ("linf", "l2")
    ]
    return min((best.noise for best in found), key=lambda noise: noise.errors(workload).size(minimize))


def generalized_gaussian(workload: DeclaredQueries, budget: Budget, minimize: str | float) -> AnswerNoise:
    """The smallest generalized Gaussian noise, of a shape that suits as many answers as can move by the maximum."""
    if budget.kind != "approximate":
        raise NotReachable("generalized Gaussian noise promises (epsilon, delta); give both")
    l1, l2, linf = (workload.sensitivity(norm) for norm in ("l1", "l2", "linf"))
    moving = max(1, round(min(l1 / linf, (l2 / linf) ** 2)))
    # Any shape is private, so the choice may be rough.
    shape = best_shape(workload.queries, moving, budget, minimize)
    found = [power_noise(workload, candidate, budget) for candidate in (shape, 2.0)]
    return min(found, key=lambda noise: noise.errors(workload).size(minimize))


LAWS: dict[str, Callable[[DeclaredQueries, Budget, str | float], AnswerNoise]] = {
    "laplace": laplace,
    "gaussian": gaussian,
    "generalized_gaussian": generalized_gaussian,
    "k_norm": k_norm,
}


class DeclaredAnswers(Algorithm[Answer]):
    """Answers of declared sensitivities with the best of several kinds of noise.

    Guarantee: that of the chosen noise, if the declared sensitivities are right. Reference: [Gan22] chapter 2.
    """

    name = "declared_answers"
    summary = "real-valued sums of declared sensitivities with the noise that is predicted to err least"
    reference = "[Gan22] chapter 2, under l1, l2 and l-infinity sensitivities"
    solves = Answer
    workloads = (DeclaredQueries,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "recommended"

    def _plan(
        self, problem: Answer, budget: Budget, *, minimize: str | float = "max", noise: tuple[str, ...] = tuple(LAWS)
    ) -> Plan:
        """Plan one step; ``minimize`` is "max", "average" or a level (a quantile of the largest error).

        >>> budget = Budget(epsilon=1.0, delta=1e-6)
        >>> plan = declared_answers.plan(Answer(n=100, workload=DeclaredQueries(1000, l2=1.0)), budget)
        >>> print(plan.explain().splitlines()[-1][:45])
        chosen     Gaussian for its expected largest
        """
        workload = cast(DeclaredQueries, problem.workload)
        checked_criterion(minimize)
        laws = calibrated_noises(noise, LAWS, lambda law: law(workload, budget, minimize))
        ranked = sorted(laws, key=lambda law: law.errors(workload).size(minimize))
        # The best shape may be that of another law, which is then named once.
        sizes = {law.label: law.errors(workload).size(minimize) for law in ranked}
        step = Step(NoisyAnswers(ranked[0], workload), _basis(ranked[0].theorem, workload, budget))
        return step.with_notes(*choice_notes(list(sizes.items()), minimize))

    def example(self, relation: str) -> Example:
        """Return records of zeros, one of which moves all four answers by one, or leaves."""
        rows = np.zeros((4, 4))
        rows[-1] = 1.0
        problem = Answer(n=4, workload=DeclaredQueries(4, linf=1.0))
        return Example(problem, rows, rows[:-1] if relation == "add_remove" else np.zeros((4, 4)))


def _basis(theorem: str, workload: DeclaredQueries, budget: Budget) -> Basis:
    norms = ", ".join(f"{bound:g} in the {_NORMS[norm]} norm" for norm, bound in workload.declared.items())
    moved = Assumption(f"one neighbour change moves the vector of answers by at most {norms}", "declared")
    return Basis(theorem, budget.relation, budget.unit, (moved,), "exact")


_NORMS = {"l1": "l1", "l2": "l2", "linf": "maximum"}

declared_answers = DeclaredAnswers()

"""Additive noise on sums over records: workloads, noise distributions, and the mechanism.

Privacy needs one fact about a workload: how far one neighbouring change moves the vector of answers
(`Change`). Every noise distribution says what it guarantees for such a change, how it is drawn and
how large its errors are. A new distribution is one subclass of `AdditiveNoise`; a new workload is
one subclass of `SumQueries`. Proofs: docs/explanation/queries.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.core import (
    Algorithm,
    Answer,
    Chosen,
    Considered,
    Example,
    Mechanism,
    Note,
    Plan,
    Risk,
    Run,
    Step,
    Work,
)
from dpfit.data.arrays import array_of
from dpfit.data.view import View
from dpfit.noise import (
    INTEGERS,
    Grid,
    Source,
    add_gaussian,
    add_generalized_gaussian,
    add_l2_laplace,
    add_laplace,
    add_linf_laplace,
)
from dpfit.noise import GeneralizedGaussian as DrawnDistribution
from dpfit.privacy import Basis, Budget, BudgetUnreachable, calibrate
from dpfit.privacy.event import Event, Gaussian, GeneralizedGaussian, Laplace, Pure, Repeated
from dpfit.privacy.moved_answers import moved_answers
from dpfit.privacy.rounding import up
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import did_you_mean, option, positive
from dpfit.theory.best_shape import best_shape, calibrated_scale
from dpfit.theory.errors import ErrorLaw, checked_criterion
from dpfit.theory.generalized_gaussian import IndependentErrors
from dpfit.theory.k_norm import CubeErrors
from dpfit.theory.l2_laplace import BallErrors

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]
Criterion = str | float
"""The error that a choice makes small: "max", "average", or a level (a quantile of the largest
error).
"""

RELATIONS = ("replace", "add_remove")


class Change(NamedTuple):
    """The largest change of ``number`` answers by one neighbouring change, in three norms.

    ``exact`` marks counts: every answer that moves does so by ``linf``, and at most l1 / linf of
    them move.
    """

    number: int
    l1: float
    l2: float
    linf: float
    exact: bool = False

    @property
    def moving(self) -> int:
        """Largest number of answers that move by ``linf`` at once."""
        return round(self.l1 / self.linf) if self.exact else self.number

    def norm(self, name: str) -> float:
        """Return the sensitivity in a norm."""
        return {"l1": self.l1, "l2": self.l2, "linf": self.linf}[
            option("norm", name, ("l1", "l2", "linf"))
        ]


@dataclass(frozen=True)
class SumQueries(Spec, ABC):
    """A workload whose answers are sums over the records."""

    noun: ClassVar[str] = "answer"
    growth: ClassVar[float] = 1.0
    """Factor by which rounding to the grid enlarges the change, in every norm."""

    @property
    @abstractmethod
    def number(self) -> int:
        """The number of queries."""

    @abstractmethod
    def change(self, relation: str) -> Change:
        """Return the largest change of the answers by one neighbouring change."""

    @abstractmethod
    def sums(self, given: ArrayLike) -> Steps:
        """Return the exact answers on the caller's data, in steps of the grid."""

    @abstractmethod
    def basis(self, theorem: str, budget: Budget) -> Basis:
        """Return why noisy answers are private."""

    @property
    def grid(self) -> Grid:
        """The grid on which answers are released."""
        return INTEGERS

    def check(self, data: View) -> None:
        """Refuse data of a wrong shape or type; it reads public facts only."""

    def answers(self, data: View) -> Steps:
        """Return the exact answers on an array, on a table or on the rows of records."""
        return self.sums(array_of(data))

    @staticmethod
    def example() -> SumQueries:
        """Return four queries that one record may all move by one."""
        raise NotImplementedError

    def sensitivity(self, norm: str, relation: str = "replace") -> float:
        """Return the largest change of the answers in a norm, rounded up."""
        return self.change(relation).norm(norm)


@dataclass(frozen=True)
class AdditiveNoise(Spec, ABC):
    """A noise distribution on a vector of answers: its event, its draws, its errors."""

    independent: ClassVar[bool] = True
    """Whether the noise of one answer does not depend on how many others there are."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The distribution in words."""

    @property
    @abstractmethod
    def theorem(self) -> str:
        """The theorem that the guarantee rests on."""

    @abstractmethod
    def event(self, change: Change) -> Event:
        """Return the event for answers that move by ``change``."""

    @abstractmethod
    def errors(self, change: Change) -> ErrorLaw:
        """Return the distribution of the noise."""

    @abstractmethod
    def add(
        self,
        answers: Steps,
        change: Change,
        source: Source,
        grid: Grid = INTEGERS,
        growth: float = 1.0,
    ) -> Floats:
        """Return noisy answers, in grid steps; rounding enlarged the sensitivity by ``growth``."""


@dataclass(frozen=True)
class GaussianNoise(AdditiveNoise):
    """Independent normal noise; multiplier = standard deviation / l2 sensitivity.

    Guarantee: mu-GDP with mu = 1 / noise_multiplier. Reference: [Gan22] Example 5, Fact 15.
    """

    kind = "gaussian_noise"
    label = "Gaussian"
    theorem = "Gaussian mechanism [Gan22, Fact 15]"
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)

    @classmethod
    def calibrated(
        cls, change: Change, budget: Budget, minimize: Criterion = "max"
    ) -> GaussianNoise:
        """Return the smallest noise within the budget."""
        return cls(calibrate(Gaussian, budget).noise_multiplier)

    def event(self, change: Change) -> Event:
        return Gaussian(self.noise_multiplier)

    def errors(self, change: Change) -> ErrorLaw:
        return IndependentErrors(
            2.0, self.noise_multiplier * change.l2 * math.sqrt(2), change.number
        )

    def add(
        self,
        answers: Steps,
        change: Change,
        source: Source,
        grid: Grid = INTEGERS,
        growth: float = 1.0,
    ) -> Floats:
        return add_gaussian(
            answers,
            l2_sensitivity=change.l2 * growth,
            noise_multiplier=self.noise_multiplier,
            source=source,
            grid=grid,
        )


@dataclass(frozen=True)
class KNormNoise(AdditiveNoise):
    """One vector of density exp(-epsilon * norm(x) / sensitivity), maximum or l2 norm.

    Guarantee: epsilon-DP, by the triangle inequality. The density integrates to the same number for
    every dataset, so there is no factor two. In the l1 norm it is Laplace noise. Reference: [Gan22]
    Section 2.1.
    """

    kind = "k_norm_noise"
    independent = False
    epsilon: float
    norm: str = "linf"

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        option("norm", self.norm, ("linf", "l2"))

    @classmethod
    def calibrated(cls, change: Change, budget: Budget, minimize: Criterion = "max") -> KNormNoise:
        """Return the smallest noise within the budget, in the norm of the smaller error."""
        epsilon = calibrate(lambda level: Pure(1 / level), budget).epsilon
        candidates = [
            cls(epsilon, norm) for norm in (("linf",) if change.exact else ("linf", "l2"))
        ]
        return min(candidates, key=lambda noise: noise.errors(change).size(minimize))

    @property
    def label(self) -> str:
        return "K-norm" if self.norm == "linf" else "K-norm (l2)"

    @property
    def theorem(self) -> str:
        norm = "maximum" if self.norm == "linf" else "l2"
        return f"K-norm mechanism in the {norm} norm [Gan22, Section 2.1]"

    @property
    def noise_multiplier(self) -> float:
        """1 / epsilon, rounded up by a few units in the last place."""
        return (1 + 2.0**-50) / self.epsilon

    def event(self, change: Change) -> Event:
        return Pure(self.epsilon)

    def errors(self, change: Change) -> ErrorLaw:
        scale = self.noise_multiplier * change.norm(self.norm)
        return (BallErrors if self.norm == "l2" else CubeErrors)(scale, change.number)

    def add(
        self,
        answers: Steps,
        change: Change,
        source: Source,
        grid: Grid = INTEGERS,
        growth: float = 1.0,
    ) -> Floats:
        sensitivity, multiplier = change.norm(self.norm) * growth, self.noise_multiplier
        if self.norm == "l2":
            return add_l2_laplace(
                answers,
                l2_sensitivity=sensitivity,
                noise_multiplier=multiplier,
                source=source,
                grid=grid,
            )
        return add_linf_laplace(
            answers,
            linf_sensitivity=sensitivity,
            noise_multiplier=multiplier,
            source=source,
            grid=grid,
        )


@dataclass(frozen=True)
class PowerNoise(AdditiveNoise):
    """Independent noise of density exp(-(abs(x) / scale)**shape).

    ``bound`` names the sensitivity that the guarantee rests on. Under "l1" the worst change moves
    one answer by all of it; under "linf" it moves all movable answers by it. Both are exact.
    "moments" bounds the Renyi divergence under all norms at once (`dpfit.privacy.moved_answers`).
    Shape 2 is rotationally symmetric, so "l2" is exact. Reference: [Gan22] Theorems 17 and 34;
    docs/explanation/accounting.md, section 2.5.
    """

    kind = "power_noise"
    scale: float
    shape: float
    bound: str = "linf"

    def __post_init__(self) -> None:
        option("bound", self.bound, ("l1", "linf", "moments", "l2"))
        # The accounted and the drawn distribution check their ranges now, before the budget is
        # spent.
        GeneralizedGaussian(self.scale, self.shape, 1)
        DrawnDistribution(self.shape)
        if self.bound == "l2" and self.shape != 2:
            raise ValueError(f"bound 'l2' needs shape 2, got {self.shape!r}; use 'moments'")

    @classmethod
    def calibrated(cls, change: Change, budget: Budget, minimize: Criterion = "max") -> PowerNoise:
        """Return the smallest noise in an (epsilon, delta) budget, of the shape of least error."""
        if budget.kind != "approximate":
            raise BudgetUnreachable(
                "generalized Gaussian noise guarantees (epsilon, delta); give both"
            )
        # Any shape is private, so a rough number of moving answers may choose it.
        alike = max(1, round(min(change.l1 / change.linf, (change.l2 / change.linf) ** 2)))
        shape = best_shape(change.number, alike, budget, minimize)
        found = [
            cls.of_shape(candidate, change, budget)
            for candidate in ((shape,) if change.exact else (shape, 2.0))
        ]
        return min(found, key=lambda noise: noise.errors(change).size(minimize))

    @classmethod
    def of_shape(cls, shape: float, change: Change, budget: Budget) -> PowerNoise:
        """Return the smallest noise of a shape within the budget, over all bounds that apply.

        >>> budget = Budget(epsilon=1.0, delta=1e-6)
        >>> PowerNoise.of_shape(1.5, Change(1000, l1=2.0, l2=2.0, linf=2.0), budget).bound
        'l1'
        >>> PowerNoise.of_shape(3.0, Change(1000, l1=40.0, l2=40**0.5, linf=1.0), budget).bound
        'moments'
        """
        if change.exact:
            return cls(calibrated_scale(change.moving, shape, budget) * change.linf, shape)
        return cls._smallest(shape, change, budget)

    @classmethod
    def _smallest(cls, shape: float, change: Change, budget: Budget) -> Self:
        found: list[Self] = []
        for bound in cls._bounds(shape, change, budget):
            unit = change.norm("l2" if bound == "moments" else bound)

            def noise(level: float, unit: float = unit, bound: str = bound) -> _OnChange[Self]:
                return _OnChange(cls(level * unit, shape, bound), change)

            with suppress(BudgetUnreachable):
                found.append(calibrate(noise, budget).noise)
        if not found:
            raise BudgetUnreachable(
                f"noise of shape {shape:g} cannot meet this budget; use Laplace or K-norm noise "
                "for pure epsilon, and "
                "Gaussian noise for mu or rho"
            )
        return min(found, key=lambda noise: noise.scale)

    @staticmethod
    def _bounds(shape: float, change: Change, budget: Budget) -> Iterator[str]:
        """Yield the bounds that may give the smallest noise."""
        if shape == 2:
            yield "l2"
            return
        if change.exact:
            yield "linf"
            return
        yield "l1"
        if change.number > 1:
            yield "linf"
        # Where one answer may move by all of l1, or all by linf, the others are exact. Moments give
        # epsilon and delta.
        if (
            budget.kind == "approximate"
            and change.linf < change.l1 < change.number * change.linf * (1 - 1e-9)
        ):
            yield "moments"

    @property
    def label(self) -> str:
        return f"generalized Gaussian (p = {self.shape:g})"

    @property
    def theorem(self) -> str:
        how = "by moments" if self.bound == "moments" else "exactly"
        return f"generalized Gaussian mechanism [Gan22, Theorem 17], accounted {how}"

    def event(self, change: Change) -> Event:
        if self.bound == "moments":
            l1, l2, linf = (norm / self.scale for norm in (change.l1, change.l2, change.linf))
            return moved_answers(self.shape, change.number, l1, l2, linf)
        return GeneralizedGaussian(self._multiplier(change), self.shape, self._moving(change))

    def _multiplier(self, change: Change) -> float:
        return self.scale / change.norm(self.bound)

    def _moving(self, change: Change) -> int:
        return change.moving if self.bound == "linf" else 1

    def errors(self, change: Change) -> IndependentErrors:
        return IndependentErrors(self.shape, self.scale, change.number)

    def add(
        self,
        answers: Steps,
        change: Change,
        source: Source,
        grid: Grid = INTEGERS,
        growth: float = 1.0,
    ) -> Floats:
        # Each answer by itself moves by at most linf; that several move together is in the event.
        return add_generalized_gaussian(
            answers,
            linf_sensitivity=change.linf * growth,
            noise_multiplier=up(Fraction(self.scale) / Fraction(change.linf)),
            shape=self.shape,
            source=source,
            grid=grid,
        )


@dataclass(frozen=True)
class LaplaceNoise(PowerNoise):
    """Independent Laplace noise, density exp(-abs(x) / scale); its cost is a rational number.

    Guarantee: epsilon-DP with epsilon = l1 sensitivity / scale. Reference: [Gan22] Example 2, Fact
    3.
    """

    kind = "laplace_noise"
    label = "Laplace"
    omitted: ClassVar = ("shape",)
    shape: float = 1.0

    @classmethod
    def calibrated(
        cls, change: Change, budget: Budget, minimize: Criterion = "max"
    ) -> LaplaceNoise:
        """Return the smallest noise within the budget."""
        return cls._smallest(1.0, change, budget)

    @property
    def theorem(self) -> str:
        return "Laplace mechanism [Gan22, Fact 3]" + (
            ", accounted by moments" if self.bound == "moments" else ""
        )

    def event(self, change: Change) -> Event:
        if self.bound == "moments":
            return super().event(change)
        return Repeated(Laplace(self._multiplier(change)), self._moving(change))

    def add(
        self,
        answers: Steps,
        change: Change,
        source: Source,
        grid: Grid = INTEGERS,
        growth: float = 1.0,
    ) -> Floats:
        return add_laplace(
            answers,
            l1_sensitivity=change.linf * growth,
            noise_multiplier=up(Fraction(self.scale) / Fraction(change.linf)),
            source=source,
            grid=grid,
        )


N = TypeVar("N", bound=AdditiveNoise)


class _OnChange(NamedTuple, Generic[N]):
    """Noise on answers that move by a change: what `calibrate` asks for its event."""

    noise: N
    change: Change

    @property
    def event(self) -> Event:
        return self.noise.event(self.change)


@dataclass(frozen=True)
class NoisySums(Mechanism):
    """Answers of a workload plus noise."""

    kind = "noisy_sums"
    noise: AdditiveNoise
    workload: SumQueries
    relation: str

    def __post_init__(self) -> None:
        option("relation", self.relation, RELATIONS)

    @property
    def change(self) -> Change:
        """The largest change of the answers by one neighbouring change."""
        return self.workload.change(self.relation)

    @property
    def event(self) -> Event:
        return self.noise.event(self.change)

    @property
    def errors(self) -> ErrorLaw:
        """The distribution of the noise."""
        return self.noise.errors(self.change)

    @property
    def risk(self) -> Risk:
        number, noun = self.workload.number, self.workload.noun
        of = f"the {noun}" if number == 1 else f"the {number} {noun}s"
        return Risk(self.errors.expected_max, f"largest error of {of}")

    def half_width(self, level: float = 0.95, simultaneous: bool = False) -> float:
        """Bound an error (``simultaneous``: all errors) with probability at least ``level``.

        Released noise is rounded to the grid: it is within h steps exactly if the noise is within h
        + 1/2 steps.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        law, step = self.errors, self.workload.grid.step
        width = law.max_quantile(level) if simultaneous else law.quantile(level)
        return step * max(0, math.ceil(width * self.workload.growth / step - 0.5))

    def check(self, data: View) -> None:
        self.workload.check(data)

    def run(self, data: View, run: Run) -> Floats:
        return self._add(self.workload.answers(data), run)

    def run_many(self, data: View, run: Run, count: int) -> list[Floats]:
        """Draw independent outputs: records are read once, and noise is drawn in one call."""
        answers = self.workload.answers(data)
        if self.noise.independent:
            return list(self._add(np.tile(answers, count), run).reshape(count, -1))
        return [self._add(answers, run) for _ in range(count)]

    def _add(self, answers: Steps, run: Run) -> Floats:
        return self.noise.add(
            answers, self.change, run.noise, self.workload.grid, self.workload.growth
        )


Calibration = Callable[[Change, Budget, Criterion], AdditiveNoise]
"""Returns the smallest noise of one kind within a budget; BudgetUnreachable if there is none."""

NOISES: Mapping[str, Calibration] = {
    "laplace": LaplaceNoise.calibrated,
    "gaussian": GaussianNoise.calibrated,
    "generalized_gaussian": PowerNoise.calibrated,
    "k_norm": KNormNoise.calibrated,
}

_ONE_PASS = Work(passes=1.0)


@dataclass(frozen=True)
class ConsideredNoise(Considered):
    """A noise distribution considered by the note `Chosen`, with its predicted error."""

    kind = "considered_noise"
    former: ClassVar = {"label": "name", "error": "risk"}
    omitted: ClassVar = ("work",)
    work: Work = _ONE_PASS

    @property
    def row(self) -> None:  # type: ignore[override]
        return None

    @staticmethod
    def notes(ranked: Mapping[str, float], minimize: Criterion) -> tuple[Note, ...]:
        """Return the notes of a choice; ``ranked`` maps labels to errors, best first."""
        measure = {"max": "expected largest error", "average": "average error"}.get(
            str(minimize), f"{minimize} quantile of the largest error"
        )
        (best, error), *others = ranked.items()
        than = "".join(f", {label} {size:.4g}" for label, size in others)
        chosen = Chosen(f"{best}, for its {measure}: {error:.4g}{than}")
        return (chosen, *(ConsideredNoise(label, size) for label, size in ranked.items()))


class SumAlgorithm(Algorithm[Answer]):
    """What algorithms that answer `SumQueries` share; a subclass declares its workloads first."""

    solves = Answer

    @staticmethod
    def workload(problem: Answer) -> SumQueries:
        """Return the workload; the declared facts have checked its type."""
        return cast(SumQueries, problem.workload)

    @classmethod
    def step(cls, noise: AdditiveNoise, problem: Answer, budget: Budget) -> Step:
        """Return the step that adds the noise to the answers."""
        workload = cls.workload(problem)
        return Step(
            NoisySums(noise, workload, budget.relation), workload.basis(noise.theorem, budget)
        )

    def example(self, relation: str) -> Example:
        """Return four queries, and neighbours whose answers all move by one."""
        rows = np.zeros((4, 4))
        rows[-1] = 1.0
        neighbour = rows[:-1] if relation == "add_remove" else np.zeros((4, 4))
        queries = cast(type[SumQueries], self.workloads[0]).example()
        return Example(Answer(n=4, workload=queries), rows, neighbour)


class OneNoise(SumAlgorithm):
    """One step that adds noise of one kind; a subclass declares its facts and its name."""

    noise: ClassVar[str]
    """A key of `NOISES`."""

    def _plan(self, problem: Answer, budget: Budget, *, minimize: Criterion = "max") -> Plan:
        """Plan one step; ``minimize`` is the error to minimize: "max", "average" or a level."""
        change = self.workload(problem).change(budget.relation)
        return self.step(
            NOISES[self.noise](change, budget, checked_criterion(minimize)), problem, budget
        )


class BestNoise(SumAlgorithm):
    """One step with the noise of smallest predicted error; the choice uses public facts only."""

    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "recommended"

    def _plan(
        self,
        problem: Answer,
        budget: Budget,
        *,
        minimize: Criterion = "max",
        noise: tuple[str, ...] = tuple(NOISES),
    ) -> Plan:
        """Plan one step; ``minimize`` is "max", "average" or a level (quantile of the max error).

        ``noise`` names the distributions to choose from: "laplace", "gaussian",
        "generalized_gaussian", "k_norm".
        """
        checked_criterion(minimize)
        if unknown := [name for name in noise if name not in NOISES] or (not noise and ["nothing"]):
            close = did_you_mean(unknown[0], NOISES).rstrip()
            raise ValueError(
                f"noise must name some of {', '.join(NOISES)}, got {', '.join(map(repr, unknown))}"
                + (f"; {close}" if close else "")
            )
        change = self.workload(problem).change(budget.relation)
        found: list[AdditiveNoise] = []
        refusals: list[str] = []
        for name in noise:
            try:
                found.append(NOISES[name](change, budget, minimize))
            except BudgetUnreachable as error:
                refusals.append(str(error))
        if not found:
            raise BudgetUnreachable("; ".join(refusals))
        ranked = sorted(
            ((each.errors(change).size(minimize), each) for each in found), key=lambda pair: pair[0]
        )
        # The best shape may be that of another distribution, which is then named once.
        sizes = {each.label: size for size, each in ranked}
        return self.step(ranked[0][1], problem, budget).with_notes(
            *ConsideredNoise.notes(sizes, minimize)
        )

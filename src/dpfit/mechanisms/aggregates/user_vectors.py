"""Means of users: the workload, and a mean in stages, each around the one before.

A user is worth one vector, the mean of its usable rows. Each stage clips what is left of it beyond
a released centre to a public radius, adds, and releases the sum with Gaussian noise. A centre that
is near lets the next stage have a small radius and little noise.

Guarantee: mu-GDP for all stages together, mu = 1 / noise_multiplier, for any data. Reference:
[Gan22] Fact 15; docs/explanation/users.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Example, Mechanism, Risk, Run, Work
from dpfit.core.algorithm import DECLARED_N, Requirement
from dpfit.core.problem import Problem
from dpfit.data.dataset import InMemory
from dpfit.data.view import View, require_records
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.user_means import Rows, UserMean
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.event import Event, Gaussian
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import in_safe_range, integer, option, positive

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UserVectors(Spec):
    """The mean, over users, of one vector for each: the mean of its rows.

    Parameters
    ----------
    dimension : int
        Number of columns.
    row_norm : float
        Public bound on the norm of a row; longer rows are scaled down.
    spread : float, optional
        Public distance from the mean within which most users' vectors lie.
    """

    kind = "user_vectors"
    omitted: ClassVar = ("spread",)
    dimension: int
    row_norm: float
    spread: float | None = None

    def __post_init__(self) -> None:
        integer("dimension", self.dimension)
        in_safe_range("row_norm", self.row_norm)
        if self.spread is not None:
            in_safe_range("spread", self.spread)

    @property
    def rows(self) -> Rows:
        """What a user is worth."""
        return Rows(self.dimension, self.row_norm)

    def check(self, data: View) -> None:
        """Refuse data that are not records of this width."""
        require_records(data)
        if data.width != self.dimension:
            raise ValueError(
                f"data must have rows of {self.dimension} entries, got {data.width}; plan for "
                "that width"
            )


@dataclass(frozen=True)
class StagedMean(Mechanism):
    """Clipped means around one another, with Gaussian noise; the last one is the value.

    Parameters
    ----------
    n : int
        Declared number of units, by which sums are divided.
    noise_multiplier : float
        Noise of all stages together.
    radii : tuple of float
        Clipping radius of each stage.
    centre : tuple of float, optional
        Centre of the first stage, by default the origin.
    """

    kind = "staged_mean"
    omitted: ClassVar = ("centre",)
    n: int
    noise_multiplier: float
    relation: str
    per: str
    workload: UserVectors
    radii: tuple[float, ...]
    centre: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        integer("n", self.n)
        positive("noise_multiplier", self.noise_multiplier)
        option("relation", self.relation, ("replace", "add_remove"))
        for radius in self.radii:
            positive("radius", radius)
        if not self.radii:
            raise ValueError("radii must have one radius for each stage, got none")
        if self.centre is not None and len(self.centre) != self.workload.dimension:
            raise ValueError(
                f"centre must have {self.workload.dimension} entries, got {len(self.centre)}"
            )
        for stage in range(len(self.radii)):
            self.stage(stage).check_scale(self.contribution(stage, self.start))

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def work(self) -> Work:
        return Work(passes=float(len(self.radii)))

    @property
    def risk(self) -> Risk:
        return Risk(self.deviation, "root mean square noise of each mean")

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each entry of the value."""
        last = len(self.radii) - 1
        return self.stage(last).deviation(self.contribution(last, self.start))

    @property
    def start(self) -> Floats:
        """The public centre of the first stage."""
        return np.zeros(self.workload.dimension) if self.centre is None else np.array(self.centre)

    def stage(self, index: int) -> ClippedMean:
        """Return the mean of a stage, with its part of the budget."""
        multiplier = self.noise_multiplier / math.sqrt(stage_fractions(len(self.radii))[index])
        return ClippedMean(self.n, multiplier, 1, self.relation, per=self.per)

    def contribution(self, index: int, centre: Floats) -> UserMean:
        """Return what a unit contributes to a stage."""
        return UserMean(self.workload.rows, self.radii[index], centre)

    def check(self, data: View) -> None:
        self.workload.check(data)

    def run(self, data: View, run: Run) -> Floats:
        centre = self.start
        for index in range(len(self.radii)):
            mean = self.stage(index)
            asked = self.contribution(index, centre)
            _, moved = mean.step(mean.init(data, run), asked, data, run)
            centre = centre + moved
            run.progress((index + 1) / len(self.radii))
        return centre


def stage_fractions(stages: int) -> tuple[float, ...]:
    """Return how stages share squared mu: the last one takes half, the others the rest evenly.

    >>> stage_fractions(1), stage_fractions(3)
    ((1.0,), (0.25, 0.25, 0.5))
    """
    if stages == 1:
        return (1.0,)
    return (*[0.5 / (stages - 1)] * (stages - 1), 0.5)


SPREAD = Requirement(
    "the spread of users",
    "pass spread to UserVectors: a distance from the mean within which most users lie",
    lambda problem, budget, options: (
        problem.workload.spread is not None or options.get("radius") is not None
    ),
)
"""For algorithms whose noise is in proportion to the spread of users."""


def means_basis(budget: Budget, *declared: Assumption) -> Basis:
    """Return why means of clipped vectors are private, under what else is declared."""
    unit = "user" if budget.unit == "user" else "record"
    assumptions = [Assumption(f"the vector of each {unit} is clipped", "enforced")]
    if budget.relation == "add_remove":
        assumptions.append(DECLARED_N)
    theorem = "adaptive Gaussian means [LD, Lemma C.1]; Gaussian mechanism [Gan22, Fact 15]"
    known = (*assumptions, *declared)
    return Basis(theorem, budget.relation, budget.unit, known, "exact")


def first_radius(workload: UserVectors, radius: float | None, centre: Floats) -> float:
    """Return the radius of the first stage: the given one, or what holds every bounded vector."""
    if radius is not None:
        return positive("radius", radius)
    return workload.row_norm + float(np.linalg.norm(centre))


def one_moves(problem: Problem, relation: str) -> Example:
    """Return users at one point, one of whom moves to the opposite one, or leaves.

    A user has one row, so that a record is a user.
    """
    n = 12 if problem.n is None else problem.n
    rows, users = np.tile([[1.0, 0.0]], (n, 1)), np.arange(n)
    data = InMemory(rows, np.zeros(n), users)
    if relation == "add_remove":
        return Example(problem, data, InMemory(rows[:-1], np.zeros(n - 1), users[:-1]))
    moved = np.vstack([rows[:-1], [[-1.0, 0.0]]])
    return Example(problem, data, InMemory(moved, np.zeros(n), users))


def two_places(problem: Problem, far: int) -> Example:
    """Return users at two places, ``far`` at the second, and one more in the neighbour."""
    rows, users = np.zeros((problem.units, 2)), np.arange(problem.units)
    rows[len(rows) - far :, 0] = 3.0
    moved = rows.copy()
    moved[0, 0] = 3.0
    data, other = (InMemory(each, np.zeros(len(each)), users) for each in (rows, moved))
    return Example(problem, data, other)


def pair_radius(workload: UserVectors, radius: float | None) -> float:
    """Return the distance within which two users count as near."""
    return 2 * float(workload.spread or 0.0) if radius is None else positive("radius", radius)

"""Noisy descent that starts at a public fit and is set up from public records.

Guarantee: mu-GDP for the whole trajectory with respect to the private records, mu = 1 / noise multiplier, for any loss,
any private and any public data: gradients of private records are clipped, the rest is post-processing and public.
Reference: [Gan22] Theorem 74, whose variance is replaced by the exact one; docs/explanation/public-data.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, Run, Work
from dpfit.data.dataset import Dataset, InMemory
from dpfit.losses.base import Loss
from dpfit.losses.glm import GLM
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.check import count, one_of, positive
from dpfit.privacy.event import Event, Gaussian
from dpfit.solvers.gradient.noisy_gd import (
    NoisyGD,
    opposite_records,
    practical_rule,
    require_minimize,
    trajectory_basis,
)
from dpfit.solvers.gradient.scales import unclipped
from dpfit.solvers.gradient.side_by_side import SideBySide
from dpfit.solvers.public_data.survey import Clipping, Survey, survey

Floats = NDArray[np.float64]
Move = Callable[[Floats, Floats], Floats]
"""From points and noisy gradients of the objective to the next points, all of shape (k, d)."""

STEPS = 50
"""Steps by default: they cost passes, not privacy."""

RECORDS_PER_DIMENSION = 1.5
"""With fewer public records for each parameter their fit may be worse than none, and they are not looked at."""

QUANTILES = (0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
"""The shares of public gradients within the clipping norms that are compared."""

FRACTIONS = 2.0 ** -np.arange(0.0, 14.0)
"""Step sizes, as shares of the longest one."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """How points move, and what that does along the eigenvectors of a survey, per unit of step size.

    One step multiplies the distance to the private minimizer by 1 - ``rates``, pulls back to the public one by
    ``pulls`` and adds ``gains`` times the noise of the gradient. The longest step goes this share ``longest`` of the
    way to the minimum along the eigenvector of the highest rate.
    """

    rates: Floats
    gains: Floats
    pulls: Floats
    mover: Callable[[float], Move]
    longest: float = 1.0


@dataclass(frozen=True, eq=False)
class Setting:
    """All that public records decide: where to start, how to clip, how to move, and the risk that this predicts.

    ``risk`` is the excess risk that is predicted for the release, ``public_risk`` for the public fit alone.
    """

    start: Floats
    sums: NoisyGD
    move: Move
    risk: float
    public_risk: float


@dataclass(frozen=True)
class PublicDescent(SideBySide):
    """Descent on noisy private gradients; all fields are public.

    ``clip`` bounds the gradients of private records; if it is None the public ones decide. Data without public records,
    or with fewer than `RECORDS_PER_DIMENSION` for each parameter, are left to `noisy_gd`, with as many passes.
    """

    problem: Minimize
    relation: str
    noise_multiplier: float
    steps: int
    clip: float | None = None

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        count("steps", self.steps)
        if self.clip is not None:
            positive("clip", self.clip)
        if not isinstance(self.problem.loss, GLM):
            raise ValueError(f"{self.kind} fits generalized linear losses, and {self.problem.loss.kind!r} is not one")

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def work(self) -> Work:
        return Work(gradients=float(self.steps) * self.problem.n, passes=float(self.steps))

    @property
    def iterations(self) -> int:
        return self.steps

    @abstractmethod
    def geometries(self, public: Survey, curvatures: Floats) -> Iterator[Geometry]:
        """The ways to move that are worth a prediction, given the curvatures of the clipped private objective."""

    def setting(self, public: Dataset) -> Setting:
        """The clip, geometry and step size of the smallest predicted risk, from public records only."""
        found = survey(self.problem, public)
        best: tuple[float, NoisyGD, Geometry, float] | None = None
        full = found.curvatures + self.problem.ridge
        for clip in self._clips(found.norms):
            sums, clipping = self._sums(clip), found.clipped(clip)
            noise = sums.sensitivity * float(sums.multipliers[0]) / self.problem.n
            for geometry in self.geometries(found, clipping.shares * found.curvatures + self.problem.ridge):
                sizes = geometry.longest * FRACTIONS / geometry.rates.max()
                risks = predicted_risks(full, found.variances, clipping, geometry, sizes, noise, sums.shares)
                least = int(np.argmin(risks))
                if best is None or risks[least] < best[0]:
                    best = float(risks[least]), sums, geometry, float(sizes[least])
        if best is None:
            raise ValueError("there is no geometry to move in")
        risk, sums, geometry, size = best
        start = found.point if self.problem.domain is None else self.problem.domain.project(found.point)
        public_risk = 0.5 * float((full * found.variances).sum())
        return Setting(start, sums, geometry.mover(size), risk, public_risk)

    def _clips(self, norms: Floats) -> set[float]:
        """The clipping norms to compare."""
        if self.clip is not None:
            return {self.clip}
        # A public fit without errors says little: keep clear of zero.
        least, most = 1e-6 * self.problem.bounds.row_norm, unclipped(self.problem)
        return {min(max(float(norm), least), most) for norm in np.quantile(norms, QUANTILES)}

    def _sums(self, clip: float) -> NoisyGD:
        # The ridge is part of the objective, not of the sums, and is added in `step`.
        free = replace(self.problem, ridge=0.0, domain=None)
        return NoisyGD(free, self.relation, self.noise_multiplier, self.steps, 1.0, clip)

    def init(self, data: Any, run: Run) -> tuple[Setting, Floats, Floats]:
        """What public records decide, the public start, the weighted sum of iterates."""
        if self.relation == "replace" and len(data) != self.problem.n:
            raise ValueError(f"the plan is for n = {self.problem.n} records, the data have {len(data)}")
        setting = self.setting(data.public)
        run.note("predicted_risk", {"release": setting.risk, "public fit": setting.public_risk})
        point = setting.start[np.newaxis]
        return setting, point, np.zeros_like(point)

    def step(
        self, state: tuple[Setting, Floats, Floats], index: int, data: Any, run: Run
    ) -> tuple[Setting, Floats, Floats]:
        """One noisy gradient, one move."""
        setting, points, average = state
        sums = setting.sums
        noisy = sums.noisy_sum(points, float(sums.multipliers[index]), data, run) / self.problem.n
        points = setting.move(points, noisy + self.problem.ridge * points)
        return setting, points, average + sums.shares[index] * points

    def finish(self, state: tuple[Setting, Floats, Floats]) -> Floats:
        """The averages, one for each of the points."""
        return state[2]

    def run(self, data: Any, run: Run) -> Floats:
        if not self.uses_public(data):
            return np.asarray(self.without_public().run(data, run))
        return np.asarray(super().run(data, run)[0])

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Floats]:
        """Independent runs side by side."""
        if not self.uses_public(data):
            return self.without_public().run_many(data, run, count)
        return super().run_many(data, run, count)

    def uses_public(self, data: Any) -> bool:
        """Whether there are enough public records to learn from; their number is a public fact."""
        public = getattr(data, "public", None)
        return public is not None and len(public) >= RECORDS_PER_DIMENSION * self.problem.dimension

    def without_public(self) -> NoisyGD:
        """What runs when there are no public records, or too few."""
        return practical_rule(self.problem, self.relation, self.noise_multiplier, max_passes=self.steps, clip=self.clip)


def predicted_risks(
    curvatures: Floats, variances: Floats, clipping: Clipping, geometry: Geometry, sizes: Floats, noise: float,
    shares: Floats,
) -> Floats:  # fmt: skip
    """Predicted excess risk of the average with weights ``shares``, for each step size.

    Along every eigenvector the iterates follow a scalar linear recursion, whose mean and variance are exact if the
    private loss is quadratic with the curvatures of the survey ([Gan22] Theorem 81 for one step).
    """
    rates, gains, pulls = (np.outer(sizes, part) for part in (geometry.rates, geometry.gains, geometry.pulls))
    left, kept = np.ones_like(rates), np.zeros_like(rates)
    weight, collected, drifted = (np.zeros_like(rates) for _ in range(3))
    for share in shares:
        left = (1 - rates) * left + pulls
        kept += share * left
    for share in shares[::-1]:
        # How much of what one step adds is in the average, from the last step to the first.
        weight = share + (1 - rates) * weight
        collected += weight**2
        drifted += weight
    squares = variances * kept**2 + (noise * gains) ** 2 * collected + (clipping.shifts * gains * drifted) ** 2
    return np.asarray(0.5 * squares @ curvatures)


def require_linear(name: str, problem: Any, budget: Budget) -> None:
    """Refuse what descent with public data cannot plan."""
    require_minimize(name, problem, budget)
    if not isinstance(problem.loss, GLM) or problem.loss.smoothness(problem.bounds, problem.radius) is None:
        raise ValueError(
            f"{name} fits smooth generalized linear losses, and {problem.loss.kind!r} is not one: use Huber or "
            "SmoothedHinge, or noisy_gd"
        )


def public_basis(loss: Loss, budget: Budget) -> Basis:
    """Why the trajectory is private, and for whom."""
    basis = trajectory_basis(loss, budget)
    unprotected = Assumption(
        "the public records are of nobody among the private ones; they are not protected", "declared"
    )
    return replace(basis, assumptions=(*basis.assumptions, unprotected))


def opposite_records_with_public(relation: str) -> tuple[Minimize, Any, Any]:
    """A small problem with neighbours whose gradients are as far apart as they can be, and one public data set."""
    problem, data, neighbour = opposite_records(relation)
    rows = np.tile([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]], (8, 1))
    public = InMemory(rows, np.where(np.arange(24) % 5 < 3, 1.0, -1.0))
    return problem, replace(data, public=public), replace(neighbour, public=public)

"""One pass of SGD over the records of a part, with noise on the average: a phase of `phased_sgd`.

Proof of the sensitivity, and of what breaks it: docs/explanation/phases.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Mechanism, Minimize, Run
from dpfit.data.chunk import Chunk
from dpfit.data.view import View
from dpfit.geometry.l2_ball import L2Ball
from dpfit.kernels.bounds import Guards
from dpfit.kernels.one_pass import Pace, Walk, average_error, step_error
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.privacy.event import Event
from dpfit.privacy.validate import in_safe_range, positive

Floats = NDArray[np.float64]

MARKS = (np.arange(256) + 1) / 256
"""Public positions at which points enter the average, as fractions of the tail of the pass."""


@dataclass(frozen=True)
class OnePass(Mechanism):
    """Average point of one pass of clipped SGD in the order of positions, plus noise.

    Guarantee: mu-GDP (Gaussian) or epsilon-DP (l2-Laplace), mu, epsilon = 1 / noise_multiplier.
    Sensitivity: 2 step_size clip_norm (replace-one) or step_size clip_norm (add/remove) in l2, plus
    rounding errors.
    Assumes: a convex loss of the margin with step_size (curvature row_norm^2 + ridge) <= 2
    (checked); at most 2 n records under add/remove (declared). ``share`` is the fraction of the n
    records that the pass is planned for: a ridge acts for ``share * n * step_size``, and under
    replace-one rounding errors are charged for so many steps. ``tail`` is the last fraction of the
    pass, over which points are averaged.
    Reference: Feldman, Koren and Talwar (2020); proof in docs/explanation/phases.md, Theorem 1.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=5)
    >>> one = OnePass(problem, "replace", "gaussian", 4.0, step_size=0.1, clip_norm=1.0)
    >>> one.event, round(one.sensitivity, 9)
    (Gaussian(noise_multiplier=4.0), 0.2)
    """

    kind = "one_pass"
    problem: Minimize
    relation: str
    noise: str
    noise_multiplier: float
    step_size: float
    clip_norm: float
    share: float = 1.0
    tail: float = 0.5

    def __post_init__(self) -> None:
        in_safe_range("step_size", self.step_size)
        in_safe_range("clip_norm", self.clip_norm)
        positive("share", self.share)
        if not 0 < self.tail <= 1:
            raise ValueError(f"tail must be in (0, 1], got {self.tail!r}")
        problem = self.problem
        if not problem.constants(self.relation, everywhere=True).convex_when_clipped:
            raise ValueError(
                "one pass needs a convex generalized linear loss: clipped gradients of other "
                "losses may expand distances; use noisy_gd or ftrl"
            )
        if problem.ridge_map is not None:
            raise ValueError("one pass supports no ridge behind a map; leave out the ridge")
        if problem.region is not None and not isinstance(problem.region, L2Ball):
            raise ValueError("one pass projects onto an L2Ball only; use noisy_gd")
        most = 2 / self.curvature
        if not self.step_size <= most:
            raise ValueError(
                f"step_size must be at most 2 / (smoothness + ridge) = {most:.4g}, got "
                f"{self.step_size!r}: longer steps expand distances; reduce step_size"
            )
        if not self.sensitivity <= 1e100:
            raise ValueError("step_size * n must be at most 1e100 / clip_norm; reduce step_size")
        _ = self.event

    @property
    def curvature(self) -> float:
        """Largest curvature of a step at any parameter, rounded up; the region is bound late."""
        constants = self.problem.constants(self.relation, everywhere=True)
        return (constants.smoothness + self.problem.ridge) * (1 + 2.0**-50)

    @property
    def vector_noise(self) -> VectorNoise:
        """The noise on the average."""
        return VectorNoise(self.noise, self.noise_multiplier, self.problem.dimension)

    @property
    def event(self) -> Event:
        return self.vector_noise.event

    @property
    def movement(self) -> float:
        """Largest distance between the averages of neighbours in exact arithmetic."""
        return (2 if self.relation == "replace" else 1) * self.step_size * self.clip_norm

    @cached_property
    def sensitivity(self) -> float:
        """Largest distance between the computed averages of neighbours, rounded up."""
        steps, row_norm = self.most_steps, self.problem.bounds.row_norm
        error = step_error(
            self.problem.dimension,
            self.pace,
            row_norm=row_norm,
            clip_norm=self.clip_norm,
            curvature=self.curvature / row_norm**2,
            radius=self.reached,
        )
        rounding = 2 * ((steps + len(MARKS)) * error + average_error(len(MARKS), self.reached))
        return (self.movement + rounding) * (1 + 2.0**-40)

    @property
    def most_steps(self) -> int:
        """Largest number of steps; under add/remove all records may be in one part."""
        most = self.problem.max_records(self.relation)
        return most if self.relation != "replace" else min(most, math.ceil(self.share * most) + 1)

    @property
    def reached(self) -> float:
        """Twice the largest norm that a point, the centre or the ball has in exact arithmetic."""
        problem, region = self.problem, self.problem.region
        if region is not None:
            around = region.reach() + self.step_size * self.clip_norm
            return 2 * (around + float(np.linalg.norm(self._centre)))
        apart = float(np.linalg.norm(problem.origin - self._centre))
        walked = self.most_steps * self.step_size * self.clip_norm
        return 2 * (float(np.linalg.norm(self._centre)) + apart + walked)

    @property
    def pace(self) -> Pace:
        """How a point moves."""
        region = self.problem.region
        radius = region.norm_bound if isinstance(region, L2Ball) else math.inf
        time = self.share * self.problem.n * self.step_size
        return Pace(self.step_size, self.problem.ridge * time, radius)

    @property
    def _centre(self) -> Floats:
        # A centre outside of the ball would draw points out of it between records.
        centre, size = self.problem.centre, self.problem.dimension
        return self.problem.project(np.zeros(size) if centre is None else np.array(centre))

    def run(self, data: View, run: Run) -> Floats:
        noisy = self.vector_noise.added(self.average(data), self.sensitivity, run.noise)
        return self.problem.project(noisy)

    def average(self, data: View) -> Floats:
        """Return the average without noise."""
        problem = self.problem
        if self.relation == "replace" and data.n > self.most_steps:
            raise ValueError(
                f"one pass with share={self.share:.3g} takes at most {self.most_steps} records, "
                f"got {data.n}; give it a part of the data"
            )
        region = None if problem.region is None else problem.region.centre
        marks = 1 - self.tail + self.tail * MARKS
        walk = Walk(problem.origin, marks, self.pace, centre=self._centre, ball=region)
        return data.fold(self._visit, walk).average

    def _visit(self, walk: Walk, chunk: Chunk) -> Walk:
        guards: Guards = {**self.problem.guards, "clip": self.clip_norm}
        loss: Any = self.problem.loss
        positions: Any = chunk.positions
        rows, labels = chunk.stored_rows, chunk.stored_labels
        walk.visit(rows, labels, positions, loss, index=chunk.index, **guards)
        return walk

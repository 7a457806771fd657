"""Private mirror descent whose mirror map is the loss of public records.

Guarantee: mu-GDP with respect to the private records, mu = 1 / noise multiplier, for any data.
Reference: [Gan22] Algorithm 1 (PDA-DPMD), Theorem 74 with the exact variance, Theorem 81;
docs/explanation/ public-data.md.

Step k moves to the point where the gradient of Psi is smaller by step size times the noisy private
gradient: grad Psi(next) = grad Psi(point) - size * gradient, with Psi the mean public loss plus a
ridge. Noise moves the point little in directions in which public records curve Psi. Two
approximations save time: ``curvature`` replaces Psi by its second-order expansion at the public fit
(a fixed preconditioner), ``gradient`` is descent with the public loss as a regularizer, which
mirror descent is to first order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpfit.core import Minimize, Plan, Requirement, Tuning
from dpfit.core.algorithm import CONVEX
from dpfit.geometry import L2Ball
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.privacy import Budget
from dpfit.privacy.validate import option
from dpfit.solvers.public_data.descent import (
    SMOOTH_MARGIN_LOSS,
    Floats,
    Geometry,
    Move,
    PublicDescent,
    PublicOptimizer,
)
from dpfit.solvers.public_data.descent import (
    TUNING as PUBLIC,
)
from dpfit.solvers.public_data.mirror_maps import LossMap, MirrorMap, QuadraticMap, ball_of
from dpfit.solvers.public_data.public_loss import PublicLoss
from dpfit.solvers.public_data.survey import Survey

MIRRORS = ("loss", "curvature", "gradient")


@dataclass(frozen=True)
class MirrorTuning(Tuning):
    """Tuned numbers of `pda_dpmd`.

    Parameters
    ----------
    ridges, least, most : int, float
        How many ridges of the mirror map are compared, between which multiples of the largest
        public curvature. A ridge far above it is plain descent.
    longest : float
        Longest step. Between eigenvectors of the public Hessian, the private one can be several
        times as large (docs/explanation/public-data.md, section 3): longer steps would overshoot.
    weights : tuple of float
        Weights of the private gradient next to the public one that are compared.
    """

    kind = "mirror_tuning"
    set_by: str = "benchmarks/public_data.py"
    ridges: int = 19
    least: float = 1e-7
    most: float = 100.0
    longest: float = 0.5
    weights: tuple[float, ...] = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, 0.03)


TUNING = MirrorTuning()

BALL = Requirement(
    "a Euclidean ball as domain, or none",
    "use warm_start_gd, which takes any domain",
    lambda problem, budget, options: problem.domain is None or isinstance(problem.domain, L2Ball),
)


@dataclass(frozen=True)
class PublicMirror(PublicOptimizer):
    """Mirror steps from the public fit; ``mirror`` says how exact the mirror map is."""

    kind = "public_mirror"
    omitted: ClassVar[tuple[str, ...]] = (*PublicOptimizer.omitted, "mirror")
    mirror: str = "loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        option("mirror", self.mirror, MIRRORS)

    def check(self, problem: Minimize, aggregate: Aggregate) -> None:
        super().check(problem, aggregate)
        ball_of(problem)

    def geometries(
        self, problem: Minimize, public: Survey, curvatures: Floats
    ) -> Iterator[Geometry]:
        if self.mirror == "gradient":
            yield from self._regularized(problem, public, curvatures)
            return
        flat, largest = np.zeros_like(public.values), float(public.values.max()) or 1.0
        quadratic, ball = self.mirror == "curvature" or problem.loss.is_quadratic, ball_of(problem)
        for ridge in problem.ridge + np.geomspace(
            TUNING.least * largest, TUNING.most * largest, TUNING.ridges
        ):
            metric = public.values + ridge
            mirror: MirrorMap = (
                QuadraticMap(public.vectors, metric, public.point, ball)
                if quadratic
                else LossMap(replace(public.psi, ridge=float(ridge)), ball)
            )
            yield Geometry(
                curvatures / metric, 1 / metric, flat, _Mirrored(mirror).mover, TUNING.longest
            )

    def _regularized(
        self, problem: Minimize, public: Survey, curvatures: Floats
    ) -> Iterator[Geometry]:
        bends = public.values + problem.ridge
        psi = replace(public.psi, ridge=problem.ridge)
        for weight in TUNING.weights:
            pulls = (1 - weight) * bends
            yield Geometry(
                weight * curvatures + pulls,
                np.full_like(bends, weight),
                pulls,
                _Regularized(problem, psi, weight).mover,
            )


@dataclass(frozen=True, eq=False)
class _Mirrored:
    """Steps of a mirror map."""

    mirror: MirrorMap

    def mover(self, size: float) -> Move:
        return lambda points, gradients: self.mirror.step(points, gradients, size)


@dataclass(frozen=True, eq=False)
class _Regularized:
    """Descent on a weighted mean of the private and the public loss."""

    problem: Minimize
    psi: PublicLoss
    weight: float

    def mover(self, size: float) -> Move:
        def move(points: Floats, gradients: Floats) -> Floats:
            mixed = self.weight * gradients + (1 - self.weight) * self.psi.gradients(points)
            return self.problem.project(points - size * mixed)

        return move


class PdaDpmd(PublicDescent):
    """Private mirror descent with the loss of public records as mirror map.

    Use it where columns are of unequal size and unprotected records of the same kind come with the
    data. Guarantee: mu-GDP for all iterates together with respect to the private records.
    Reference: [Gan22] Algorithm 1, Theorem 74 with the exact variance, Theorem 81.
    Work: ``steps`` passes over the data.

    Parameters
    ----------
    clip_norm : float, optional
        Bound on private gradients; by default the public records decide.
    mirror : {"loss", "curvature", "gradient"}
        How exactly the public loss is the mirror map.

    Examples
    --------
    >>> from dpfit.data.dataset import InMemory
    >>> from dpfit.losses import Bounds, Huber
    >>> problem = Minimize(n=400, loss=Huber(1.0), bounds=Bounds(1.0), n_features=2)
    >>> plan = pda_dpmd.plan(problem, Budget(mu=1.0))
    >>> rows = np.tile([[1.0, 0.0], [0.0, 0.1]], (200, 1))
    >>> labels = rows @ [0.3, 0.6] + np.tile([0.05, 0.05, -0.05, -0.05], 100)
    >>> public = InMemory(rows[:40], labels[:40] + 0.02)
    >>> setting = plan.mechanism.optimizer.setting(problem, plan.mechanism.aggregate, public)
    >>> setting.start.round(2).tolist(), setting.risk < setting.public_risk
    ([0.32, 0.78], True)
    >>> released = plan.run(InMemory(rows, labels, public=public), random_state=1).value
    >>> bool(abs(released[1] - 0.6) < 0.05)
    True
    """

    name = "pda_dpmd"
    summary = "private mirror descent with the loss of public records as mirror map"
    use_for = "data that come with unprotected records of the same kind"
    reference = "[Gan22] Algorithm 1, Theorem 74, corrected; Theorem 81"
    requires = (CONVEX, SMOOTH_MARGIN_LOSS, BALL)
    tunings = (PUBLIC, TUNING)
    supports = frozenset({"ridge", "domain"})
    tier = "recommended"

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        steps: int = PUBLIC.steps,
        clip_norm: float | None = None,
        mirror: str = "loss",
    ) -> Plan:
        """Return mirror descent within the budget; the public records come with the data."""
        return self._public_plan(
            problem,
            budget,
            lambda schedule, clip: PublicMirror(schedule, clip, mirror),
            steps=steps,
            clip_norm=clip_norm,
        )


pda_dpmd = PdaDpmd()

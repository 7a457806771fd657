"""Full-batch gradient descent with Gaussian noise on every gradient; all iterates are released.

Guarantee: mu-GDP for the whole trajectory, mu = 1 / noise multiplier, for any loss and any data: gradients are clipped.
Reference: [LD] Lemma C.1, [ASAP] Theorem 4 with its variance corrected, [Gan22] Section 1.4; docs/explanation/
trajectory.md, Theorem 1 (why unequal noise, momentum and averages cost nothing more).

Step k adds to the exact sum of clipped gradients normal noise of ``multiplier_k`` times its sensitivity, where the sum
of 1 / multiplier_k**2 is 1 / noise_multiplier**2, and moves by ``step_size`` times the noisy mean. An average of the
iterates, shrunk by the noise that it is known to have, is the output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, Plan, Risk, Run, Step, Work, require_records
from dpfit.losses.base import Loss
from dpfit.losses.custom import vouched
from dpfit.losses.glm import Pinball, QuantileHuber
from dpfit.losses.vector import VectorLoss
from dpfit.noise import Grid, add_gaussian
from dpfit.noise.rounded import checked_scale
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, moderate, non_negative, one_of, positive, probability
from dpfit.privacy.event import Event, Gaussian
from dpfit.solvers.gradient.many_points import clipped_sums
from dpfit.solvers.gradient.predicted import predicted_risk
from dpfit.solvers.gradient.scales import (
    CLIP,
    change,
    even_curvature,
    of_residuals,
    relative_noise,
    trusted_unit,
    unclipped,
)
from dpfit.solvers.gradient.side_by_side import SideBySide

Floats = NDArray[np.float64]

NOISES = {"margin": (0.003, 0.009), "residual": (0.0005, 0.0015)}
"""Between which levels of noise gradients come to be clipped at `CLIP`: of `relative_noise`, times the root of the
dimension for losses of residuals."""

LEAST_CLIP, LOUDER, QUIETER = 0.2, (0.25, 1.65), (0.045, 0.15)
"""The least clipping norm for losses of residuals, and the levels of `relative_noise` times the root of the number of
records between which it comes to that; behind a map, also those between which it comes to `CLIP`."""

TRUST, FORGETFUL = 0.7, 1.0
"""Noise that a flat direction may collect, as a share of the parameter's size (see `trusted_unit`), and for how long a
direction must be descended to forget its noise, in units of the inverse curvature (see `practical_rule`)."""

AVERAGED, AVERAGED_AT_CORNERS = 0.6, 0.4
"""The share of the iterates, from the end, that are averaged. Losses with corners take short steps: fewer are late."""

EVEN, FORGOTTEN, FORGOTTEN_BEHIND_MAP = 0.4, 0.15, 0.3
"""The part of the budget that all steps share evenly, and how much of the forgetting that rows without a favourite
direction would bring is counted on where the rest is shared out (`NoisyGD.spent`): less if the rows are not known."""

SHRUNK = 0.5
"""How much of James and Stein's shrinkage is made: half of it has three quarters of the gain (see `_removable`)."""


@dataclass(frozen=True)
class NoisyGD(SideBySide):
    """The descent itself; all fields are public.

    ``growth`` g > 0 weighs step k by (1 - g)**-(k + 1), in the average and (by its root) in the noise: the optimal
    schedule for an objective of strong convexity g / step_size ([LD] Theorem F.2, corrected). ``forgets`` x > 0 gives
    less noise to the steps whose noise a direction would still know of in the average that forgets all but exp(-x) of
    it over the whole descent. ``shrink`` is a squared length: the output, as seen from the start, is made shorter by
    its share of its own squared length (`shrunk`).
    """

    kind = "noisy_gd"
    problem: Minimize
    relation: str
    noise_multiplier: float
    steps: int
    step_size: float
    clip: float
    momentum: float = 0.0
    average: float = AVERAGED
    growth: float = 0.0
    predicted: Risk | None = None
    forgets: float = 0.0
    shrink: float = 0.0

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        count("steps", self.steps)
        positive("step_size", self.step_size)
        moderate("clip", self.clip)
        probability("average", self.average)
        for name in ("momentum", "growth"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)!r}")
        if non_negative("shrink", self.shrink) == math.inf:
            raise ValueError("shrink must be finite")
        if non_negative("forgets", self.forgets) and self.growth:
            raise ValueError("growth and forgets both say how noise is shared out: give one of them")
        if self.step_size * self.problem.ridge > 1:
            raise ValueError(f"step_size must be at most 1 / ridge = {1 / self.problem.ridge:g}")
        if self.steps * self.step_size / (1 - self.momentum) > 1e100:
            raise ValueError("so long a descent could overflow; take a smaller step_size")
        if not np.isfinite(self.multipliers).all():
            raise ValueError("growth is too large for so many steps: the first ones would get infinite noise")
        # Noise that cannot be drawn is refused here, before anything is charged.
        for multiplier in (self.multipliers.min(), self.multipliers.max()):
            checked_scale(float(multiplier) * self.sensitivity / self.grid.step)

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def work(self) -> Work:
        return Work(gradients=float(self.steps) * self.problem.n, passes=float(self.steps))

    @property
    def risk(self) -> Risk | None:
        return self.predicted

    @property
    def iterations(self) -> int:
        return self.steps

    @cached_property
    def multipliers(self) -> Floats:
        """The noise multiplier of each step; their inverse squares sum up to at most 1 / noise_multiplier**2."""
        with np.errstate(all="ignore"):
            # The last factor covers the rounding errors of this line and of the sum.
            return np.asarray(self.noise_multiplier / np.sqrt(self.spent) * (1 + 2.0**-40))

    @cached_property
    def spent(self) -> Floats:
        """The part of the squared budget that each step spends.

        What noise of variance v_k leaves in the average, the sum of K_k**2 v_k with the `influence` K_k of step k, is
        least for a given sum of 1 / v_k if these are in proportion to abs(K_k) (Cauchy and Schwarz). That is for one
        rate of forgetting; for others, `EVEN` of the budget is shared out evenly.
        """
        if not self.forgets:
            roots = np.exp(0.5 * self._log_weights())
            return np.asarray(roots / roots.sum())
        # At a faster pace noise would be overshot, not forgotten.
        forgotten = min(self.forgets, self.steps / (1 - self.momentum))
        influence = np.abs(self.influence(np.array([forgotten]))[:, 0])
        return np.asarray((1 - EVEN) * influence / influence.sum() + EVEN / self.steps)

    def influence(self, bent: Floats) -> Floats:
        """How much of a move in each step is left in the output, in directions of some curvatures.

        These are given as curvature times step_size * steps / (1 - momentum), the time of the descent; there is a
        column for each. A move that starts a velocity counts for all that it comes to in the end.
        """
        pull: Any = self._pull(bent)
        point = velocity = np.zeros(len(bent))
        if len(bent) == 1:
            # Plain numbers give the same bits in a twentieth of the time.
            pull, point, velocity = float(pull[0]), 0.0, 0.0  # type: ignore[assignment]
        left = []
        for share in reversed(self.shares.tolist()):
            # How the output changes with point and velocity after this step, from those after the next.
            following = point + velocity
            point, velocity = share + point - pull * following, self.momentum * following
            left.append((1 - self.momentum) * (point + velocity))
        return np.array(left[::-1]).reshape(self.steps, len(bent))

    def remaining(self, bent: Floats) -> Floats:
        """How much of the start is left in the output, in directions of some curvatures (see `influence`)."""
        pull = self._pull(bent)
        point, velocity, average = np.ones(len(bent)), np.zeros(len(bent)), np.zeros(len(bent))
        for share in self.shares:
            velocity = self.momentum * velocity - pull * point
            point = point + velocity
            average = average + share * point
        return average

    def collected(self, bent: Floats) -> Floats:
        """The variance of the noise in the output, in directions of some curvatures (see `influence`).

        It is that of `noise` summed up over the time of the descent where nothing is forgotten and all steps spend the
        same.
        """
        time = self.steps * self.step_size / (1 - self.momentum)
        influence = self.influence(bent) / self.steps
        return np.asarray((time * self.noise) ** 2 * np.sum(influence**2 / self.spent[:, np.newaxis], axis=0))

    @property
    def noise(self) -> float:
        """The deviation of the noise on a mean of gradients, in each direction, if it were one release."""
        return change(self.problem, self.clip, self.relation) * self.noise_multiplier / self.problem.n

    def _pull(self, bent: Floats) -> Floats:
        """The part of a point that one step takes away, within the range in which this ends."""
        return np.asarray(np.minimum(bent / self.steps * (1 - self.momentum), 1.9 * (1 + self.momentum)))

    def _log_weights(self) -> Floats:
        """Logarithms of the weights of the steps, the largest being zero."""
        return np.asarray(math.log1p(-self.growth) * np.arange(self.steps - 1, -1, -1.0))

    @cached_property
    def shares(self) -> Floats:
        """The weight of each iterate in the output."""
        weights = np.exp(self._log_weights())
        weights[: min(self.steps - 1, round((1 - self.average) * self.steps))] = 0.0
        return np.asarray(weights / weights.sum())

    def init(self, data: Any, run: Run) -> tuple[Floats, Floats, Floats]:
        """The public start: parameter, velocity, weighted sum of iterates."""
        if self.relation == "replace" and len(data) != self.problem.n:
            raise ValueError(f"the plan is for n = {self.problem.n} records, the data have {len(data)}")
        point = start(self.problem)
        return point, np.zeros_like(point), np.zeros_like(point)

    def step(
        self, state: tuple[Floats, Floats, Floats], index: int, data: Any, run: Run
    ) -> tuple[Floats, Floats, Floats]:
        """One noisy gradient, one move."""
        point, velocity, average = state
        gradient = self.noisy_sum(point, float(self.multipliers[index]), data, run) / self.problem.n
        velocity = self.momentum * velocity - self.step_size * (gradient + self.ridge_gradient(point))
        point = point + velocity
        if self.problem.domain is not None:
            point = self.problem.domain.project(point)
        return point, velocity, average + self.shares[index] * point

    def ridge_gradient(self, point: Floats) -> Floats:
        """The gradient of the ridge."""
        return self.problem.ridge * point

    def noisy_sum(self, point: Floats, multiplier: float, data: Any, run: Run) -> Floats:
        """The sum of clipped gradients at a point, with noise."""
        problem, grid = self.problem, self.grid
        guards = problem.guards | {"clip": self.clip}
        if point.ndim == 1:
            steps = data.clipped_sum(problem.loss, point, grid=grid, **guards)
        else:
            steps = clipped_sums(data, problem.loss, point, grid=grid, **guards)
        return add_gaussian(
            steps, l2_sensitivity=self.sensitivity, noise_multiplier=multiplier, source=run.noise, grid=grid
        )

    @property
    def sensitivity(self) -> float:
        """How far one record moves the sum of clipped and rounded gradients, rounded up."""
        problem = self.problem
        rounding = self.grid.rounding(problem.dimension, "l2")
        return math.nextafter(change(problem, self.clip, self.relation) + rounding, math.inf)

    @cached_property
    def grid(self) -> Grid:
        """What the clipped gradients are rounded to."""
        return Grid.fitting(self.clip, self.problem.dimension, "l2")

    def finish(self, state: tuple[Floats, Floats, Floats]) -> Floats:
        if not self.shrink:
            return state[2]
        origin = start(self.problem)
        return origin + shrunk(state[2] - origin, self.shrink)


def shrunk(points: Floats, shrink: float) -> Floats:
    """Points (along the last axis), shorter by the share that ``shrink`` has of their squared lengths, at most by all.

    If it is (d - 2) / d of the mean square of noise that is alike in all d directions, the mean square error of a point
    falls, wherever that is without noise (James and Stein, 1961; Baranchik, 1970, for the part that is positive).

    >>> shrunk(np.array([[3.0, 4.0], [0.3, 0.4]]), 5.0).round(2).tolist()
    [[2.4, 3.2], [0.0, 0.0]]
    """
    lengths = np.sum(points**2, axis=-1, keepdims=True)
    return np.asarray(points * np.maximum(0.0, 1 - shrink / np.maximum(lengths, shrink)))


def start(problem: Minimize) -> Floats:
    """The public point from which descent starts."""
    return np.zeros(problem.dimension) if problem.domain is None else problem.domain.centre


def usual_clip(problem: Minimize, relation: str, noise_multiplier: float, *, behind_map: bool = False) -> float:
    """The clipping norm where none is asked for.

    Clipping makes noise less and errors count for less, but moves the minimizer: the more noise, the more is clipped. A
    margin loss that is clipped has another minimizer. One of residuals only cares less for outliers: where errors are
    symmetric its minimizer moves by no more than a sample of so many records does. So it is clipped at less noise, and
    clipped harder where noise adds more than that. Behind a map that makes rows round noise is no larger in one
    direction than in others, and where it adds less than a sample is off nothing is clipped.
    """
    steepest = unclipped(problem)
    # The two slopes of a quantile loss say which quantile it is about: clipping the steeper one would change that.
    if isinstance(problem.loss, Pinball | QuantileHuber) or not math.isfinite(steepest):
        return steepest
    noise = relative_noise(problem, relation, noise_multiplier)
    if not of_residuals(problem):
        return steepest * float(np.interp(noise, NOISES["margin"], (1.0, CLIP)))
    level = math.log(noise * math.sqrt(problem.n))
    if behind_map:
        quiet = np.interp(level, np.log(QUIETER), (1.0, CLIP))
    else:
        quiet = np.interp(noise * math.sqrt(problem.dimension), NOISES["residual"], (1.0, CLIP))
    loud = np.interp(level, np.log(LOUDER), (CLIP, LEAST_CLIP))
    return steepest * float(loud if loud < CLIP else quiet)


def practical_rule(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    *,
    max_passes: int,
    clip: float | None = None,
    moment: float = math.inf,
) -> NoisyGD:
    """Steps from public facts: descend for as long as a direction without curvature collects little noise.

    After time S = steps * step_size / (1 - momentum) such a direction has collected noise of deviation
    S * change * noise_multiplier / n, whatever the number of steps; curved directions forget theirs. S is set so that
    this is `TRUST` times `trusted_unit`, and less when not even rows that favour no direction would bend the loss
    enough to forget it: `FORGETFUL` times the inverse of their curvature. The rest is as many passes as allowed, steps
    within the stable range, and momentum only if these do not come to S without it; it remembers a twenty-fourth of the
    passes at most. Where the second ``moment`` of rows in any direction is known, the stable range is wider than for
    rows that may all point one way, and needs no momentum, which rings between the flat parts of a loss.
    """
    mapped = math.isfinite(moment)
    limit = clip if clip is not None else usual_clip(problem, relation, noise_multiplier, behind_map=mapped)
    if not math.isfinite(limit):
        raise ValueError("the gradients of this loss have no bound here: give clip=, or bound labels or slopes")
    unit = trusted_unit(problem)
    time = TRUST * unit * problem.n / (noise_multiplier * change(problem, limit, relation))
    time *= min(1.0, time * even_curvature(problem, limit) / FORGETFUL)
    momentum = max(0.0, 1 - 24 / max_passes)
    smoothness = problem.loss.smoothness(problem.bounds, problem.radius)
    if smoothness is not None:
        bend = smoothness.value * min(1.0, moment / problem.bounds.row_norm**2) + problem.ridge
        # Steps of 1.5 (1 + momentum) / bend come to the time if (1 + momentum) / (1 - momentum) is at least this.
        needed = time * bend / (1.5 * max_passes)
        momentum = min(momentum, max(0.0, (needed - 1) / (needed + 1))) if not mapped else 0.0
        longest = 1.5 * (1 + momentum) / bend
    else:
        longest = (1 - momentum) * unit / limit
    if problem.ridge:
        longest = min(longest, 1 / problem.ridge)
    size = min(longest, time * (1 - momentum) / max_passes)
    average = AVERAGED if smoothness is not None else AVERAGED_AT_CORNERS
    forgotten = FORGOTTEN_BEHIND_MAP if mapped else FORGOTTEN
    forgets = forgotten * max_passes * size / (1 - momentum) * even_curvature(problem, limit)
    rule = NoisyGD(problem, relation, noise_multiplier, max_passes, size, limit, momentum, average, forgets=forgets)
    return replace(rule, shrink=_removable(rule))


def _removable(rule: NoisyGD) -> float:
    """The squared length by which `shrunk` is to shorten the output of a descent.

    The noise is that of rows that favour no direction. With a part c of (d - 2) / d of its mean square, the mean square
    error falls by c (2 - c) of what it does with all of it. Where rows do favour a direction, the parameter is longer
    and noise less along it than supposed, and half spoils much less. None in a domain, where noise is cut off, and none
    for losses of points: these have no size that says little.
    """
    problem = rule.problem
    if problem.domain is not None or isinstance(problem.loss, VectorLoss):
        return 0.0
    time = rule.steps * rule.step_size / (1 - rule.momentum)
    bent = time * (even_curvature(problem, rule.clip) + problem.ridge)
    return SHRUNK * max(0, problem.dimension - 2) * float(rule.collected(np.array([bent]))[0])


@dataclass(frozen=True)
class NoisyGDAlgorithm:
    """Plans noisy gradient descent."""

    name: str = "noisy_gd"

    def plan(self, problem: Minimize, budget: Budget, *, max_passes: int = 300, clip: float | None = None) -> Plan:
        """Full-batch descent within the budget; nothing to tune.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20)
        >>> plan = noisy_gd.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.guarantee.epsilon(1e-6), 3), plan.mechanism.steps
        (1.0, 300)
        """
        require_minimize(self.name, problem, budget)
        count("max_passes", max_passes)
        mechanism = practical_rule(
            problem, budget.relation, calibrate(Gaussian, budget).noise_multiplier, max_passes=max_passes, clip=clip
        )
        basis = trajectory_basis(problem.loss, budget)
        return Step(replace(mechanism, predicted=predicted_risk(mechanism)), basis)

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Records whose gradients point one way, one of which points the other way or leaves."""
        return opposite_records(relation)


def require_minimize(name: str, problem: Any, budget: Budget) -> None:
    """Refuse what gradient methods for records cannot plan."""
    require_records(name, budget)
    if not isinstance(problem, Minimize):
        raise ValueError(f"{name} solves a Minimize problem, not {getattr(problem, 'kind', type(problem).__name__)!r}")


def trajectory_basis(loss: Loss, budget: Budget) -> Basis:
    """Why the trajectory is private."""
    assumptions = [Assumption("the gradient of each record is clipped", "enforced")]
    if budget.relation == "add_remove":
        assumptions.append(Assumption("the number n that divides the sums was not read off the data", "declared"))
    theorem = "adaptive Gaussian steps [LD, Lemma C.1]"
    return vouched(Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "exact"), loss)


def opposite_records(relation: str) -> tuple[Minimize, Any, Any]:
    """A small problem with neighbours whose gradients are as far apart as they can be."""
    from dpfit.data.dataset import InMemory
    from dpfit.losses import Bounds, Logistic

    problem = Minimize(n=20, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=2)
    rows, labels = np.tile([[1.0, 0.0], [0.0, 1.0]], (10, 1)), np.tile([1.0, 1.0, -1.0, -1.0], 5)
    if relation == "add_remove":
        return problem, InMemory(rows, labels), InMemory(rows[:-1], labels[:-1])
    other = np.append(labels[:-1], 1.0)
    return problem, InMemory(rows, labels), InMemory(rows, other)


noisy_gd = NoisyGDAlgorithm()

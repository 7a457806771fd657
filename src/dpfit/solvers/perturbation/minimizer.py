"""Minimizers of strongly convex sums, certified for every dataset.

The objective is the sum of guarded losses plus (strength / 2) norm(theta)**2 + <linear, theta>. `accuracy` says from
public facts how far the result of `minimize` can be from the true minimizer, rounding errors included; the bound holds
for every dataset, so nothing that depends on records is ever raised. A point is accepted when its computed gradient is
small: strong convexity turns that into a distance. Damped Newton steps find such a point in practice; should they not,
a number of plain descent steps that is fixed beforehand reaches the same distance. Proof: docs/explanation/
perturbation.md, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from dpfit.core import Minimize
from dpfit.data.dataset import Dataset
from dpfit.kernels.rounding import gamma
from dpfit.losses.custom import DeclaredLoss
from dpfit.losses.glm import GLM
from dpfit.losses.softmax import Softmax

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_TOLERANCE = 1e-8
"""Accepted gradients, relative to the largest gradient of one record."""
_LARGEST = 1e130
"""Gradients, parameters and one over the tolerance: squares of these, 1e15 times as large, are still numbers."""
_NEWTON_STEPS = 100
_TRIALS = 60
_LEVEL = 0.3
"""A line search ends where the slope along the line is this share of what it was."""
_DENSE = 1024
"""Dimension up to which Hessians are formed and factorized; beyond, conjugate gradients solve Newton systems."""
_CONJUGATE_STEPS = 250
_THINNEST, _SAMPLED, _SLOW = 16, 100, 0.3
"""Starts and Hessians are estimated from one record in 16 at most, and from 100 for each dimension at least; Hessians
until a step leaves more than this share of the gradient."""


@dataclass(frozen=True)
class Accuracy:
    """What `minimize` promises, from public facts: its result is within ``distance`` of the minimizer.

    ``tolerance`` is the computed gradient norm at which a point is accepted, inside the ball of the given ``radius``;
    ``steps`` descent steps of size 1 / ``smoothness`` do if none is.
    """

    distance: float
    tolerance: float
    radius: float
    smoothness: float
    steps: int

    def accepts(self, theta: Floats, gradient: Floats) -> bool:
        """Whether the computed gradient certifies the point."""
        return bool(np.linalg.norm(gradient) <= self.tolerance and np.linalg.norm(theta) <= self.radius)


def largest_count(problem: Minimize, relation: str) -> int:
    """The number of records up to which rounding errors are bounded. Under add/remove it is private, so double it."""
    return problem.n if relation == "replace" else 2 * problem.n


def steepest(problem: Minimize) -> float:
    """The largest norm of one record's gradient at any parameter whatsoever."""
    if isinstance(problem.loss, DeclaredLoss) and problem.domain is not None:
        # Minimizers are those of the whole space. Elsewhere, the gradients of a declared loss may be larger.
        raise ValueError(
            "constants of a declared loss need hold on its domain only, and this algorithm minimizes over the whole "
            "space: leave the domain out, declare constants that hold everywhere, and project what is released"
        )
    return problem.loss.lipschitz(problem.bounds, None).value


def smoothest(problem: Minimize) -> float:
    """The Lipschitz constant of one record's gradient; refuses losses with corners."""
    constant = problem.loss.smoothness(problem.bounds, None)
    if constant is None or not problem.loss.convex:
        raise ValueError(
            f"minimizers are certified for convex losses without corners, and {problem.loss.kind!r} is not one: use "
            "SmoothedHinge(width) for the hinge, Huber(width) for the absolute loss, QuantileHuber(level, width) for "
            "the quantile loss"
        )
    return constant.value


def accuracy(problem: Minimize, strength: float, relation: str, *, linear: float = 0.0) -> Accuracy:
    """How well the objective can be minimized in floating point, for any data with at most `largest_count` records.

    ``linear`` bounds the norm of the linear term.

    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20)
    >>> accuracy(problem, 100.0, "replace").distance < 1e-9
    True
    """
    found = _certificate(problem, strength, relation, linear)
    if not found.largest <= _LARGEST:
        raise ValueError(
            f"gradients of up to {steepest(problem):.3g} for a record, with a ridge of {strength / problem.n:.3g}, are "
            "out of the range of double precision; scale rows and labels"
        )
    if not found.distance < found.farthest:
        raise ValueError(
            f"a ridge of {strength / problem.n:.3g} is lost in the rounding errors of "
            f"{largest_count(problem, relation)} records; take a larger one"
        )
    farthest, tolerance, smoothness = float(found.farthest), float(found.tolerance), float(found.smoothness)
    steps = math.ceil(smoothness / strength * max(1.0, math.log(farthest * strength / tolerance)))
    return Accuracy(float(found.distance), tolerance * (1 - 1e-9), float(found.radius), smoothness, steps)


def distances(problem: Minimize, strengths: Floats, relation: str, linear: float | Floats = 0.0) -> Floats:
    """The distance that `accuracy` certifies for each strength; infinite where it certifies none."""
    try:
        found = _certificate(problem, strengths, relation, linear)
    except ValueError:
        return np.full(strengths.shape, math.inf)
    certified = (found.largest <= _LARGEST) & (found.distance < found.farthest)
    return np.where(certified, found.distance, math.inf)


class _Certificate(NamedTuple):
    """What `accuracy` derives, for one strength of the quadratic or for many at once."""

    largest: Any
    farthest: Any
    radius: Any
    smoothness: Any
    tolerance: Any
    distance: Any


@np.errstate(all="ignore")
def _certificate(problem: Minimize, strength: Any, relation: str, linear: Any) -> _Certificate:
    records, d = largest_count(problem, relation), problem.dimension
    slope, bend = steepest(problem), smoothest(problem)
    pull = records * slope
    farthest = (pull + linear) / strength
    # Norms are square roots of sums of squares: one that vanished would accept any point, one that overflowed none.
    largest = np.maximum(np.maximum(pull + linear, farthest), 1 / (_TOLERANCE * slope))
    if (height := _height(problem)) < math.inf:
        farthest = np.minimum(farthest, 2 * linear / strength + np.sqrt(2 * records * height / strength))
    smoothness = (records * bend + strength) * (1 + 1e-9)
    # Descent starts at the origin and never leaves the ball of twice the radius of the minimizer.
    radius = 2 * farthest * (1 + 1e-9)
    error = (
        gamma(_additions(records, d)) * pull
        + (16 + problem.loss.outputs) * _UNIT * pull
        + gamma(d + 16) * records * bend * radius
        + 8 * _UNIT * (pull + strength * radius + linear)
    )
    tolerance = np.maximum(_TOLERANCE * slope, error / 10)
    # Each step rounds the point, and forgets a share strength / smoothness of the error that it finds.
    rounding = 8 * _UNIT * radius * smoothness / strength
    distance = ((tolerance + error) / strength + rounding) * (1 + 1e-9)
    return _Certificate(largest, farthest, radius, smoothness, tolerance, distance)


def _additions(records: int, dimension: int) -> int:
    """Through how many additions a record passes in a gradient sum: its block, the blocks, the pieces of the data."""
    blocks = 64 if dimension <= 2**16 else 8
    return -(-records // blocks) + records // 512 + records * dimension // 2**20 + 256


def _height(problem: Minimize) -> float:
    """How far above its infimum one record's loss is at the origin, where that is known; such losses are at least 0."""
    loss = problem.loss
    if isinstance(loss, Softmax):
        return math.log(loss.classes) * (1 + 1e-12)
    if not isinstance(loss, GLM):
        return math.inf
    ends = (-1.0, 1.0) if loss.binary_labels else problem.bounds.labels
    if not all(map(math.isfinite, ends)):
        return math.inf
    return float(np.max(loss.value(0.0, np.array(ends))))


@dataclass(frozen=True, eq=False)
class Objective:
    """The objective on some data."""

    problem: Minimize
    data: Dataset
    strength: float
    linear: Floats

    def gradient(self, theta: Floats) -> Floats:
        """The gradient, up to the rounding error that `accuracy` allows for."""
        loss: Any = self.problem.loss
        return np.asarray(
            self.data.gradient(loss, theta, **self.problem.guards)[1] + self.strength * theta + self.linear
        )

    def newton(self, theta: Floats, gradient: Floats, precision: float, every: int = 1) -> Floats | None:
        """Where the Hessian points, estimated from every so many records; None if the numbers do not allow to say."""
        if isinstance(self.problem.loss, GLM | Softmax) and len(theta) <= _DENSE:
            index = None if every == 1 else np.arange(0, self.data.n, every)
            hessian = every * self.data.hessian(self.problem.loss, theta, index=index, **self.problem.guards)
            hessian[np.diag_indices_from(hessian)] += self.strength
            try:
                return np.asarray(-cho_solve(cho_factor(hessian, check_finite=False), gradient, check_finite=False))
            except LinAlgError:
                return None
        return _conjugate_gradients(lambda v: self._hessian_vector(theta, v), -gradient, precision)

    def _hessian_vector(self, theta: Floats, vector: Floats) -> Floats:
        loss: Any = self.problem.loss
        if isinstance(loss, GLM | Softmax):
            product = self.data.hessian_vector(loss, theta, vector, **self.problem.guards)
            return np.asarray(product + self.strength * vector)
        step = 1e-5 / max(float(np.linalg.norm(vector)), 1e-300)
        ahead, behind = (self.gradient(theta + sign * step * vector) for sign in (1, -1))
        return np.asarray((ahead - behind) / (2 * step))


def minimize(objective: Objective, accuracy: Accuracy) -> Floats:
    """A point within ``accuracy.distance`` of the minimizer."""
    origin = np.zeros(objective.problem.dimension)
    direct = _newton(objective, _warm_start(objective, origin, accuracy), accuracy.tolerance)
    if accuracy.accepts(*direct):
        return direct[0]
    followed = _newton(objective, _followed_path(objective, origin, accuracy), accuracy.tolerance)
    return followed[0] if accuracy.accepts(*followed) else _descend(objective, accuracy)


def _thinning(objective: Objective) -> int:
    """One record in how many is enough to guess from."""
    return max(1, min(_THINNEST, objective.data.n // (_SAMPLED * objective.problem.dimension)))


def _warm_start(objective: Objective, theta: Floats, accuracy: Accuracy) -> Floats:
    """The minimizer of a sample of the records, which saves passes over all of them."""
    if (every := _thinning(objective)) == 1:
        return theta
    sample = objective.data.rows(np.arange(0, objective.data.n, every))
    thinned = replace(objective, data=sample, strength=objective.strength / every, linear=objective.linear / every)
    # A hundredth of how far the gradients of a sample are from those of all records.
    start = _newton(thinned, theta, 0.01 * steepest(objective.problem) * math.sqrt(len(sample)))[0]
    return start if np.linalg.norm(start) <= accuracy.radius else theta


def _newton(objective: Objective, theta: Floats, tolerance: float) -> tuple[Floats, Floats]:
    """A point and its gradient after damped Newton steps, as many as it takes or as are allowed."""
    gradient = objective.gradient(theta)
    first = size = float(np.linalg.norm(gradient))
    # A sample of the records knows the Hessian well enough, as long as gradients shrink quickly.
    every = _thinning(objective)
    for _ in range(_NEWTON_STEPS):
        previous, size = size, float(np.linalg.norm(gradient))
        if size <= tolerance:
            break
        if size > _SLOW * previous and size < first:
            every = 1
        direction = objective.newton(theta, gradient, min(0.1, math.sqrt(size / first)), every)
        if direction is None or not float(gradient @ direction) < 0:
            break
        theta, gradient = _searched(objective, theta, gradient, direction)
    return theta, gradient


def _followed_path(objective: Objective, theta: Floats, accuracy: Accuracy) -> Floats:
    """A start close to the minimizer: minimizers of stronger quadratics, each from the one before.

    Losses with flat parts (a smoothed hinge on separable records) send Newton steps to and fro when the quadratic is
    weak; along the path few records pass from one part to another at a time.
    """
    halvings = math.ceil(math.log2(max(accuracy.smoothness / objective.strength, 1.0)))
    for k in range(halvings, 0, -1):
        theta, _ = _newton(replace(objective, strength=objective.strength * 2.0**k), theta, accuracy.tolerance)
    return theta


def _searched(objective: Objective, theta: Floats, gradient: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """The point along the direction where the objective is nearly lowest, and its gradient.

    Only slopes are compared: close to the minimizer, values no longer tell points apart.
    """
    start = float(gradient @ direction)
    low, slope_low, high, slope_high, share = 0.0, start, math.inf, math.inf, 1.0
    for _ in range(_TRIALS):
        there = theta + share * direction
        gradient = objective.gradient(there)
        slope = float(gradient @ direction)
        if abs(slope) <= -_LEVEL * start:
            break
        if slope < 0:
            low, slope_low = share, slope
        else:
            high, slope_high = share, slope
        if math.isinf(high):
            share = 4 * low
        else:
            # Where the chord of the slope crosses zero, not too close to either end.
            cut = slope_low / (slope_low - slope_high)
            share = low + min(max(cut, 0.05), 0.95) * (high - low)
    return there, gradient


def _conjugate_gradients(product: Callable[[Floats], Floats], target: Floats, precision: float) -> Floats:
    """An approximate solution of a positive definite system, which descends however early it stops."""
    # In units of the target, so that no square of it meets the square of a row.
    unit = float(np.linalg.norm(target))
    solution, residual = np.zeros_like(target), target / unit
    direction, square = residual.copy(), float(residual @ residual)
    goal = precision**2 * square
    for _ in range(_CONJUGATE_STEPS):
        image = product(direction)
        curvature = float(direction @ image)
        if square <= goal or not curvature > 0:
            break
        solution += square / curvature * direction
        residual -= square / curvature * image
        square, previous = float(residual @ residual), square
        direction = residual + square / previous * direction
    return unit * solution if solution.any() else target


def _descend(objective: Objective, accuracy: Accuracy) -> Floats:
    """The planned number of gradient steps from the origin."""
    theta = np.zeros(objective.problem.dimension)
    for _ in range(accuracy.steps):
        theta = theta - objective.gradient(theta) / accuracy.smoothness
    return theta

"""Minimizers of strongly convex sums, certified for every dataset.

The objective is the sum of guarded losses plus (strength / 2) ||theta||^2 + <linear, theta>.
`Accuracy.of` bounds the distance between the computed and the exact minimizer from public facts, rounding errors
included. The bound holds for every dataset, so no message ever depends on records.
A point is accepted when its computed gradient is small: strong convexity turns the gradient norm into a distance.
Damped Newton steps find such a point in practice. Otherwise a fixed number of gradient steps reaches the same distance.
Proof: docs/explanation/perturbation.md, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from dpfit.core import Constants, Mechanism, Minimize, Requirement, Work
from dpfit.core.algorithm import BOUNDED_EVERYWHERE, CONVEX, SMOOTH
from dpfit.data.dataset import Dataset
from dpfit.kernels.rounding import gamma
from dpfit.losses.custom import DeclaredLoss
from dpfit.losses.glm import GLM
from dpfit.losses.softmax import Softmax
from dpfit.privacy.check import one_of, positive

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_TOLERANCE = 1e-8
"""Accepted gradient norm, relative to the Lipschitz constant of one record."""
_LARGEST = 1e130
"""Largest gradient, parameter and reciprocal of the tolerance: squares of 1e15 times as much are finite."""
_NEWTON_STEPS = 100
_TRIALS = 60
_LEVEL = 0.3
"""A line search ends where the directional derivative has fallen to this fraction of its first value."""
_DENSE = 1024
"""Dimension up to which Hessians are formed and factorized; beyond, conjugate gradients solve Newton systems."""
_CONJUGATE_STEPS = 250
_THINNEST, _SAMPLED, _SLOW = 16, 100, 0.3
"""Starts and Hessians are estimated from at least one record in 16 and 100 records for each dimension; Hessians until a
step leaves more than this fraction of the gradient norm."""

WHOLE_SPACE = Requirement(
    "constants that hold in the whole space, and those of a declared loss hold on its domain only",
    "leave domain out, declare constants that hold for every theta, and project the released parameter",
    lambda problem, budget, options: not isinstance(problem.loss, DeclaredLoss) or problem.domain is None,
)
CERTIFIABLE = (CONVEX, SMOOTH, WHOLE_SPACE, BOUNDED_EVERYWHERE)
"""What a certified minimizer needs: it is computed in the whole space, and a domain is met by projection."""


def global_constants(problem: Minimize, relation: str) -> Constants:
    """Return the constants of the loss for every parameter; ValueError where no minimizer is certified.

    Mechanisms call it, too: a mechanism may be read from a file, without `Algorithm.plan`.
    """
    constants = problem.constants(relation, everywhere=True)
    if not (constants.convex and constants.smooth):
        raise ValueError(f"the loss must be convex and smooth, got {problem.loss.kind!r}; {SMOOTH.hint}")
    if isinstance(problem.loss, DeclaredLoss) and problem.domain is not None:
        raise ValueError(f"a minimizer needs {WHOLE_SPACE.text}; {WHOLE_SPACE.hint}")
    if not constants.bounded:
        raise ValueError(constants.missing)
    return constants


@dataclass(frozen=True)
class Accuracy:
    """Certificate of `Objective.minimize` from public facts: its result is within ``distance`` of the minimizer.

    A point is accepted if its computed gradient norm is at most ``tolerance`` and its norm at most ``radius``.
    If no Newton step finds such a point, ``steps`` gradient steps of size 1 / ``smoothness`` reach the distance.
    """

    distance: float
    tolerance: float
    radius: float
    smoothness: float
    steps: int

    def accepts(self, theta: Floats, gradient: Floats) -> bool:
        """Whether the computed gradient certifies the point."""
        return bool(np.linalg.norm(gradient) <= self.tolerance and np.linalg.norm(theta) <= self.radius)

    @classmethod
    def of(cls, problem: Minimize, strength: float, relation: str, *, linear: float = 0.0) -> Accuracy:
        """Return the certificate for any data of at most `Minimize.max_records` records.

        ``linear`` bounds the norm of the linear term.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20)
        >>> Accuracy.of(problem, 100.0, "replace").distance < 1e-9
        True
        """
        constants = global_constants(problem, relation)
        found = _certificate(problem, constants, strength, relation, linear)
        if not found.largest <= _LARGEST:
            raise ValueError(
                f"gradient norms up to {constants.lipschitz:.3g} with a ridge of {strength / problem.n:.3g} exceed the "
                "range of double precision; scale rows and labels"
            )
        if not found.distance < found.farthest:
            records = problem.max_records(relation)
            raise ValueError(
                f"a ridge of {strength / problem.n:.3g} is within the rounding errors of {records} records; increase it"
            )
        farthest, tolerance, smoothness = float(found.farthest), float(found.tolerance), float(found.smoothness)
        steps = math.ceil(smoothness / strength * max(1.0, math.log(farthest * strength / tolerance)))
        return cls(float(found.distance), tolerance * (1 - 1e-9), float(found.radius), smoothness, steps)


def distances(problem: Minimize, strengths: Floats, relation: str, linear: float | Floats = 0.0) -> Floats:
    """Return the distance that `Accuracy.of` certifies for each strength; infinite where it certifies none."""
    try:
        found = _certificate(problem, global_constants(problem, relation), strengths, relation, linear)
    except ValueError:
        return np.full(strengths.shape, math.inf)
    certified = (found.largest <= _LARGEST) & (found.distance < found.farthest)
    return np.where(certified, found.distance, math.inf)


class _Certificate(NamedTuple):
    """What `Accuracy.of` derives, for one strength or for an array of them."""

    largest: Any
    farthest: Any
    radius: Any
    smoothness: Any
    tolerance: Any
    distance: Any


@np.errstate(all="ignore")
def _certificate(problem: Minimize, constants: Constants, strength: Any, relation: str, linear: Any) -> _Certificate:
    records, d = problem.max_records(relation), problem.dimension
    slope, bend = constants.lipschitz, constants.smoothness
    pull = records * slope
    farthest = (pull + linear) / strength
    # Norms square their entries: an underflow would accept every point, an overflow none.
    largest = np.maximum(np.maximum(pull + linear, farthest), 1 / (_TOLERANCE * slope))
    if (height := _height(problem)) < math.inf:
        farthest = np.minimum(farthest, 2 * linear / strength + np.sqrt(2 * records * height / strength))
    smoothness = (records * bend + strength) * (1 + 1e-9)
    # Gradient steps start at the origin and stay in the ball of twice the minimizer's norm.
    radius = 2 * farthest * (1 + 1e-9)
    error = (
        gamma(_additions(records, d)) * pull
        + (16 + problem.loss.outputs) * _UNIT * pull
        + gamma(d + 16) * records * bend * radius
        + 8 * _UNIT * (pull + strength * radius + linear)
    )
    tolerance = np.maximum(_TOLERANCE * slope, error / 10)
    # Each step rounds the point, and contracts earlier errors by 1 - strength / smoothness.
    rounding = 8 * _UNIT * radius * smoothness / strength
    distance = ((tolerance + error) / strength + rounding) * (1 + 1e-9)
    return _Certificate(largest, farthest, radius, smoothness, tolerance, distance)


def _additions(records: int, dimension: int) -> int:
    """Return the number of additions that a record passes in a gradient sum: in its block, of blocks, of chunks."""
    blocks = 64 if dimension <= 2**16 else 8
    return -(-records // blocks) + records // 512 + records * dimension // 2**20 + 256


def _height(problem: Minimize) -> float:
    """Return a bound on one record's loss at the origin, for losses of at least 0; infinite where none is known."""
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
    """The objective on a dataset."""

    problem: Minimize
    data: Dataset
    strength: float
    linear: Floats

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient, up to the rounding error that `Accuracy.of` includes."""
        loss: Any = self.problem.loss
        return np.asarray(
            self.data.gradient(loss, theta, **self.problem.guards)[1] + self.strength * theta + self.linear
        )

    def newton(self, theta: Floats, gradient: Floats, precision: float, every: int = 1) -> Floats | None:
        """Return a Newton step whose Hessian is estimated from one record in ``every``; None if it is not definite."""
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

    def minimize(self, accuracy: Accuracy) -> Floats:
        """Return a point within ``accuracy.distance`` of the minimizer."""
        origin = np.zeros(self.problem.dimension)
        direct = _newton(self, _warm_start(self, origin, accuracy), accuracy.tolerance)
        if accuracy.accepts(*direct):
            return direct[0]
        continued = _newton(self, _continuation(self, origin, accuracy), accuracy.tolerance)
        return continued[0] if accuracy.accepts(*continued) else _descend(self, accuracy)


@dataclass(frozen=True)
class CertifiedMinimizer(Mechanism):
    """Base of mechanisms that release a certified minimizer with noise; all fields are public.

    Parameters
    ----------
    ridge : float
        Coefficient of ||theta||^2 / 2 in the mean objective, at least ``problem.ridge``.
    """

    problem: Minimize
    relation: str
    ridge: float
    noise: str
    noise_multiplier: float

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        if positive("ridge", self.ridge) < self.problem.ridge:
            raise ValueError(f"ridge must be at least that of the problem, {self.problem.ridge!r}, got {self.ridge!r}")

    @cached_property
    def constants(self) -> Constants:
        """Constants of the loss for every parameter."""
        return global_constants(self.problem, self.relation)

    @property
    def strength(self) -> float:
        """Coefficient of ||theta||^2 / 2 in the summed objective."""
        return self.problem.n * self.ridge

    @property
    def work(self) -> Work:
        """Ten gradients and ten Hessians of a Newton minimization, about."""
        return Work(gradients=10.0 * self.problem.n, passes=20.0)


def _thinning(objective: Objective) -> int:
    """Return k so that one record in k is enough to estimate a start and a Hessian."""
    return max(1, min(_THINNEST, objective.data.n // (_SAMPLED * objective.problem.dimension)))


def _warm_start(objective: Objective, theta: Floats, accuracy: Accuracy) -> Floats:
    """Return the minimizer of a sample of the records, which saves passes over all of them."""
    if (every := _thinning(objective)) == 1:
        return theta
    sample = objective.data.rows(np.arange(0, objective.data.n, every))
    thinned = replace(objective, data=sample, strength=objective.strength / every, linear=objective.linear / every)
    # A hundredth of the sampling error of the summed gradient.
    lipschitz = objective.problem.constants("replace", everywhere=True).lipschitz
    start = _newton(thinned, theta, 0.01 * lipschitz * math.sqrt(len(sample)))[0]
    return start if np.linalg.norm(start) <= accuracy.radius else theta


def _newton(objective: Objective, theta: Floats, tolerance: float) -> tuple[Floats, Floats]:
    """Return a point and its gradient after damped Newton steps, at most 100."""
    gradient = objective.gradient(theta)
    first = size = float(np.linalg.norm(gradient))
    # A Hessian of a sample suffices as long as gradient norms fall quickly.
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
        theta, gradient = _line_search(objective, theta, gradient, direction)
    return theta, gradient


def _continuation(objective: Objective, theta: Floats, accuracy: Accuracy) -> Floats:
    """Return a start close to the minimizer: minimizers of larger ridges, each from the one before.

    Newton steps oscillate on losses with flat parts (a smoothed hinge on separable records) if the ridge is small.
    Along the path few records change between the parts of the loss at a time.
    """
    halvings = math.ceil(math.log2(max(accuracy.smoothness / objective.strength, 1.0)))
    for k in range(halvings, 0, -1):
        theta, _ = _newton(replace(objective, strength=objective.strength * 2.0**k), theta, accuracy.tolerance)
    return theta


def _line_search(objective: Objective, theta: Floats, gradient: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Return the point along the direction where the objective is nearly least, and its gradient.

    It compares directional derivatives only: close to the minimizer, values differ by less than rounding.
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
            # The zero of the chord of the derivative, at least 5% away from either end.
            cut = slope_low / (slope_low - slope_high)
            share = low + min(max(cut, 0.05), 0.95) * (high - low)
    return there, gradient


def _conjugate_gradients(product: Callable[[Floats], Floats], target: Floats, precision: float) -> Floats:
    """Return an approximate solution of a positive definite system; every iterate is a descent direction."""
    # The target is normalized, so that its square is not multiplied by the square of a row.
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
    """Return the point after the planned number of gradient steps from the origin."""
    theta = np.zeros(objective.problem.dimension)
    for _ in range(accuracy.steps):
        theta = theta - objective.gradient(theta) / accuracy.smoothness
    return theta

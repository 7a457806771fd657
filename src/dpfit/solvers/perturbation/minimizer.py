"""Minimizers of strongly convex sums, certified for every dataset.

The objective is the sum of guarded losses plus (strength / 2) ||theta||^2 + <linear, theta>.
`Accuracy.of` bounds the distance between the computed and the exact minimizer from public facts,
rounding errors included. The bound holds for every dataset, so no message ever depends on records.
A point is accepted when its computed gradient is small: strong convexity turns the gradient norm
into a distance. Damped Newton steps find such a point in practice. Otherwise a planned number of
accelerated gradient steps reaches the same distance, whatever the data. A ridge that would need
too many is refused, so the work is bounded. Proof: docs/explanation/perturbation.md, section 1.
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
from dpfit.privacy.validate import option, positive

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_TOLERANCE = 1e-8
"""Accepted gradient norm, relative to the Lipschitz constant of one record."""
_LARGEST = 1e130
"""Largest gradient, parameter and reciprocal of the tolerance: squares of 1e15 times as much are
finite.
"""
_MOST_STEPS = 1e6
"""Largest planned number of accelerated steps: ridges below about 1e-9 of the curvature are
refused.
"""
_NEWTON_STEPS, _PATH_STEPS = 20, 20
"""Largest numbers of Newton steps from the start, and for each ridge of the path."""
_WEAKENING = 4.0
"""Ratio of neighbouring ridges on the path."""
_TRIALS = 60
_LEVEL = 0.3
"""A line search ends where the directional derivative has fallen to this fraction of its first
value.
"""
_DENSE = 1024
"""Dimension up to which Hessians are formed and factorized; beyond, conjugate gradients solve
Newton systems.
"""
_CONJUGATE_STEPS = 250
_THINNEST, _SAMPLED, _SLOW = 16, 100, 0.3
"""Starts and Hessians are estimated from at least one record in 16 and 100 records for each
dimension; Hessians until a
step leaves more than this fraction of the gradient norm."""

WHOLE_SPACE = Requirement(
    "constants that hold in the whole space, and those of a declared loss hold on its domain only",
    "leave domain out, declare constants that hold for every theta, and project the released "
    "parameter",
    lambda problem, budget, options: problem.loss.status != "declared" or problem.domain is None,
)
CERTIFIABLE = (CONVEX, SMOOTH, WHOLE_SPACE, BOUNDED_EVERYWHERE)
"""What a certified minimizer needs: it is computed in the whole space, and a domain is met by
projection.
"""


@dataclass(frozen=True)
class Accuracy:
    """Public certificate of `Objective.minimize`: within ``distance`` of the minimizer.

    A point is accepted if its computed gradient norm is at most ``tolerance`` and its norm at most
    ``radius``. If no Newton step finds such a point, ``steps`` accelerated gradient steps in the
    ball of norm ``farthest`` reach the distance.
    """

    distance: float
    tolerance: float
    radius: float
    farthest: float
    smoothness: float
    steps: int
    passes: int
    """Largest number of passes over the data that `Objective.minimize` makes."""

    def accepts(self, theta: Floats, gradient: Floats) -> bool:
        """Whether the computed gradient certifies the point."""
        return bool(
            np.linalg.norm(gradient) <= self.tolerance and np.linalg.norm(theta) <= self.radius
        )

    @classmethod
    def of(
        cls, problem: Minimize, strength: float, relation: str, *, linear: float = 0.0
    ) -> Accuracy:
        """Return the certificate for any data of at most `Minimize.max_records` records.

        ``linear`` bounds the norm of the linear term.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20)
        >>> Accuracy.of(problem, 100.0, "replace").distance < 1e-9
        True
        """
        constants = Accuracy.constants(problem, relation)
        found = _certificate(problem, constants, strength, relation, linear)
        if not found.largest <= _LARGEST:
            raise ValueError(
                f"gradient norms up to {constants.lipschitz:.3g} with a ridge of "
                f"{strength / problem.n:.3g} exceed the "
                "range of double precision; scale rows and labels"
            )
        if not found.distance < found.farthest:
            records = problem.max_records(relation)
            raise ValueError(
                f"a ridge of {strength / problem.n:.3g} is within the rounding errors of "
                f"{records} records; increase it"
            )
        if not found.steps <= _MOST_STEPS:
            raise ValueError(
                f"a ridge of {strength / problem.n:.3g} may need {found.steps:.2g} passes over the "
                f"data, {_MOST_STEPS:.0e} are allowed; increase it"
            )
        steps, smoothness = math.ceil(found.steps), float(found.smoothness)
        return cls(
            float(found.distance),
            float(found.tolerance) * (1 - 1e-9),
            float(found.radius),
            float(found.farthest),
            smoothness,
            steps,
            steps + _most_newton_passes(problem, smoothness / strength),
        )

    @staticmethod
    def distances(
        problem: Minimize, strengths: Floats, relation: str, linear: float | Floats = 0.0
    ) -> Floats:
        """Return the distance certified by `of` for each strength; infinite where there is none."""
        try:
            found = _certificate(
                problem, Accuracy.constants(problem, relation), strengths, relation, linear
            )
        except ValueError:
            return np.full(strengths.shape, math.inf)
        certified = (
            (found.largest <= _LARGEST)
            & (found.distance < found.farthest)
            & (found.steps <= _MOST_STEPS)
        )
        return np.where(certified, found.distance, math.inf)

    @staticmethod
    def constants(problem: Minimize, relation: str) -> Constants:
        """Return the constants for every parameter; ValueError if no minimizer is certified.

        Mechanisms call it, too: a mechanism may be read from a file, without `Algorithm.plan`.
        """
        found = problem.constants(relation, everywhere=True)
        if not (found.convex and found.smooth):
            raise ValueError(
                f"the loss must be convex and smooth, got {problem.loss.kind!r}; {SMOOTH.hint}"
            )
        if found.status == "declared" and problem.domain is not None:
            raise ValueError(f"a minimizer needs {WHOLE_SPACE.text}; {WHOLE_SPACE.hint}")
        if not found.bounded:
            raise ValueError(found.missing)
        return found


class _Certificate(NamedTuple):
    """What `Accuracy.of` derives, for one strength or for an array of them."""

    largest: Any
    farthest: Any
    radius: Any
    smoothness: Any
    tolerance: Any
    distance: Any
    steps: Any


@np.errstate(all="ignore")
def _certificate(
    problem: Minimize, constants: Constants, strength: Any, relation: str, linear: Any
) -> _Certificate:
    records, d = problem.max_records(relation), problem.dimension
    slope, bend = constants.lipschitz, constants.smoothness
    pull = records * slope
    farthest = (pull + linear) / strength
    # Norms square their entries: an underflow would accept every point, an overflow none.
    largest = np.maximum(np.maximum(pull + linear, farthest), 1 / (_TOLERANCE * slope))
    if (height := _height(problem)) < math.inf:
        farthest = np.minimum(
            farthest, 2 * linear / strength + np.sqrt(2 * records * height / strength)
        )
    smoothness = (records * bend + strength) * (1 + 1e-9)
    # Newton steps are accepted in a ball of twice the largest norm of a minimizer.
    radius = 2 * farthest * (1 + 1e-9)
    error = (
        gamma(_additions(records, d)) * pull
        + (16 + problem.loss.outputs) * _UNIT * pull
        + gamma(d + 16) * records * bend * radius
        + 8 * _UNIT * (pull + strength * radius + linear)
    )
    tolerance = np.maximum(_TOLERANCE * slope, error / 10)
    # Accelerated steps: what is left of the start, gradients that err, points that are rounded.
    condition = smoothness / strength
    rounding = _UNIT * farthest * (80 * condition + 4 * (d + 16) * np.sqrt(condition))
    distance = ((tolerance + 2 * error) / strength + rounding) * (1 + 1e-9)
    start = np.sqrt(2 * condition) * farthest * strength / tolerance
    steps = 2 * np.sqrt(condition) * (1 + 1e-6) * np.maximum(1.0, np.log(start)) + 1
    return _Certificate(largest, farthest, radius, smoothness, tolerance, distance, steps)


def _most_newton_passes(problem: Minimize, condition: float) -> int:
    """Return the largest number of passes before the accelerated steps: gradients and Hessians."""
    newton_steps = 2 * _NEWTON_STEPS + _PATH_STEPS * _path_length(condition)
    hessian = 1 if problem.loss.has_hessian else 2
    if not problem.loss.has_hessian or problem.dimension > _DENSE:
        hessian *= _CONJUGATE_STEPS
    return 3 + _path_length(condition) + newton_steps * (_TRIALS + hessian)


def _path_length(condition: float) -> int:
    """Return the number of larger ridges on the path to one with a condition number."""
    return math.ceil(math.log(max(condition, 1.0), _WEAKENING))


def _additions(records: int, dimension: int) -> int:
    """Return the additions that a record passes in a gradient sum: block, blocks, chunks."""
    blocks = 64 if dimension <= 2**16 else 8
    return -(-records // blocks) + records // 512 + records * dimension // 2**20 + 256


def _height(problem: Minimize) -> float:
    """Return a bound on a record's loss at the origin, for losses >= 0; infinite if unknown."""
    height = problem.loss.value_at_zero(problem.bounds)
    # The logarithm of the number of classes is rounded.
    return height * (1 + 1e-12) if problem.loss.outputs > 1 else height


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
            self.data.gradient(loss, theta, **self.problem.guards)[1]
            + self.strength * theta
            + self.linear
        )

    def newton(
        self, theta: Floats, gradient: Floats, precision: float, every: int = 1
    ) -> Floats | None:
        """Return a Newton step, Hessian from one record in ``every``; None if not definite."""
        if self.problem.loss.has_hessian and len(theta) <= _DENSE:
            index = None if every == 1 else np.arange(0, self.data.n, every)
            hessian = every * self.data.hessian(
                self.problem.loss, theta, index=index, **self.problem.guards
            )
            hessian[np.diag_indices_from(hessian)] += self.strength
            try:
                return np.asarray(
                    -cho_solve(
                        cho_factor(hessian, check_finite=False), gradient, check_finite=False
                    )
                )
            except LinAlgError:
                return None
        return _conjugate_gradients(lambda v: self._hessian_vector(theta, v), -gradient, precision)

    def _hessian_vector(self, theta: Floats, vector: Floats) -> Floats:
        loss: Any = self.problem.loss
        if loss.has_hessian:
            product = self.data.hessian_vector(loss, theta, vector, **self.problem.guards)
            return np.asarray(product + self.strength * vector)
        step = 1e-5 / max(float(np.linalg.norm(vector)), 1e-300)
        ahead, behind = (self.gradient(theta + sign * step * vector) for sign in (1, -1))
        return np.asarray((ahead - behind) / (2 * step))

    def minimize(self, accuracy: Accuracy) -> Floats:
        """Return a point within ``accuracy.distance`` of the minimizer."""
        direct = _newton(self, _warm_start(self, accuracy), accuracy.tolerance)
        if accuracy.accepts(*direct):
            return direct[0]
        continued = _continuation(self, accuracy)
        return continued[0] if accuracy.accepts(*continued) else _accelerated(self, accuracy)


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
        option("relation", self.relation, ("replace", "add_remove"))
        if positive("ridge", self.ridge) < self.problem.ridge:
            raise ValueError(
                f"ridge must be at least that of the problem, {self.problem.ridge!r}, got "
                f"{self.ridge!r}"
            )

    @cached_property
    def constants(self) -> Constants:
        """Constants of the loss for every parameter."""
        return Accuracy.constants(self.problem, self.relation)

    @cached_property
    def accuracy(self) -> Accuracy:
        """Certified distance between the computed and the exact minimizer of the same objective."""
        return Accuracy.of(self.problem, self.strength, self.relation, linear=self.longest)

    @property
    def longest(self) -> float:
        """Norm that the linear term of the objective exceeds with a probability below 1e-300."""
        return 0.0

    @property
    def strength(self) -> float:
        """Coefficient of ||theta||^2 / 2 in the summed objective."""
        return self.problem.n * self.ridge

    @property
    def work(self) -> Work:
        """About ten gradients and ten Hessians of a Newton minimization; and the most passes."""
        most = float(self.accuracy.passes)
        return Work(gradients=10.0 * self.problem.n, passes=20.0, most_passes=most)


def _thinning(objective: Objective) -> int:
    """Return k so that one record in k is enough to estimate a start and a Hessian."""
    return max(1, min(_THINNEST, objective.data.n // (_SAMPLED * objective.problem.dimension)))


def _warm_start(objective: Objective, accuracy: Accuracy) -> Floats:
    """Return the minimizer of a sample of the records, which saves passes over all of them."""
    theta = np.zeros(objective.problem.dimension)
    if (every := _thinning(objective)) == 1:
        return theta
    sample = objective.data.rows(np.arange(0, objective.data.n, every))
    thinned = replace(
        objective, data=sample, strength=objective.strength / every, linear=objective.linear / every
    )
    # A hundredth of the sampling error of the summed gradient.
    lipschitz = objective.problem.constants("replace", everywhere=True).lipschitz
    start = _newton(thinned, theta, 0.01 * lipschitz * math.sqrt(len(sample)))[0]
    return start if np.linalg.norm(start) <= accuracy.radius else theta


def _newton(
    objective: Objective, theta: Floats, tolerance: float, *, on_path: bool = False
) -> tuple[Floats, Floats]:
    """Return a point and its gradient after damped Newton steps, of a limited number."""
    gradient = objective.gradient(theta)
    first = size = float(np.linalg.norm(gradient))
    # A Hessian of a sample suffices as long as gradient norms fall quickly.
    every = 1 if on_path else _thinning(objective)
    for _ in range(_PATH_STEPS if on_path else _NEWTON_STEPS):
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


def _continuation(objective: Objective, accuracy: Accuracy) -> tuple[Floats, Floats]:
    """Return a point and its gradient: minimizers of ever smaller ridges, each from the one before.

    Newton steps oscillate on losses with flat parts (a smoothed hinge on separable records) if the
    ridge is small. Along the path few records change between the parts of the loss at a time, and
    those few decide: Hessians are of all records.
    """
    theta = np.zeros(objective.problem.dimension)
    for k in range(_path_length(accuracy.smoothness / objective.strength), -1, -1):
        weaker = replace(objective, strength=objective.strength * _WEAKENING**k)
        theta, gradient = _newton(weaker, theta, accuracy.tolerance, on_path=True)
    return theta, gradient


def _line_search(
    objective: Objective, theta: Floats, gradient: Floats, direction: Floats
) -> tuple[Floats, Floats]:
    """Return the point along the direction where the objective is nearly least, and its gradient.

    It compares directional derivatives only: close to the minimizer, values differ by less than
    rounding.
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


def _conjugate_gradients(
    product: Callable[[Floats], Floats], target: Floats, precision: float
) -> Floats:
    """Solve a positive definite system approximately; every iterate is a descent direction."""
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


def _accelerated(objective: Objective, accuracy: Accuracy) -> Floats:
    """Return the point after the planned number of accelerated gradient steps from the origin.

    Nesterov's constant-step scheme, in the ball that holds the minimizer. Each gradient may err.
    """
    strength, farthest = objective.strength, accuracy.farthest
    rate = math.sqrt(strength / accuracy.smoothness) * (1 - 1e-9)
    point = leader = np.zeros(objective.problem.dimension)
    for _ in range(accuracy.steps):
        middle = (point + rate * leader) / (1 + rate)
        gradient = objective.gradient(middle)
        leader = (1 - rate) * leader + rate * middle - rate / strength * gradient
        leader = leader / max(1.0, float(np.linalg.norm(leader / farthest)))
        point = (1 - rate) * point + rate * leader
    return point

"""Exact draws from a convex potential plus a strong quadratic: the restricted Gaussian oracle.

The target is proportional to exp(-f(x) - (precision / 2) norm(x - pull)**2) on a convex domain.
Below f lies its tangent plane at any anchor in the domain, so a normal law shifted by the
subgradient and restricted to the domain is an envelope: accepting a proposal x with probability
exp(-(f(x) - tangent(x))) leaves exactly the target, whatever the anchor. A good anchor, near the
minimizer, only makes acceptance likely: at least det(I + Hess f / precision)**(-1/2).

Certificate: exact, in real arithmetic. Trials are never capped; how many it takes depends on the
data and stays inside. Reference: [Liu24] Algorithm 14 with rejection in place of its truncated
series; docs/explanation/certificates.md, section 3.
"""

from __future__ import annotations

import numpy as np

from dpfit.geometry.truncated_gaussian import gaussian_within
from dpfit.noise import Source
from dpfit.privacy.validate import positive
from dpfit.samplers.potential import Floats, Potential

_ANCHOR_STEPS = 1
_TRIALS = 8


def exact_rgo(target: Potential, y: Floats, step_size: float, source: Source) -> Floats:
    """Draw from density prop. to exp(-U(x) - norm(x - y)**2 / (2 step_size)), by row of ``y``.

    >>> from dpfit.geometry import L2Ball
    >>> ball, slope = L2Ball(2, 1.0), np.array([3.0, 0.0])
    >>> linear = Potential(
    ...     ball, 1.0, np.zeros(2), lambda x: (x @ slope, np.tile(slope, (len(x), 1)))
    ... )
    >>> drawn = exact_rgo(linear, np.zeros((1000, 2)), 0.5, Source(1))
    >>> bool(drawn[:, 0].mean() < -0.3), bool(ball.contains(drawn).all())
    (True, True)
    """
    positive("step_size", step_size)
    precision = target.strength + 1 / step_size
    pull = (target.strength * target.centre + y / step_size) / precision
    return TangentRejection(target, pull, precision).draw(source)


class TangentRejection:
    """Rejection by tangent planes, for exp(-f(x) - (precision / 2) norm(x - pull)**2).

    There is one density for each row of ``pull``. Each has an anchor in the domain, near the mode,
    at which the tangent plane touches f.
    """

    def __init__(self, target: Potential, pull: Floats, precision: float) -> None:
        self.target, self.pull, self.precision = target, pull, precision
        self.point = target.domain.project(pull)
        self.value, self.gradient = target.convex(self.point)
        self.step = np.full(len(pull), 1 / precision)

    def draw(self, source: Source) -> Floats:
        """Return one draw for each row of ``pull``; the object is used up."""
        drawn, pending = np.empty_like(self.pull), np.arange(len(self.pull))
        while len(pending):
            # Anchors may follow from rejected proposals: each trial is exact whatever came before.
            self.improve(_ANCHOR_STEPS)
            for _ in range(_TRIALS):
                mean = self.pull - self.gradient / self.precision
                proposal = gaussian_within(self.target.domain, mean, self.precision, source)
                value = self.target.convex(proposal)[0]
                gap = value - self.value - np.sum(self.gradient * (proposal - self.point), axis=1)
                kept = source.exponential(len(pending)) >= gap
                drawn[pending[kept]] = proposal[kept]
                pending = pending[~kept]
                self._keep(~kept)
                if not len(pending):
                    break
        return drawn

    def _keep(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Drop all other densities."""
        for name in ("pull", "point", "value", "gradient", "step"):
            setattr(self, name, getattr(self, name)[chosen])

    def improve(self, steps: int) -> None:
        """Move anchors by projected gradient steps; a step that ascends is undone and halved."""
        for _ in range(steps):
            slope = self.gradient + self.precision * (self.point - self.pull)
            point = self.target.domain.project(self.point - self.step[:, None] * slope)
            value, gradient = self.target.convex(point)
            better = self._height(point, value) < self._height(self.point, self.value)
            self.point = np.where(better[:, None], point, self.point)
            self.gradient = np.where(better[:, None], gradient, self.gradient)
            self.value = np.where(better, value, self.value)
            self.step = np.where(better, self.step, self.step / 2)

    def _height(self, point: Floats, value: Floats) -> Floats:
        return np.asarray(value + self.precision / 2 * np.sum((point - self.pull) ** 2, axis=1))

"""Targets of samplers: densities prop. to exp(-U) on a convex domain, U strongly convex."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize
from dpfit.data.dataset import Dataset
from dpfit.geometry.base import Domain
from dpfit.geometry.whole_space import WholeSpace
from dpfit.noise import Source
from dpfit.privacy.validate import non_negative, positive

Floats = NDArray[np.float64]

_SAFE = 1 - 1e-9
"""Hessians are lowered by more than their rounding error, so that minorants stay below."""


_LARGEST_VALUE = 1e100
"""Sums of losses above this magnitude would overflow in a chain."""


class BrokenDeclarationError(Exception):
    """A potential is no sum of the losses that were declared; never leaves a mechanism."""


@dataclass(frozen=True, eq=False)
class Potential:
    """U(x) = f(x) + (strength / 2) norm(x - centre)**2 on the domain, f convex there.

    ``convex`` gives values (k,) and subgradients (k, d) of f at points (k, d). ``hessian``, where
    known, is that of f, and ``bending`` says how fast it changes: along a way of length s in the
    domain no second derivative falls by more than a factor exp(-bending * s) (generalized
    self-concordance). ``sandwich`` gives two matrices between which the Hessian is everywhere in
    the domain: f(x) - <x, A x> / 2 and <x, B x> / 2 - f(x) are convex there.
    """

    domain: Domain
    strength: float
    centre: Floats
    convex: Callable[[Floats], tuple[Floats, Floats]]
    hessian: Callable[[Floats], Floats] | None = None
    bending: float = 0.0
    sandwich: Callable[[], tuple[Floats, Floats]] | None = None

    def __post_init__(self) -> None:
        positive("strength", self.strength)
        non_negative("bending", self.bending)

    def energy(self, points: Floats) -> tuple[Floats, Floats]:
        """Return U, values (k,), and its subgradients (k, d) at points (k, d), by one data pass.

        >>> from dpfit.geometry import L2Ball
        >>> flat = Potential(
        ...     L2Ball(1, 1.0), 4.0, np.zeros(1), lambda x: (np.zeros(len(x)), np.zeros_like(x))
        ... )
        >>> flat.energy(np.array([[0.5]]))
        (array([0.5]), array([[2.]]))
        """
        values, gradients = self.convex(points)
        offset = points - self.centre
        pull = self.strength * offset
        return values + np.einsum("kj,kj->k", pull, offset) / 2, gradients + pull

    def _capped(self, passes: float, slope: float) -> Potential:
        """Return the potential that raises `BrokenDeclarationError` beyond these limits.

        They are a number of points, and the norm of a gradient.
        """
        left = passes

        def convex(points: Floats) -> tuple[Floats, Floats]:
            nonlocal left
            left -= len(points)
            if left < 0:
                raise BrokenDeclarationError
            values, gradients = self.convex(points)
            # Comparisons with nan are false.
            if not (
                (np.abs(values) < _LARGEST_VALUE).all()
                and (np.linalg.norm(gradients, axis=1) <= slope).all()
            ):
                raise BrokenDeclarationError
            return values, gradients

        return replace(self, convex=convex)

    @property
    def _flat(self) -> Potential:
        """The quadratic alone, which no record has touched."""

        def convex(points: Floats) -> tuple[Floats, Floats]:
            return np.zeros(len(points)), np.zeros_like(points)

        return Potential(self.domain, self.strength, self.centre, convex)

    def draw_within(
        self,
        passes: float,
        slope: float,
        sampler: Any,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """Return draws of a sampler, or of the quadratic alone where a limit is exceeded.

        Limits are passes, and the norm of a gradient; infinite ``passes`` set none. A sampler
        exceeds them only if a declaration of the caller is false. To say so would reveal records.
        """
        if math.isinf(passes):
            return np.asarray(sampler.draw(self, chains, source, progress))
        try:
            with np.errstate(all="ignore"):
                capped = self._capped(passes, slope)
                return np.asarray(sampler.draw(capped, chains, source, progress))
        except BrokenDeclarationError:
            return np.asarray(sampler.draw(self._flat, chains, source))

    @staticmethod
    def gibbs(problem: Minimize, data: Dataset, inverse_temperature: float) -> Potential:
        """Return inverse_temperature * (sum of guarded losses + (n * ridge / 2) norm(theta)**2).

        The strong convexity that guarantees rest on comes from the ridge and the declared n, never
        from the data. A problem without a domain has a potential on the whole space.
        """
        loss: Any = problem.loss
        domain = WholeSpace(problem.dimension) if problem.region is None else problem.region
        constants = problem.constants("replace")
        bending, (lower, upper) = constants.margin_self_concordance, constants.margin_curvatures

        def convex(points: Floats) -> tuple[Floats, Floats]:
            values, gradients = data.gradients(loss, points, **problem.guards)
            return inverse_temperature * values, inverse_temperature * gradients

        def hessian(point: Floats) -> Floats:
            return np.asarray(
                inverse_temperature * _SAFE * data.hessian(loss, point, **problem.guards)
            )

        def sandwich() -> tuple[Floats, Floats]:
            gram = inverse_temperature * data.gram(**problem.guards)[0]
            return np.asarray(lower * _SAFE * gram), np.asarray(upper / _SAFE * gram)

        return Potential(
            domain,
            inverse_temperature * problem.n * problem.ridge,
            np.zeros(problem.dimension),
            convex,
            hessian if math.isfinite(bending) else None,
            bending if math.isfinite(bending) else 0.0,
            sandwich if math.isfinite(upper) else None,
        )


def bounded_domain(problem: Minimize) -> Domain:
    """Return the domain or trust ball; ValueError if it is unbounded."""
    region = problem.region
    if region is None or not math.isfinite(region.radius()):
        raise ValueError(
            "samplers need a bounded domain; pass an L2Ball or a Box that holds good parameters"
        )
    return region

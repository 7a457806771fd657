"""Targets of samplers: densities proportional to exp(-U) on a convex domain, with U strongly convex."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize
from dpfit.data.records import Data
from dpfit.geometry.base import Domain
from dpfit.losses.glm import GLM
from dpfit.privacy.check import positive

Floats = NDArray[np.float64]

_SAFE = 1 - 1e-9
"""Curvature from data is lowered by more than its rounding error, so that minorants stay below."""


@dataclass(frozen=True, eq=False)
class Potential:
    """U(x) = f(x) + (strength / 2) norm(x - centre)**2 on the domain, f convex there.

    ``convex`` gives values (k,) and subgradients (k, d) of f at points (k, d). ``curvature``, where known, gives a
    symmetric matrix A for which f(x) - <x, A x> / 2 is still convex on the domain.
    """

    domain: Domain
    strength: float
    centre: Floats
    convex: Callable[[Floats], tuple[Floats, Floats]]
    curvature: Callable[[], Floats] | None = None

    def __post_init__(self) -> None:
        positive("strength", self.strength)


def gibbs(problem: Minimize, data: Data, inverse_temperature: float) -> Potential:
    """The potential inverse_temperature * (sum of guarded losses + (n * ridge / 2) norm(theta)**2).

    The strong convexity comes from the ridge and the declared number n, never from the data. Generalized
    self-concordance bounds the curvature on the whole domain from that at its centre:
    Hess f(x) >= exp(-M norm(x - centre)) Hess f(centre).
    """
    loss: Any = problem.loss
    domain = bounded_domain(problem)

    def convex(points: Floats) -> tuple[Floats, Floats]:
        values, gradients = data.gradients(loss, points, **problem.guards)
        return inverse_temperature * values, inverse_temperature * gradients

    def curvature() -> Floats:
        lowered = inverse_temperature * math.exp(-bending(problem)) * _SAFE
        return np.asarray(lowered * data.hessian(loss, domain.centre, **problem.guards))

    known = isinstance(loss, GLM) and math.isfinite(bending(problem))
    strength = inverse_temperature * problem.n * problem.ridge
    return Potential(domain, strength, np.zeros(problem.dimension), convex, curvature if known else None)


def bending(problem: Minimize) -> float:
    """By which power of e curvatures of the loss can differ between the domain's centre and its other points."""
    constant = problem.loss.self_concordance(problem.bounds, problem.radius)
    return math.inf if constant is None else constant.value * bounded_domain(problem).radius()


def bounded_domain(problem: Minimize) -> Domain:
    """The domain; refuses unbounded ones."""
    if problem.domain is None or not math.isfinite(problem.domain.radius()):
        raise ValueError("a bounded domain is needed: an L2Ball or a Box that is known to hold good parameters")
    return problem.domain

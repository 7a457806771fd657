"""The restricted Gaussian oracle from single values: a reference for small n.

The target is proportional to exp(-mean of f_i(x) - (strength / 2) norm(x - centre)**2 - norm(x -
y)**2 / (2 step_size)) on a convex domain, each f_i L-Lipschitz there, convex or not. Without the
f_i it is a normal law of some precision on the domain. Of two draws x and z of that law x is
accepted with probability rho / 2, where

    rho = 1 + D_1 + D_1 D_2 + ... + D_1 ... D_A,    D_l = f_j(z) - f_j(x) for a fresh uniform index
    j,

and A is at least a with probability 1 / a!. Its expectation is exp(mean f(z) - mean f(x)), which
would be exact; the error is that rho is cut to [0, 2]. `Truncation` bounds it, for every dataset.

This takes O(1) records for a draw, at precisions of hundreds of L**2, so that chains of such steps
are long: `dpfit.samplers.exact_rgo` is what to use. Reference: [Liu24] Algorithms 14 and 16, with
explicit constants; docs/explanation/chains.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from dpfit.core import Minimize
from dpfit.data.dataset import Dataset
from dpfit.geometry.truncated_gaussian import gaussian_within
from dpfit.noise import Source
from dpfit.noise.source import Steps
from dpfit.privacy.validate import integer, positive, probability
from dpfit.samplers.potential import Floats, Potential

_STAGES, _TERMS = 30, 60
_LARGEST = 0.1
"""Ratios beyond it are not worth a bound; below it later terms of the bounds are less than half of
those before.
"""

_EXPONENTS = np.concatenate([np.linspace(1.05, 4.0, 60), np.geomspace(4.1, 400.0, 60)])


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledPotential(Potential):
    """A potential whose convex part is the mean of ``number`` functions, each ``lipschitz``.

    ``value`` gives f_j(x) for numbers j (k,) of functions and points x (k, d), one for each.
    """

    number: int
    lipschitz: float
    value: Callable[[Steps, Floats], Floats] = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("number", self.number)
        positive("lipschitz", self.lipschitz)

    @staticmethod
    def gibbs(problem: Minimize, data: Dataset, inverse_temperature: float) -> SampledPotential:
        """Return `Potential.gibbs` as a mean over records, which are read one at a time.

        >>> from dpfit.data.dataset import InMemory
        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Absolute, Bounds
        >>> bounds = Bounds(1.0, -1.0, 1.0)
        >>> problem = Minimize(
        ...     n=2, loss=Absolute(), bounds=bounds, n_features=1, domain=L2Ball(1, 1.0), ridge=0.5
        ... )
        >>> target = SampledPotential.gibbs(problem, InMemory([[1.0], [-0.5]], [1.0, -1.0]), 3.0)
        >>> target.lipschitz, target.value(np.array([0, 1]), np.array([[0.5], [0.5]]))
        (6.0, array([3. , 4.5]))
        """
        plain, n = Potential.gibbs(problem, data, inverse_temperature), data.n

        def value(indices: Steps, points: Floats) -> Floats:
            values = np.empty(len(indices))
            for j in np.unique(indices):
                chosen = indices == j
                values[chosen] = data.gradients(
                    problem.loss, points[chosen], index=np.array([j]), **problem.guards
                )[0]
            return n * inverse_temperature * values

        lipschitz = n * inverse_temperature * problem.lipschitz("add_remove")
        return SampledPotential(
            plain.domain,
            plain.strength,
            plain.centre,
            plain.convex,
            number=n,
            lipschitz=lipschitz,
            value=value,
        )


def subsampled_rgo(target: SampledPotential, y: Floats, step_size: float, source: Source) -> Floats:
    """Return a draw for each row of ``y`` (k, d), within `Truncation.error` in total variation.

    >>> from dpfit.geometry import L2Ball
    >>> ball, slopes = L2Ball(1, 1.0), np.array([1.0, 3.0])
    >>> linear = SampledPotential(
    ...     ball,
    ...     1.0,
    ...     np.zeros(1),
    ...     lambda x: (2 * x[:, 0], np.full_like(x, 2.0)),
    ...     number=2,
    ...     lipschitz=3.0,
    ...     value=lambda j, x: slopes[j] * x[:, 0],
    ... )
    >>> subsampled_rgo(linear, np.zeros((5, 1)), 0.01, Source()).shape
    (5, 1)
    """
    precision = target.strength + 1 / positive("step_size", step_size)
    pull = (target.strength * target.centre + y / step_size) / precision
    drawn, pending = np.empty_like(pull), np.arange(len(pull))
    while len(pending):
        x, z = (gaussian_within(target.domain, pull[pending], precision, source) for _ in range(2))
        kept = 2 * source.uniform(len(pending)) <= _exponential_estimate(target, x, z, source)
        drawn[pending[kept]] = x[kept]
        pending = pending[~kept]
    return drawn


def _exponential_estimate(target: SampledPotential, x: Floats, z: Floats, source: Source) -> Floats:
    """Unbiased estimates of exp(mean f(z) - mean f(x)).

    A stage follows the stage a with probability 1 / (1 + a).
    """
    rho, product, active, stage = np.ones(len(x)), np.ones(len(x)), np.arange(len(x)), 1
    while len(active):
        index = source.integers(target.number, len(active))
        product[active] *= target.value(index, z[active]) - target.value(index, x[active])
        rho[active] += product[active]
        active = active[source.uniform(len(active)) * (1 + stage) < 1]
        stage += 1
    return rho


@dataclass(frozen=True)
class Truncation:
    """Cutting rho to [0, 2] in `subsampled_rgo`; ``ratio`` is lipschitz**2 / precision.

    >>> round(Truncation(1 / 225).error * 1e6, 1), round(1 / Truncation.within(1e-9).ratio)
    (1.0, 337)
    """

    ratio: float

    def __post_init__(self) -> None:
        positive("ratio", self.ratio)

    @property
    def error(self) -> float:
        """Largest total variation between a draw and its target, in any dimension.

        It is the smaller of two bounds on E max(abs(rho - 1) - 1, 0), from moments of D. Either
        some factor is large, or the sum is, by Minkowski's inequality.
        """
        return (
            1.0
            if self.ratio > _LARGEST
            else min(1.0, _by_factors(self.ratio), _by_sums(self.ratio))
        )

    @staticmethod
    def within(error: float) -> Truncation:
        """Return the truncation of the largest ratio whose error is at most ``error``."""
        if not 0 < probability("error", error) < 1:
            raise ValueError(f"error must lie between 0 and 1, got {error!r}")
        low, high = math.log(1e-6), math.log(_LARGEST)
        if Truncation(math.exp(low)).error > error:
            raise ValueError("error is too small to be certified")
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if Truncation(math.exp(middle)).error <= error else (low, middle)
            )
        return Truncation(math.exp(low))


def _log_moment(order: Floats, ratio: float) -> Floats:
    """Log of E abs(D)**order, D a difference of two draws with variance proxy 2 * ratio.

    The draws are sub-Gaussian.
    """
    return np.asarray(math.log(2) + order / 2 * math.log(4 * ratio) + gammaln(order / 2 + 1))


def _by_factors(ratio: float) -> float:
    """If all of a factors are at most y with y + ... + y**a = 1, nothing is cut.

    So cutting implies that one of them is larger.
    """
    powers = np.linspace(0.0, 2 / ratio, 400)
    stages = np.arange(1.0, _STAGES)
    moments = _log_moment(stages[:, None] + powers, ratio)
    total = 0.0
    for a, most in enumerate(_thresholds(), start=1):
        chance = 1 / math.factorial(a) - 1 / math.factorial(a + 1)
        total += (
            chance
            * a
            * float(np.sum(np.exp(np.min(moments[:a] - powers * math.log(most), axis=1))))
        )
    # Later stages, without looking for a large factor: at most a**2 times the larger of the first
    # and last moment.
    first, last = np.exp(_log_moment(np.array([1.0, _STAGES]), ratio)).tolist()
    return float(total + 2 * _STAGES**2 * (first + last) / math.factorial(_STAGES))


@lru_cache(maxsize=1)
def _thresholds() -> tuple[float, ...]:
    def excess(y: float, a: int) -> float:
        return math.fsum(y**k for k in range(1, a + 1)) - 1

    return tuple(float(brentq(excess, 0.5, 1.0, args=(a,))) for a in range(1, _STAGES))


def _by_sums(ratio: float) -> float:
    """By (w - 1)_+ <= c w**j for the sum's first terms, by expectations for the others."""
    b, j = np.arange(1.0, _TERMS + 1), _EXPONENTS[:, None]
    means = np.exp(_log_moment(b, ratio) - gammaln(b + 1))
    # Beyond the last term each is less than half of the one before.
    later = np.cumsum(means[::-1])[::-1] + means[-1]
    norms = np.cumsum(np.exp((_log_moment(b * j, ratio) - gammaln(b + 1)) / j), axis=1)
    with np.errstate(over="ignore"):
        first = np.exp((j - 1) * np.log(j - 1) - j * np.log(j) + j * np.log(norms[:, :-1]))
    return float(np.min(first + later[1:]))

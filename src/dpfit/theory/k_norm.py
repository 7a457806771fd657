"""Noise with density prop. to exp(-max|x_i| / scale) in k dimensions.

Its largest coordinate has the law Gamma(k) (the shell of a cube of half-width r has volume prop. to
r^(k-1)); one coordinate is uniform on [-R, R] with R of law Gamma(k + 1). Reference: [Gan22]
Section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.special import gammaincc, gammainccinv

from dpfit.theory.errors import ErrorLaw


@dataclass(frozen=True)
class CubeErrors(ErrorLaw):
    """The errors of ``number`` answers.

    >>> CubeErrors(scale=2.0, number=10).expected_max
    20.0
    >>> round(CubeErrors(scale=2.0, number=1).quantile(0.9), 4), round(2.0 * 2.302585, 4)
    (4.6052, 4.6052)
    """

    scale: float
    number: int

    @property
    def average(self) -> float:
        return self.scale * (self.number + 1) / 2

    @property
    def expected_max(self) -> float:
        return self.scale * self.number

    def quantile(self, level: float) -> float:
        top = float(gammainccinv(self.number, 1e-18))
        return self.scale * float(
            brentq(lambda x: self._survival(x) - (1 - level), 0.0, top, xtol=1e-12 * top)
        )

    def max_quantile(self, level: float) -> float:
        return self.scale * float(gammainccinv(self.number, 1 - level))

    def _survival(self, x: float) -> float:
        """P(R |U| > x) = E[1 - x/R; R > x], with R of law Gamma(k + 1) and U uniform on [-1, 1]."""
        k = self.number
        return float(gammaincc(k + 1, x) - x / k * gammaincc(k, x))

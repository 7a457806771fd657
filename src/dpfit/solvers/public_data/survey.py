"""What public records imply for the private: start, its error, curvature, gradient norms.

All of it is computed from public records and free of charge. None of it is trusted for privacy; if
the private records are different, accuracy suffers and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize
from dpfit.data.dataset import Dataset
from dpfit.solvers.public_data.public_loss import PublicLoss

Floats = NDArray[np.float64]

_RIDGES = np.geomspace(100.0, 1e-7, 19)
"""Ridges of the public fit, as shares of the largest curvature; the first ones leave little but
zero.
"""
_PATIENCE = 4
"""After so many ridges in a row that err more on left-out records, smaller ones are not tried."""
_NOISE_FLOOR = 1e-10
"""Eigenvalues below this share of the largest one are rounding errors."""
_FLAT = 1e-6
"""The least curvature that is expected, as a share of the most that the bounds allow in all
directions.
"""
_LARGEST_LEVERAGE = 1 - 1e-6
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Survey:
    """A public fit, seen along the eigenvectors of its Hessian.

    Attributes
    ----------
    psi, point
        The public loss with the ridge that errs least on left-out records, and its minimizer.
    values, vectors
        Eigenvalues and eigenvectors (columns) of the Hessian of the mean public loss there, without
        ridges.
    curvatures
        The curvature of the mean private loss to expect along each eigenvector.
    variances
        How far the point is from where private records would put it: expected squares along each
        eigenvector.
    norms
        Norms of the gradients of records at fits that leave them out, which are as large as those
        of fresh records.
    slopes, bends
        First (at fits that leave the record out) and second derivatives of the loss of each record
        in the margin.
    turned
        The public rows along the eigenvectors.
    """

    psi: PublicLoss
    point: Floats
    values: Floats
    vectors: Floats
    curvatures: Floats
    variances: Floats
    norms: Floats
    slopes: Floats
    bends: Floats
    turned: Floats

    @staticmethod
    def of(problem: Minimize, public: Dataset) -> Survey:
        """Fit the public records, and judge the fit by leaving out one record at a time.

        >>> from dpfit.data.dataset import InMemory
        >>> from dpfit.losses import Bounds, Squared
        >>> rows = np.tile([[1.0, 0.0], [0.0, 0.5]], (50, 1))
        >>> problem = Minimize(n=1000, loss=Squared(), bounds=Bounds(1.0), n_features=2)
        >>> found = Survey.of(
        ...     problem, InMemory(rows, rows @ [1.0, -2.0] + np.tile([0.1, 0.1, -0.1, -0.1], 25))
        ... )
        >>> (
        ...     found.point.round(2).tolist(),
        ...     found.values.round(3).tolist(),
        ...     float(found.norms.max().round(2)),
        ... )
        ([1.0, -2.0], [0.125, 0.5], 0.1)
        """
        start = _Fit.at(PublicLoss.of(problem, public, 0.0), np.zeros(problem.dimension))
        fit = start.best(problem.ridge + _RIDGES * (float(start.values.max()) or 1.0))
        chosen = fit.psi
        leverages, margins = fit.left_out()
        slopes = chosen.loss.slope(margins, chosen.labels)
        return Survey(
            chosen,
            fit.point,
            fit.values,
            fit.vectors,
            np.maximum(fit.expected_curvatures(), _least_curvature(problem)),
            fit.variances(leverages, chosen.ridge, problem.n),
            np.abs(slopes) * np.linalg.norm(chosen.rows, axis=1),
            slopes,
            fit.bends,
            fit.turned,
        )

    def clipped(self, clip: float) -> Clipping:
        """What clipping gradients at a norm does on average."""
        within = np.where(self.norms <= clip, self.bends, 0.0)
        kept, bent = np.stack([within, self.bends]) @ self.turned**2
        # One more record that is not clipped: a share of zero would stop all motion.
        one = bent / len(within) + _TINY
        shares = (kept + one) / (bent + one)
        # Records on the wrong side lose most, so clipping mostly rescales the fit: the shift along
        # the fit is all that is estimated. In all directions together, few records would give
        # noise.
        lost = self.slopes * np.maximum(1 - clip / np.maximum(self.norms, _TINY), 0.0)
        along = self.vectors.T @ self.point
        scaled = (
            float(lost @ (self.psi.rows @ self.point))
            / len(lost)
            / max(float(self.values @ along**2), _TINY)
        )
        return Clipping(shares, scaled * self.values * along)


@dataclass(frozen=True, eq=False)
class Clipping:
    """Along eigenvectors: curvature fraction left by clipping, and the gradient it removes."""

    shares: Floats
    shifts: Floats


def _least_curvature(problem: Minimize) -> float:
    """Expected least curvature without public information: flat losses, rows of zeros."""
    constants = problem.constants("add_remove")
    return _FLAT * (constants.smoothness if constants.smooth else 1.0) / problem.dimension


@dataclass(frozen=True, eq=False)
class _Fit:
    """A parameter, the records' curvatures there, and rows in the Hessian's eigenbasis."""

    psi: PublicLoss
    point: Floats
    bends: Floats
    values: Floats
    vectors: Floats
    turned: Floats

    @staticmethod
    def at(psi: PublicLoss, point: Floats) -> _Fit:
        bends = psi.loss.curvature_at(psi.rows @ point, psi.labels)
        values, vectors = np.linalg.eigh(replace(psi, ridge=0.0).hessian(point))
        return _Fit(psi, point, bends, np.maximum(values, 0.0), vectors, psi.rows @ vectors)

    def best(self, ridges: Floats) -> _Fit:
        """The fit with the ridge that errs least on left-out records, from the largest ridge on.

        Each fit starts from the one before. Where small ridges overfit, the search ends before
        records become separable, of which a fit without one record says little.
        """
        best, least, worse = self, math.inf, 0
        fit = self
        for ridge in ridges:
            fit = fit._fitted(float(ridge))
            loss = float(fit.psi.loss.value(fit.left_out()[1], fit.psi.labels).mean())
            best, least, worse = (fit, loss, 0) if loss < least else (best, least, worse + 1)
            if worse == _PATIENCE:
                break
        return best

    def _fitted(self, ridge: float) -> _Fit:
        """The fit with this ridge, found from here: one Newton step if the loss is quadratic."""
        psi = replace(self.psi, ridge=ridge)
        if not psi.loss.is_quadratic:
            origin = np.zeros((1, len(self.point)))
            return _Fit.at(psi, psi.inverse_gradients(origin, self.point[np.newaxis])[0])
        gradient = self.vectors.T @ psi.gradients(self.point[np.newaxis])[0]
        return replace(
            self, psi=psi, point=self.point - self.vectors @ (gradient / (self.values + ridge))
        )

    def left_out(self) -> tuple[Floats, Floats]:
        """Leverages, and the margins of records at fits that leave them out.

        A record that is left out moves the fit by one Newton step: exact for the squared loss.
        """
        sizes = self.turned**2 @ (1 / (self.values + self.psi.ridge)) / len(self.turned)
        leverages = np.minimum(self.bends * sizes, _LARGEST_LEVERAGE)
        margins = self.psi.rows @ self.point
        slopes = self.psi.loss.slope(margins, self.psi.labels)
        return leverages, margins + slopes * sizes / (1 - leverages)

    def expected_curvatures(self) -> Floats:
        """The curvature of fresh records along each eigenvector (Ledoit and Peche, 2011).

        Eigenvalues of a sample spread more than those of the population, most when there are few
        records for each dimension; eigenvectors of small ones have more curvature on fresh records.
        The limit law of the eigenvalues enters by its Stieltjes transform, smoothed over a share
        n**(-1/3) of each eigenvalue.
        """
        values, n = self.values, len(self.bends)
        seen = values > _NOISE_FLOOR * values.max()
        ratio = len(values) / n
        found = np.full_like(values, values.mean())
        if not seen.any():
            return found
        nodes = values[seen] * (1 + 1j * n ** (-1 / 3))
        transforms = (1 / (values[np.newaxis] - nodes[:, np.newaxis])).mean(axis=1)
        found[seen] = values[seen] / np.abs(1 - ratio - ratio * nodes * transforms) ** 2
        if ratio > 1:
            found[~seen] = 1 / ((ratio - 1) * float((1 / values[seen]).sum()) / n)
        return np.asarray(found * (values.sum() / found.sum()))

    def variances(self, leverages: Floats, ridge: float, private: int) -> Floats:
        """Sampling variance of both fits (sandwich, leverage-scaled scores) plus the ridge bias."""
        slopes = self.psi.loss.slope(self.psi.rows @ self.point, self.psi.labels)
        scores = (slopes**2 / (1 - leverages)) @ self.turned**2 / len(slopes)
        kept = self.values / (self.values + ridge)
        size = float((self.point**2).sum() / max(float((kept**2).sum()), 1.0))
        sampling = scores / (self.values + ridge) ** 2 * (1 / len(slopes) + 1 / private)
        return np.asarray(sampling + (1 - kept) ** 2 * size)

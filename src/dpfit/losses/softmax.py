"""Multinomial logistic loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.losses.base import Bounds, Constant, Loss, parameter_radius
from dpfit.privacy.validate import integer

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Softmax(Loss):
    """Multinomial logistic loss: log sum exp of ``classes`` logits minus the label's logit.

    The parameter is a matrix of shape (features, classes), the logits of a row x are x @ theta,
    labels are class numbers 0, ..., classes - 1 (others are read as the nearest). With class
    probabilities p the gradient is the outer product of x and p - e_y, and the Hessian is x x^T (x)
    (diag p - p p^T); norms of theta are Frobenius norms.

    Examples
    --------
    >>> Softmax(3).value([[0.0, 0.0, 0.0]], [2]).round(4).tolist()
    [1.0986]
    >>> Softmax(2).gradient([[0.0, 0.0]], [0]).tolist()
    [[-0.5, 0.5]]
    """

    kind = "loss_softmax"
    reads_products: ClassVar[bool] = True
    has_hessian: ClassVar[bool] = True
    slope_relation: ClassVar[str] = "softmax"
    classes: int

    def __post_init__(self) -> None:
        integer("classes", self.classes, least=2)

    @property
    def outputs(self) -> int:
        return self.classes

    def value_at_zero(self, bounds: Bounds) -> float:
        return math.log(self.classes)

    def value(self, logits: ArrayLike, labels: ArrayLike) -> Floats:
        """The losses of examples, one row of logits each."""
        shifted, picked = self._shifted(logits, labels)
        return np.asarray(
            np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(picked)), picked]
        )

    def gradient(self, logits: ArrayLike, labels: ArrayLike) -> Floats:
        """Gradients with respect to the logits: probabilities minus the label's indicator."""
        shifted, picked = self._shifted(logits, labels)
        gradient = _probabilities(shifted)
        gradient[np.arange(len(picked)), picked] -= 1.0
        return gradient

    def curvature_at(self, logits: ArrayLike) -> Floats:
        """The Hessians with respect to the logits, of shape (n, classes, classes)."""
        probabilities = _probabilities(_shift(self._logits(logits)))
        diagonal = probabilities[:, :, None] * np.eye(self.classes)
        return np.asarray(diagonal - probabilities[:, :, None] * probabilities[:, None, :])

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """sqrt(2) * row norm: p - e_y tends to a difference of unit vectors for far theta."""
        return Constant(math.sqrt(2) * bounds.row_norm, exact=_everywhere(radius))

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(2 * math.sqrt(2) * bounds.row_norm, exact=_everywhere(radius))

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """Row norm squared / 2: eigenvalues of diag p - p p^T reach 1/2, at two equal classes."""
        return Constant(bounds.row_norm**2 / 2, exact=self.classes == 2 or _everywhere(radius))

    def self_concordance(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """sqrt(2) * row norm, by abs(E (u - E u)^2 (v - E v)) <= (max v - min v) Var u.

        Expectations are under the class probabilities.
        """
        return Constant(math.sqrt(2) * bounds.row_norm, exact=_everywhere(radius))

    def _logits(self, logits: ArrayLike) -> Floats:
        try:
            checked = np.asarray(logits, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError("logits must be an array of numbers") from None
        if checked.ndim != 2 or checked.shape[1] != self.classes:
            raise ValueError(f"logits must have shape (n, {self.classes}), got {checked.shape}")
        return checked

    def _shifted(self, logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
        checked, picked = self._logits(logits), np.asarray(labels)
        if picked.shape != checked.shape[:1] or not (picked.dtype.kind in "iu" or picked.size == 0):
            raise ValueError(
                "labels must be whole numbers, one for each row of logits; guards.Classes makes "
                "them so"
            )
        # Labels outside the classes are read as the nearest class, as the kernels do: an error
        # would tell of a record.
        return _shift(checked), np.clip(picked.astype(np.float64), 0, self.classes - 1).astype(
            np.int64
        )


def _shift(logits: Floats) -> Floats:
    """Logits minus their largest: equal probabilities, and exp cannot overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(logits - logits.max(axis=1, keepdims=True))


def _probabilities(shifted: Floats) -> Floats:
    weights = np.exp(shifted)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _everywhere(radius: float | None) -> bool:
    return math.isinf(parameter_radius(radius))

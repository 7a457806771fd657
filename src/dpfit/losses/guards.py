"""Guards: they make declared bounds true for any input, silently.

A guarded record depends on that record alone, bit for bit, not on its neighbours in the array, on
their number or on the memory layout. A record with NaN or infinite features becomes a public
neutral record; no error tells which it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import in_safe_range, integer, real

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
V = TypeVar("V")


@dataclass(frozen=True)
class RowBall(Spec):
    """Scale rows into the Euclidean ball of a radius; non-finite rows become zero.

    The norm of a guarded row, in real arithmetic, is at most the radius. With u = 2**-53, the
    computed norm of d numbers is within a factor 1 +- (d + 8) u of the true one (a sum of squares
    in any order, a root; entries are first scaled by a power of two, so nothing overflows and what
    underflows is far below u). Rows are kept when even the largest true norm fits, others are
    scaled to a norm four such margins below the radius. Scaled rows are kept when guarded again.

    Examples
    --------
    >>> RowBall(1.0).apply([[0.3, 0.4], [3e200, 4e200], [float("nan"), 1.0]]).round(12).tolist()
    [[0.3, 0.4], [0.6, 0.8], [0.0, 0.0]]
    """

    kind = "guard_row_ball"
    radius: float

    def __post_init__(self) -> None:
        # Radii near the ends of the range of doubles would void the error analysis.
        in_safe_range("radius", self.radius)

    def apply(self, rows: ArrayLike) -> Floats:
        """The guarded rows, of shape (n, d); the input is not changed."""
        given = _matrix(rows)
        margin = (given.shape[1] + 16) * 2.0**-53
        finite = np.where(np.isfinite(given).all(axis=1, keepdims=True), given, 0.0)
        exponents = np.frexp(np.abs(finite).max(axis=1, keepdims=True, initial=0.0))[1]
        with np.errstate(over="ignore", under="ignore"):
            # In C order each row is summed on its own, in an order that depends on its length only.
            scaled = np.ascontiguousarray(np.ldexp(finite, -exponents))
            norms = np.sqrt(np.add.reduce(scaled * scaled, axis=1, keepdims=True))
            keep = norms * (1 + margin) <= np.ldexp(self.radius, -exponents)
            shrunk = scaled * (self.radius * (1 - 4 * margin) / np.where(norms > 0, norms, 1.0))
        return np.where(keep, finite, shrunk)


def clip_gradients(gradients: ArrayLike, bound: float) -> Floats:
    """Per-example gradients scaled to norm at most ``bound``; NaN and infinities become zero.

    Bounds what one example adds to a sum. It does not give the gradient of any function: where an
    algorithm needs one (Gibbs sampling, last-iterate accounting), use a loss of bounded slope
    instead (docs/explanation/losses.md).

    >>> clip_gradients([[3.0, 4.0], [0.1, 0.0]], 1.0).round(12).tolist()
    [[0.6, 0.8], [0.1, 0.0]]
    """
    return RowBall(bound).apply(gradients)


@dataclass(frozen=True)
class FeatureBox(Spec):
    """Clamp each feature into its range; non-finite rows become the middle of the box.

    ``lower`` and ``upper`` are numbers for all features, or one number for each.

    Examples
    --------
    >>> box = FeatureBox((0.0, -1.0), (1.0, 1.0))
    >>> box.apply([[0.5, 7.0], [float("inf"), 0.0]]).tolist()
    [[0.5, 1.0], [0.5, 0.0]]
    """

    kind = "guard_feature_box"
    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]

    def __post_init__(self) -> None:
        lower, upper = self._ends()
        if not np.all(np.isfinite(lower) & np.isfinite(upper)) or not np.all(lower <= upper):
            raise ValueError("a feature box needs finite lower <= upper for each feature")
        # Any sequence of numbers is accepted; a Spec holds numbers and tuples.
        for name, ends in (("lower", lower), ("upper", upper)):
            object.__setattr__(self, name, tuple(ends.tolist()) if ends.ndim else float(ends))

    def _ends(self) -> tuple[Floats, Floats]:
        lower, upper = (
            np.asarray(self.lower, dtype=np.float64),
            np.asarray(self.upper, dtype=np.float64),
        )
        if lower.shape != upper.shape or lower.ndim > 1:
            raise ValueError(
                "lower and upper must both be numbers, or have one number for each feature"
            )
        return lower, upper

    def row_norm(self, n_features: int) -> float:
        """A bound on the norm of guarded rows with this many features, rounded up.

        >>> FeatureBox(-3.0, 1.0).row_norm(4) >= 6.0
        True
        """
        lower, upper = self._ends()
        farthest = np.broadcast_to(
            np.maximum(np.abs(lower), np.abs(upper)), (integer("n_features", n_features),)
        )
        # The factor pays for relative errors, the term for those of subnormal numbers.
        return float(
            math.hypot(*farthest) * (1 + (n_features + 8) * 2.0**-52)
            + (n_features + 8) * math.ulp(0.0)
        )

    def apply(self, rows: ArrayLike) -> Floats:
        """The guarded rows, of shape (n, d)."""
        given, (lower, upper) = _matrix(rows), self._ends()
        if lower.ndim == 1 and len(lower) != given.shape[1]:
            raise ValueError(
                f"the box is for {len(lower)} features, the rows have {given.shape[1]}"
            )
        # Halving first cannot overflow, but it can lose the last bit of tiny ends: hence the clamp.
        middle = np.clip(lower / 2 + upper / 2, lower, upper)
        usable = np.isfinite(given).all(axis=1, keepdims=True)
        return np.where(usable, np.clip(given, lower, upper), middle)


@dataclass(frozen=True)
class LabelInterval(Spec):
    """Clamps labels into [lower, upper]; NaN becomes the middle.

    >>> LabelInterval(-1.0, 3.0).apply([5.0, float("-inf"), float("nan")]).tolist()
    [3.0, -1.0, 1.0]
    """

    kind = "guard_label_interval"
    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not -math.inf < real("lower", self.lower) < real("upper", self.upper) < math.inf:
            raise ValueError(
                f"a label interval needs finite lower < upper, got [{self.lower!r}, {self.upper!r}]"
            )

    def apply(self, labels: ArrayLike) -> Floats:
        """The guarded labels, of shape (n,)."""
        given = _vector(labels)
        middle = min(max(self.lower / 2 + self.upper / 2, self.lower), self.upper)
        return np.where(np.isnan(given), middle, np.clip(given, self.lower, self.upper))


@dataclass(frozen=True)
class BinaryLabels(Spec):
    """Map labels to -1 and 1: positive to 1, others and NaN to -1. Serves {0, 1} and booleans.

    >>> BinaryLabels().apply([0, 1, -1, float("nan"), 7]).tolist()
    [-1.0, 1.0, -1.0, -1.0, 1.0]
    """

    kind = "guard_binary_labels"

    def apply(self, labels: ArrayLike) -> Floats:
        """The guarded labels, of shape (n,)."""
        return np.where(_vector(labels) > 0, 1.0, -1.0)


@dataclass(frozen=True)
class Classes(Spec):
    """Map labels to classes 0, 1, ...; labels not among the declared ``classes`` become 0.

    >>> Classes(("cat", "dog")).apply(["dog", "cat", "axolotl"]).tolist()
    [1, 0, 0]
    """

    kind = "guard_classes"
    classes: tuple[str | float | int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.classes, tuple) or not self.classes:
            raise ValueError("classes must be a tuple of numbers or strings")
        if any(isinstance(label, float) and not math.isfinite(label) for label in self.classes):
            raise ValueError("classes must be finite numbers or strings")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes must differ from each other")

    def apply(self, labels: Iterable[object]) -> Indices:
        """The class numbers, of shape (n,)."""
        if isinstance(labels, np.ndarray) and labels.ndim != 1:
            raise ValueError(f"labels must have shape (n,), got {labels.shape}")
        given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        known: dict[object, int] = {label: index for index, label in enumerate(self.classes)}
        return np.array([_lookup(known, label) for label in given], dtype=np.int64)


def _lookup(known: Mapping[object, int], label: object) -> int:
    try:
        return known.get(label, 0)
    except TypeError:
        # What cannot be looked up, such as a list, is an unknown label.
        return 0


def unmasked(name: str, values: V) -> V:
    """The values; masked arrays raise, as hidden values would be summed with the rest."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(
            f"{name} must not be a masked array: fill it with NaN where values are missing"
        )
    return values


def as_floats(array: Any, dtype: Any = np.float64) -> Any:
    """An array or sparse matrix as floats; overflow becomes infinite, without a warning."""
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def numbers(name: str, values: ArrayLike) -> Floats:
    """Values as an array of floats, or an error that does not quote them."""
    given = unmasked(name, values)
    try:
        with np.errstate(over="ignore"):
            return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        # The original message would quote the value that is not a number.
        raise ValueError(f"{name} must be an array of numbers") from None


def _matrix(rows: ArrayLike) -> Floats:
    given = numbers("rows", rows)
    if given.ndim != 2:
        raise ValueError(f"rows must have shape (n, d), got {given.shape}")
    return given


def _vector(labels: ArrayLike) -> Floats:
    given = numbers("labels", labels)
    if given.ndim != 1:
        raise ValueError(f"labels must have shape (n,), got {given.shape}")
    return given

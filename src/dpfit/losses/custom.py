"""Losses that the caller writes: NumPy functions, or any JAX function of theta and one record.

Their constants are declared, not proven, and the guarantee says so. To enforce a bound instead, use
an algorithm that clips gradients. A file holds the name, a fingerprint and the constants of a loss,
never its code: see `MissingLoss`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.losses.base import Bounds, Constant, Loss, parameter_radius
from dpfit.losses.guards import clip_gradients, numbers
from dpfit.privacy import Assumption, Basis
from dpfit.privacy.code import code_fingerprint, qualified_name
from dpfit.privacy.spec import Json, Missing, Spec
from dpfit.privacy.validate import non_negative, positive

Floats = NDArray[np.float64]
Example = Floats | tuple[Floats, Floats]
"""A batch for JAX: rows, or rows and labels."""


@dataclass(frozen=True, kw_only=True)
class DeclaredLoss(Loss):
    """A loss whose constants the caller declares, on its domain and within its bounds.

    Parameters
    ----------
    lipschitz_bound : float
        Lipschitz constant of the loss of one record.
    lipschitz_diff_bound : float, optional
        Lipschitz constant of the difference of two records' losses. By default twice
        ``lipschitz_bound``.
    smoothness_bound : float, optional
        Lipschitz constant of the gradient. None means that the loss has kinks, or that the constant
        is unknown.
    is_convex : bool, default=False
        Whether the loss is convex in theta for every record.
    name : str, optional
        The name in files and error messages. By default module and name of the function.
    version : str, optional
        The caller's version of a named loss. The fingerprint then covers name and version in place
        of the code, so it survives edits and new versions of Python.
    """

    status: ClassVar[str] = "declared"
    lipschitz_bound: float
    lipschitz_diff_bound: float | None = None
    smoothness_bound: float | None = None
    is_convex: bool = False
    name: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        positive("lipschitz_bound", self.lipschitz_bound)
        if self.smoothness_bound is not None:
            non_negative("smoothness_bound", self.smoothness_bound)
        if self.lipschitz_diff_bound is not None:
            positive("lipschitz_diff_bound", self.lipschitz_diff_bound)
            if self.lipschitz_diff_bound > 2 * self.lipschitz_bound:
                raise ValueError(
                    "lipschitz_diff_bound is never more than twice lipschitz_bound; leave it out"
                )
        if self.version and not self.name:
            raise ValueError("a loss with a version must have a name; pass name")

    @property
    def convex(self) -> bool:
        return self.is_convex

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        return Constant(float(self.lipschitz_bound), exact=False)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        declared = self.lipschitz_diff_bound
        return Constant(
            2.0 * self.lipschitz_bound if declared is None else float(declared), exact=False
        )

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant | None:
        return (
            None
            if self.smoothness_bound is None
            else Constant(float(self.smoothness_bound), exact=False)
        )

    @abstractmethod
    def value(self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None) -> Floats:
        """The losses, of shape (n,)."""

    def record_values(self, theta: Floats, rows: Floats, labels: Floats) -> Floats:
        return self.value(theta, rows, labels)

    @abstractmethod
    def gradient(
        self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None
    ) -> Floats:
        """The gradients in theta, one for each row."""

    def clipped_sum(
        self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None, bound: float
    ) -> Floats:
        """Sum of gradients scaled to norm at most ``bound``; non-finite ones count as zero."""
        gradients = self.gradient(theta, rows, labels)
        flat = gradients.reshape(len(gradients), int(np.prod(gradients.shape[1:])))
        return np.asarray(clip_gradients(flat, bound).sum(axis=0).reshape(gradients.shape[1:]))

    def to_json(self) -> dict[str, Json]:
        """Return name, fingerprint, declared constants; they are read back as `MissingLoss`."""
        if other := [
            name
            for name in _DECLARED
            if getattr(type(self), name) is not getattr(DeclaredLoss, name)
        ]:
            raise TypeError(
                f"{type(self).__name__} overrides {other[0]}, which a file cannot hold; declare "
                "the constants, or give "
                "the class a kind and a to_json of its own"
            )
        declared = {field.name: getattr(self, field.name) for field in fields(DeclaredLoss)}
        code = [getattr(self, field.name) for field in fields(self) if field.name not in declared]
        parts = (self.name, self.version) if self.version else (*_own_classes(type(self)), *code)
        declared["name"] = self.name or qualified_name(
            code[0] if code and callable(code[0]) else self
        )
        return MissingLoss(**declared, function_fingerprint=code_fingerprint(*parts)).to_json()


_DECLARED = (
    "convex", "outputs", "lipschitz", "lipschitz_diff", "smoothness", "self_concordance", "is_glm",
    "binary_labels", "reads_labels", "reads_products", "has_hessian", "is_quadratic", "is_quantile",
    "is_regression", "slope_relation", "value_at_zero",
)  # fmt: skip
"""What `MissingLoss` must answer as the loss itself does."""


def _own_classes(cls: type[DeclaredLoss]) -> list[object]:
    """The class by name, and the methods added by a caller's class; dpfit's may change."""
    added = [c for c in cls.__mro__[: cls.__mro__.index(DeclaredLoss)] if c.__module__ != __name__]
    return [
        cls,
        *(member for c in added for _, member in sorted(vars(c).items()) if callable(member)),
    ]


@dataclass(frozen=True, kw_only=True)
class MissingLoss(Missing, DeclaredLoss):
    """Stands for a loss of the caller in a plan that was read from a file.

    It has the declared constants, so the plan has the same event, guarantee and basis, and can be
    charged. Running the plan raises until ``plan.with_loss(loss)`` puts the loss back.
    """

    kind = "declared_loss"
    function_fingerprint: str

    def to_json(self) -> dict[str, Json]:
        return Spec.to_json(self)

    def refuse(self) -> ValueError:
        return ValueError(
            f"the plan needs the code of the loss {self.name!r}, which files do not hold; call "
            "plan.with_loss(loss) "
            "and run the plan that it returns"
        )

    def value(self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None) -> Floats:
        raise self.refuse()

    def gradient(
        self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None
    ) -> Floats:
        raise self.refuse()


def declared_basis(basis: Basis, loss: Loss) -> Basis:
    """The basis for a loss; for the caller's functions, also what they read and how they round.

    Clipping bounds what they return for a record, but they are given many records at a time: one
    that centres its batch moves all gradients with each record. Calling them for one record at a
    time would settle it, at a hundred times the cost.

    >>> declared_basis(
    ...     Basis("Gaussian mechanism"), JaxLoss(function=abs, lipschitz_bound=1.0)
    ... ).arithmetic
    'idealised'
    """
    if loss.status != "declared":
        return basis
    alone = Assumption(
        "loss and gradient of a record depend on that record and the parameter only", "declared"
    )
    return replace(basis, assumptions=(*basis.assumptions, alone), arithmetic="idealised")


@dataclass(frozen=True, kw_only=True)
class CustomLoss(DeclaredLoss):
    """A loss by NumPy functions of theta, rows, labels: a value, or a gradient, for each row.

    >>> cubic = CustomLoss(
    ...     value_function=lambda theta, rows, labels: np.abs(rows @ theta) ** 3 / 3,
    ...     gradient_function=lambda theta, rows, labels: (
    ...         (np.abs(rows @ theta) * (rows @ theta))[:, None] * rows
    ...     ),
    ...     lipschitz_bound=1.0,
    ...     is_convex=True,
    ... )
    >>> cubic.gradient([1.0, 0.0], [[0.5, 0.5]]).tolist()
    [[0.125, 0.125]]
    """

    kind = "loss_custom"
    value_function: Callable[..., ArrayLike]
    gradient_function: Callable[..., ArrayLike]

    def value(self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None) -> Floats:
        """The losses, of shape (n,)."""
        point, matrix, targets = _example_arrays(theta, rows, labels)
        return _returned(
            "value_function", self.value_function(point, matrix, targets), (len(matrix),)
        )

    def gradient(
        self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None
    ) -> Floats:
        """The gradients in theta, of shape (n, d)."""
        point, matrix, targets = _example_arrays(theta, rows, labels)
        gradients = self.gradient_function(point, matrix, targets)
        return _returned("gradient_function", gradients, (len(matrix), *point.shape))


@dataclass(frozen=True, kw_only=True)
class JaxLoss(DeclaredLoss):
    """Any JAX function of theta and one example; JAX makes and vectorizes its derivatives.

    ``function(theta, example)`` returns a scalar; the example is a row, or the pair (row, label)
    where labels are given. Needs the extra: pip install "dpfit[jax]". All is computed in float64. A
    row's clipped gradient is bounded for any input, but XLA does not promise that its last bits are
    independent of the batch: arithmetic is *idealised*.

    >>> loss = JaxLoss(function=lambda theta, example: (example @ theta) ** 2, lipschitz_bound=2.0)
    >>> loss.lipschitz_diff(Bounds(1.0))
    Constant(value=4.0, exact=False)
    """

    kind = "loss_jax"
    function: Callable[..., ArrayLike]

    def value(self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None) -> Floats:
        """The losses, of shape (n,)."""
        return self._call("value", theta, rows, labels)

    def gradient(
        self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None
    ) -> Floats:
        """The gradients in theta, one for each row."""
        return self._call("gradient", theta, rows, labels)

    def _call(
        self, name: str, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None
    ) -> Floats:
        jax = _import_jax()
        point, matrix, targets = _example_arrays(theta, rows, labels)
        examples = _padded(matrix) if targets is None else (_padded(matrix), _padded(targets))
        with _double_precision(jax):
            return np.asarray(_vectorized(self.function)[name](point, examples), dtype=np.float64)[
                : len(matrix)
            ]


@lru_cache(maxsize=64)
def _vectorized(
    function: Callable[..., ArrayLike],
) -> dict[str, Callable[[Floats, Example], ArrayLike]]:
    """The compiled batch functions of one loss, kept so that equal shapes compile once."""
    jax = _import_jax()
    return {
        "value": jax.jit(jax.vmap(function, in_axes=(None, 0))),
        "gradient": jax.jit(jax.vmap(jax.grad(function), in_axes=(None, 0))),
    }


def _padded(array: Floats) -> Floats:
    """The array with zeros up to a power of two of examples, so that compiled shapes are few."""
    missing = (1 << max(0, len(array) - 1).bit_length()) - len(array)
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]))]) if missing else array


def _import_jax() -> ModuleType:
    try:
        return import_module("jax")
    except ImportError:
        raise ImportError(
            'JaxLoss needs JAX, an optional extra: pip install "dpfit[jax]"'
        ) from None


def _double_precision(jax: ModuleType) -> AbstractContextManager[object]:
    """A context in which JAX computes in float64; older versions keep it among the experiments."""
    newer: bool = hasattr(jax, "enable_x64")
    context: AbstractContextManager[object] = (
        jax.enable_x64(True) if newer else import_module("jax.experimental").enable_x64()
    )
    return context


def _example_arrays(
    theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    point, matrix = numbers("theta", theta), numbers("rows", rows)
    targets = None if labels is None else numbers("labels", labels)
    if matrix.ndim != 2 or (targets is not None and len(targets) != len(matrix)):
        raise ValueError("rows of shape (n, d) and as many labels are needed")
    return point, matrix, targets


def _returned(name: str, result: ArrayLike, shape: tuple[int, ...]) -> Floats:
    array = numbers(f"what {name} returns", result)
    if array.shape != shape:
        raise ValueError(f"{name} must return an array of shape {shape}, got {array.shape}")
    return array

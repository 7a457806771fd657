"""Losses that the caller writes: NumPy functions, or any JAX function of theta and one record.

Their constants are declared, not proven, and the guarantee says so. To enforce a bound instead, use
an algorithm that clips gradients. A file holds the name, a fingerprint and the constants of a loss,
never its code: see `MissingLoss`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.losses.base import Bounds, Constant, Loss, Parameters, parameter_radius
from dpfit.losses.guards import clip_gradients, numbers
from dpfit.losses.model import Template, batched, check_function, double_precision, read_template
from dpfit.privacy import Assumption, Basis
from dpfit.privacy.code import code_fingerprint, qualified_name
from dpfit.privacy.spec import Json, Missing, Spec
from dpfit.privacy.validate import non_negative, positive

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class DeclaredLoss(Loss):
    """A loss whose constants the caller declares, on its domain and within its bounds.

    Parameters
    ----------
    lipschitz_bound : float, optional
        Lipschitz constant of the loss of one record. Without it, pass ``clip_norm`` to algorithms
        that clip gradients; others refuse the loss.
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
    arithmetic: ClassVar[str] = "idealised"
    lipschitz_bound: float | None = None
    lipschitz_diff_bound: float | None = None
    smoothness_bound: float | None = None
    is_convex: bool = False
    name: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        if self.lipschitz_bound is not None:
            positive("lipschitz_bound", self.lipschitz_bound)
        if self.smoothness_bound is not None:
            non_negative("smoothness_bound", self.smoothness_bound)
        if self.lipschitz_diff_bound is not None:
            positive("lipschitz_diff_bound", self.lipschitz_diff_bound)
            if self.lipschitz_diff_bound > 2 * self._declared_lipschitz:
                raise ValueError(
                    "lipschitz_diff_bound is never more than twice lipschitz_bound; leave it out"
                )
        if self.version and not self.name:
            raise ValueError("a loss with a version must have a name; pass name")

    @property
    def convex(self) -> bool:
        return self.is_convex

    @property
    def _declared_lipschitz(self) -> float:
        if self.lipschitz_bound is None:
            raise ValueError(
                "the loss declares no lipschitz_bound; pass clip_norm, or declare lipschitz_bound"
            )
        return float(self.lipschitz_bound)

    @property
    def n_parameters(self) -> int | None:
        """Number of parameters if the loss has a template; None: one for each column."""
        return None

    @property
    def has_own_parameters(self) -> bool:
        return self.n_parameters is not None

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        return Constant(self._declared_lipschitz, exact=False)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        declared = self.lipschitz_diff_bound
        return Constant(
            2.0 * self._declared_lipschitz if declared is None else float(declared), exact=False
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
        code = self._code()
        parts = (self.name, self.version) if self.version else (*_own_classes(type(self)), *code)
        declared["name"] = self.name or qualified_name(
            code[0] if code and callable(code[0]) else self
        )
        return MissingLoss(
            **declared,
            function_fingerprint=code_fingerprint(*parts),
            template_size=self.n_parameters,
        ).to_json()

    def _code(self) -> list[object]:
        """What the fingerprint covers beside the class: the caller's functions."""
        known = {field.name for field in fields(DeclaredLoss)}
        return [getattr(self, field.name) for field in fields(self) if field.name not in known]


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
    omitted: ClassVar = ("template_size",)
    function_fingerprint: str
    template_size: int | None = None

    @property
    def n_parameters(self) -> int | None:
        return self.template_size

    def parameters(self, n_features: int) -> Parameters:
        """Return the form of the parameters, which only their number is known of."""
        if self.template_size is None:
            return super().parameters(n_features)

        def unravel(flat: Floats) -> Any:
            raise self.refuse()

        return Parameters(self.template_size, np.zeros(self.template_size), unravel)

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
    if loss.arithmetic == "idealised":
        basis = replace(basis, arithmetic="idealised")
    if loss.status != "declared":
        return basis
    alone = Assumption(
        "loss and gradient of a record depend on that record and the parameter only", "declared"
    )
    return replace(basis, assumptions=(*basis.assumptions, alone))


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
    """Any JAX function of parameters and one example, such as a model of flax or equinox.

    ``function(parameters, example)`` returns the loss of one example, the pair (row, label). JAX
    makes and vectorizes its derivative. Needs the extra: pip install "dpfit[jax]". A record's
    clipped gradient is bounded for any input, but XLA does not promise that its last bits are
    independent of the batch: arithmetic is *idealised*. Models that mix examples, as batch
    normalization does, are not losses of one example.

    Parameters
    ----------
    function : callable
        Written with `jax.numpy`. Numbers that it reads beside the parameters are public.
    template : pytree of float32 or float64 arrays, optional
        Shapes and public start of the parameters. ``problem.parameters.unravel`` turns a released
        vector into such a tree. By default the parameters are a vector of float64 zeros, one for
        each column.

    Examples
    --------
    >>> loss = JaxLoss(function=lambda theta, example: (example[0] @ theta) ** 2)
    >>> loss.parameters(3).size
    3
    """

    kind = "loss_jax"
    function: Callable[..., ArrayLike]
    # Arrays are compared by their fingerprint.
    template: Any = field(default=None, compare=False, repr=False)
    template_fingerprint: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise ValueError(f"function must be callable, got {type(self.function).__name__}")
        try:
            hash(self.function)
        except TypeError:
            # Compiled functions are kept by the function that they were made of.
            raise ValueError(
                f"function must be hashable, got an object of {type(self.function).__name__}; "
                "define a function that calls it, and pass its arrays as the template"
            ) from None
        if self._flat is not None:
            object.__setattr__(self, "template_fingerprint", self._flat.fingerprint)

    @cached_property
    def _flat(self) -> Template | None:
        return None if self.template is None else read_template(self.template)

    @property
    def n_parameters(self) -> int | None:
        return None if self._flat is None else self._flat.start.size

    @property
    def dtype(self) -> str:
        """The float type of the model: float32 or float64."""
        return "float64" if self._flat is None else self._flat.dtype

    def parameters(self, n_features: int) -> Parameters:
        """Return the form of the parameters; ValueError if the function is not a loss of them."""
        form = super().parameters(n_features)
        if self._flat is not None:
            form = Parameters(self._flat.start.size, self._flat.start, self._flat.unravel)
        _check_once(self.flat_function, form.size, n_features, self.dtype)
        return form

    @cached_property
    def flat_function(self) -> Callable[..., ArrayLike]:
        """The function of a flat vector and one example."""
        if self._flat is None:
            return self.function
        function, unravel = self.function, self._flat.unravel
        return lambda theta, example: function(unravel(theta), example)

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
        point, matrix, targets = _example_arrays(theta, rows, labels)
        arrays = [
            _padded(each).astype(self.dtype) for each in (matrix, targets) if each is not None
        ]
        examples = arrays[0] if targets is None else tuple(arrays)
        with double_precision():
            found = batched(self.flat_function)[name](point.astype(self.dtype), examples)
            return np.asarray(found, dtype=np.float64)[: len(matrix)]

    def _code(self) -> list[object]:
        return [self.function, *([self.template_fingerprint] if self._flat is not None else [])]


_check_once = lru_cache(maxsize=64)(check_function)


def _padded(array: Floats) -> Floats:
    """The array with zeros up to a power of two of examples, so that compiled shapes are few."""
    missing = (1 << max(0, len(array) - 1).bit_length()) - len(array)
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]))]) if missing else array


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

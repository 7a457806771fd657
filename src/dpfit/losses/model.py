"""JAX functions as losses: any pytree of parameters, seen as one flat vector of floats.

A public template gives the shapes and the start. Plain dictionaries, flax variables and the arrays
of an equinox module are pytrees; none of these libraries is needed here. JAX is imported on first
use. Errors of this module are raised when a problem is planned: no record is read by then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.privacy.spec import digest

Floats = NDArray[np.float64]
Function = Callable[..., ArrayLike]

MISSING = 'JaxLoss needs JAX, an optional extra: pip install "dpfit[jax]"'


_TRACED = 2
"""Examples of the batch that is traced."""

_OUTLETS = ("debug_print", "infeed", "outfeed", "outside_call", "ffi_call", "call_tf")
"""Primitives, beside those named after callbacks, by which values leave a compiled program."""

_LOCAL_EFFECT = "InternalMutableArrayEffect"
"""The effect of a mutable array that is made inside the function, and does not outlive it."""


class Template(NamedTuple):
    """The parameters of a model as a flat vector: public start, form, float type, fingerprint."""

    start: Floats
    unravel: Callable[[Any], Any]
    dtype: str
    fingerprint: str


def import_jax() -> ModuleType:
    """Return the module jax; ImportError that names the extra if it is not installed."""
    try:
        return import_module("jax")
    except ImportError:
        raise ImportError(MISSING) from None


def double_precision() -> AbstractContextManager[object]:
    """Return a context in which JAX computes in float64; the caller's setting stays as it is."""
    jax = import_jax()
    newer: bool = hasattr(jax, "enable_x64")
    context: AbstractContextManager[object] = (
        jax.enable_x64(True) if newer else import_module("jax.experimental").enable_x64()
    )
    return context


def read_template(tree: object) -> Template:
    """Return the flat form of a pytree of float arrays; ValueError that names a wrong leaf."""
    jax = import_jax()
    with double_precision():
        leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
        if not leaves:
            raise ValueError("template must hold at least one array, got none; pass the weights")
        parts = []
        for path, leaf in leaves:
            name = "template" + jax.tree_util.keystr(path)
            array = _float_array(name, leaf)
            parts.append([name, list(array.shape), str(array.dtype)])
        flat, unravel = import_module("jax.flatten_util").ravel_pytree(tree)
    start, dtype = np.array(flat, dtype=np.float64), str(flat.dtype)
    values = hashlib.sha256(start.astype("<f8").tobytes()).hexdigest()

    def unraveled(vector: Any) -> Any:
        with double_precision():
            traced = isinstance(vector, jax.Array)
            return unravel(vector.astype(dtype) if traced else np.asarray(vector, dtype=dtype))

    return Template(start, unraveled, dtype, digest({"leaves": parts, "values": values}))


def _float_array(name: str, leaf: object) -> NDArray[Any]:
    try:
        array = np.asarray(leaf)
    except Exception:
        array = np.empty(0, dtype=object)
    if str(array.dtype) not in ("float32", "float64"):
        raise ValueError(
            f"{name} must hold float32 or float64 numbers, got {array.dtype}; pass the weights "
            "alone and keep other values in the function"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; initialize the weights before planning")
    return array


def check_function(function: Function, size: int, n_features: int, dtype: str) -> None:
    """Trace a function of flat parameters and one example; ValueError if it is not a loss.

    Values and gradients of a batch are traced, too, since they are what runs: a caller's own rules
    for derivatives and batches appear there only.
    """
    jax = import_jax()

    def traced(name: str, program: Function, *batch: int) -> tuple[Any, Any]:
        shapes = ((size,), (*batch, n_features), batch)
        arrays = (jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
        make = jax.make_jaxpr(lambda t, row, label: program(t, (row, label)), return_shape=True)
        try:
            found: tuple[Any, Any] = make(*arrays)
        except Exception as error:
            # Nothing but shapes is known here, so the cause tells of no record.
            raise ValueError(
                f"{name} cannot be traced by JAX ({type(error).__name__}); write it with "
                "jax.numpy, as function(parameters, (row, label)) of one example with a row of "
                f"shape ({n_features},)"
            ) from error
        return found

    with double_precision():
        program, returned = traced("function", function)
        _refuse_callbacks(program)
        _check_returned(returned)
        for name, each in (("function", function), ("its gradient", jax.grad(function))):
            program, _ = traced(f"{name} in a batch", jax.vmap(each, in_axes=(None, 0)), _TRACED)
            _refuse_callbacks(program)


def _check_returned(found: Any) -> None:
    shape, kind = getattr(found, "shape", None), np.dtype(getattr(found, "dtype", object)).kind
    if shape is None or kind != "f":
        got = type(found).__name__ if shape is None else found.dtype
        raise ValueError(f"function must return one float, got {got}; return the loss alone")
    if shape != ():
        raise ValueError(
            f"function must return one number for one example, got shape {shape}; return the loss "
            "of a single example, without a batch axis"
        )


def _refuse_callbacks(program: Any) -> None:
    """Refuse a traced program that hands values of records to code outside of it."""
    outlets = sorted(name for name in _primitives(program.jaxpr) if _is_outlet(name))
    # Effects that are not known are refused: printing, callbacks, arrays outside of the function.
    effects = {type(effect).__name__ for effect in program.effects} - {_LOCAL_EFFECT}
    if found := (*outlets, *sorted(effects)):
        raise ValueError(
            f"function must not hand records to code outside of JAX, got {found[0]}; remove "
            "callbacks and jax.debug.print, and debug the function on made-up examples"
        )


def _primitives(part: object) -> Iterator[str]:
    """Yield the names of all primitives of a traced program, and of the programs inside it."""
    if isinstance(part, tuple | list):
        for each in part:
            yield from _primitives(each)
    elif hasattr(part, "eqns"):
        for equation in part.eqns:
            yield equation.primitive.name
            yield from _primitives(tuple(equation.params.values()))
    elif hasattr(part, "jaxpr"):
        yield from _primitives(part.jaxpr)


def _is_outlet(primitive: str) -> bool:
    return "callback" in primitive or primitive in _OUTLETS


@lru_cache(maxsize=64)
def batched(function: Function) -> dict[str, Callable[..., Any]]:
    """Return compiled values and gradients of a batch of examples.

    Functions are kept, so that equal shapes compile once.
    """
    jax = import_jax()
    return {
        "value": jax.jit(jax.vmap(function, in_axes=(None, 0))),
        "gradient": jax.jit(jax.vmap(jax.grad(function), in_axes=(None, 0))),
    }

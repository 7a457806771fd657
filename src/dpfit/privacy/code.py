"""Fingerprints of functions that callers bring, so that a stored plan recognises them again."""

from __future__ import annotations

import builtins
import functools
import types

import numpy as np

from dpfit.privacy.spec import Json, digest

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


def code_fingerprint(*parts: object) -> str:
    """Return a SHA-256 of functions and plain values, in hex.

    Of a function it covers module, qualified name, bytecode, constants, and those defaults and
    closure values that are numbers, strings or functions. Of arrays, containers and other objects
    it covers the type, never the content, so no record enters it. It does not cover global
    variables, or the functions that the function calls by name. Bytecode differs between versions
    of Python, and the fingerprint with it.

    >>> def scaled(by):
    ...     return lambda x: by * x
    >>> [code_fingerprint(scaled(2)) == code_fingerprint(scaled(by)) for by in (2, 3)]
    [True, False]
    """
    return digest({"code": [_described(part, ()) for part in parts]})


def qualified_name(value: object) -> str:
    """Return module and name of a function, or of the class of another object.

    >>> qualified_name(qualified_name)
    'dpfit.privacy.code.qualified_name'
    """
    while isinstance(value, functools.partial):
        value = value.func
    own = getattr(value, "__qualname__", None)
    named, name = (value, own) if isinstance(own, str) else (type(value), type(value).__qualname__)
    return f"{getattr(named, '__module__', None) or builtins.__name__}.{name}"


def _described(value: object, within: tuple[types.FunctionType, ...]) -> Json:
    """Describe a value as JSON; ``within`` lists enclosing functions, as functions may recur."""
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if type(value) in _PLAIN:
        return [type(value).__name__, repr(value)]
    if isinstance(value, types.FunctionType):
        if value in within:
            return ["itself", len(within) - within.index(value)]
        inner = (*within, value)
        held = (
            *(value.__defaults__ or ()),
            *(value.__kwdefaults__ or {}).values(),
            *_closure(value),
        )
        return [
            qualified_name(value),
            _code(value.__code__),
            [_described(one, inner) for one in held],
        ]
    if isinstance(value, types.MethodType):
        return [_described(value.__func__, within), qualified_name(type(value.__self__))]
    if isinstance(value, functools.partial):
        names, held = sorted(value.keywords), (value.func, *value.args, *value.keywords.values())
        return ["partial", names, [_described(one, within) for one in held]]
    if isinstance(value, type | types.BuiltinFunctionType):
        return [qualified_name(value)]
    if callable(value):
        # Compiled functions, as of jax.jit, keep the function that they were made of.
        wrapped = getattr(value, "__wrapped__", vars(type(value)).get("__call__"))
        code = _described(wrapped, within) if isinstance(wrapped, types.FunctionType) else None
        return [qualified_name(value), code]
    return [qualified_name(type(value))]


def _closure(function: types.FunctionType) -> list[object]:
    # Comparing with an empty cell compares no contents.
    return [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]


def _code(code: types.CodeType) -> Json:
    constants = [_constant(value) for value in code.co_consts]
    return [
        code.co_code.hex(),
        constants,
        list(code.co_names),
        list(code.co_varnames),
        list(code.co_freevars),
    ]


def _constant(value: object) -> Json:
    """Describe a constant of bytecode; the order of a frozenset differs between processes."""
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return ["tuple", [_constant(part) for part in value]]
    if isinstance(value, frozenset):
        return ["frozenset", sorted(repr(_constant(part)) for part in value)]
    return [type(value).__name__, repr(value)]

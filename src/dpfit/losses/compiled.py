"""Compilation of the loops at their first call, kept on disk until any of their sources changes.

Importing numba takes a quarter of a second, so numba is imported when a loop first runs.

numba keeps compiled code next to the source of a function, and compiles it again when that file
changes. It does not look at the files of the functions that are called, which are inlined: a loop
would go on clipping as `bounds` did when it was compiled. So a digest of all sources belongs to the
name that numba files the code under. Processes that run other versions at the same time then have
other files, and nothing needs to be deleted.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from hashlib import sha256
from importlib.resources import files
from threading import RLock
from typing import Any, TypeAlias, TypeVar

AnyFunction: TypeAlias = Callable[..., Any]
Function = TypeVar("Function", bound=AnyFunction)
_OVERLOADS: list[Callable[[], None]] = []
_LOCK = RLock()


@cache
def _prepare() -> None:
    """Have garbage collected after a compilation, not during it, which saves a tenth of its time.

    numba makes millions of objects and keeps most of them.
    """
    from numba.core import event

    class Pause(event.Listener):
        depth, was_enabled = 0, False

        def on_start(self, event: object) -> None:
            if self.depth == 0:
                self.was_enabled = gc.isenabled()
                gc.disable()
            self.depth += 1

        def on_end(self, event: object) -> None:
            self.depth -= 1
            if self.depth == 0 and self.was_enabled:
                gc.enable()

    event.register("numba:compile", Pause())  # type: ignore[no-untyped-call]


class Compiled:
    """A function that a compiler of numba turns into a faster version at its first use."""

    def __init__(self, function: AnyFunction, compiler: str, options: dict[str, object]):
        update_wrapper(self, function)
        self.name = function.__qualname__
        self.function, self.compiler, self.options = function, compiler, options

    @cached_property
    def version(self) -> Any:
        """The compiled version."""
        import numba

        with _LOCK:
            _prepare()
            while _OVERLOADS:
                _OVERLOADS.pop(0)()
            # numba's files are named after this.
            self.function.__qualname__ = f"{self.name}_{_digest()}"
            return getattr(numba, self.compiler)(cache=True, **self.options)(self.function)

    @property
    def _numba_type_(self) -> Any:
        # Compiled functions call each other by this type.
        return self.version._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self.version(*arguments)


def compiled(**options: object) -> Callable[[Function], Function]:
    """Compile a function by numba with options at its first call, or load it from disk.

    Floating point is strict unless an option says otherwise: numba would compile a function with
    the ``fastmath`` of the first caller, and keep it so on disk.
    """
    # Nobody calls a loop from C, and a wrapper for that takes a tenth of the time.
    given = {"fastmath": False, "no_cfunc_wrapper": True, **options}

    def compile_it(function: Function) -> Function:
        version: Any = Compiled(function, "njit", given)
        return version  # type: ignore[no-any-return]

    return compile_it


def elementwise(function: AnyFunction) -> Compiled:
    """Compile a function of numbers into one of arrays."""
    return Compiled(function, "vectorize", {})


def overload(stub: AnyFunction, **options: object) -> Callable[[Function], Function]:
    """Register what compiled functions call in place of ``stub``, before any is compiled."""

    def register(choose: Function) -> Function:
        def registered() -> None:
            from numba import extending

            given: Any = options
            extending.overload(stub, jit_options=given)(choose)

        _OVERLOADS.append(registered)
        return choose

    return register


@cache
def _digest() -> str:
    package = files("dpfit")
    formulas = (package / "losses" / name for name in ("compiled.py", "margin_functions.py"))
    sources = [*(package / "kernels").iterdir(), *formulas]
    parts = [sha256(path.read_bytes()).digest() for path in sources if path.name.endswith(".py")]
    return sha256(b"".join(sorted(parts))).hexdigest()[:16]

"""Compilation of the loops, kept on disk until any of their sources changes.

numba keeps compiled code next to the source of a function, and compiles it again when that file
changes. It does not look at the files of the functions that are called, which are inlined: a loop
would go on clipping as `bounds` did when it was compiled. So a digest of all sources belongs to the
name that numba files the code under. Processes that run other versions at the same time then have
other files, and nothing needs to be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def _digest() -> str:
    package = files("dpfit")
    sources = [*(package / "kernels").iterdir(), package / "losses" / "margin_functions.py"]
    parts = [sha256(path.read_bytes()).digest() for path in sources if path.name.endswith(".py")]
    return sha256(b"".join(sorted(parts))).hexdigest()[:16]


_DIGEST = _digest()


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Compile a function by numba with options at its first call, or load it from disk.

    Floating point is strict unless an option says otherwise: numba would compile a function with
    the ``fastmath`` of the first caller, and keep it so on disk.
    """
    options.setdefault("fastmath", False)

    def compile_it(function: Function) -> Function:
        # numba's files are named after this.
        function.__qualname__ = f"{function.__qualname__}_{_DIGEST}"
        version: Function = njit(cache=True, **options)(function)
        return version

    return compile_it

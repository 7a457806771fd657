"""Prefetch: have a row of an array brought into the cache, without waiting."""

from __future__ import annotations

from functools import cache
from typing import Any

from dpfit.losses.compiled import overload

_LINE, _LINES = 64, 16
"""Bytes of a cache line, and how many of them at most: once a row is being read, hardware foresees
the rest.
"""

_SECOND = 2
"""Into the second cache. A core has few places where lines on their way to the first can wait, and
rows that are being
read need them, too."""


def prefetch(array: Any, i: int) -> None:
    """Prefetch the beginning of row ``array[i]`` of a C-contiguous array; results are equal."""
    raise NotImplementedError


@overload(prefetch, forceinline=True)
def _prefetch(array: Any, i: int) -> Any:
    instruction = _instruction()

    def fetch(array: Any, i: int) -> None:
        instruction(array, i)

    return fetch


@cache
def _instruction() -> Any:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    tools: Any = cgutils
    byte, word = ir.IntType(8), ir.IntType(32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = context.make_array(signature.args[0])(context, builder, arguments[0])
        row = context.cast(builder, arguments[1], signature.args[1], types.intp)
        stride = tools.unpack_tuple(builder, given.strides, signature.args[0].ndim)[0]
        start = builder.gep(
            builder.bitcast(given.data, byte.as_pointer()), [builder.mul(row, stride)]
        )
        function = tools.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte.as_pointer(), word, word, word]),
            "llvm.prefetch.p0",
        )
        count = builder.udiv(builder.add(stride, stride.type(_LINE - 1)), stride.type(_LINE))
        few = builder.select(
            builder.icmp_signed("<", count, count.type(_LINES)), count, count.type(_LINES)
        )
        with tools.for_range(builder, few) as loop:
            line = builder.gep(start, [builder.mul(loop.index, loop.index.type(_LINE))])
            builder.call(function, [line, word(0), word(_SECOND), word(1)])
        return context.get_dummy_value()

    def prefetch(typingctx: Any, array: Any, i: Any) -> Any:
        return types.void(array, i), generate

    declare: Any = intrinsic
    return declare(prefetch)

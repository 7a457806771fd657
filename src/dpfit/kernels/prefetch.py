"""One instruction that Python has no word for: have a row of a matrix brought into the cache, without waiting."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_LINE, _LINES = 64, 16
"""Bytes of a cache line, and how many of them at most: once a row is being read, hardware foresees the rest."""


def _prefetch(typingctx: Any, X: Any, i: Any) -> Any:
    """Prefetch the beginning of row ``X[i]`` of a C-contiguous matrix; it has no effect on any result."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        row = context.cast(builder, arguments[1], signature.args[1], types.intp)
        tools: Any = cgutils
        stride, _ = tools.unpack_tuple(builder, array.strides, 2)
        byte, word = ir.IntType(8), ir.IntType(32)
        start = builder.gep(builder.bitcast(array.data, byte.as_pointer()), [builder.mul(row, stride)])
        function = tools.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte.as_pointer(), word, word, word]),
            "llvm.prefetch.p0",
        )
        count = builder.udiv(builder.add(stride, stride.type(_LINE - 1)), stride.type(_LINE))
        few = builder.select(builder.icmp_signed("<", count, count.type(_LINES)), count, count.type(_LINES))
        with tools.for_range(builder, few) as loop:
            line = builder.gep(start, [builder.mul(loop.index, loop.index.type(_LINE))])
            builder.call(function, [line, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(X, i), generate


prefetch: Any = intrinsic(_prefetch)

"""Former name, until last_iterate_gd has moved."""

from dpfit.core.loop import VectorizedLoop as SideBySide

__all__ = ["SideBySide"]

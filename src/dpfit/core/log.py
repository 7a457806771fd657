"""Logs: lists in a state that only grow, so that a state file appends what is new."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


class Log:
    """An immutable list that shares its items with the lists that were extended from it.

    Extending the newest list of a history takes constant time. An older one is copied first, so
    that two histories never mix.

    Examples
    --------
    >>> first = Log([1, 2])
    >>> longer = first.extended([3])
    >>> list(first), list(longer), list(first.extended([9]))
    ([1, 2], [1, 2, 3], [1, 2, 9])
    """

    __slots__ = ("_length", "items", "memo")

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.items = list(items)
        """The shared items; those after the length of this log belong to longer ones."""
        self._length = len(self.items)
        self.memo: dict[str, Any] = {}
        """What was derived from the shared items; whoever reads it checks how many it covers."""

    def extended(self, items: Iterable[Any]) -> Log:
        """Return the log with more items at its end."""
        if len(self.items) != self._length:
            return Log([*self, *items])
        longer = Log.__new__(Log)
        self.items.extend(items)
        longer.items, longer.memo, longer._length = self.items, self.memo, len(self.items)
        return longer

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items[: self._length])

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self.items[place] for place in range(*index.indices(self._length))]
        return self.items[range(self._length)[index]]

    def arrays(self, start: int = 0) -> NDArray[Any]:
        """Return items ``start`` and later, arrays of one shape, as one array; do not change it.

        >>> Log([np.array([1.0]), np.array([2.0])]).arrays(1).tolist()
        [[2.0]]
        """
        held, count = self.memo.get("held"), self.memo.get("count", 0)
        if held is None or count > self._length:
            count, held = (
                0,
                np.empty((0, *np.shape(self.items[0])), np.asarray(self.items[0]).dtype),
            )
        if self._length > len(held):
            larger = np.empty((2 * self._length, *held.shape[1:]), held.dtype)
            larger[:count] = held[:count]
            held = larger
        for place in range(count, self._length):
            held[place] = self.items[place]
        self.memo["held"], self.memo["count"] = held, self._length
        return held[start : self._length]

    def __repr__(self) -> str:
        # Items can be private.
        return f"Log({self._length} items)"

"""Chunks: some records in memory, the unit in which tasks and visits read a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Users = npt.NDArray[np.object_]
"""User ids as strings; None for nobody."""


@dataclass(frozen=True, eq=False, repr=False)
class Chunk:
    """Some records of a dataset: rows, labels and user ids.

    Read ``rows``, ``labels`` and ``users``: they hold exactly the records of the chunk.
    Kernels read ``stored_rows`` in place, at ``index``, without a copy.

    Parameters
    ----------
    stored_rows, stored_labels, stored_users
        Arrays that hold the records, and possibly others; users are strings, None for nobody, or no
        array at all.
    start : int
        Number of the first stored record in its dataset.
    index : array of int, optional
        The stored records that belong to the chunk; by default all.
    positions : array of float, optional
        Positions of the units in [0, 1), one for each record; set by `dpfit.data.view.View.fold`.
        They are private randomness: a pickled chunk leaves them out.

    Examples
    --------
    >>> chunk = Chunk(np.eye(3), np.arange(3.0), 0, index=np.array([2, 0]))
    >>> chunk.labels, len(chunk)
    (array([2., 0.]), 2)
    """

    stored_rows: Any
    stored_labels: Any
    start: int
    stored_users: Users | None = None
    index: npt.NDArray[np.int64] | None = None
    positions: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.stored_labels if self.index is None else self.index)

    @cached_property
    def rows(self) -> Any:
        """Feature vectors, one row for each record: an array or a CSR matrix."""
        return self.stored_rows if self.index is None else self.stored_rows[self.index]

    @cached_property
    def labels(self) -> Any:
        """One number for each record."""
        return self.stored_labels if self.index is None else self.stored_labels[self.index]

    @cached_property
    def users(self) -> Users | None:
        """User id of each record as a string, None for nobody; None if there are no user ids."""
        if self.stored_users is None or self.index is None:
            return self.stored_users
        return self.stored_users[self.index]

    def with_records(self, rows: Any, labels: Any) -> Chunk:
        """Return mapped records of the same users, for row maps.

        >>> Chunk(np.eye(2), np.ones(2), 0, ["ann", "bob"]).with_records(
        ...     np.eye(2)[:, :1], np.zeros(2)
        ... ).users
        ['ann', 'bob']
        """
        return Chunk(rows, labels, self.start, self.users, None, self.positions)

    def __reduce__(self) -> tuple[type[Chunk], tuple[object, ...]]:
        # Neither records outside of the chunk nor private randomness leave the process.
        return Chunk, (self.rows, self.labels, self.start, self.users)

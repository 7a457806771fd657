"""User ids: which records belong to one user, and a cap on the records of each user.

Ids are compared as strings, so 7, 7.0 and "7" are one user.
A record without an id (None, NaN, an unreadable cell) belongs to nobody: no user-level mechanism
reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.noise import Source
from dpfit.privacy.validate import integer

Indices = NDArray[np.int64]


def as_string(cell: Any) -> str | None:
    """Return a cell or an id as a string, and None if it is empty or unreadable.

    Integers that are stored as floats get no decimal point.

    >>> as_string(7), as_string(7.0), as_string("7"), as_string(float("nan")), as_string(None)
    ('7', '7', '7', None, None)
    """
    try:
        if hasattr(cell, "as_py"):  # of Arrow
            cell = cell.as_py()
        # A NaN of any library differs from itself; comparing the NA of pandas raises.
        if cell is None or cell != cell:
            return None
        integer = isinstance(cell, float | np.floating) and cell.is_integer()
        return str(int(cell) if integer else cell)
    except Exception:
        # An unreadable cell is empty: an error would reveal that it exists.
        return None


def user_codes(ids: Iterable[object]) -> Indices:
    """Return the number of each record's user, from 0 in the string order of ids; -1: nobody.

    One changed id may change the numbers of all other users: see docs/explanation/parts.md.

    >>> user_codes(["bob", None, "ann", "bob"])
    array([ 1, -1,  0,  1])
    """
    strings = [as_string(one) for one in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]
    named = sorted({one for one in strings if one is not None})
    codes: dict[str | None, int] = {one: code for code, one in enumerate(named)}
    return np.array([codes.get(one, -1) for one in strings], dtype=np.int64)


def count_users(ids: Iterable[object]) -> int:
    """Return the number of users: public under replace-one, private under add/remove.

    >>> count_users(["bob", None, "ann", "bob"])
    2
    """
    return int(user_codes(ids).max(initial=-1)) + 1


def bounded_contributions(user_ids: Iterable[object], max_rows: int, source: Source) -> Indices:
    """Return the indices of kept rows, increasing, when each user contributes at most ``max_rows``.

    A user with more rows keeps a uniformly random subset, independent of all other users.
    A row without an id may belong to a user who has reached the cap, so it is dropped.

    >>> kept = bounded_contributions(["ann", "bob", "ann", "ann"], 2, Source())
    >>> len(kept), 1 in kept
    (3, True)
    """
    integer("max_rows", max_rows)
    # As objects: a list with an empty id and an integer would become floats, which merge large ids.
    ids = np.asarray(user_ids, dtype=object) if isinstance(user_ids, list | tuple) else user_ids
    if isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise ValueError(f"user ids must have shape (n,), got {ids.shape}")
    users = user_codes(ids)
    shuffled = source.permutation(len(users))
    grouped = shuffled[np.argsort(users[shuffled], kind="stable")]
    starts = np.flatnonzero(np.diff(users[grouped], prepend=-2))
    sizes = np.diff(np.append(starts, len(users)))
    rank = np.arange(len(users)) - np.repeat(starts, sizes)
    return np.sort(grouped[(rank < max_rows) & (users[grouped] >= 0)])

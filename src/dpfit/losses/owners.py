"""Whose a record is: user ids are compared as texts, and a record that names nobody belongs to nobody."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def text(cell: Any) -> str | None:
    """A cell of a table, or an id, as a text; None if it is empty or has none. Whole numbers have no decimal point.

    >>> text(7), text(7.0), text("7"), text(float("nan")), text(None)
    ('7', '7', '7', None, None)
    """
    try:
        if hasattr(cell, "as_py"):  # of Arrow
            cell = cell.as_py()
        # A NaN of any library differs from itself; whether the NA of pandas does is an error.
        if cell is None or cell != cell:
            return None
        whole = isinstance(cell, float | np.floating) and cell.is_integer()
        return str(int(cell) if whole else cell)
    except Exception:
        # What cannot be read is empty: an error would tell that there is such a cell.
        return None


def owners(ids: Iterable[Any]) -> NDArray[np.int64]:
    """The number of each record's user, from 0 in the order of the texts; -1 where a record names nobody.

    >>> owners(["bob", None, "ann", "bob"])
    array([ 1, -1,  0,  1])
    """
    texts = [text(one) for one in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]
    named = sorted({one for one in texts if one is not None})
    numbers: dict[str | None, int] = {one: number for number, one in enumerate(named)}
    return np.array([numbers.get(one, -1) for one in texts], dtype=np.int64)

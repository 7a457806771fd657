"""Participation: which records of a step count, so that no user is in too many steps.

A user's records count in at most ``times`` steps, at least ``apart`` steps from each other. The
rule reads the user's own earlier steps only, so one user changes nothing for another.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from dpfit.core.log import Log
from dpfit.data.users import as_string


def admitted(
    log: Log, users: NDArray[np.object_], step: int, times: int, apart: int
) -> tuple[Log, NDArray[np.int64]]:
    """Return the log after a step and the numbers of the records that count.

    The log holds a pair (user, step) for each counted participation. Records of nobody never
    count.

    >>> log, kept = admitted(Log(), np.array(["ann", None, "ann"]), 0, times=1, apart=1)
    >>> kept.tolist(), admitted(log, np.array(["ann", "bob"]), 1, times=1, apart=1)[1].tolist()
    ([0, 2], [1])
    """
    table = _steps_of(log)
    names = [as_string(user) for user in users]
    new = sorted(
        name
        for name in {name for name in names if name is not None}
        if not table[name] or (len(table[name]) < times and step - table[name][-1] >= apart)
    )
    chosen = set(new)
    kept = np.flatnonzero([name in chosen for name in names])
    return log.extended([(name, step) for name in new]), kept


def _steps_of(log: Log) -> defaultdict[str, list[int]]:
    """The steps of each user, read once from each item of the log."""
    if log.memo.get("read", 0) > len(log):
        log.memo.clear()
    table: defaultdict[str, list[int]] = log.memo.setdefault("table", defaultdict(list))
    for name, step in log[log.memo.get("read", 0) :]:
        table[name].append(step)
    log.memo["read"] = len(log)
    return table

"""Which units a private step sees: Poisson samples, fixed-size samples, disjoint random parts; by record or by user.

The accounting of a sampled step (`dpfit.privacy.event.Sampled`) holds for exactly these draws. All of them come from a
`dpfit.noise.Source` and are exact: a rate is met to the last bit of the double that states it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.losses.owners import owners
from dpfit.noise import Source
from dpfit.privacy.check import count, probability

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Units that are single records."""

    n: int

    def rows(self, units: Index) -> Index:
        """The rows of these units, in increasing order."""
        return np.sort(units)


@dataclass(frozen=True, eq=False)
class Users:
    """Units that are users, each with all of their records; records that name nobody are in no unit.

    >>> users = Users(["ann", "bob", "ann", "eve"])
    >>> users.n
    3
    >>> users.rows(np.array([0]))
    array([0, 2])
    """

    ids: Sequence[Any] | NDArray[Any]

    @property
    def n(self) -> int:
        """The number of users."""
        return len(self._starts) - 1

    def rows(self, units: Index) -> Index:
        """The rows of these users, in increasing order."""
        parts = [self._order[self._starts[u] : self._starts[u + 1]] for u in units.tolist()]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)

    @cached_property
    def _order(self) -> Index:
        return np.argsort(self._numbers, kind="stable").astype(np.int64)

    @cached_property
    def _starts(self) -> Index:
        # Records of nobody have the number -1 and come before those of the first user.
        return np.cumsum(np.bincount(self._numbers + 1, minlength=1)).astype(np.int64)

    @cached_property
    def _numbers(self) -> Index:
        return owners(self.ids)


Units = Records | Users


def poisson_sample(units: Units, rate: float, source: Source) -> Index:
    """Each unit with probability ``rate``, independently; the rows of the units that are in.

    >>> len(poisson_sample(Records(1000), 0.0, Source())), len(poisson_sample(Records(1000), 1.0, Source()))
    (0, 1000)
    """
    chosen = np.flatnonzero(source.bernoulli(probability("rate", rate), units.n))
    return units.rows(chosen.astype(np.int64))


def fixed_sample(units: Units, size: int, source: Source) -> Index:
    """A uniformly random set of ``size`` units, without replacement.

    >>> len(fixed_sample(Records(1000), 10, Source()))
    10
    """
    if count("size", size, least=0) > units.n:
        raise ValueError(f"cannot draw {size} of {units.n} units without replacement")
    return units.rows(source.permutation(units.n)[:size])


def random_parts(units: Units, sizes: Sequence[int], source: Source) -> list[Index]:
    """Disjoint uniformly random sets of units of the given sizes, for algorithms that use each unit once.

    >>> sorted(np.concatenate(random_parts(Records(6), [1, 2, 3], Source())).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    if sum(count("size", size, least=0) for size in sizes) > units.n:
        raise ValueError(f"parts of {sum(sizes)} units do not fit {units.n} units")
    order = source.permutation(units.n)
    ends = np.cumsum([0, *sizes])
    return [units.rows(order[start:stop]) for start, stop in pairwise(ends)]

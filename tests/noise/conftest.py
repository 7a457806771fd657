"""Shared by the noise tests: a goodness-of-fit test, and a source of given bits."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from scipy import stats

from dpfit.noise import Source


class Scripted(Source):
    """A source that hands out the given words in order, and fails when they are used up."""

    def __init__(self, words: Iterable[int]) -> None:
        super().__init__(0)
        self.script = [int(word) for word in words]

    def words(self, size):
        shape = size if isinstance(size, tuple) else (size,)
        count = int(np.prod(shape))
        if count > len(self.script):
            raise LookupError("the script is used up")
        taken, self.script = self.script[:count], self.script[count:]
        return np.array(taken, dtype=np.uint64).reshape(shape)


def chi_square_p_value(draws: np.ndarray, cumulative: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the p-value of Pearson's test that ``P(draw <= k)`` is ``cumulative(k)``.

    Cells are chosen from the hypothesis alone: about sixty, each expecting at least twenty draws.
    """
    reach = 1
    while cumulative(np.array([reach]))[0] < 1 - 1e-9:
        reach *= 2
    candidates = np.unique(np.rint(np.linspace(-reach, reach, 8001)))
    below = cumulative(candidates)
    least = max(20 / draws.size, 1 / 60)
    tails = 20 / draws.size
    edges, mass = [], 0.0
    for edge, probability in zip(candidates, below, strict=True):
        wanted = tails if probability < 0.02 or probability > 0.98 else least
        if probability - mass >= wanted and 1 - probability >= tails:
            edges.append(edge)
            mass = probability
    expected = draws.size * np.diff(np.concatenate([[0.0], cumulative(np.array(edges)), [1.0]]))
    observed = np.bincount(
        np.searchsorted(edges, draws.reshape(-1), side="left"), minlength=len(edges) + 1
    )
    statistic = np.sum((observed - expected) ** 2 / expected)
    return float(stats.chi2.sf(statistic, len(edges)))


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted


@pytest.fixture
def p_value() -> Callable[[np.ndarray, Callable[[np.ndarray], np.ndarray]], float]:
    return chi_square_p_value

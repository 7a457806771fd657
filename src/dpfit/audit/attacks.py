"""Attacks: turn an outcome into a score. They learn on first runs and score only others.

Whatever the attack, the bound that follows is valid: scores are functions of outcomes fixed before
the scored runs are looked at, so each threshold is a test, and the promise limits all tests. A bad
attack finds little, never too much.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpfit.audit.bounds import Floats
from dpfit.audit.outcomes import Outcomes, dissect, vector
from dpfit.audit.thresholds import Scores, head
from dpfit.privacy.validate import option, real


@dataclass(frozen=True)
class Attack(ABC):
    """A way to score outcomes; high scores speak for the second dataset."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the report calls it."""

    @property
    def learns(self) -> float:
        """The share of runs that it learns on; at least one run shows what an output looks like."""
        return 0.0

    @abstractmethod
    def scores(self, first: Outcomes, second: Outcomes) -> Scores | None:
        """Scores of the runs not used for learning; None where outputs do not apply."""


@dataclass(frozen=True)
class _OnVectors(Attack):
    """Attacks on numeric outputs; outputs of another shape than the first get the lowest score."""

    def scores(self, first: Outcomes, second: Outcomes) -> Scores | None:
        if len(first) < 2 or len(second) < 2:
            return None
        template = first.structures[0]
        sides = [side.matrix(template) for side in (first, second)]
        if sides[0] is None or sides[1] is None:
            return None
        cut = [head(len(side), self.learns) for side in (first, second)]
        learned = [
            rows[:n][fits[:n]] for (rows, fits), n in zip((sides[0], sides[1]), cut, strict=True)
        ]
        if not all(len(rows) for rows in learned):
            return None
        score = self.learn(*learned)
        found = []
        for (rows, fits), n in zip((sides[0], sides[1]), cut, strict=True):
            values = np.full(len(rows) - n, -np.inf)
            if fits[n:].any():
                values[fits[n:]] = np.nan_to_num(score(rows[n:][fits[n:]]))
            found.append(values)
        return Scores(*found)

    @abstractmethod
    def learn(self, first: Floats, second: Floats) -> Callable[[Floats], Floats]:
        """The score, from outputs that are not scored."""


@dataclass(frozen=True)
class Projection(_OnVectors):
    """Projection on the planted direction: first dataset's centre is 0, the second's is 1.

    ``centres`` are the noiseless outputs where they are known; otherwise they are medians of the
    first runs.
    """

    centres: tuple[object, object] | None = None
    fraction: float = 0.1

    @property
    def name(self) -> str:
        return "projection"

    @property
    def learns(self) -> float:
        return 0.0 if self.centres is not None else self.fraction

    def learn(self, first: Floats, second: Floats) -> Callable[[Floats], Floats]:
        one, two = self._centres(first, second)
        direction = two - one
        size = float(np.max(np.abs(direction)))
        if not 0 < size < np.inf:
            return lambda rows: np.zeros(len(rows))
        # Outputs may be as large as numbers get: infinite ones were cut there.
        unit = direction / size

        def score(rows: Floats) -> Floats:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.asarray(((rows - one) / size) @ unit / (unit @ unit))

        return score

    def _centres(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        if self.centres is None:
            # Medians, so that one wild draw of heavy-tailed noise does not turn the direction.
            return np.median(first, axis=0), np.median(second, axis=0)
        known = [vector(centre) for centre in self.centres]
        if (
            known[0] is None
            or known[1] is None
            or not len(known[0]) == len(known[1]) == first.shape[1]
        ):
            raise ValueError(f"centres must be two outputs of {first.shape[1]} numbers")
        return known[0], known[1]


@dataclass(frozen=True)
class LikelihoodRatio(_OnVectors):
    """The log likelihood ratio of the laws, a function of rows of outputs: the best score."""

    log_ratio: Callable[[Floats], Floats]

    @property
    def name(self) -> str:
        return "likelihood ratio"

    def learn(self, first: Floats, second: Floats) -> Callable[[Floats], Floats]:
        return lambda rows: np.asarray(self.log_ratio(rows), dtype=np.float64).reshape(len(rows))


class Classifier(Protocol):
    """A classifier of scikit-learn."""

    def fit(self, rows: Floats, labels: NDArray[np.int64]) -> Classifier: ...

    def decision_function(self, rows: Floats) -> Floats: ...


@dataclass(frozen=True)
class Learned(_OnVectors):
    """Log odds of a classifier trained on one part of the runs.

    ``model`` is "logistic" (on whitened outputs and their squares, so that both a shift in a
    direction of little noise and a change of scale are seen) or "boosted" (trees).
    """

    model: str = "logistic"
    fraction: float = 0.5

    def __post_init__(self) -> None:
        option("model", self.model, ("logistic", "boosted"))
        if not 0 < real("fraction", self.fraction) < 1:
            raise ValueError(f"fraction must lie strictly between 0 and 1, got {self.fraction!r}")

    @property
    def name(self) -> str:
        return f"learned ({self.model})"

    @property
    def learns(self) -> float:
        return self.fraction

    def learn(self, first: Floats, second: Floats) -> Callable[[Floats], Floats]:
        whiten = _whitening(first, second)
        rows = np.concatenate([whiten(first), whiten(second)])
        labels = np.repeat([0, 1], [len(first), len(second)])
        classifier = self._classifier().fit(rows, labels)
        return lambda new: np.asarray(classifier.decision_function(whiten(new)), dtype=np.float64)

    def _classifier(self) -> Classifier:
        if self.model == "boosted":
            from sklearn.ensemble import HistGradientBoostingClassifier

            trees: Classifier = HistGradientBoostingClassifier(
                max_iter=60, learning_rate=0.1, early_stopping=False, random_state=0
            )
            return trees
        from sklearn.linear_model import LogisticRegression

        logistic: Classifier = LogisticRegression(C=10.0, max_iter=200)
        return logistic


def _whitening(first: Floats, second: Floats) -> Callable[[Floats], Floats]:
    """Centred outputs in directions of unit variance, with their squares; large values are cut."""
    centre = np.median(np.concatenate([first, second]), axis=0)
    spread = np.maximum(np.median(np.abs(np.concatenate([first, second]) - centre), axis=0), 1e-12)
    with np.errstate(over="ignore"):
        within = np.concatenate(
            [(side - np.median(side, axis=0)) / spread for side in (first, second)]
        )
    values, vectors = np.linalg.eigh(
        np.atleast_2d(np.cov(np.clip(within, -1e6, 1e6), rowvar=False))
    )
    # A direction without noise is where a leak is exact: it is stretched, not dropped.
    turn = vectors / np.sqrt(np.maximum(values, 1e-12 * max(float(values[-1]), 1e-12)))

    def whiten(rows: Floats) -> Floats:
        with np.errstate(over="ignore"):
            white = np.clip(np.clip((rows - centre) / spread, -1e6, 1e6) @ turn, -50.0, 50.0)
        return np.asarray(np.concatenate([white, white**2 / 10], axis=1))

    return whiten


@dataclass(frozen=True)
class _Counted(Attack):
    """Log ratio of how often a discrete feature was seen in the first part of the runs."""

    fraction: float = 0.3

    @property
    def learns(self) -> float:
        return self.fraction

    @abstractmethod
    def features(self, outcomes: Outcomes) -> tuple[Hashable, ...]:
        """One hashable feature a run."""

    def scores(self, first: Outcomes, second: Outcomes) -> Scores | None:
        if len(first) < 2 or len(second) < 2:
            return None
        one, two = self.features(first), self.features(second)
        cut = head(len(one), self.fraction), head(len(two), self.fraction)
        seen = Counter(one[: cut[0]]), Counter(two[: cut[1]])
        return Scores(
            *(_log_ratios(side[n:], *seen) for side, n in zip((one, two), cut, strict=True))
        )


def _log_ratios(
    features: tuple[Hashable, ...], first: Counter[Hashable], second: Counter[Hashable]
) -> Floats:
    return np.array(
        [np.log((second[feature] + 0.5) / (first[feature] + 0.5)) for feature in features]
    )


@dataclass(frozen=True)
class Shape(_Counted):
    """Types, shapes and exceptions: a difference between neighbours is a leak like any other."""

    @property
    def name(self) -> str:
        return "shape or exception"

    def features(self, outcomes: Outcomes) -> tuple[Hashable, ...]:
        return outcomes.structures


@dataclass(frozen=True)
class Transcript(_Counted):
    """Outputs as symbols, for transcripts, choices and counts. Unseen symbols score zero."""

    @property
    def name(self) -> str:
        return "transcript"

    def features(self, outcomes: Outcomes) -> tuple[Hashable, ...]:
        return outcomes.keys


@dataclass(frozen=True)
class LowBits(_Counted):
    """The position of the lowest bit set in any number of the output (Mironov 2012).

    Numbers of neighbours must live on one grid. Floating-point noise added to floating-point values
    leaves a grid that depends on the value, and with it on the data.
    """

    @property
    def name(self) -> str:
        return "low bits"

    def features(self, outcomes: Outcomes) -> tuple[Hashable, ...]:
        # The feature of a run is a function of its value alone; runs of one structure are only
        # computed together.
        found: list[int | None] = [None] * len(outcomes)
        for template, runs in outcomes.groups.items():
            rows = outcomes.numbers(template)
            if rows is not None:
                for run, bit in zip(runs, lowest_bit(rows).tolist(), strict=True):
                    found[run] = bit
        return tuple(found)


def lowest_bit(rows: Floats) -> NDArray[np.int64]:
    """Largest e by row for which all numbers are multiples of 2**e; 10,000 for zeros alone.

    >>> lowest_bit(np.array([[0.75, 2.0], [0.0, 0.0]]))
    array([   -2, 10000])
    """
    mantissa, exponent = np.frexp(rows)
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    lowest = np.where(rows == 0, 10_000, exponent - 53 + trailing)
    return np.asarray(lowest.min(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Cells(Attack):
    """Log ratio of frequencies of a cell: an output's pattern with its binned numbers.

    The pattern is everything but the numbers: length, types, truth values, missing answers, errors.
    Each pattern has its own bins, between quantiles of the runs learned on, and each frequent value
    has its own bin. Only the first ``_BINNED`` numbers of an output are binned. The attack sees a
    value that tells something in some patterns only, such as the answer that sparse vector compared
    with its threshold.
    """

    fraction: float = 0.3

    @property
    def name(self) -> str:
        return "pattern and value"

    @property
    def learns(self) -> float:
        return self.fraction

    def scores(self, first: Outcomes, second: Outcomes) -> Scores | None:
        if len(first) < 2 or len(second) < 2:
            return None
        sides = _by_pattern(first), _by_pattern(second)
        cut = head(len(first), self.fraction), head(len(second), self.fraction)
        found = np.zeros(len(first) - cut[0]), np.zeros(len(second) - cut[1])
        for pattern in sides[0].keys() | sides[1].keys():
            groups = [side.get(pattern) for side in sides]
            width = next(group.numbers.shape[1] for group in groups if group is not None)
            none = _Group(np.zeros(0, dtype=np.int64), np.zeros((0, width)))
            one, two = (none if group is None else group for group in groups)
            score = _cell_scores(one.numbers[one.runs < cut[0]], two.numbers[two.runs < cut[1]])
            for group, n, values in zip((one, two), cut, found, strict=True):
                scored = group.runs >= n
                values[group.runs[scored] - n] = score(group.numbers[scored])
        return Scores(*found)


@dataclass(frozen=True)
class _Group:
    """The runs of one pattern, and the numbers of each."""

    runs: NDArray[np.int64]
    numbers: Floats


_BINNED = 6
"""Numbers of an output that `Cells` bins."""
_BINS = 16
"""Largest number of bins of one number."""
_CELL_RUNS = 50
"""Learned runs a cell has on average, at least."""
_PRIOR = 4.0
"""Runs, at the ratio of the pattern, that are added to each cell: a rare cell scores like its
pattern.
"""


def _by_pattern(outcomes: Outcomes) -> dict[Hashable, _Group]:
    runs: defaultdict[Hashable, list[int]] = defaultdict(list)
    numbers: defaultdict[Hashable, list[list[float]]] = defaultdict(list)
    for run, value in enumerate(outcomes.values):
        pattern, found = dissect(value)
        runs[pattern].append(run)
        numbers[pattern].append(found[:_BINNED])
    return {
        pattern: _Group(np.array(runs[pattern]), np.array(numbers[pattern])) for pattern in runs
    }


def _cell_scores(first: Floats, second: Floats) -> Callable[[Floats], Floats]:
    """Learn the cells of one pattern; return the log ratio of the cell of each row."""
    learned = np.concatenate([first, second])
    if not len(learned):
        return lambda rows: np.zeros(len(rows))
    width = learned.shape[1]
    bins = min(_BINS, max(1, int((len(learned) / _CELL_RUNS) ** (1 / max(width, 1)))))
    edges = [_bin_edges(column, bins) for column in learned.T]

    def cells(rows: Floats) -> NDArray[np.int64]:
        found = np.zeros(len(rows), dtype=np.int64)
        for column, cuts in zip(rows.T, edges, strict=True):
            found = found * (len(cuts) + 1) + np.searchsorted(cuts, column, side="right")
        return found

    known, codes = np.unique(cells(learned), return_inverse=True)
    counts = [np.bincount(part, minlength=len(known)) for part in np.split(codes, [len(first)])]
    shares = [(len(side) + 0.5) / (len(learned) + 1) for side in (first, second)]
    one, two = (count + _PRIOR * share for count, share in zip(counts, shares, strict=True))
    ratios, unseen = np.log(two / one), math.log(shares[1] / shares[0])

    def score(rows: Floats) -> Floats:
        found = cells(rows)
        at = np.minimum(np.searchsorted(known, found), len(known) - 1)
        return np.where(known[at] == found, ratios[at], unseen)

    return score


def _bin_edges(column: Floats, bins: int) -> Floats:
    """Quantiles, and both sides of each value that makes up 2% of the column."""
    values, counts = np.unique(column, return_counts=True)
    atoms = values[counts >= max(2.0, len(column) / 50)]
    quantiles = np.quantile(column, np.arange(1, bins) / bins)
    return np.unique(np.concatenate([quantiles, atoms, np.nextafter(atoms, np.inf)]))


DEFAULT: tuple[Attack, ...] = (Projection(), Learned(), Shape(), Transcript(), LowBits(), Cells())
"""What an audit tries when nothing else is said; each gets its share of the failure probability."""

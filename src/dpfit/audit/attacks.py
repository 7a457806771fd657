"""Attacks: how an outcome becomes a score. An attack learns on a first part of the runs and scores only the others.

Whatever the attack, the bound that follows is valid: scores are functions of outcomes fixed before the scored runs
are looked at, so each threshold is a test, and the promise limits all tests. A bad attack finds little, never too much.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.audit.bounds import Floats
from dpfit.audit.outcomes import Outcomes, vector
from dpfit.audit.thresholds import Scores, head
from dpfit.privacy.check import number, one_of


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
        """Scores of the runs it did not learn on; None where outputs give it nothing to work with."""


@dataclass(frozen=True)
class _OnVectors(Attack):
    """Attacks on outputs that are numbers; outputs of another shape than the first run's get the lowest score."""

    def scores(self, first: Outcomes, second: Outcomes) -> Scores | None:
        if len(first) < 2 or len(second) < 2:
            return None
        template = first.structures[0]
        sides = [side.matrix(template) for side in (first, second)]
        if sides[0] is None or sides[1] is None:
            return None
        cut = [head(len(side), self.learns) for side in (first, second)]
        learned = [rows[:n][fits[:n]] for (rows, fits), n in zip((sides[0], sides[1]), cut, strict=True)]
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
    """Projection on the planted direction: 0 at the centre of the first dataset's outputs, 1 at the second's.

    ``centres`` are the noiseless outputs where they are known; otherwise they are medians of the first runs.
    """

    centres: tuple[Any, Any] | None = None
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
        if known[0] is None or known[1] is None or not len(known[0]) == len(known[1]) == first.shape[1]:
            raise ValueError(f"centres must be two outputs of {first.shape[1]} numbers")
        return known[0], known[1]


@dataclass(frozen=True)
class LikelihoodRatio(_OnVectors):
    """The log likelihood ratio of the second law to the first, a function of rows of outputs: the best score."""

    log_ratio: Callable[[Floats], Floats]

    @property
    def name(self) -> str:
        return "likelihood ratio"

    def learn(self, first: Floats, second: Floats) -> Callable[[Floats], Floats]:
        return lambda rows: np.asarray(self.log_ratio(rows), dtype=np.float64).reshape(len(rows))


@dataclass(frozen=True)
class Learned(_OnVectors):
    """Log odds of a classifier trained on one part of the runs.

    ``model`` is "logistic" (on whitened outputs and their squares, so that both a shift in a direction of little noise
    and a change of scale are seen) or "boosted" (trees).
    """

    model: str = "logistic"
    fraction: float = 0.5

    def __post_init__(self) -> None:
        one_of("model", self.model, ("logistic", "boosted"))
        if not 0 < number("fraction", self.fraction) < 1:
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

    def _classifier(self) -> Any:
        if self.model == "boosted":
            from sklearn.ensemble import HistGradientBoostingClassifier

            return HistGradientBoostingClassifier(max_iter=60, learning_rate=0.1, early_stopping=False, random_state=0)
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=10.0, max_iter=200)


def _whitening(first: Floats, second: Floats) -> Callable[[Floats], Floats]:
    """Centred outputs in directions of unit variance, with their squares; large values are cut."""
    centre = np.median(np.concatenate([first, second]), axis=0)
    spread = np.maximum(np.median(np.abs(np.concatenate([first, second]) - centre), axis=0), 1e-12)
    within = np.concatenate([(side - np.median(side, axis=0)) / spread for side in (first, second)])
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(np.clip(within, -1e6, 1e6), rowvar=False)))
    # A direction without noise is where a leak is exact: it is stretched, not dropped.
    turn = vectors / np.sqrt(np.maximum(values, 1e-12 * max(float(values[-1]), 1e-12)))

    def whiten(rows: Floats) -> Floats:
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
    def features(self, outcomes: Outcomes) -> tuple[Any, ...]:
        """One hashable feature a run."""

    def scores(self, first: Outcomes, second: Outcomes) -> Scores | None:
        if len(first) < 2 or len(second) < 2:
            return None
        one, two = self.features(first), self.features(second)
        cut = head(len(one), self.fraction), head(len(two), self.fraction)
        seen = Counter(one[: cut[0]]), Counter(two[: cut[1]])
        return Scores(*(_log_ratios(side[n:], *seen) for side, n in zip((one, two), cut, strict=True)))


def _log_ratios(features: tuple[Any, ...], first: Counter[Any], second: Counter[Any]) -> Floats:
    return np.array([np.log((second[feature] + 0.5) / (first[feature] + 0.5)) for feature in features])


@dataclass(frozen=True)
class Shape(_Counted):
    """Types, shapes and exceptions: a difference between neighbours is a leak like any other."""

    @property
    def name(self) -> str:
        return "shape or exception"

    def features(self, outcomes: Outcomes) -> tuple[Any, ...]:
        return outcomes.structures


@dataclass(frozen=True)
class Transcript(_Counted):
    """Whole outputs as symbols: for transcripts of interactions, choices and counts. Unseen symbols score zero."""

    @property
    def name(self) -> str:
        return "transcript"

    def features(self, outcomes: Outcomes) -> tuple[Any, ...]:
        return outcomes.keys


@dataclass(frozen=True)
class LowBits(_Counted):
    """The position of the lowest bit set in any number of the output (Mironov 2012).

    Numbers of neighbours must live on one grid. Floating-point noise added to floating-point values leaves a grid that
    depends on the value, and with it on the data.
    """

    @property
    def name(self) -> str:
        return "low bits"

    def features(self, outcomes: Outcomes) -> tuple[Any, ...]:
        # The feature of a run is a function of its value alone; runs of one structure are only computed together.
        found: list[int | None] = [None] * len(outcomes)
        for template in set(outcomes.structures):
            numbers = outcomes.matrix(template)
            if numbers is not None:
                rows, fits = numbers
                for run, bit in zip(np.flatnonzero(fits), lowest_bit(rows[fits]), strict=True):
                    found[run] = int(bit)
        return tuple(found)


def lowest_bit(rows: Floats) -> NDArray[np.int64]:
    """For each row the largest e for which all its numbers are whole multiples of 2**e; 10,000 for zeros alone.

    >>> lowest_bit(np.array([[0.75, 2.0], [0.0, 0.0]]))
    array([   -2, 10000])
    """
    mantissa, exponent = np.frexp(rows)
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    lowest = np.where(rows == 0, 10_000, exponent - 53 + trailing)
    return np.asarray(lowest.min(axis=1), dtype=np.int64)


DEFAULT: tuple[Attack, ...] = (Projection(), Learned(), Shape(), Transcript(), LowBits())
"""What an audit tries when nothing else is said; each gets its share of the failure probability."""

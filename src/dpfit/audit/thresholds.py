"""Threshold strategies as types: the way a threshold is chosen decides the valid bound.

A strategy gets scores of runs that have not been looked at and returns rates with upper bounds that
hold *jointly* with the stated probability. There is no way to pass a threshold that was picked on
the same scores and still get a bound, except by naming it `Fixed`, which says that it was not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from dpfit.audit.bounds import Floats, upper_rate
from dpfit.audit.currency import Currency
from dpfit.privacy.validate import integer, real

_CANDIDATES = 200


@dataclass(frozen=True)
class Scores:
    """One score a run, for each of the two datasets; high scores speak for the second."""

    first: Floats
    second: Floats

    def __post_init__(self) -> None:
        if not len(self.first) or not len(self.second):
            raise ValueError("no runs are left to evaluate")

    def split(self, fraction: float) -> tuple[Scores, Scores]:
        """The first part of the runs, and the rest."""
        one, two = (head(len(side), fraction) for side in (self.first, self.second))
        return Scores(self.first[:one], self.second[:two]), Scores(
            self.first[one:], self.second[two:]
        )


def head(runs: int, fraction: float) -> int:
    """How many runs the first part has: at least one, and at least one is left."""
    return min(max(1, round(runs * fraction)), max(runs - 1, 1))


@dataclass(frozen=True)
class Measured:
    """Observed false alarms and misses at thresholds, with upper bounds that hold jointly."""

    thresholds: Floats
    alpha: Floats
    beta: Floats
    alpha_upper: Floats
    beta_upper: Floats


class Strategy(ABC):
    """A rule for thresholds that keeps the failure probability of its bounds."""

    kept: float = 1.0
    """The share of runs that is evaluated."""

    @abstractmethod
    def measure(self, scores: Scores, failure: float, currency: Currency) -> Measured:
        """Rates and joint upper bounds, all of which hold with probability ``1 - failure``."""


@dataclass(frozen=True)
class Fixed(Strategy):
    """A threshold known before any run.

    >>> scores = Scores(np.zeros(100), np.ones(100))
    >>> measured = Fixed(0.5).measure(scores, 0.1, Currency)
    >>> measured.alpha_upper.round(4)
    array([0.0295])
    """

    threshold: float

    def __post_init__(self) -> None:
        real("threshold", self.threshold)

    def measure(self, scores: Scores, failure: float, currency: Currency) -> Measured:
        return _measured(scores, np.array([self.threshold]), failure)


@dataclass(frozen=True)
class HeldOut(Strategy):
    """The threshold that looks best on one part of the runs, evaluated on the other."""

    fraction: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < real("fraction", self.fraction) < 1:
            raise ValueError(f"fraction must lie strictly between 0 and 1, got {self.fraction!r}")

    @property
    def kept(self) -> float:  # type: ignore[override]
        return 1 - self.fraction

    def measure(self, scores: Scores, failure: float, currency: Currency) -> Measured:
        chosen_on, evaluated_on = scores.split(self.fraction)
        candidates = _candidates(chosen_on)
        runs = len(evaluated_on.first), len(evaluated_on.second)
        alpha, beta = (
            _foreseen(rate, len(side), n, failure)
            for rate, side, n in zip(
                _rates(chosen_on, candidates),
                (chosen_on.first, chosen_on.second),
                runs,
                strict=True,
            )
        )
        # Where no bound above zero is foreseen, the test that errs least is still the one to look
        # at.
        expected = currency.lower(alpha, beta) - 1e-6 * (alpha + beta)
        return _measured(evaluated_on, candidates[[int(np.argmax(expected))]], failure)


@dataclass(frozen=True)
class UnionBound(Strategy):
    """``count`` thresholds on a fixed grid of scores; each gets its share of the failure.

    Projections score 0 at the first centre and 1 at the second, so [-1, 2] spans what matters.
    """

    count: int = 25
    low: float = -1.0
    high: float = 2.0

    def __post_init__(self) -> None:
        integer("count", self.count)
        if not -math.inf < real("low", self.low) < real("high", self.high) < math.inf:
            raise ValueError(f"a grid needs finite low < high, got [{self.low!r}, {self.high!r}]")

    def measure(self, scores: Scores, failure: float, currency: Currency) -> Measured:
        return _measured(scores, np.linspace(self.low, self.high, self.count), failure)


@dataclass(frozen=True)
class Band(Strategy):
    """All thresholds, by the Dvoretzky-Kiefer-Wolfowitz band with Massart's constant (1990)."""

    def measure(self, scores: Scores, failure: float, currency: Currency) -> Measured:
        thresholds = _candidates(scores)
        alpha, beta = _rates(scores, thresholds)
        # One-sided, valid for a failure of at most one half.
        widths = [
            math.sqrt(math.log(1 / min(failure / 2, 0.5)) / (2 * len(s)))
            for s in (scores.first, scores.second)
        ]
        upper = [
            np.minimum(rate + width, 1.0) for rate, width in zip((alpha, beta), widths, strict=True)
        ]
        return Measured(thresholds, alpha, beta, *upper)


def _foreseen(rate: Floats, seen: int, runs: int, failure: float) -> Floats:
    """The upper bound to expect on ``runs`` others where ``seen`` ones showed a rate.

    Rates enter at their own upper bounds: otherwise thresholds with few errors by chance would look
    best.
    """
    cautious = upper_rate(np.rint(rate * seen), seen, 0.05)
    return upper_rate(cautious * runs, runs, failure / 2)


def empirical(scores: Scores) -> tuple[Floats, Floats]:
    """Points of the empirical trade-off curve, for figures; no confidence is attached to them."""
    return _rates(scores, _candidates(scores))


def _measured(scores: Scores, thresholds: Floats, failure: float) -> Measured:
    alpha, beta = _rates(scores, thresholds)
    share = failure / (2 * len(thresholds))
    one, two = len(scores.first), len(scores.second)
    upper = (
        upper_rate(np.rint(alpha * one), one, share),
        upper_rate(np.rint(beta * two), two, share),
    )
    return Measured(thresholds, alpha, beta, *upper)


def _rates(scores: Scores, thresholds: Floats) -> tuple[Floats, Floats]:
    """False alarms (first above) and misses (second at most) of the tests ``score > threshold``."""
    first, second = np.sort(scores.first), np.sort(scores.second)
    alarms = len(first) - np.searchsorted(first, thresholds, side="right")
    misses = np.searchsorted(second, thresholds, side="right")
    return np.asarray(alarms / len(first), dtype=np.float64), np.asarray(
        misses / len(second), dtype=np.float64
    )


def _candidates(scores: Scores) -> Floats:
    """Some of the scores, spread over both samples."""
    pooled = np.unique(np.concatenate([scores.first, scores.second]))
    picks = np.unique(np.linspace(0, len(pooled) - 1, _CANDIDATES).astype(int))
    return np.asarray(pooled[picks])

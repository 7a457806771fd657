"""What is known of the error of noisy answers before any data is seen."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dpfit.privacy.check import number


class ErrorLaw(ABC):
    """The law of the noise on ``number`` answers: sizes of single errors and of the largest one."""

    @property
    @abstractmethod
    def average(self) -> float:
        """The expected absolute error of one answer."""

    @property
    @abstractmethod
    def expected_max(self) -> float:
        """The expected largest absolute error."""

    @abstractmethod
    def quantile(self, level: float) -> float:
        """What the absolute error of one answer does not exceed with probability ``level``."""

    @abstractmethod
    def max_quantile(self, level: float) -> float:
        """What no absolute error exceeds with probability ``level``."""

    def size(self, minimize: str | float) -> float:
        """The error that is to be small: "max", "average", or a level, for that quantile of the largest error."""
        if minimize == "max":
            return self.expected_max
        if minimize == "average":
            return self.average
        return self.max_quantile(float(minimize))


def checked_criterion(minimize: str | float) -> str | float:
    """An error that `ErrorLaw.size` knows, or what is wrong with it.

    >>> checked_criterion(0.95)
    0.95
    """
    if minimize in ("max", "average"):
        return minimize
    if isinstance(minimize, str) or not 0 < number("minimize", minimize) < 1:
        raise ValueError(
            f"minimize must be 'max', 'average' or a level between 0 and 1 (a quantile of the largest error), "
            f"got {minimize!r}"
        )
    return minimize

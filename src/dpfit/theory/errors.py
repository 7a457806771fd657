"""What is known of the error of noisy answers before any data is seen."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dpfit.privacy.validate import real


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
        """The error to minimize: "max", "average", or a level (quantile of the largest error)."""
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
    if isinstance(minimize, str) or not 0 < real("minimize", minimize) < 1:
        raise ValueError(
            "minimize must be 'max', 'average' or a level between 0 and 1 (a quantile of the "
            "largest error), "
            f"got {minimize!r}"
        )
    return minimize

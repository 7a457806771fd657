"""Problems: frozen public descriptions of what is asked."""

from __future__ import annotations

from dataclasses import dataclass

from dpfit.privacy.check import count, one_of
from dpfit.privacy.record import Record


@dataclass(frozen=True, kw_only=True)
class Problem(Record):
    """What is asked, in public facts only. ``n`` is the number of records the caller declares."""

    n: int

    def __post_init__(self) -> None:
        count("n", self.n)


@dataclass(frozen=True, kw_only=True)
class Minimize(Problem):
    """Find a parameter of small (empirical or population) risk."""

    kind = "minimize"
    loss: Record
    domain: Record | None = None
    regularizer: Record | None = None
    objective: str = "empirical"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("objective", self.objective, ("empirical", "population"))


@dataclass(frozen=True, kw_only=True)
class Sample(Problem):
    """Draw from a density that depends on the data."""

    kind = "sample"
    potential: Record
    domain: Record | None = None
    draws: int = 1


@dataclass(frozen=True, kw_only=True)
class Answer(Problem):
    """Answer a workload of queries at once."""

    kind = "answer"
    workload: Record


@dataclass(frozen=True, kw_only=True)
class Play(Problem):
    """Answer a stream of at most ``rounds`` adaptively chosen queries."""

    kind = "play"
    workload: Record
    rounds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        count("rounds", self.rounds)

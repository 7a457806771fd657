"""Optimizers: public rules that ask for contributions and move by the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpfit.core import Minimize, State
from dpfit.data.dataset import Dataset
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Contribution
from dpfit.privacy.spec import Spec


@dataclass(frozen=True)
class Optimizer(Spec, ABC):
    """A pure rule over public facts, public records and released answers: it is post-processing."""

    stacks: ClassVar[bool] = False
    """Whether the rule treats a stack of points (k, d) as it treats one point: audits then run side
    by side.
    """
    resumable: ClassVar[bool] = True
    """Whether the state holds plain values only, so that it can be stored."""

    def check(self, problem: Minimize, aggregate: Aggregate) -> None:
        """Refuse a problem or an aggregate that does not fit, when a descent is planned."""

    def needs_public(self, problem: Minimize) -> int:
        """Return how many public records the rule needs; their number is a public fact."""
        return 0

    @abstractmethod
    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        """Return the least and the largest possible bound of a contribution, where known."""

    @abstractmethod
    def init(self, problem: Minimize, aggregate: Aggregate, public: Dataset | None) -> State:
        """Return the public first state; the aggregate says how much noise answers will have."""

    @abstractmethod
    def ask(self, problem: Minimize, state: State) -> Contribution:
        """Return what records should contribute to the next answer."""

    @abstractmethod
    def tell(self, problem: Minimize, state: State, answer: Any) -> State:
        """Return the state after an answer."""

    @abstractmethod
    def result(self, problem: Minimize, state: State) -> Any:
        """Return the output after any number of answers; one for each of the stacked states."""

    def stack(self, state: State, count: int) -> State:
        """Return the state of ``count`` runs side by side; arrays are repeated."""
        return {
            name: np.tile(part, (count, 1)) if isinstance(part, np.ndarray) else part
            for name, part in state.items()
        }

    def setting(self, problem: Minimize, aggregate: Any, public: Dataset) -> Any:
        """Return what this optimizer takes from public records; by default it takes nothing."""
        raise ValueError(
            f"{self.kind} takes nothing from public records; use warm_start_gd or pda_dpmd"
        )

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return public facts about the first state, for callers who ask for diagnostics."""
        return {}

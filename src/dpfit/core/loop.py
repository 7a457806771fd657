"""One-shot mechanisms made of steps of which only the last state is released.

The guarantee of such a mechanism covers its output, never a step before the last. So the loop can
be neither opened nor stored: a caller who saw every step would learn more than was charged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.core.mechanism import Mechanism, Run
from dpfit.data.view import View


@dataclass(frozen=True)
class Loop(Mechanism):
    """A mechanism made of pure steps; the loop, and with it progress, is written here once."""

    @property
    @abstractmethod
    def iterations(self) -> int:
        """Number of steps; public."""

    @abstractmethod
    def init(self, data: View, run: Run) -> object:
        """Return the first state."""

    @abstractmethod
    def step(self, state: Any, index: int, data: View, run: Run) -> object:
        """Return the next state, which holds only what the step after it needs."""

    def finish(self, state: Any) -> Any:
        """Return the output; a function of the last state."""
        return state

    def run(self, data: View, run: Run) -> Any:
        """Make all steps."""
        return self.finish(self._last(self.init(data, run), data, run))

    def _last(self, state: object, data: View, run: Run) -> object:
        for index in range(self.iterations):
            state = self.step(state, index, data, run)
            run.progress((index + 1) / self.iterations)
        return state


@dataclass(frozen=True)
class VectorizedLoop(Loop):
    """A loop whose steps treat a stack of points, shape (k, d), as they treat one point (d,).

    One pass over the data, one draw of noise and one move serve all runs of an audit or a
    simulation.
    """

    def run_many(self, data: View, run: Run, count: int) -> Sequence[object]:
        """Draw independent outputs, each distributed as one of `run`; other state is shared."""
        state = self.init(data, run)
        stacked = (
            tuple(_stack(part, count) for part in state)
            if isinstance(state, tuple)
            else _stack(state, count)
        )
        return list(self.finish(self._last(stacked, data, run)))


def _stack(part: object, count: int) -> object:
    return np.tile(part, (count, 1)) if isinstance(part, np.ndarray) else part

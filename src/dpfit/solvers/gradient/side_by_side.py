"""Many independent descents on the same records at once: what audits and simulations ask for.

The steps of a descent treat a stack of points, shape (k, d), as they treat one point (d,). So a pass over the data, a
draw of noise and a move are made once for all descents, and what a single call costs is shared by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.core import Iterative, Run


@dataclass(frozen=True)
class SideBySide(Iterative):
    """An iterative mechanism whose steps take stacks of points; what else is in its state is shared by all runs."""

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Any]:
        """Independent runs side by side, each with the law of ``run``: one pass over the data per step for all."""
        state = self.init(data, run)
        state = tuple(_stacked(part, count) for part in state) if isinstance(state, tuple) else _stacked(state, count)
        for index in range(self.iterations):
            state = self.step(state, index, data, run)
            run.progress((index + 1) / self.iterations)
        return list(self.finish(state))


def _stacked(part: Any, count: int) -> Any:
    return np.tile(part, (count, 1)) if isinstance(part, np.ndarray) else part

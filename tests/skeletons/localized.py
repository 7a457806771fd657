"""Localization in one file: any solver on disjoint parts, each around the output of the last, with copies.

Guarantee. Parts are disjoint and a record's part depends on its own position only, so each part may spend the whole
budget. Each phase binds the centre of the ridge and the start to a released point, which changes no event. `Nearest`
reads released points only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Combine, Composition, Example, Last, Minimize, Plan, Stage, StartAt
from dpfit.core.examples import opposite_records
from dpfit.data.view import part_sizes
from dpfit.privacy import Budget
from dpfit.solvers.gradient.noisy_gd import noisy_gd

SHORT = noisy_gd.using(max_passes=5)


@dataclass(frozen=True)
class Nearest(Combine):
    """Release the point with the smallest median distance to all points."""

    kind = "skeleton_nearest"

    def __call__(self, outputs: tuple[NDArray[np.float64], ...]) -> NDArray[np.float64]:
        points = np.array(outputs)
        distances = np.linalg.norm(points[:, np.newaxis] - points, axis=2)
        return points[np.argmin(np.median(distances, axis=1))]


class Localized(Algorithm[Minimize]):
    """Solve on disjoint parts of the data, with a growing ridge around the last solution."""

    name = "localized"
    summary = "any solver, localized around its last output on fresh data"
    reference = "[Liu24] Section 3.3"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    supports = frozenset({"domain"})

    def _plan(
        self, problem: Minimize, budget: Budget, *, copies: int = 3, ridge: float = 0.01,
        shares: tuple[float, ...] = (0.5, 0.25, 0.25), solver: Algorithm[Minimize] = SHORT,
    ) -> Plan:  # fmt: skip
        """Plan ``copies`` of the solver on each part; ridges grow fourfold from phase to phase."""
        stages = []
        for i, size in enumerate(part_sizes(problem.n, shares)):
            # The centre is bound late. It is set here, too, so that a solver that ignores centres is refused.
            around = replace(problem, ridge=ridge * 4**i, centre=tuple(problem.origin.tolist()))
            each = (1 / copies,) * copies
            plans = [solver.plan(replace(around, n=n), budget) for n in part_sizes(size, each)]
            near = Composition(tuple(Stage(f"copy {j}", one, part=j) for j, one in enumerate(plans)), each, Nearest())
            binding = StartAt(f"phase {i - 1}", ("centre", "start")) if i else None
            stages.append(Stage(f"phase {i}", near, binding, part=i))
        return Composition(tuple(stages), shares, Last())

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        return opposite_records(relation)


localized = Localized()

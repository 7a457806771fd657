"""Phased SGD in one file: one pass over disjoint phases, noise on the output of each, each started at the last.

Sensitivity. Fix the positions: neighbours visit the same records in the same order, but for one. The clipped gradient
of a generalized linear loss is clip(slope) x, the gradient of a convex function of the margin with the same smoothness
b. A step theta - h * gradient does not expand distances if h * b <= 2, and neither does a projection. So two runs
differ by at most h * norm(g - g') <= 2 h C after a replaced record, and by h C after one that left; no later step makes
it more. Averages over public positions are convex combinations of iterates. Hence the output moves by at most 2 h C
(replace-one) or h C (add/remove), for every start, and every phase may spend the whole budget: phases are disjoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Composition, Example, Last, Mechanism, Minimize, Plan, Run, Stage, StartAt, Step
from dpfit.core.algorithm import BOUNDED, MARGIN_LOSS, SMOOTH
from dpfit.core.examples import opposite_records
from dpfit.data.chunk import Chunk
from dpfit.data.view import View
from dpfit.losses.guards import BinaryLabels, RowBall, clip_gradients
from dpfit.noise import add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event, Gaussian

Floats = NDArray[np.float64]
GRID = (np.arange(16) + 1) / 16
"""Public positions at which iterates enter the average."""


@dataclass(frozen=True)
class OnePass(Mechanism):
    """Average iterate of one pass of clipped SGD in the order of positions, plus Gaussian noise.

    Guarantee: mu-GDP, mu = 1 / noise_multiplier.
    Sensitivity: `movement`, proven above.
    """

    kind = "skeleton_one_pass"
    problem: Minimize
    relation: str
    noise_multiplier: float
    step_size: float
    clip_norm: float

    def __post_init__(self) -> None:
        # For every parameter, since the start is bound late.
        if self.step_size * self.problem.constants(self.relation, everywhere=True).smoothness > 2:
            raise ValueError("step_size must be at most 2 / smoothness: longer steps expand distances")

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def movement(self) -> float:
        """Largest distance between the averages of neighbours, before noise."""
        return (2 if self.relation == "replace" else 1) * self.step_size * self.clip_norm

    def run(self, data: View, run: Run) -> Floats:
        noise = {"l2_sensitivity": self.movement, "noise_multiplier": self.noise_multiplier}
        return add_gaussian(self.average(data), source=run.noise, **noise)

    def average(self, data: View) -> Floats:
        """Return the average iterate without noise."""
        start = self.problem.project(self.problem.origin)
        point, total, passed = data.fold(self._visit, (start, np.zeros_like(start), 0))
        return (total + (len(GRID) - passed) * point) / len(GRID)

    def _visit(self, state: tuple[Floats, Floats, int], chunk: Chunk) -> tuple[Floats, Floats, int]:
        point, total, passed = state
        loss, rows = self.problem.loss, RowBall(self.problem.bounds.row_norm).apply(chunk.rows)
        labels = BinaryLabels().apply(chunk.labels) if loss.binary_labels else chunk.labels
        for row, label, position in zip(rows, labels, chunk.positions, strict=True):
            reached = int(np.searchsorted(GRID, position, side="right"))
            total, passed = total + (reached - passed) * point, reached
            gradient = clip_gradients([loss.slope(row @ point, label) * row], self.clip_norm)[0]
            point = self.problem.project(point - self.step_size * gradient)
        return point, total, passed


class PhasedSGD(Algorithm[Minimize]):
    """One pass of SGD in disjoint phases, with halving steps and noise on the output of each."""

    name = "phased_sgd"
    summary = "one pass of SGD in disjoint phases"
    reference = "[Liu24] Section 3.3; docs/explanation/trajectory.md"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (MARGIN_LOSS, SMOOTH, BOUNDED)
    supports = frozenset({"domain", "trust_ball"})

    def _plan(
        self, problem: Minimize, budget: Budget, *, phases: int = 3, step_size: float = 0.5,
        clip_norm: float | None = None,
    ) -> Plan:  # fmt: skip
        """Plan phases of equal size, each within the whole budget."""
        constants = problem.constants(budget.relation, everywhere=True)
        clip_norm = constants.lipschitz if clip_norm is None else clip_norm
        first = min(step_size, 2 / constants.smoothness)
        expand = Assumption("no step expands distances: step_size * smoothness <= 2", "enforced")
        why = Basis("one pass of steps that do not expand, Gaussian noise on the output [Gan22, Fact 15]",
                    budget.relation, budget.unit, (expand,), "idealised")  # fmt: skip

        def make(noise_multiplier: float) -> Composition:
            passes = [
                OnePass(problem, budget.relation, noise_multiplier, first / 2**i, clip_norm) for i in range(phases)
            ]
            stages = (
                Stage(f"phase {i}", Step(each, why), StartAt(f"phase {i - 1}") if i else None, part=i)
                for i, each in enumerate(passes)
            )
            return Composition(tuple(stages), (1 / phases,) * phases, Last())

        return calibrate(make, budget)

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        return opposite_records(relation)


phased_sgd = PhasedSGD()

"""Readers of the descents of version 0.1.0: each was one mechanism, and is a `Descent` today.

The events are those that were charged, so guarantees in files and ledgers stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpfit.core import Mechanism, Minimize, Plan, Risk, Run, TransformedPlan, Work
from dpfit.data.view import View
from dpfit.geometry.symmetric import unpack
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy import Budget
from dpfit.privacy.event import Event, Gaussian
from dpfit.privacy.spec import from_json, reads
from dpfit.privacy.validate import positive
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.momentum import momentum_descent
from dpfit.solvers.descents.rule import tune_descent
from dpfit.solvers.descents.scales import gradient_bound
from dpfit.solvers.gradient.preconditioned_gd import IsotropicBy, IsotropicRule
from dpfit.solvers.public_data.descent import TUNING as PUBLIC
from dpfit.solvers.public_data.descent import PublicOptimizer
from dpfit.solvers.public_data.pda_dpmd import PublicMirror
from dpfit.solvers.public_data.warm_start import WarmStart


@reads("noisy_gd")
def noisy_gd(value: dict[str, Any]) -> Descent:
    """Return the descent of a stored `noisy_gd` or `langevin` plan."""
    schedule = Schedule(
        value["steps"],
        value["momentum"],
        value["average"],
        value["growth"],
        value.get("forgets", 0.0),
    )
    descent = momentum_descent(
        from_json(value["problem"], Minimize),
        value["relation"],
        value["noise_multiplier"],
        value["step_size"],
        value["clip"],
        schedule,
        value.get("shrink", 0.0),
    )
    predicted = value["predicted"]
    return descent if predicted is None else replace(descent, predicted=from_json(predicted, Risk))


@reads("warm_start_gd")
def warm_start_gd(value: dict[str, Any]) -> Descent:
    """Return the descent of a stored `warm_start_gd` plan."""
    return _public(value, WarmStart(_usual_schedule(value), value["clip"]))


@reads("pda_dpmd")
def pda_dpmd(value: dict[str, Any]) -> Descent:
    """Return the descent of a stored `pda_dpmd` plan."""
    return _public(value, PublicMirror(_usual_schedule(value), value["clip"], value["mirror"]))


def _usual_schedule(value: dict[str, Any]) -> Schedule:
    return Schedule(value["steps"], average=PUBLIC.averaged)


def _public(value: dict[str, Any], moves: PublicOptimizer) -> Descent:
    problem, multiplier = from_json(value["problem"], Minimize), value["noise_multiplier"]
    aggregate = ClippedMean(
        problem.n, multiplier, value["steps"], value["relation"], schedule=moves.schedule
    )
    fallback = None
    if moves.clip_norm is not None or np.isfinite(gradient_bound(problem)):
        fallback = tune_descent(
            problem,
            value["relation"],
            multiplier,
            max_passes=value["steps"],
            clip_norm=moves.clip_norm,
        )
    return Descent(problem, aggregate, moves, fallback=fallback)


@dataclass(frozen=True)
class FormerPreconditionedGD(Mechanism):
    """Mapped descent of version 0.1.0, one mechanism; ``moments`` is None until bound."""

    kind = "preconditioned_gd"
    problem: Minimize
    relation: str
    noise_multiplier: float
    steps: int
    floor: float
    moments: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        positive("floor", self.floor)
        _ = self.event

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def work(self) -> Work:
        return Work(gradients=float(self.steps) * self.problem.n, passes=float(self.steps))

    @property
    def rule(self) -> IsotropicRule:
        """The rule from moments to a descent."""
        return IsotropicRule(
            self.problem, self.relation, self.noise_multiplier, self.steps, self.floor
        )

    @property
    def risk(self) -> Risk:
        return self.rule.risk

    @property
    def binding(self) -> IsotropicBy:
        """How the stage before it, named ``moments``, binds the plan `unbound`."""
        return IsotropicBy("moments", self.floor)

    def unbound(self, budget: Budget) -> Plan:
        """Return the plan of today, for a composition whose first stage releases the moments."""
        rule = self.rule
        descent = replace(
            rule.tuned(rule.preconditioner(np.diag(rule.isotropic))), problem=self.problem
        )
        return TransformedPlan.of(
            rule.rows, trajectory_step(replace(descent, predicted=rule.risk), budget)
        )

    @property
    def bound(self) -> Plan:
        """The plan of today, with its geometry set."""
        if self.moments is None:
            raise ValueError("the geometry is not bound yet: it is what the first stage releases")
        rows, descent = self.rule.mapped(unpack(np.asarray(self.moments)))
        return TransformedPlan(
            rows, trajectory_step(descent, Budget(mu=1.0, relation=self.relation))
        )

    def run(self, data: View, run: Run) -> object:
        return self.bound.execute(data, run)

    def run_many(self, data: View, run: Run, count: int) -> Sequence[object]:
        """Draw independent outputs, each distributed as one call of `run`."""
        return self.bound.execute_many(data, run, count)

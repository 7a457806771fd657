"""A descent on a loss that levels off passes the audit tightly; planted constants are caught."""

import math

import numpy as np
import pytest

from dpfit.audit import Fixed, Projection, audit_plan
from dpfit.core import Minimize
from dpfit.core.constants import _cached
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, GemanMcClure, TruncatedAbsolute
from dpfit.losses.robust import residuals
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy import Budget
from dpfit.solvers.descents.descent import trajectory_step
from dpfit.solvers.descents.momentum import momentum_descent

pytestmark = pytest.mark.audit

N, STEPS, STEP_SIZE = 5, 4, 1e-3
STEEPEST = {GemanMcClure: 3 * math.sqrt(3) / 16 * math.sqrt(3), TruncatedAbsolute: 1.0}


@pytest.fixture(autouse=True)
def _no_stored_constants():
    _cached.cache_clear()
    yield
    _cached.cache_clear()


def audited(kind, relation):
    """One record has the steepest label, the others have rows of zero; nothing is clipped."""
    facts = {"loss": kind(math.sqrt(3)), "bounds": Bounds(1.0, -5.0, 5.0)}
    problem = Minimize(n=N, n_features=1, **facts)
    schedule = Schedule(STEPS, average=0.0)
    mechanism = momentum_descent(problem, relation, 1.0, STEP_SIZE, 2.0, schedule)
    rows, labels = np.zeros((N, 1)), np.zeros(N)
    rows[-1], labels[-1] = 1.0, 1.0
    replaced = relation == "replace"
    data = InMemory(rows, labels)
    other = InMemory(rows, -labels) if replaced else InMemory(rows[:-1], labels[:-1])
    gap = STEPS * STEP_SIZE * STEEPEST[kind] / N
    centres = np.array([gap]), np.array([-gap if replaced else 0.0])
    return audit_plan(
        trajectory_step(mechanism, Budget(mu=1.0, relation=relation)),
        data,
        other,
        queries=(),
        runs=12_000,
        attacks=(Projection(centres),),
        strategy=Fixed(0.5),
        random_state=4,
    )


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", STEEPEST)
def test_the_code_as_it_is_passes(kind, relation):
    audit = audited(kind, relation)
    assert audit.kept
    if relation == "replace":
        # Clipping at 2 does not touch these gradients, so the noise is that of their own bound.
        assert audit.lower >= 0.8 * audit.promised


def test_a_slope_that_is_taken_at_the_largest_residual_is_caught(monkeypatch):
    """As for a convex loss: the slope at residuals of 5 is a fifth of the steepest one."""

    def last(self, bounds, margin):
        gap = min(residuals(bounds, margin)[1], 5.0)
        return abs(float(self.slope(gap, 0.0)))

    monkeypatch.setattr(GemanMcClure, "steepest", last)
    assert not audited(GemanMcClure, "replace").kept


def test_a_bound_that_is_too_small_by_a_third_is_caught(monkeypatch):
    true = GemanMcClure.steepest
    monkeypatch.setattr(GemanMcClure, "steepest", lambda *given: 0.67 * true(*given))
    assert not audited(GemanMcClure, "replace").kept

"""Faults planted in the shipped noisy descent are caught; the code as it is passes the same audit.

Linear losses make the analysis tight: the output is normal, and its shift is all that one record
can do.
"""

from functools import cached_property

import numpy as np
import pytest

from dpfit.audit import Fixed, Projection, audit_plan
from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, LinearLoss
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Grid
from dpfit.privacy import Budget
from dpfit.solvers.descents.descent import trajectory_step
from dpfit.solvers.descents.momentum import momentum_descent

STEPS, CLIP, N = 6, 1.0, 5
true_multipliers = ClippedMean.__dict__["multipliers"].func


def audited(relation):
    problem = Minimize(n=N, loss=LinearLoss(), bounds=Bounds(9.0), n_features=1)
    mechanism = momentum_descent(problem, relation, 1.0, 1.0, CLIP, Schedule(STEPS, average=0.0))
    rows = np.zeros((N, 1))
    rows[-1] = 1.0
    other = (
        InMemory(-rows, np.zeros(N))
        if relation == "replace"
        else InMemory(rows[:-1], np.zeros(N - 1))
    )
    gap = STEPS / N
    centres = (
        (np.array([-gap]), np.array([gap]))
        if relation == "replace"
        else (np.array([-gap]), np.array([0.0]))
    )
    plan = trajectory_step(mechanism, Budget(mu=1.0, relation=relation))
    return audit_plan(
        plan,
        InMemory(rows, np.zeros(N)),
        other,
        queries=(),
        runs=20_000,
        attacks=(Projection(centres),),
        strategy=Fixed(0.5),
        random_state=4,
    )


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_code_as_it_is_passes_and_the_audit_is_tight(relation):
    audit = audited(relation)
    assert audit.kept
    assert audit.lower >= 0.85 * audit.promised


def quiet(factor):
    def multipliers(self):
        return factor * true_multipliers(self)

    return multipliers


def first_step_bare(self):
    return np.where(np.arange(STEPS) == 0, 1e-6, true_multipliers(self))


FAULTS = {
    "noise x 0.8": quiet(0.8),
    # The variance T G^2 / (2 mu^2) of [ASAP] Theorem 4 in place of T G^2 / mu^2.
    "the printed variance": quiet(np.sqrt(0.5)),
    "no noise on the first step": first_step_bare,
}


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_the_noise_are_caught(fault, relation, monkeypatch):
    patched = cached_property(FAULTS[fault])
    patched.__set_name__(ClippedMean, "multipliers")
    monkeypatch.setattr(ClippedMean, "multipliers", patched)
    assert audited(relation).broken


def test_a_forgotten_factor_two_is_caught(monkeypatch):
    """Replace-one charged like add/remove."""
    monkeypatch.setattr(
        Minimize, "clipped_sensitivity", lambda problem, clip_norm, relation: clip_norm
    )
    assert audited("replace").broken


def test_one_record_that_is_not_clipped_is_caught(monkeypatch):
    def unclipped(self, data, grid):
        last = data.whole.rows[-1]
        return true_total(self, data, grid) + grid.quantize(
            2.0 * np.sign(last) * (np.abs(last) > 0.5)
        )

    true_total = Gradient.total
    monkeypatch.setattr(Gradient, "total", unclipped)
    assert audited("add_remove").broken


def test_a_scale_that_is_kept_from_another_bound_is_caught(monkeypatch):
    """Grid and sensitivity are cached: without the bound in the key, noise fits another clip."""
    small = Grid.fitting(CLIP, 1, "l2"), 0.5 * CLIP
    monkeypatch.setattr(ClippedMean, "scale", lambda self, contribution: small)
    assert audited("add_remove").broken

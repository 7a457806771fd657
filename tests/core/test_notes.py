"""Notes of a plan: tuned numbers are noted, and what a stage says stays true of the whole."""

from __future__ import annotations

from importlib import import_module

import pytest

from dpfit.core import Composition, Leak, Stage, Tuned, Tuning
from dpfit.core.examples import opposite_records
from dpfit.core.registry import entries
from dpfit.models import LogisticRegression, NetworkClassifier
from dpfit.models.network import NetworkDefaults
from dpfit.models.ranges import RangesTuning
from dpfit.models.row_norm import RowNormTuning
from dpfit.privacy import Budget
from dpfit.privacy.kinds import KINDS
from dpfit.solvers.auto import auto
from dpfit.solvers.gradient.noisy_gd import noisy_gd

TUNED = [row.load() for row in entries() if row.load().tunings]


def tunings() -> set[type[Tuning]]:
    """Return every kind of tuned numbers in the package."""
    for module, _ in KINDS.values():
        import_module(module)
    return {kind for kind in Tuning.__subclasses__() if kind.__module__.startswith("dpfit.")}


def test_every_rule_with_tuned_numbers_belongs_to_an_algorithm():
    declared = {type(tuning) for algorithm in TUNED for tuning in algorithm.tunings}
    choices = {type(tuning) for tuning in auto.tunings}
    models = {RangesTuning, RowNormTuning, NetworkDefaults}
    assert tunings() == declared | choices | models


def test_a_model_s_plan_notes_what_its_own_rules_took():
    model = NetworkClassifier(1.0, 1e-6)
    noted = {type(note.tuning) for note in model.plan(10**4, 3).notes if isinstance(note, Tuned)}
    assert {NetworkDefaults, RangesTuning} <= noted
    plan = LogisticRegression(1.0, bounds=(-1, 1)).plan(10**4, 3)
    noted = {type(note.tuning) for note in plan.notes if isinstance(note, Tuned)}
    assert RowNormTuning in noted
    assert not {NetworkDefaults, RangesTuning} & noted


@pytest.mark.parametrize("algorithm", TUNED, ids=lambda algorithm: algorithm.name)
def test_a_plan_notes_the_tuned_numbers_once(algorithm):
    problem = algorithm.example("replace").problem
    plan = algorithm.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    noted = [note.tuning for note in plan.notes if isinstance(note, Tuned)]
    assert len(noted) == len(set(noted))
    assert set(algorithm.tunings) <= set(noted)
    assert all("benchmarks/" in tuning.set_by for tuning in noted)


def test_a_leak_of_a_stage_is_declared_by_the_composition():
    leak = Leak("the ranges were read off the records")
    plan = noisy_gd.plan(opposite_records("replace").problem, Budget(mu=1.0)).with_notes(leak)
    whole = Composition((Stage("first", plan), Stage("second", plan)))
    assert [note for note in whole.notes if isinstance(note, Leak)] == [leak]
    assert [a.text for a in whole.basis.assumptions].count(leak.text) == 1

"""The standing audit: every algorithm of the catalogue, both relations, on its own example at its audit budget.

Each audit has a false-alarm rate of at most 1e-6 divided by the number of audits, so all together raise a false alarm
with probability below 1e-6. New entries are picked up by themselves.
"""

import pytest

from dpfit.audit import audit_entry
from dpfit.catalogue import ENTRIES

RELATIONS = ("replace", "add_remove")
CONFIDENCE = 1 - 1e-6 / (len(ENTRIES) * len(RELATIONS))


FEW = {"preconditioned_gd": 500}
"""Runs a side where every run is 300 passes of its own: each has a geometry of its own, so they cannot share passes."""


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", [row.name for row in ENTRIES])
def test_the_promise_is_kept(name, relation):
    runs = FEW.get(name, 2000)
    audit = audit_entry(name, relation=relation, runs=runs, confidence=CONFIDENCE, random_state=11)
    assert audit.verdict == "kept", str(audit)
    assert audit.lower <= audit.promised


DEAR = {
    "dp_sgd": 3000,
    "objective_perturbation": 4000,
    "posterior_release": 4000,
    "preconditioned_gd": 1000,
    "sparse_corrected": 4000,
    "sufficient_statistics": 4000,
}
"""Runs a side where each run costs milliseconds."""


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", [row.name for row in ENTRIES])
def test_the_promise_is_kept_on_more_runs_with_fresh_noise(name, relation):
    audit = audit_entry(name, relation=relation, runs=DEAR.get(name, 10_000), confidence=CONFIDENCE)
    assert audit.verdict == "kept", str(audit)

"""The standing audit: every algorithm of the catalogue, both relations, on its own example at its audit budget.

Each audit has a false-alarm rate of at most 1e-6 divided by the number of audits, so all together raise a false alarm
with probability below 1e-6. New entries are picked up by themselves.

The fast suite runs each algorithm 500 times a side, or 2000 times where 500 runs cannot find any fault at this
confidence. The slow suite runs it more often, with fresh noise. Planted faults in the other files of this folder say
which faults an audit must find.
"""

import pytest

from dpfit.audit import audit_entry
from dpfit.audit.record import TOO_FEW
from dpfit.catalogue import ENTRIES

RELATIONS = ("replace", "add_remove")
CONFIDENCE = 1 - 1e-6 / (len(ENTRIES) * len(RELATIONS))


pytestmark = pytest.mark.audit


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", [row.name for row in ENTRIES])
def test_the_promise_is_kept(name, relation):
    audit = audit_entry(name, relation=relation, runs=500, confidence=CONFIDENCE, random_state=11)
    if audit.verdict == TOO_FEW:
        # Such an audit raises no alarm, so the rate of false alarms is that of the second one alone.
        audit = audit_entry(name, relation=relation, runs=2000, confidence=CONFIDENCE, random_state=11)
    assert audit.verdict == "kept", str(audit)
    assert audit.lower <= audit.promised


DEAR = {
    "dp_sgd": 3000,
    "iterated_exponential_mechanism_sco": 2000,
    "objective_perturbation": 4000,
    "posterior_release": 4000,
    "preconditioned_gd": 1000,
    "sparse_corrected": 4000,
    "sufficient_statistics": 4000,
}
"""Runs a side where each run costs milliseconds; parts of the data are drawn afresh in each run."""


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", [row.name for row in ENTRIES])
def test_the_promise_is_kept_on_more_runs_with_fresh_noise(name, relation):
    audit = audit_entry(name, relation=relation, runs=DEAR.get(name, 10_000), confidence=CONFIDENCE)
    assert audit.verdict == "kept", str(audit)

"""Standing audit: every algorithm, its relations, own example, at its audit budget.

Each audit has a false-alarm rate of at most 1e-6 divided by the number of audits, so all together
raise a false alarm with probability below 1e-6. New entries are picked up by themselves.

The fast suite runs each algorithm 500 times a side under replace-one, at a budget at which so many
runs can find a fault. The slow suite runs it more often, under both relations, with fresh noise and
all its passes. Planted faults in the other files of this folder say which faults an audit must
find.
"""

import pytest

from dpfit.audit import audit_entry
from dpfit.audit.auditor import audit_algorithm
from dpfit.audit.result import TOO_FEW
from dpfit.catalogue import ENTRIES, entry

RELATIONS = ("replace", "add_remove")
CONFIDENCE = 1 - 1e-6 / (len(ENTRIES) * len(RELATIONS))


pytestmark = pytest.mark.audit


EPSILON = 3.0
"""Budget of entries for which 500 runs say nothing at epsilon 1: they need up to 1500 there, at
most 500 here.
"""
RUNS = {"iterated_exponential_mechanism_sco": 400, "localized_asap": 400}
"""Runs a side where each costs 10 to 25 milliseconds; 280 are needed at `EPSILON`."""
PASSES = {"preconditioned_gd": 10, "robust_gd": 10}
"""Each run draws its own matrix or start, so runs are not vectorized."""


@pytest.mark.parametrize("name", [row.name for row in ENTRIES])
def test_the_promise_is_kept(name):
    row = entry(name)
    algorithm = row.load().using(max_passes=PASSES[name]) if name in PASSES else row.load()
    how = {
        "relation": "replace",
        "runs": RUNS.get(name, 500),
        "confidence": CONFIDENCE,
        "random_state": 11,
    }
    audit = audit_algorithm(
        algorithm, row.guarantees, epsilon=EPSILON if name in RUNS else None, **how
    )
    if audit.verdict == TOO_FEW:
        # Such an audit raises no alarm, so the rate of false alarms is that of the second one
        # alone.
        audit = audit_algorithm(algorithm, row.guarantees, epsilon=EPSILON, **how)
    assert audit.verdict == "kept", str(audit)
    assert audit.lower <= audit.promised


DEAR = {
    "dp_sgd": 3000,
    "iterated_exponential_mechanism_sco": 2000,
    "objective_perturbation": 4000,
    "posterior_release": 4000,
    "preconditioned_gd": 1000,
    "robust_gd": 1000,
    "sparse_corrected": 4000,
    "sufficient_statistics": 4000,
}
"""Runs a side where each run costs milliseconds; parts of the data are drawn afresh in each run."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "relation"), [(row.name, relation) for row in ENTRIES for relation in row.relations]
)
def test_the_promise_is_kept_on_more_runs_with_fresh_noise(name, relation):
    audit = audit_entry(name, relation=relation, runs=DEAR.get(name, 10_000), confidence=CONFIDENCE)
    assert audit.verdict == "kept", str(audit)

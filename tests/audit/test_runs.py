"""Runs: reproducible, independent, parallel, batched; outputs of any shape; bad input."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpfit.audit import (
    Attack,
    Learned,
    LikelihoodRatio,
    Projection,
    Shape,
    audit_callable,
    audit_entry,
    audit_plan,
    record_pairs,
)
from dpfit.audit.outcomes import Outcomes, Raised, structure, vector
from dpfit.audit.runs import CallableRuns, PlanRuns, collect
from dpfit.core import Answer, Binding, Composition, Mechanism, Stage, Step
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean
from dpfit.noise import Source
from dpfit.privacy import Basis, Budget, Guarantee
from dpfit.privacy.event import Gaussian, Laplace, Pure

ZEROS, ONE = np.zeros(4), np.eye(4)[0]
PROMISE = Guarantee(Gaussian(1.0), Basis("test"))


def noisy_sum(data, source):
    return np.rint(1024 * (data.sum() + source.gaussian(1))) / 1024


def planned():
    problem, data, neighbour = gaussian_mean.example("replace")
    return gaussian_mean.plan(problem, Budget(mu=1.0)), data, neighbour


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_seeded_runs_are_reproducible_and_all_different(n_jobs):
    plan, data, neighbour = planned()
    one = collect(PlanRuns(plan), data, neighbour, 50, random_state=3, n_jobs=n_jobs)
    two = collect(PlanRuns(plan), data, neighbour, 50, random_state=3)
    assert one[0].keys == two[0].keys
    assert one[1].keys == two[1].keys
    assert len({*one[0].keys, *one[1].keys}) > 95
    fresh = collect(PlanRuns(plan), data, neighbour, 50)
    assert len({*one[0].keys, *fresh[0].keys}) > 95


def test_progress_ends_at_one_and_grows():
    seen = []
    collect(CallableRuns(noisy_sum), ZEROS, ONE, 100, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@dataclass(frozen=True)
class BatchedSum(Mechanism):
    """A mechanism with the hook for speed."""

    kind = "audit_test_batched_sum"

    @property
    def event(self):
        return Gaussian(1.0)

    def run(self, data, run):
        return noisy_sum(data.given, run.noise)

    def run_many(self, data, run, count):
        return np.rint(1024 * (data.given.sum() + run.noise.gaussian((count, 1)))) / 1024


def test_mechanisms_may_draw_many_outputs_at_once():
    audit = audit_plan(Step(BatchedSum(), Basis("test")), ZEROS, ONE, runs=20_000, random_state=1)
    assert audit.kept
    assert audit.lower > 0.85


def test_structures_and_vectors():
    value = (1.5, np.arange(2), [True])
    assert structure(value) == (
        "tuple",
        ("float", ()),
        ("ndarray", (2,), "int64"),
        ("list", ("bool", ())),
    )
    assert vector(value).tolist() == [1.5, 0.0, 1.0, 1.0]
    assert vector("text") is None
    assert vector({"a": 1}) is None
    assert structure({"a": 1}) == ("dict", ("a", ("int", ())))
    outcomes = Outcomes([np.zeros(2), Raised("ValueError", "no"), np.array([np.inf, np.nan])])
    rows, fits = outcomes.matrix(structure(np.zeros(2)))
    assert fits.tolist() == [True, False, True]
    assert np.all(np.isfinite(rows))


def test_a_rare_exception_does_not_hide_a_leak_in_the_numbers():
    def flaky(data, source):
        if source.uniform(1)[0] < 0.05:
            raise RuntimeError("not converged")
        return data.sum() + 0.1 * np.rint(1024 * source.gaussian(1)) / 1024

    audit = audit_callable(flaky, ZEROS, ONE, PROMISE, runs=1000, random_state=1)
    assert audit.broken
    assert audit.attack != "shape or exception"


def test_a_mechanism_that_always_raises_is_an_error_not_a_verdict():
    def impossible(data, source):
        raise KeyError("x")

    with pytest.raises(ValueError, match="every run raised KeyError"):
        audit_callable(impossible, ZEROS, ONE, PROMISE, runs=10)


@pytest.mark.parametrize(
    "attack",
    [
        Projection(centres=(np.zeros(1), np.ones(1))),
        LikelihoodRatio(lambda rows: rows[:, 0]),
        Learned("logistic"),
        Learned("boosted"),
    ],
    ids=["known centres", "likelihood ratio", "logistic", "boosted"],
)
def test_each_score_sees_a_shift_and_stays_below_the_truth(attack: Attack):
    audit = audit_callable(
        noisy_sum, ZEROS, ONE, PROMISE, runs=6000, attacks=(attack,), random_state=4
    )
    assert audit.kept
    assert 0.6 < audit.lower < 1.0
    loud = Guarantee(Gaussian(2.0), Basis("test"))
    assert audit_callable(
        noisy_sum, ZEROS, ONE, loud, runs=6000, attacks=(attack,), random_state=4
    ).broken


def test_infinite_outputs_on_one_of_the_pair_are_a_leak_and_no_warning():
    audit = audit_callable(
        lambda data, source: noisy_sum(data, source) if data[0] == 0 else np.array([np.inf]),
        ZEROS, ONE, PROMISE, runs=500, random_state=1,
    )  # fmt: skip
    assert audit.broken
    assert {"projection", "transcript"} <= {
        finding.attack for finding in audit.findings if finding.broken
    }


@dataclass(frozen=True)
class Following(Mechanism):
    """A second stage whose geometry is the number that was released before it."""

    kind = "audit_test_following"
    centre: float = 0.0

    @property
    def event(self):
        return Gaussian(1.0)

    def run(self, data, run):
        return 100 * self.centre + noisy_sum(data.given, run.noise)

    def run_many(self, data, run, count):
        return [self.run(data, run) for _ in range(count)]


@dataclass(frozen=True)
class CentredAt(Binding):
    """Set the centre by the sign of what a stage released."""

    kind = "audit_test_centred_at"
    stage: str

    def __call__(self, plan, released):
        return plan.map_steps(lambda step: replace(step, centre=float(released[self.stage][0] > 0)))


def test_compositions_run_in_batches_with_each_stage_bound_to_its_own_run():
    second = Stage("second", Step(Following(), Basis("test")), CentredAt("first"))
    chain = Composition((Stage("first", Step(BatchedSum(), Basis("test"))), second))
    assert chain.batched
    assert not planned()[0].batched
    values = PlanRuns(chain)(ZEROS, 300, Source(2))
    first, second = (np.array([value[stage][0] for value in values]) for stage in (0, 1))
    assert len(values) == 300
    assert np.array_equal(first > 0, second > 50)
    assert 100 < np.sum(first > 0) < 200
    assert len(set(first)) > 250


def test_too_few_runs_are_said_with_the_number_needed():
    few = audit_callable(noisy_sum, ZEROS, ONE, PROMISE, runs=20, random_state=1)
    assert few.verdict == "too few runs"
    assert "runs a side are needed" in str(few)
    enough = audit_callable(noisy_sum, ZEROS, ONE, PROMISE, runs=few.needed, random_state=1)
    assert enough.kept


def test_one_run_is_not_an_audit():
    assert (
        audit_callable(noisy_sum, ZEROS, ONE, PROMISE, runs=1, random_state=1).verdict
        == "too few runs"
    )


def test_pairs_that_are_no_neighbours_are_refused():
    plan, data, _ = planned()
    with pytest.raises(ValueError, match="same number of records"):
        audit_plan(plan, data, data[:-1])
    with pytest.raises(ValueError, match="exactly one of the records must differ, 0 do"):
        audit_plan(plan, data, data.copy())
    with pytest.raises(ValueError, match="exactly one of the records must differ, 5 do"):
        audit_plan(plan, data, data + 1)
    removing = Guarantee(Pure(1.0), Basis("test", "add_remove"))
    with pytest.raises(ValueError, match="differ by one"):
        audit_callable(noisy_sum, ZEROS, ONE, removing)


def test_bad_options_are_said():
    with pytest.raises(ValueError, match="mu or epsilon, not both"):
        audit_entry("laplace_mean", mu=1.0, epsilon=1.0)
    with pytest.raises(ValueError, match="no Gaussian-DP promise"):
        audit_entry("above_threshold", mu=1.0)
    with pytest.raises(ValueError, match="would need a delta"):
        audit_entry("gaussian_mean", epsilon=1.0)
    with pytest.raises(ValueError, match="no algorithm 'magic'"):
        audit_entry("magic")
    with pytest.raises(ValueError, match="confidence"):
        audit_entry("gaussian_mean", confidence=1.0)
    with pytest.raises(ValueError, match="at least one attack"):
        audit_entry("gaussian_mean", attacks=())
    with pytest.raises(TypeError, match="function of data"):
        audit_callable("math:pi", ZEROS, ONE, PROMISE)
    with pytest.raises(ValueError, match="runs must be a whole number"):
        audit_entry("gaussian_mean", runs=0)


def test_reports_are_plain_values():
    audit = audit_callable(noisy_sum, ZEROS, ONE, PROMISE, runs=500, random_state=1)
    read = json.loads(json.dumps(audit.to_json()))
    assert read["verdict"] == "kept"
    assert read["currency"] == "mu"
    assert len(read["findings"]) == 6
    assert len(read["curve"]["false_alarms"]) == len(read["curve"]["misses"]) > 50
    assert Guarantee.from_json(read["promise"]) == PROMISE


@pytest.mark.slow
def test_hostile_pairs_do_not_break_the_shipped_mean():
    """NaN, infinities, outliers, duplicates, heavy tails; 300 runs see gross leaks and shapes."""
    problem = Answer(n=6, workload=BoundedMean(-1.0, 1.0, 2))
    for relation in ("replace", "add_remove"):
        plan = gaussian_mean.plan(problem, Budget(mu=1.0, relation=relation))
        for pair in record_pairs(6, 2, -1.0, 1.0, relation, Source(1)):
            audit = audit_plan(
                plan,
                pair.data,
                pair.neighbour,
                runs=300,
                attacks=(Projection(), Shape()),
                random_state=1,
                subject=pair.name,
            )
            assert audit.kept, str(audit)


def test_low_bits_see_naive_noise_through_a_user_function():
    naive = Guarantee(Laplace(1.0), Basis("textbook"))
    audit = audit_callable(
        lambda data, source: data.sum() + source.laplace(1), ZEROS, ONE, naive, runs=3000
    )
    assert audit.broken
    assert audit.attack == "low bits"

"""Faults planted in the shipped code are caught by the auditor; the code itself is not.

Faults are patched into `NoisyMean.run`, which all three means share, and into the noise of above
threshold. Confidence is 1 - 1e-6 for each audit; RNG seeds are fixed.
"""

from dataclasses import replace

import numpy as np
import pytest

from dpfit.audit import (
    DEFAULT,
    Fixed,
    Projection,
    Transcript,
    audit_callable,
    audit_plan,
    exact_masses,
)
from dpfit.core import Answer, Interact, Run
from dpfit.mechanisms import above_threshold as svt
from dpfit.mechanisms.mean import BoundedMean, NoisyMean, gaussian_mean, laplace_mean
from dpfit.mechanisms.ranged_mean import ranged_mean
from dpfit.privacy import Budget
from mechanisms.test_above_threshold import halting_law
from oracles.views import viewed

ENTRIES = {
    "gaussian_mean": (gaussian_mean, {"mu": 1.0}, {}),
    "laplace_mean": (laplace_mean, {"epsilon": 1.0}, {}),
    # Nearly all of the budget goes to the mean, so that its faults show.
    "ranged_mean": (ranged_mean, {"mu": 1.0}, {"share": 0.02}),
}

true_run = NoisyMean.run


def quiet(self, data, run):
    """Noise times 0.8."""
    return true_run(replace(self, noise_multiplier=0.8 * self.noise_multiplier), data, run)


def unclipped(self, data, run):
    """The last record enters as it is."""
    last = data.given[-1]
    excess = last - np.clip(last, self.query.lower, self.query.upper)
    return true_run(self, data, run) + excess / self.n


def counted(self, data, run):
    """Divided by the number of records, not by the declared one."""
    return true_run(replace(self, n=len(data.given)), data, run)


ZEROS = np.zeros((4, 1))
FAULTS = {
    "noise x 0.8": (quiet, ZEROS, np.vstack([ZEROS[:-1], [[1.0]]]), "replace", 10_000, None),
    "one row unclipped": (
        unclipped,
        ZEROS,
        np.vstack([ZEROS[:-1], [[9.0]]]),
        "replace",
        400,
        DEFAULT,
    ),
    "wrong n": (counted, np.array([[1.0], [0.0]]), np.array([[1.0]]), "add_remove", 2000, DEFAULT),
}


CENTRES = {name: (np.array([0.0]), np.array([0.25])) for name in ("gaussian_mean", "laplace_mean")}
# The range is the declared one unless noise makes it narrower, and the mean is what moves.
CENTRES["ranged_mean"] = ((0.0, 1.0), np.array([0.0])), ((0.0, 1.0), np.array([0.25]))


def audited(name, data, neighbour, relation, runs, attacks):
    """Run the plan itself, with one noise stream for all runs (`test_power` has the runner).

    Small faults get the sharpest test there is: the known direction, halfway between the noiseless
    outputs.
    """
    algorithm, budget, options = ENTRIES[name]
    problem = Answer(n=len(data), workload=BoundedMean(0.0, 1.0))
    plan = algorithm.plan(problem, Budget(**budget, relation=relation), **options)

    def mechanism(rows, source):
        return plan.execute(viewed(rows, relation), Run(source))

    how = (
        {"attacks": attacks}
        if attacks
        else {"attacks": (Projection(CENTRES[name]),), "strategy": Fixed(0.5)}
    )
    return audit_callable(
        mechanism, data, neighbour, plan.guarantee, runs=runs, random_state=2, subject=name, **how
    )


SLOW = ("ranged_mean", "noise x 0.8")
CASES = [
    pytest.param(name, fault, marks=pytest.mark.slow if (name, fault) == SLOW else ())
    for name in ENTRIES
    for fault in FAULTS
]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_planted_faults_are_caught(name, fault, monkeypatch):
    patch, *case = FAULTS[fault]
    monkeypatch.setattr(NoisyMean, "run", patch)
    assert audited(name, *case).broken


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("fault", ["one row unclipped", "wrong n"])
def test_without_the_fault_the_same_audit_passes(name, fault):
    _, *case = FAULTS[fault]
    assert audited(name, *case).kept


def planned(epsilon=1.0, rounds=4):
    problem = Interact(n=3, workload=svt.ThresholdQueries(threshold=2.0), rounds=rounds)
    return svt.above_threshold.plan(problem, Budget(epsilon=epsilon))


def test_above_threshold_with_a_quarter_of_the_noise_is_caught(monkeypatch):
    """The proof is not tight on transcripts frequent enough to count: the fault is gross."""
    true_noise = svt.rounded
    monkeypatch.setattr(
        svt, "rounded", lambda law, scale, n, source: true_noise(law, 0.25 * scale, n, source)
    )
    audit = audit_plan(
        planned(),
        np.ones(3),
        np.array([1.0, 1.0, 0.0]),
        runs=3000,
        attacks=(Transcript(),),
        random_state=1,
    )
    assert audit.broken
    assert audit.attack == "transcript"


@pytest.mark.slow
def test_above_threshold_that_goes_on_after_halting_is_caught(monkeypatch):
    """The halting answer does not end it, so all answers above share one cost."""
    monkeypatch.setattr(svt.AboveThreshold, "is_done", lambda self, state: False)
    plan = planned(rounds=100)
    ones, other = np.ones(3), np.array([1.0, 1.0, 0.0])
    queries = [*[lambda d: 2.0 + d.sum() - 3.0] * 50, *[lambda d: 2.0 + 3.0 - d.sum()] * 50]

    def difference(data, source):
        answers = plan.run(data, queries, random_state=int(source.integers(2**62, 1)[0])).value
        return float(sum(answers[:50]) - sum(answers[50:]))

    assert audit_callable(difference, ones, other, plan.guarantee, runs=1000, random_state=1).broken


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "kept"), (0.8, "broken")])
def test_above_threshold_with_noise_times_four_fifths_is_caught_exactly(factor, verdict):
    """Quadrature: fifteen queries at the threshold move up; the last, far below, moves down."""
    base = np.append(np.zeros(15), -6.0)
    moved = base + np.append(np.ones(15), -1.0)
    laws = [halting_law(answers, 1.0 / factor) for answers in (base, moved)]
    assert exact_masses(*laws, planned().guarantee).verdict == verdict

"""Each broken mechanism is caught by its fixture's attack; honest twins are not."""

import math
from dataclasses import replace

import numpy as np
import pytest

from audit.broken import FIXTURES, Broken, floating_point_laplace, on_grid, two_tests_joined_by_and
from dpfit.audit import LowBits, audit_callable, audit_runs, exact_gaussian, exact_masses
from dpfit.audit.runs import imported
from dpfit.noise import add_laplace
from dpfit.privacy import Basis, Guarantee
from dpfit.privacy.event import Approximate, Gaussian, Laplace, Pure


def audited(fixture: Broken, **options):
    settings = {
        "runs": fixture.runs,
        "attacks": fixture.attacks,
        "random_state": 1,
        "subject": fixture.name,
    } | options
    return audit_runs(fixture.sampler, fixture.data, fixture.neighbour, fixture.promise, **settings)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_it_is_caught_by_the_attack_it_names(fixture):
    audit = audited(fixture)
    assert audit.broken
    assert fixture.caught_by in {finding.attack for finding in audit.findings if finding.broken}
    assert audit.attack in {finding.attack for finding in audit.findings if finding.broken}
    assert "broken" in str(audit)


def test_leaks_of_shape_are_described():
    notes = {
        fixture.name: next(
            f.note for f in audited(fixture).findings if f.attack == fixture.caught_by
        )
        for fixture in FIXTURES
        if fixture.caught_by == "shape or exception"
    }
    assert "a record is out of range" in notes["raises on one of the pair"]
    assert "(3,)" in notes["lengths that differ"]


def honest_gradient_descent(data, runs, source, steps=8):
    return on_grid(
        -(data.sum() + math.sqrt(steps) * source.gaussian((runs, steps))).sum(axis=1, keepdims=True)
    )


def honest_tree(leaves, runs, source):
    nodes = math.sqrt(3) * source.gaussian((runs, 4))
    noise = np.stack([nodes[:, 0], nodes[:, 1], nodes[:, 1] + nodes[:, 2], nodes[:, 3]], axis=1)
    return on_grid(np.cumsum(leaves) + noise)


def honest_laplace(data, runs, source):
    return on_grid(data.sum() + source.laplace((runs, 1)))


LAST = np.array([0.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("many", "event"),
    [
        (honest_gradient_descent, Gaussian(1.0)),
        (honest_tree, Gaussian(1.0)),
        (honest_laplace, Laplace(1.0)),
    ],
    ids=["noisy GD, corrected variance", "tree with all nodes", "Laplace"],
)
def test_the_corrected_mechanisms_keep_their_promise(many, event):
    audit = audited(Broken("honest", many, np.zeros(4), LAST, event, ""))
    assert audit.kept
    assert audit.lower > 0.3 * audit.promised


@pytest.mark.slow
def test_the_selector_spends_twice_its_promise_and_not_more():
    fixture = next(f for f in FIXTURES if f.many is two_tests_joined_by_and)
    twice = Guarantee(type(fixture.event)(6.0), Basis("two above-threshold tests"))
    audit = audit_runs(
        fixture.sampler,
        fixture.data,
        fixture.neighbour,
        twice,
        runs=fixture.runs,
        attacks=fixture.attacks,
        random_state=1,
    )
    assert audit.kept


def test_low_bits_of_exact_noise_tell_nothing():
    """The same sum with the library's noise: low bits find nothing where naive noise is caught."""
    promise = Guarantee(Laplace(1.0), Basis("Laplace mechanism"))
    options = {"runs": 3000, "attacks": (LowBits(),), "random_state": 1}

    def safe(data, source):
        return add_laplace(
            data.sum(keepdims=True), l1_sensitivity=1.0, noise_multiplier=1.0, source=source
        )

    zeros, one = np.zeros(4), np.eye(4)[0]
    assert audit_callable(safe, zeros, one, promise, **options).kept
    naive = Broken("naive", floating_point_laplace, zeros, one, Laplace(1.0), "low bits", 3000)
    assert audited(naive, attacks=(LowBits(),)).broken


def test_the_classical_gaussian_at_epsilon_ten_is_caught_by_the_exact_check_only():
    """sigma = sqrt(2 log(1.25 / delta)) / epsilon is proven for epsilon < 1 and wrong at 10."""
    epsilon, delta = 10.0, 1e-5
    sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    promise = Guarantee(Approximate(epsilon, delta), Basis("classical formula"))
    exact = exact_gaussian(1.0, sigma, promise, currency="epsilon", delta=delta)
    assert exact.broken
    assert exact.attack == "exact"
    assert exact.lower > 10.1

    def many(data, runs, source):
        return on_grid(data.sum() + sigma * source.gaussian((runs, 1)))

    sampled = audited(
        Broken("classical", many, np.zeros(4), LAST, promise.event, "exact"),
        currency="epsilon",
        delta=delta,
    )
    assert not sampled.broken
    right = exact_gaussian(
        1.0,
        1.0,
        Guarantee(Approximate(4.3776, 1e-5), Basis("exact")),
        currency="epsilon",
        delta=1e-5,
    )
    assert right.kept


def test_import_paths():
    with pytest.raises(ValueError, match="module:function"):
        imported("numpy")
    with pytest.raises(ValueError, match="cannot import"):
        imported("numpy:no_such_thing")


def randomized_response(data, runs, source, epsilon=0.99):
    """The bit, or its opposite with probability 1 / (1 + e^epsilon)."""
    return np.where(
        source.uniform((runs, 1)) * (1 + math.exp(epsilon)) < 1, 1 - data.sum(), data.sum()
    )


def test_a_contradiction_elsewhere_on_the_curve_is_told_where_it_is():
    """Randomized response meets epsilon = 1 but breaks Laplace's curve at equal error rates."""
    fixture = Broken(
        "response", randomized_response, np.zeros(4), np.eye(4)[0], Laplace(1.0), "transcript"
    )
    audit = audited(fixture)
    assert audit.broken
    assert audit.lower > audit.promised
    assert audit.lower == max(finding.lower for finding in audit.findings)
    assert audit.currency.name.startswith("epsilon at delta = 0.")
    assert audit.promised == pytest.approx(audit.currency.promised(fixture.promise))
    rate = 1 / (1 + math.exp(0.99))
    exact = exact_masses([1 - rate, rate], [rate, 1 - rate], fixture.promise)
    assert exact.broken
    assert exact.lower > exact.promised
    # In its own currency the pair is kept: nothing moves there.
    assert audited(replace(fixture, event=Pure(1.0))).kept

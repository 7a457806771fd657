"""Losses that callers write: wrong ones are found when planned, or end in bounded work."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import kstest

from dpfit.core import Minimize, Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Absolute, Bounds, CustomLoss
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.gibbs.asap_perturb import asap_perturb
from dpfit.solvers.gibbs.dp_from_sampler_closeness import dp_from_sampler_closeness

ROW = np.array([0.6, 0.8])


def absolute(scale, calls=None):
    """|margin - label| times a scale that may depend on the rows."""

    def value(theta, rows, labels):
        if calls is not None:
            calls.append(1)
        return scale(rows) * np.abs(rows @ theta - labels)

    return CustomLoss(
        value_function=value,
        gradient_function=lambda theta, rows, labels: (
            (scale(rows) * np.sign(rows @ theta - labels))[:, None] * rows
        ),
        lipschitz_bound=1.0,
        is_convex=True,
    )


def steep_on_the_records(rows):
    """One on probe rows, ten on those of the test."""
    return np.where(np.abs(rows - ROW).max(axis=1) < 1e-9, 10.0, 1.0)


def problem(loss, n=60):
    return Minimize(
        n=n,
        loss=loss,
        bounds=Bounds(1.0, -1.0, 1.0),
        n_features=2,
        domain=L2Ball(2, 1.0),
        ridge=0.05,
    )


def records(n=60):
    return InMemory(np.tile(ROW, (n, 1)), np.linspace(-1, 1, n))


@pytest.mark.parametrize("solver", [asap_perturb, dp_from_sampler_closeness])
def test_a_wrong_declaration_is_found_when_planned(solver):
    wrong = absolute(lambda rows: 10.0)
    with pytest.raises(ValueError, match="lipschitz_bound must be at least 10"):
        solver.plan(problem(wrong), Budget(mu=0.5))


CHAINS = [
    (asap_perturb, {"sampler": "piloted"}),
    (asap_perturb, {"sampler": "auto"}),
    (asap_perturb, {"sampler": "proximal"}),
    (asap_perturb, {"sampler": "rejection"}),
    (dp_from_sampler_closeness, {}),
]


@pytest.mark.parametrize(("solver", "options"), CHAINS)
def test_a_loss_ten_times_as_steep_on_records_ends_in_bounded_work(solver, options):
    calls = []
    wrong = problem(absolute(steep_on_the_records, calls), n=20)
    plan = solver.plan(wrong, Budget(mu=0.5), **options)
    sample, before = plan.mechanism, len(calls)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        released = sample.run(records(20), Run(Source(1)))
    assert wrong.domain.contains(released)
    assert len(calls) - before <= sample.cap == plan.work.most_passes
    said = [a.text for a in plan.basis.assumptions if a.status == "declared"]
    assert f"a draw takes at most {sample.cap:.3g} passes over the data" in said


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("size", [1e12, -1e200, math.nan])
@pytest.mark.parametrize(("solver", "options"), CHAINS)
def test_absurd_values_and_gradients_end_without_a_word(solver, options, size, gradients):
    """Without a limit on slopes, trials of a normal law on the domain never end."""
    honest = absolute(lambda rows: np.ones(len(rows)))

    def absurd(function, changed):
        def found(theta, rows, labels):
            result = np.array(function(theta, rows, labels), dtype=float)
            if changed:
                result[np.abs(rows - ROW).max(axis=1) < 1e-9] = size
            return result

        return found

    wrong = CustomLoss(
        value_function=absurd(honest.value_function, not gradients),
        gradient_function=absurd(honest.gradient_function, gradients),
        lipschitz_bound=1.0,
        is_convex=True,
    )
    plan = solver.plan(problem(wrong, n=4), Budget(mu=0.5), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        released = plan.mechanism.run(records(4), Run(Source(1)))
    assert plan.problem.domain.contains(released)


@pytest.mark.parametrize("sampler", ["piloted", "rejection"])
def test_at_the_cap_the_prior_is_sampled_without_a_word(monkeypatch, sampler):
    """Values that rise at each call: no proposal is ever accepted."""
    calls = []

    def rising(rows):
        calls.append(1)
        return np.full(len(rows), 1.0 + 1e3 * len(calls) * (np.abs(rows - ROW).max() < 1e-9))

    plan = asap_perturb.plan(problem(absolute(rising), n=4), Budget(mu=0.5), sampler=sampler)
    sample = plan.mechanism
    monkeypatch.setattr(type(sample), "cap", property(lambda self: 100.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = np.array(sample.run_many(records(4), Run(Source(1)), 40))
    strength = sample.inverse_temperature * 4 * 0.05
    x = np.linspace(-1, 1, 2001)
    density = np.exp(-strength * x**2 / 2) * np.sqrt(1 - x**2)
    F = np.cumsum(density) / density.sum()
    # On a small disc the prior is nearly uniform: its first coordinate, by quadrature.
    assert strength < 1
    assert kstest(found[:, 0], lambda at: np.interp(at, x, F)).pvalue > 1e-6


@pytest.mark.parametrize("solver", [asap_perturb, dp_from_sampler_closeness])
def test_losses_of_the_library_have_no_cap(solver):
    plan = solver.plan(problem(Absolute()), Budget(mu=0.5))
    assert math.isinf(plan.mechanism.cap)
    assert not any("passes" in a.text for a in plan.basis.assumptions)

"""Descents side by side: the sums of a single descent, and its law."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dpfit.audit import PlanRuns
from dpfit.catalogue import entry
from dpfit.core import Run
from dpfit.data.dataset import InMemory
from dpfit.losses import Huber, LinearLoss, Logistic, Squared
from dpfit.mechanisms.aggregates.contribution import clipped_sums
from dpfit.noise import Grid, Source
from dpfit.privacy import Budget

LABELS = {"label_lower": -1.0, "label_upper": 1.0}

PUBLIC = ("warm_start_gd", "pda_dpmd", "public_mirror_descent")


def hostile(n=1003, d=5):
    """Rows inside and outside of their ball, with entries of every kind."""
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((n, d)), np.sign(rng.standard_normal(n))
    rows[3], rows[5], rows[7], rows[11], rows[13, 2] = 0.0, np.nan, 1e300, 1e-200, np.inf
    labels[20], labels[21], labels[22] = np.nan, np.inf, 0.0
    return rows, labels


@pytest.mark.parametrize(
    "loss", [Logistic(), Squared(), Huber(0.5), LinearLoss()], ids=lambda loss: loss.kind
)
@pytest.mark.parametrize(
    "layout", [np.ascontiguousarray, np.asfortranarray, lambda X: X.astype(np.float32)]
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_sums_at_many_points_are_those_of_single_passes(loss, layout):
    rows, labels = hostile()
    records = InMemory(layout(rows), labels)
    rng = np.random.default_rng(4)
    grid, guards = Grid.fitting(0.6, 5, "l2"), {"clip": 0.6, "row_norm": 1.0}
    guards |= {"binary": True} if isinstance(loss, Logistic) else LABELS
    for k in (1, 70):
        points = rng.standard_normal((k, 5))
        taken = rng.random((k, len(rows))) < 0.3
        sums = clipped_sums(records, loss, points, grid=grid, **guards)
        batches = clipped_sums(records, loss, points, grid=grid, taken=taken, **guards)
        for at in {0, k - 1}:
            single = records.clipped_sum(loss, points[at], grid=grid, **guards)
            batch = records.clipped_sum(
                loss, points[at], grid=grid, index=np.flatnonzero(taken[at]), **guards
            )
            # Inner products in another order may move a contribution that is half-way between two
            # steps.
            assert np.abs(sums[at] - single).max() <= 1
            assert np.abs(batches[at] - batch).max() <= 1


def planned(name, options=None, **budget):
    algorithm = entry(name).load()
    problem, data, _ = algorithm.example("replace")
    return algorithm.plan(problem, Budget(**budget), **(options or {})), data


@pytest.mark.parametrize("name", ["noisy_gd", "last_iterate_gd", *PUBLIC])
def test_one_of_many_runs_is_a_run_bit_for_bit(name):
    few_steps = {"steps": 6} if name in PUBLIC else {"max_passes": 6}
    plan, data = planned(name, few_steps, mu=1.0)
    few = plan.mechanism
    single = few.run(data, Run(Source(5)))
    assert np.array_equal(few.run_many(data, Run(Source(5)), 1)[0], single)
    several = np.array(few.run_many(data, Run(Source(5)), 40))
    assert several.shape == (40, *single.shape)
    assert len(np.unique(several, axis=0)) == 40


def test_sampled_descents_side_by_side_have_the_law_of_single_ones():
    """False alarms 1e-7 for each coordinate and their sum; sees means 0.6 deviations off."""
    plan, data = planned("dp_sgd", epsilon=1.0, delta=0.12)
    one = np.array([plan.mechanism.run(data, Run(source)) for source in Source(5).spawn(300)])
    many = np.array(PlanRuns(plan)(data, 3000, Source(6)))
    assert one.shape[1:] == many.shape[1:] == (2,)
    for direction in ([1, 0], [0, 1], [1, 1]):
        assert ks_2samp(one @ direction, many @ direction).pvalue > 1e-7
    assert ks_2samp(one[:, 0], many[:, 0] + 0.6 * many[:, 0].std()).pvalue < 1e-7
    assert len(np.unique(many[:, 0])) > 2990
    assert abs(np.corrcoef(many[:-1, 0], many[1:, 0])[0, 1]) < 0.1

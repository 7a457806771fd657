"""Six published variants of sparse vector: two are private, four are broken.

Reference: Lyu, Su and Li (2017), "Understanding the sparse vector technique for differential
privacy", Figure 1. All queries have sensitivity 1 and are compared with the threshold 0. Noise is
rounded to a grid of 2**-10.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import binom

from audit.broken import Broken, on_grid
from audit.test_broken import audited
from dpfit.audit import Cells, Epsilon, HeldOut
from dpfit.audit.outcomes import Outcomes
from dpfit.privacy.event import Pure

FOREVER = 10**6


@dataclass(frozen=True)
class Variant:
    """Sparse vector with scales for threshold and queries, ``hits`` answers above at most.

    Answers are true or false. With ``publishes`` they are the values that were compared with the
    threshold, minus infinity below it and not a number after the end.
    ``refreshes`` draws the threshold again after each hit.
    """

    threshold_scale: float
    query_scale: float
    hits: int = FOREVER
    publishes: bool = False
    refreshes: bool = False

    def __call__(self, queries, runs, source):
        """Return the transcripts of many runs; all noise is drawn at once."""
        noisy = on_grid(queries + self.query_scale * source.laplace((runs, len(queries))))
        drawn = len(queries) + 1 if self.refreshes else 1
        thresholds = on_grid(self.threshold_scale * source.laplace((runs, drawn)))
        hits, found = np.zeros(runs, dtype=np.int64), []
        for column in noisy.T:
            above = column >= thresholds[np.arange(runs), hits if self.refreshes else 0]
            # 0 ended before, 1 below, 2 above
            found.append(np.where(hits >= self.hits, 0, 1 + above))
            hits += above & (hits < self.hits)
        kinds = np.transpose(found)
        if self.publishes:
            return np.where(kinds == 2, noisy, np.where(kinds == 1, -np.inf, np.nan))
        if self.hits == FOREVER:
            return kinds == 2
        return [tuple(answer == 2 for answer in row if answer) for row in kinds.tolist()]


def variant(number, epsilon, hits):
    """Return a variant of the paper at a promise of epsilon."""
    half = 2 / epsilon
    return {
        1: Variant(half, 2 * hits * half, hits),
        2: Variant(hits * half, 2 * hits * half, hits, refreshes=True),
        3: Variant(half, hits * half, hits, publishes=True),
        4: Variant(4 / epsilon, 4 / (3 * epsilon), hits),
        5: Variant(half, 0.0),
        6: Variant(half, half),
    }[number]


def case(number, ups, downs, level, epsilon=1.0, hits=1, runs=20_000):
    """``ups`` queries at the threshold move up by 1, ``downs`` at ``level`` move down by 1."""
    queries = np.append(np.zeros(ups), np.full(downs, level))
    moved = queries + np.append(np.ones(ups), -np.ones(downs))
    return Broken(
        f"variant {number}", variant(number, epsilon, hits), queries, moved, Pure(epsilon), "", runs
    )


WRONG = {
    "3, published answer": case(3, 4, 1, level=1.0, epsilon=2.0, runs=40_000),
    "4, noise not scaled by the hits": case(4, 3, 6, level=0.0, hits=6, runs=10_000),
    "5, no noise on queries": case(5, 1, 1, level=0.0, runs=1000),
    "6, no limit on hits": case(6, 8, 8, level=0.0, runs=6000),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_default_audit_breaks_each_wrong_variant(name):
    audit = audited(WRONG[name])
    assert audit.broken, str(audit)


@pytest.mark.slow
def test_only_pattern_and_value_together_break_the_published_answer_at_epsilon_one():
    audit = audited(case(3, 4, 1, level=0.0, runs=100_000))
    assert audit.broken
    assert {finding.attack for finding in audit.findings if finding.broken} == {"pattern and value"}
    assert max(finding.lower for finding in audit.findings if not finding.broken) < 0.6


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(("ups", "downs", "hits"), [(4, 1, 1), (3, 6, 6)])
def test_the_default_audit_keeps_the_right_variants(number, ups, downs, hits):
    audit = audited(case(number, ups, downs, level=0.0, hits=hits, runs=5000))
    assert audit.kept, str(audit)


def test_a_right_variant_that_publishes_fresh_noise_is_kept():
    """The right search at half the budget, and a freshly noised answer at the other half."""
    search = replace(variant(1, 0.5, 1), publishes=True)

    def many(queries, runs, source):
        found = search(queries, runs, source)
        fresh = on_grid(queries + 2 * source.laplace(found.shape))
        return np.where(np.isfinite(found), fresh, found)

    wrong = case(3, 4, 1, level=1.0, epsilon=1.0)
    assert audited(replace(wrong, many=many, runs=10_000)).kept


def flipped(data, runs, source):
    """A fair coin, and noise around a value of the coin's sign: jointly informative only."""
    coins = source.integers(2, runs).astype(bool)
    values = (
        np.where(coins, data.sum(), -data.sum())
        + on_grid(2.0**20 * 0.3 * source.laplace(runs)) / 2.0**20
    )
    return list(zip(coins.tolist(), values.tolist(), strict=True))


def test_what_pattern_and_value_say_only_together_is_found():
    audit = audited(
        Broken("coin", flipped, np.full(2, 0.5), np.array([0.5, -1.5]), Pure(2.0), "", 4000)
    )
    assert {finding.attack for finding in audit.findings if finding.broken} == {"pattern and value"}


def coin_and_value(shift, runs, rng):
    """Randomized response and Laplace noise, epsilon 1/2 each: exactly epsilon = 1."""
    coins = rng.random(runs) < (0.5 + (shift - 0.5) * np.tanh(0.25))
    return Outcomes(
        list(zip(coins.tolist(), (shift + rng.laplace(0, 2.0, runs)).tolist(), strict=True))
    )


def test_bounds_of_cells_hold_at_the_stated_confidence():
    """600 simulated audits at confidence 0.8; the limit is passed with probability 1e-6."""
    rng, failures, bounds = np.random.default_rng(3), 0, []
    for _ in range(600):
        scores = Cells().scores(coin_and_value(0, 500, rng), coin_and_value(1, 500, rng))
        measured = HeldOut().measure(scores, 0.2, Epsilon())
        bounds.append(float(Epsilon().lower(measured.alpha_upper, measured.beta_upper)[0]))
        failures += bounds[-1] > 1.0
    assert failures <= binom.isf(1e-6, 600, 0.2)
    assert np.median(bounds) > 0.3


def test_scores_of_cells_are_functions_of_one_run_and_the_runs_learned_on():
    rng = np.random.default_rng(4)
    one, two, other = (
        coin_and_value(0, 1000, rng),
        coin_and_value(1, 1000, rng),
        coin_and_value(1, 1000, rng),
    )
    mixed = Outcomes([*two.values[:301], *other.values[301:]])
    scores, again = Cells().scores(one, two), Cells().scores(one, mixed)
    assert np.array_equal(scores.first, again.first)
    assert scores.second[0] == again.second[0]
    assert not np.array_equal(scores.second, again.second)

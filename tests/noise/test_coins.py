"""Coins by gaps: laws of coins, gaps, counts, and decisions beyond floating point."""

import importlib
import math

import numpy as np
import pytest
from scipy import stats

from dpfit.noise import Source
from dpfit.noise.coins import LEAST, GapScale, successes
from dpfit.noise.laws import Laplace, precision

module = importlib.import_module("dpfit.noise.rounded")


@pytest.mark.parametrize("probability", [0.003, 0.1, 0.5, 0.97])
def test_every_coin_comes_up_as_often_as_it_should(probability):
    """Chi-square on 50 places, 4,000 sequences or more; rejects a probability off by 10%."""
    trials, repeats = 50, math.ceil(4000 * max(1, 0.1 / probability))
    chosen = successes(probability, trials * repeats, Source(1))
    counts = np.bincount(chosen % trials, minlength=trials)
    variance = repeats * probability * (1 - probability)
    assert float(np.sum((counts - repeats * probability) ** 2) / variance) < stats.chi2.isf(
        1e-9, trials
    )
    total = len(chosen)
    low, high = stats.binom.ppf([5e-10, 1 - 5e-10], trials * repeats, probability)
    assert low <= total <= high
    low, high = stats.binom.ppf(
        [5e-10, 1 - 5e-10], trials * repeats, probability * (1.1 if probability < 0.9 else 0.9)
    )
    assert not low <= total <= high


def test_counts_of_short_sequences_are_binomial():
    """Chi-square of the number of successes in 12 coins, 20,000 sequences, false alarm 1e-9."""
    chosen = successes(0.3, 12 * 20_000, Source(2))
    counts = np.bincount(np.bincount(chosen // 12, minlength=20_000), minlength=13)
    expected = 20_000 * stats.binom.pmf(np.arange(13), 12, 0.3)
    pooled = np.append(counts[:9], counts[9:].sum()), np.append(expected[:9], expected[9:].sum())
    assert float(np.sum((pooled[0] - pooled[1]) ** 2 / pooled[1])) < stats.chi2.isf(1e-9, 9)


def test_neighbouring_coins_are_independent():
    flags = np.zeros(200_000)
    flags[successes(0.4, 200_000, Source(3))] = 1
    for lag in (1, 2, 7):
        correlation = float(np.corrcoef(flags[:-lag], flags[lag:])[0, 1])
        assert abs(correlation) < 6.2 / math.sqrt(200_000)


def test_numbers_are_increasing_and_within_the_trials():
    for seed in range(200):
        chosen = successes(0.2, 37, Source(seed))
        assert np.all(np.diff(chosen) > 0)
        assert chosen.dtype == np.int64
        assert len(chosen) == 0 or (chosen[0] >= 0 and chosen[-1] < 37)


def test_extremes():
    assert successes(0.0, 10, Source(0)).tolist() == []
    assert successes(0.5, 0, Source(0)).tolist() == []
    assert successes(1.0, 4, Source(0)).tolist() == [0, 1, 2, 3]
    assert len(successes(1 - 2.0**-53, 1000, Source(0))) == 1000
    assert len(successes(LEAST, 10**6, Source(0))) == 0
    few = successes(LEAST, 2**53, Source(0))
    assert stats.poisson.cdf(1e-9, 8) < stats.poisson.cdf(len(few), 8) < 1 - 1e-9
    for bad in (-0.1, 1.1, math.nan, LEAST / 2):
        with pytest.raises(ValueError, match="probability"):
            successes(bad, 3, Source(0))
    with pytest.raises(ValueError, match="trials"):
        successes(0.5, 2**62, Source(0))


@pytest.mark.parametrize("probability", [1e-9, 0.01, 0.5, 1 - 1e-9])
def test_multiprecision_decides_as_floating_point_proposes(probability, monkeypatch):
    """The scale's enclosure is that of the exact rational rate: gaps are equal."""
    words = Source(5).words(60) >> np.uint64(1)
    scale = GapScale(probability)
    proposed = module.magnitudes(Laplace(), scale, module.DOWN, words, Source(0))
    sure = module._propose

    def doubt(*arguments):
        steps, _ = sure(*arguments)
        return np.maximum(steps + 3, 0), np.ones(len(steps), dtype=bool)

    monkeypatch.setattr(module, "_propose", doubt)
    assert (
        module.magnitudes(Laplace(), scale, module.DOWN, words, Source(0)).tolist()
        == proposed.tolist()
    )


@pytest.mark.parametrize("probability", [2e-5, 0.004, 0.5, 1 - 1e-9])
def test_half_a_word_decides_only_what_no_further_digit_can_change(probability):
    """Near boundaries and anywhere: a gap settled by 32 digits holds for all continuations."""
    scale = GapScale(probability)
    boundaries = np.exp(-np.arange(1, 2000) / scale.value) * 2.0**32
    near = (
        np.clip(np.floor(boundaries)[:, None] + np.arange(-2, 3), 0, 2**32 - 1)
        .astype(np.uint32)
        .reshape(-1)
    )
    anywhere = Source(6).words(20_000).view(np.uint32)
    for digits, doubts in ((near, (1 / 20, 1)), (anywhere, (0, 1 / 500))):
        gaps, doubtful = module._propose(Laplace(), scale, module.DOWN, digits, 32)
        first = digits[~doubtful].astype(np.uint64) << np.uint64(31)
        for rest in (0, 2**31 - 1):
            exact = module.magnitudes(
                Laplace(), scale, module.DOWN, first | np.uint64(rest), Source(0)
            )
            assert np.array_equal(gaps[~doubtful], exact)
        assert doubts[0] <= doubtful.mean() <= doubts[1]


def test_digits_that_were_left_open_are_drawn_and_kept(monkeypatch):
    """If half a word settles nothing, gaps come from it and the next 31 bits."""
    digits, scale = Source(7).words(100).view(np.uint32), GapScale(0.01)
    sure = module._propose

    def doubt(law, scale, boundary, digits, length):
        steps, doubtful = sure(law, scale, boundary, digits, length)
        return steps, doubtful | (length == 32)

    monkeypatch.setattr(module, "_propose", doubt)
    gaps = module.magnitudes(Laplace(), scale, module.DOWN, digits, Source(8), length=32)
    longer = digits.astype(np.uint64) << np.uint64(31) | Source(8).words(200) >> np.uint64(33)
    assert np.array_equal(gaps, np.floor(-scale.value * np.log((longer + 0.5) * 2.0**-63)))


@pytest.mark.parametrize("probability", [1e-12, 1e-3, 0.3, 0.999])
def test_the_scale_is_as_precise_as_it_says(probability):
    context = precision(300)
    exact = -1 / context.log(1 - context.mpf(probability))
    scale = GapScale(probability)
    assert abs(scale.value / exact - 1) < scale.error / 2
    assert abs(scale.enclosure(precision(200))[0] / exact - 1) < 2.0**-190

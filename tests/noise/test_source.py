"""The stream of bits: secret, never repeated, and exact where sampling of data needs it."""

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from dpfit.noise import Source
from dpfit.noise.source import _key

MASK = 0xFFFFFFFF


def chacha20_words(key: int, blocks: int) -> list[int]:
    """The textbook ChaCha (D. J. Bernstein), with counter blocks 0, 1, ..."""

    def quarter(w, a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            w[x] = (w[x] + w[y]) & MASK
            mixed = w[z] ^ w[x]
            w[z] = ((mixed << turn) | (mixed >> (32 - turn))) & MASK

    words = []
    for counter in range(blocks):
        start = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)]
        start += [(key >> 32 * i) & MASK for i in range(8)]
        start += [(counter >> 32 * i) & MASK for i in range(4)]
        w = list(start)
        for _ in range(10):
            for i in range(4):
                quarter(w, i, 4 + i, 8 + i, 12 + i)
            for i in range(4):
                quarter(w, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        mixed = [(x + y) & MASK for x, y in zip(w, start, strict=True)]
        words += [mixed[i] | mixed[i + 1] << 32 for i in range(0, 16, 2)]
    return words


class TestStream:
    def test_is_the_textbook_cipher(self):
        assert Source(5).words(40).tolist() == chacha20_words(_key(5, ()), 5)

    def test_same_rng_seed_same_stream(self):
        assert np.array_equal(Source(5).words(100), Source(5).words(100))
        assert not np.array_equal(Source(5).words(100), Source(6).words(100))

    def test_without_rng_seed_every_source_differs(self):
        assert not np.array_equal(Source().words(4), Source().words(4))

    def test_only_an_rng_seed_makes_it_public(self):
        assert Source().private
        assert not Source(0).private
        assert not Source(np.int64(3)).private

    def test_shapes(self):
        assert Source(1).words(()).shape == ()
        assert Source(1).words(0).shape == (0,)
        assert Source(1).words((2, 3)).dtype == np.uint64

    def test_bits_are_balanced(self):
        # 64 binomial tests of 100,000 bits each; 6.5 standard deviations: false alarm below 1e-8.
        words = Source(2).words(100_000)
        ones = np.array([int(np.sum((words >> np.uint64(i)) & np.uint64(1))) for i in range(64)])
        assert np.all(np.abs(ones - 50_000) < 6.5 * np.sqrt(25_000))

    def test_the_key_is_not_shown(self):
        assert repr(Source()) == "Source()"
        assert "not private" in repr(Source(3))

    @pytest.mark.parametrize("bad", [1.0, True, np.bool_(False), "1", [1], np.float64(2)])
    def test_rejects_wrong_types(self, bad):
        with pytest.raises(TypeError, match="random_state must be an integer of at least 0"):
            Source(bad)

    def test_rejects_negative(self):
        with pytest.raises(ValueError, match=r"random_state must be an integer of at least 0.*-1"):
            Source(-1)


class TestDuplication:
    def test_copies_are_the_same_object(self):
        source = Source()
        assert copy.copy(source) is source
        assert copy.deepcopy({"source": source})["source"] is source

    def test_pickling_gives_a_new_key(self):
        source = Source()
        twin = pickle.loads(pickle.dumps(source))
        assert twin.private
        assert not np.array_equal(twin.words(4), source.words(4))

    def test_a_seeded_source_refuses_to_be_pickled(self):
        with pytest.raises(TypeError, match="spawn"):
            pickle.dumps(Source(1))

    def test_an_unused_child_can_travel_and_a_used_one_cannot(self):
        child, again = Source(1).spawn(1)[0], Source(1).spawn(1)[0]
        travelled = pickle.loads(pickle.dumps(child))
        assert not travelled.private
        assert np.array_equal(travelled.words(4), again.words(4))
        with pytest.raises(TypeError, match="spawn"):
            pickle.dumps(travelled)

    def test_children_are_distinct_and_deterministic(self):
        parent = Source(1)
        children = parent.spawn(3) + parent.spawn(2) + parent.spawn(1)[0].spawn(2)
        firsts = [tuple(child.words(2).tolist()) for child in [parent, *children]]
        assert len(set(firsts)) == len(firsts)
        assert firsts[1:4] == [tuple(child.words(2).tolist()) for child in Source(1).spawn(3)]
        assert all(not child.private for child in children)
        assert all(child.private for child in Source().spawn(3))

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_forked_children_draw_other_noise(self):
        source = Source()
        source.words(3)
        drawn = [_words_in_fork(source) for _ in range(2)] + [source.words(4).tobytes()]
        assert len(set(drawn)) == 3

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_fork_is_noticed_even_under_the_same_process_number(self, monkeypatch):
        monkeypatch.setattr(os, "getpid", lambda: 1)
        source = Source()
        assert len({_words_in_fork(source), _words_in_fork(source), source.words(4).tobytes()}) == 3

    def test_threads_share_one_stream_without_repeats(self):
        source = Source()
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(lambda _: source.words(500), range(40)))
        assert np.unique(np.concatenate(parts)).size == 20_000


def _words_in_fork(source: Source) -> bytes:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, source.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    drawn = os.read(reading, 32)
    os.close(reading)
    return drawn


class TestIntegers:
    def test_every_word_is_cut_and_rejected_exactly(self, scripted):
        # Bound 5 needs three bits: 0..4 stand, 5..7 are drawn again, higher bits do not matter.
        source = scripted([0, 5, 12, 7, 4 + 8, 6, 3, 1])
        assert source.integers(5, 5).tolist() == [0, 1, 4, 3, 4]
        assert source.script == []

    def test_bound_one_and_the_largest_bound(self, scripted):
        assert Source(1).integers(1, 3).tolist() == [0, 0, 0]
        assert scripted([2**64 - 1]).integers(2**63, 1).tolist() == [2**63 - 1]

    def test_is_uniform(self):
        # Pearson with six cells and 60,000 draws; false alarm 1e-9.
        counts = np.bincount(Source(4).integers(6, 60_000), minlength=6)
        assert stats.chisquare(counts).pvalue > 1e-9

    @pytest.mark.parametrize("bad", [0, -3, 2**63 + 1])
    def test_rejects_bounds_out_of_range(self, bad):
        with pytest.raises(ValueError, match="bound"):
            Source(1).integers(bad, 1)

    def test_rejects_other_types(self):
        with pytest.raises(TypeError, match="bound"):
            Source(1).integers(2.5, 1)


class TestPermutation:
    def test_is_uniform(self):
        # Pearson over the 24 orders of four things, 24,000 draws; false alarm 1e-9.
        source = Source(5)
        seen = [tuple(source.permutation(4).tolist()) for _ in range(24_000)]
        counts = np.unique(seen, axis=0, return_counts=True)[1]
        assert len(counts) == 24
        assert stats.chisquare(counts).pvalue > 1e-9

    def test_rejects_negative(self):
        with pytest.raises(ValueError, match="n must be"):
            Source(1).permutation(-1)


class TestBernoulli:
    def test_digits_are_compared_until_they_differ(self, scripted):
        # 0.1 is a float with 55 binary digits after the first three zeros: 64 digits hold it to the
        # last.
        head = int(0.1 * 2.0**64)
        source = scripted([head - 1, head + 1, head, 2**64 - 1])
        assert source.bernoulli(0.1, 4).tolist() == [True, False, False, False]
        assert source.script == []

    def test_digits_beyond_the_first_word_count(self, scripted):
        tiny = 2.0**-70
        head = int(tiny * 2.0**64)
        rest = int(tiny * 2.0**128) - (head << 64)
        source = scripted([head, head, head + 1, rest - 1, rest])
        assert source.bernoulli(tiny, 3).tolist() == [True, False, False]
        assert source.script == []

    @pytest.mark.parametrize("probability", [0.0, 2.0**-20, 0.1, 0.5, 0.9, 1.0])
    def test_frequency(self, probability):
        # Six standard deviations of a binomial with 200,000 draws: false alarm 2e-9; sees 0.1 off
        # by 4%.
        n = 200_000
        count = int(Source(6).bernoulli(probability, n).sum())
        assert abs(count - n * probability) <= 6 * np.sqrt(n * probability * (1 - probability)) + 6

    @pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan")])
    def test_rejects_what_is_no_probability(self, bad):
        with pytest.raises(ValueError, match="probability"):
            Source(1).bernoulli(bad, 1)


class TestContinuousDraws:
    """Kolmogorov-Smirnov, 250,000 draws, 1e-9: sees 0.007; a scale off by 6% is 0.011."""

    @pytest.mark.parametrize(
        ("name", "law"),
        [
            ("uniform", stats.uniform()),
            ("gaussian", stats.norm()),
            ("laplace", stats.laplace()),
            ("exponential", stats.expon()),
            ("gumbel", stats.gumbel_r()),
        ],
    )
    def test_law(self, name, law):
        draws = getattr(Source(7), name)(250_000)
        assert stats.kstest(draws, law.cdf).pvalue > 1e-9
        assert stats.kstest(1.06 * draws, law.cdf).pvalue < 1e-9

    @pytest.mark.parametrize("shape", [0.5, 1.0, 7.5])
    def test_gamma(self, shape):
        draws = Source(8).gamma(shape, 250_000)
        assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > 1e-9
        assert stats.kstest(1.06 * draws, stats.gamma(shape).cdf).pvalue < 1e-9

    def test_sphere_and_ball(self):
        sphere = Source(9).uniform_sphere(3, 100_000)
        assert np.allclose(np.linalg.norm(sphere, axis=-1), 1)
        # Archimedes: one coordinate of the sphere in three dimensions is uniform.
        assert stats.kstest(sphere[:, 1], stats.uniform(-1, 2).cdf).pvalue > 1e-9
        radius = np.linalg.norm(Source(10).uniform_ball(3, 2.0, 100_000), axis=-1)
        assert stats.kstest((radius / 2) ** 3, stats.uniform().cdf).pvalue > 1e-9
        assert stats.kstest((1.06 * radius / 2) ** 3, stats.uniform().cdf).pvalue < 1e-9

    @pytest.mark.parametrize("word", [0, 1, 2**64 - 1, 2**64 - 2])
    def test_extreme_words_reach_the_tails(self, scripted, word):
        drawn = scripted([word]).exponential(1)[0]
        assert np.isfinite(drawn)
        assert drawn > 0
        expected = {0: 65 * np.log(2), 1: 2.0**-65, 2**64 - 1: np.log(2), 2**64 - 2: np.log(2)}[
            word
        ]
        assert drawn == pytest.approx(expected, rel=1e-12)
        assert np.isfinite(scripted([word]).gumbel(1)[0])

    def test_rejects_bad_parameters(self):
        source = Source(1)
        for call in (
            lambda: source.gamma(0.0, 1),
            lambda: source.gamma(float("inf"), 1),
            lambda: source.uniform_ball(3, -1.0, 1),
            lambda: source.uniform_ball(3, float("nan"), 1),
            lambda: source.uniform_sphere(0, 1),
            lambda: source.spawn(-1),
        ):
            with pytest.raises(ValueError, match="must be"):
                call()

"""Views: intervals of random positions, with the distribution that the accounting assumes."""

import itertools
import pickle
import threading
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chi2

from dpfit.data import view as module
from dpfit.data.dataset import Blocks, InMemory
from dpfit.data.view import View, part_sizes
from dpfit.losses import Logistic
from dpfit.noise import Grid, Source

GRID = Grid(-20)
SHARES = [
    (1.0,),
    (0.5, 0.5),
    (1 / 3,) * 3,
    (0.1,) * 10,
    (0.5, 0.25, 0.25),
    (0.7, 0.3),
    (0.01, 0.99),
    (0.3, 0.3, 0.4),
]
SHARES += [
    tuple(w / 64 for w in (1, 2, 3, 58)),
    (1 / 7,) * 7,
    tuple(np.random.default_rng(0).dirichlet(np.ones(5))),
]
BOTH = ["replace", "add_remove"]


def numbered(n, users=None, public=None):
    """Record i has the row (i,)."""
    return InMemory(np.arange(float(n))[:, None], np.zeros(n), users, public)


def in_blocks(data, cuts):
    ends = np.linspace(0, data.n, cuts + 1).astype(int)
    ids = data.users

    def read():
        for low, high in itertools.pairwise(ends):
            yield (
                data.matrix[low:high],
                data.labels[low:high],
                *(() if ids is None else (ids[low:high],)),
            )

    return Blocks(data.n, data.width, read, data.public)


def members(view):
    return [int(row[0]) for chunk in view.chunks() for row in chunk.rows]


class Words:
    """A source whose words and permutations are written down."""

    def __init__(self, *drawn):
        self.drawn = list(drawn)

    def words(self, size):
        return np.array(self.drawn.pop(0), dtype=np.uint64)

    def permutation(self, n):
        return np.array(self.drawn.pop(0), dtype=np.int64)


@pytest.mark.parametrize("shares", SHARES, ids=range(len(SHARES)))
def test_planned_sizes_are_the_units_in_the_intervals(shares):
    """For every n up to 400, as parts and as intervals cut at floating-point sums of shares."""
    for n in range(401):
        planned = part_sizes(n, shares)
        assert sum(planned) == n
        assert all(abs(size - n * share) <= 1 for size, share in zip(planned, shares, strict=True))
        view = View(numbered(n), "replace", "record", Source(n))
        assert tuple(part.n_units for part in view.parts(shares)) == planned
        if n in (0, 1, 7, 100, 399, 400):
            found = [members(part) for part in view.parts(shares)]
            assert tuple(map(len, found)) == planned
            assert sorted(itertools.chain(*found)) == list(range(n))


def test_cuts_at_floats_agree_with_shares():
    """k / groups is no binary fraction; its cut is exact, also where n k / groups ends in 1/2."""
    for groups, n in itertools.product((3, 5, 6, 10, 12, 49), range(130)):
        view = View(numbered(n), "replace", "record", Source(0))
        cut = [view.between(g / groups, (g + 1) / groups).n_units for g in range(groups)]
        assert tuple(cut) == part_sizes(n, (1 / groups,) * groups)
    assert part_sizes(5, (0.3, 0.7)) == part_sizes(5, (Fraction(3, 10), Fraction(7, 10))) == (1, 4)


def test_parts_of_parts_have_planned_sizes():
    for n in range(0, 90, 7):
        view = View(numbered(n), "replace", "record", Source(n))
        for part, size in zip(
            view.parts((0.5, 0.3, 0.2)), part_sizes(n, (0.5, 0.3, 0.2)), strict=True
        ):
            inner = part.parts((1 / 3,) * 3)
            assert tuple(one.n_units for one in inner) == part_sizes(size, (1 / 3,) * 3)
            assert sorted(itertools.chain(*map(members, inner))) == members(part)


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("cuts", [0, 4])
def test_users_stay_together_and_nobody_is_nowhere(relation, cuts):
    ids = [None if i % 9 == 0 else f"user {i * i % 13}" for i in range(80)]
    data = numbered(80, ids)
    view = View(in_blocks(data, cuts) if cuts else data, relation, "user", Source(4))
    named = [i for i in range(80) if ids[i] is not None]
    assert (members(view), view.n) == (named, len(named))
    parts = view.parts((0.4, 0.35, 0.25))
    assert sorted(itertools.chain(*map(members, parts))) == named
    whose = [{ids[i] for i in members(part)} for part in parts]
    assert sum(map(len, whose)) == len(set.union(*whose)) == view.n_units == len(set(ids)) - 1
    if relation == "replace":
        assert tuple(map(len, whose)) == part_sizes(view.n_units, (0.4, 0.35, 0.25))
    for part, of in zip(parts, whose, strict=True):
        assert set(part.users) == of
        inner = part.between(0, 0.5)
        assert {ids[i] for i in members(inner)} <= of
    with pytest.raises(ValueError, match="must have user ids"):
        members(View(numbered(3), relation, "user", Source(0)))


@pytest.mark.parametrize("relation", BOTH)
def test_nothing_is_drawn_before_it_is_needed(relation):
    source, fresh = Source(5), Source(5)
    view = View(numbered(10), relation, "record", source)
    view.gradient(Logistic(), np.zeros(1))
    assert (view.n, view.n_units, len(members(view)), view.whole is not None) == (10, 10, 10, True)
    assert view.map(Doubled()).n == 10
    view.between(0.0, 0.5)
    assert source.words(1) == fresh.words(1)
    assert 0 <= view.between(0.0, 0.5).n_units <= 10
    if relation == "add_remove":
        fresh.words(10)
    else:
        assert source.words(1) == fresh.words(1)  # a public number needs no draw
        members(view.between(0.0, 0.5))
        fresh.permutation(10)
    assert source.words(1) == fresh.words(1)


@pytest.mark.parametrize("relation", BOTH)
def test_each_run_draws_afresh(relation):
    firsts = {
        tuple(members(View(numbered(20), relation, "record", Source()).between(0, 0.5)))
        for _ in range(8)
    }
    assert len(firsts) > 1


def test_parts_are_uniform_under_replace_one():
    """All 24 orders of 4 records, of which parts are intervals, 7,200 draws, chi-square at 1e-9."""
    source, counts = Source(4), dict.fromkeys(itertools.permutations(range(4)), 0)
    for _ in range(7200):
        view = View(numbered(4), "replace", "record", source)
        counts[tuple(view.fold(lambda seen, chunk: [*seen, *map(int, chunk.rows[:, 0])], []))] += 1
    found = np.array(list(counts.values()))
    assert np.sum((found - 300) ** 2 / 300) < chi2.isf(1e-9, 23)


def test_parts_are_independent_coins_under_add_remove():
    """All 27 assignments of 3 records to parts 1/2, 1/4, 1/4: 3,200 draws, chi-square 1e-9."""
    source, counts = Source(6), dict.fromkeys(itertools.product(range(3), repeat=3), 0)
    for _ in range(3200):
        parts = [
            members(p)
            for p in View(numbered(3), "add_remove", "record", source).parts((0.5, 0.25, 0.25))
        ]
        counts[tuple(next(j for j in range(3) if i in parts[j]) for i in range(3))] += 1
    expected = np.array([3200 * np.prod([(0.5, 0.25, 0.25)[j] for j in key]) for key in counts])
    assert np.sum((np.array(list(counts.values())) - expected) ** 2 / expected) < chi2.isf(1e-9, 26)


def test_coins_are_exact_and_draw_more_digits_where_they_tie():
    """The first 64 digits of 1/3 are 0x5555...: equal words are decided by the next ones."""
    third = 0x5555555555555555
    source = Words(
        [third, third, third - 1, third + 1, third],
        [third, third - 1, 0, 0, third + 1],
        [0, 9, 9, 9, 9],
    )
    view = View(numbered(5), "add_remove", "record", source)
    assert members(view.between(0, 1 / 3)) == [0, 1, 2]
    assert members(view.between(1 / 3, 1)) == [3, 4]
    assert view.fold(lambda seen, chunk: [*seen, *chunk.rows[:, 0]], []) == [2, 1, 0, 4, 3]
    # A cut with finitely many digits needs no further ones.
    half = View(numbered(2), "add_remove", "record", Words([2**63, 2**63 - 1]))
    assert (members(half.between(0, 0.5)), members(half.between(0.5, 1))) == ([1], [0])


def test_ties_of_positions_are_broken_by_coins():
    words = Words([7, 7, 3], [2, 1, 9])
    view = View(numbered(3), "add_remove", "record", words)
    assert view.fold(lambda seen, chunk: [*seen, *chunk.rows[:, 0]], []) == [2, 1, 0]


def test_poisson_includes_each_record_at_the_stated_rate():
    """200,000 records at rate 0.1: binomial count at two-sided 1e-7, which rejects 0.11."""
    for relation in BOTH:
        size = View(numbered(200_000), relation, "record", Source(1)).sample(rate=0.1).n_units
        low, high = binom.ppf([5e-8, 1 - 5e-8], 200_000, 0.1)
        assert low <= size <= high
        low, high = binom.ppf([5e-8, 1 - 5e-8], 200_000, 0.11)
        assert not low <= size <= high


def test_poisson_inclusions_are_independent():
    """Sets of 3 records at rate 1/2: all 8 subsets, 8,000 draws, chi-square at 1e-9."""
    view = View(numbered(3), "add_remove", "record", Source(2))
    counts = np.zeros(8)
    for _ in range(8000):
        counts[sum(2**i for i in members(view.sample(rate=0.5)))] += 1
    assert np.sum((counts - 1000) ** 2 / 1000) < chi2.isf(1e-9, 7)


def test_fixed_samples_are_uniform_over_subsets():
    """All 10 pairs of 5 records, 10,000 draws, chi-square at 1e-9."""
    view = View(numbered(5), "replace", "record", Source(3))
    place = {pair: i for i, pair in enumerate(itertools.combinations(range(5), 2))}
    counts = np.zeros(10)
    for _ in range(10_000):
        counts[place[tuple(members(view.sample(size=2)))]] += 1
    assert np.sum((counts - 1000) ** 2 / 1000) < chi2.isf(1e-9, 9)


@pytest.mark.parametrize("cuts", [0, 3])
def test_samples_of_users_and_of_parts(cuts):
    ids = [7, 3, 7, 7, 3, 9, None, 11, 11, 9]
    data = numbered(10, ids)
    view = View(in_blocks(data, cuts) if cuts else data, "replace", "user", Source(5))
    for size in range(5):
        rows = members(view.sample(size=size))
        chosen = {ids[row] for row in rows}
        assert (len(chosen), None in chosen) == (size, False)
        assert rows == [i for i, one in enumerate(ids) if one in chosen]
    part = view.between(0.25, 0.75)
    assert members(part.sample(rate=1.0)) == members(part)
    assert members(part.sample(rate=0.0)) == []
    sample = part.sample(size=2)
    assert members(sample) == members(part)
    assert sorted(itertools.chain(*map(members, sample.parts((0.5, 0.5))))) == members(part)
    assert sample.between(0, 0.5).n_units == 1


def test_bad_requests_are_refused():
    view = View(numbered(3), "replace", "record", Source(0))
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="rate must"):
            view.sample(rate=rate)
    with pytest.raises(ValueError, match="size must be at most the number of units, 3, got 4"):
        view.sample(size=4)
    for wrong in ({}, {"rate": 0.5, "size": 1}):
        with pytest.raises(ValueError, match="either rate or size"):
            view.sample(**wrong)
    private = View(numbered(3), "add_remove", "record", Source(0))
    for hidden in (private, view.sample(rate=0.5), view.with_fresh_positions(numbered(3))):
        with pytest.raises(ValueError, match="public number of units; pass rate") as error:
            hidden.sample(size=1)
        assert "3" not in str(error.value)
    for shares in ((), (0.5,), (0.5, 0.6), (1.0, 0.0), (-0.5, 1.5), (float("nan"),)):
        with pytest.raises(ValueError, match="share"):
            view.parts(shares)
        with pytest.raises(ValueError, match="share"):
            part_sizes(3, shares)
    for low, high in ((0.5, 0.4), (-0.1, 1), (0, 1.1), (float("nan"), 1), (Fraction(-1, 2), 1)):
        with pytest.raises(ValueError, match=r"(low|high) must"):
            view.between(low, high)
    with pytest.raises(ValueError, match="data must be a Dataset, got list"):
        View([1.0], "replace", "record", Source(0))
    with pytest.raises(ValueError, match="relation"):
        View(numbered(3), "delete", "record", Source(0))
    with pytest.raises(ValueError, match="unit"):
        View(numbered(3), "replace", "group", Source(0))
    for index in ([3], [-1]):
        with pytest.raises(ValueError, match="outside the records"):
            view.between(0, 0.5).take(index)
        with pytest.raises(ValueError, match="outside the records"):
            view.between(0, 0.5).gradient(Logistic(), np.zeros(1), index=np.array(index))


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("cuts", [0, 5])
def test_records_are_visited_in_the_order_of_positions(relation, cuts, monkeypatch):
    monkeypatch.setattr(module, "_WINDOW", 7)
    ids = [f"u{i % 11}" if i % 6 else None for i in range(60)]
    data = numbered(60, ids)
    for unit in ("record", "user"):
        view = View(in_blocks(data, cuts) if cuts else data, relation, unit, Source(8))
        for seen in (view, view.between(0.2, 0.9)):
            chunks = seen.fold(lambda found, chunk: [*found, chunk], [])
            rows = [int(row) for chunk in chunks for row in chunk.rows[:, 0]]
            positions = np.concatenate([chunk.positions for chunk in chunks])
            assert sorted(rows) == members(seen)
            assert np.all(np.diff(positions) >= 0)
            assert 0 <= positions[0] <= positions[-1] < 1
            assert [chunk.start for chunk in chunks] == [
                0,
                *np.cumsum([len(chunk) for chunk in chunks])[:-1],
            ]
            assert len(chunks) > 1
            if unit == "user":
                users = [set(chunk.users) for chunk in chunks]
                assert sum(map(len, users)) == len(set.union(*users))
                assert len(set(positions)) == seen.n_units
        # The first half of the positions is what a visitor meets first.
        early = [
            int(r)
            for c in view.fold(lambda f, c: [*f, c], [])
            for r in c.rows[c.positions < 0.5, 0]
        ]
        assert sorted(early) == members(view.between(0, 0.5))


@dataclass(frozen=True)
class Doubled:
    def __call__(self, chunk):
        return chunk.with_records(np.hstack([chunk.rows, 2 * chunk.rows]), chunk.labels + 1)

    def width(self, width):
        return 2 * width


@dataclass(frozen=True)
class Renamed(Doubled):
    """A map that changes the ids, too."""

    def __call__(self, chunk):
        users = None if chunk.users is None else np.array(["all"] * len(chunk), dtype=object)
        return type(chunk)(chunk.rows, chunk.labels, chunk.start, users)

    def width(self, width):
        return width


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("unit", ["record", "user"])
@pytest.mark.parametrize("cuts", [0, 4])
def test_a_row_map_keeps_positions(relation, unit, cuts):
    data = numbered(40, [f"u{i % 9}" if i % 5 else None for i in range(40)], numbered(2))
    view = View(in_blocks(data, cuts) if cuts else data, relation, unit, Source(3))
    parts, before = view.parts((0.5, 0.5)), view.map(Doubled()).parts((0.5, 0.5))
    for part, mapped in zip(parts, before, strict=True):
        after = part.map(Doubled())
        assert members(part) == members(mapped) == members(after)
        assert (after.width, after.public.width, after.n_units) == (2, 2, part.n_units)
        assert [row[1] for c in after.chunks() for row in c.rows] == [
            2.0 * i for i in members(part)
        ]
        for low, high in ((0, 0.5), (0.5, 1)):
            expected = members(part.between(low, high))
            assert (
                members(after.between(low, high)) == members(mapped.between(low, high)) == expected
            )
            assert members(part.map(Renamed()).between(low, high)) == expected
            assert members(view.map(Renamed()).between(low / 2, high / 2)) == members(
                view.between(low / 2, high / 2)
            )


def test_a_row_map_keeps_the_number_of_records():
    def dropped(chunk):
        return chunk.with_records(chunk.rows[1:], chunk.labels[1:])

    dropped.width = lambda width: width
    for data in (numbered(5), View(numbered(5), "add_remove", "record", Source(0))):
        with pytest.raises(ValueError, match="one record for each record") as error:
            data.map(dropped)
        assert not any(digit in str(error.value) for digit in "45")


def test_maps_are_eager_in_memory_and_lazy_in_files():
    calls = []

    class Counting(Doubled):
        def __call__(self, chunk):
            calls.append(len(chunk))
            return super().__call__(chunk)

    held = numbered(6, public=numbered(3)).map(Counting())
    assert calls == [6, 3]
    members(held)
    assert calls == [6, 3]
    assert held.public.matrix.shape == (3, 2)
    lazy = in_blocks(numbered(6), 2).map(Counting())
    assert (calls, lazy.width, lazy.n) == ([6, 3], 2, 6)
    assert members(lazy) == list(range(6))
    assert calls == [6, 3, 3, 3]


def test_dropped_records_get_coins_under_both_relations():
    ids = [f"u{i % 4}" for i in range(12)]
    for relation in BOTH:
        view = View(numbered(12, ids), relation, "user", Source(0))
        kept = view.with_fresh_positions(view.rows(np.array([0, 1, 5])), "record")
        sizes = {kept.with_fresh_positions(kept.dataset).between(0, 0.5).n_units for _ in range(40)}
        assert (kept.n, kept.unit, kept.relation) == (3, "record", relation)
        assert len(sizes) > 1


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("unit", ["record", "user"])
def test_exact_sums_have_the_same_bits_for_1_to_64_cuts(relation, unit):
    rng = np.random.default_rng(0)
    X, y, theta = rng.normal(size=(301, 3)), np.sign(rng.normal(size=301)), rng.normal(size=3)
    data = InMemory(X, y, [f"u{i % 40}" if i % 8 else None for i in range(301)])
    guards = {"row_norm": 1.0, "binary": True, "clip": 0.4}

    def sums(dataset, full):
        view = View(dataset, relation, unit, Source(9))
        half, rest = view.parts((0.5, 0.5))
        yield view.clipped_sum(Logistic(), theta, grid=GRID, **guards)
        yield half.clipped_sum(
            Logistic(), theta, grid=GRID, index=np.arange(0, half.n, 3), **guards
        )
        if not full:
            return
        for one in (half, rest, half.between(0.1, 0.7), rest.sample(rate=0.3), half.between(0, 0)):
            yield one.clipped_sum(Logistic(), theta, grid=GRID, **guards)
            some = np.arange(0, one.n, 3)
            assert np.array_equal(one.rows(some).matrix, one.take(some).rows.reshape(-1, 3))

    expected = list(sums(data, True))
    assert all(total.any() for total in expected[:-1])
    for cuts in range(1, 65):
        full = cuts in (1, 2, 7, 64)
        assert all(map(np.array_equal, sums(in_blocks(data, cuts), full), expected)), cuts


def test_a_view_is_a_dataset():
    rng = np.random.default_rng(1)
    X, y, theta = rng.normal(size=(50, 3)), np.sign(rng.normal(size=50)), rng.normal(size=3)
    data = InMemory(X, y, public=InMemory(X[:2], y[:2]))
    part = View(data, "replace", "record", Source(2)).between(0.3, 0.8)
    held = part.rows(np.arange(part.n))
    assert (part.n, part.width, len(part), len(list(part))) == (25, 3, 25, 25)
    assert part.public is held.public is data.public
    assert np.array_equal(part.whole.rows, held.matrix)
    assert part.users is None
    for loss in (Logistic(),):
        assert part.gradient(loss, theta)[1] == pytest.approx(
            held.gradient(loss, theta)[1], rel=1e-12
        )
        assert part.hessian(loss, theta) == pytest.approx(held.hessian(loss, theta), rel=1e-12)
        assert part.hessian_vector(loss, theta, theta) == pytest.approx(
            held.hessian(loss, theta) @ theta, rel=1e-10
        )
        assert part.gram()[0] == pytest.approx(held.gram()[0], rel=1e-12)
    nested = View(part, "replace", "record", Source(3)).between(0, 0.5)
    assert len(set(map(tuple, nested.whole.rows)) & set(map(tuple, held.matrix))) == nested.n == 12


def test_the_caller_s_object_is_given_for_the_whole_only():
    """Through it a mechanism on a part would read all records."""
    caller = [1.0, 2.0]
    view = View(numbered(2), "replace", "record", Source(0), given=caller)
    assert view.given is caller
    assert View(view.dataset, "replace", "record", Source(0)).given is view.dataset
    for other in (
        view.between(0, 0.5),
        view.sample(rate=1.0),
        view.map(Doubled()),
        *view.parts((1.0,)),
    ):
        with pytest.raises(ValueError, match="whole data only"):
            other.given  # noqa: B018


def test_views_are_not_pickled_and_say_no_numbers():
    for relation in BOTH:
        data = numbered(987, [f"u{i % 654}" for i in range(987)])
        view = View(data, relation, "user", Source())
        for one in (view, view.between(0, 0.5), view.sample(rate=0.5)):
            assert repr(one) == f"View(relation={relation!r}, unit='user', width 1)"
            with pytest.raises(TypeError, match="private randomness"):
                pickle.dumps(one)
    part = View(numbered(6), "replace", "record", Source(1)).between(0, 0.5)
    (chunk,) = part.fold(lambda found, chunk: [*found, chunk], [])
    sent = pickle.loads(pickle.dumps(chunk))
    assert np.array_equal(sent.rows, chunk.rows)
    assert (sent.positions, sent.index, len(sent.stored_rows)) == (None, None, 3)


@pytest.mark.parametrize("relation", BOTH)
def test_threads_see_one_draw(relation):
    view = View(numbered(2000), relation, "record", Source())
    start, found = threading.Barrier(4), [None] * 4

    def read(j):
        start.wait()
        found[j] = members(view.between(j / 4, (j + 1) / 4))

    threads = [threading.Thread(target=read, args=(j,)) for j in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(itertools.chain(*found)) == list(range(2000))

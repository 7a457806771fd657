"""Parallel composition on parts of a view, by brute force in integer arithmetic.

Three mechanisms see a part each. Each counts units that have a one, adds geometric noise, and
clamps to 0 .. n. The noise of a later one depends on earlier outputs. All permutations, or all
assignments by coins, are enumerated.
"""

import itertools
from collections import Counter
from functools import cache

import numpy as np
import pytest

from dpfit.data.dataset import InMemory
from dpfit.data.view import View, part_sizes

WORST = 3
"""Every mechanism has a likelihood ratio, e to the epsilon, of at most 3."""
SHARES = (1 / 3, 1 / 3, 1 / 3)
SCALE = 2**6 * 3**6
"""Probabilities of one output are multiples of 1 / SCALE."""


class Drawn:
    """A source that returns one written permutation, or one written position for each unit."""

    def __init__(self, permutation=None, positions=None):
        self._permutation, self._positions = permutation, positions

    def permutation(self, n):
        assert len(self._permutation) == n
        return np.array(self._permutation, dtype=np.int64)

    def words(self, n):
        assert len(self._positions) == n
        # Units in one part are told apart by further digits.
        first, self._positions = (
            [int(position * 2**64) for position in self._positions],
            np.arange(n) / 16,
        )
        return np.array(first, dtype=np.uint64)


@cache
def noisy_count(true, cap, ratio):
    """SCALE times the law of a geometrically noised count, ratio ** -abs(noise), in 0 .. cap."""
    weights = np.array(
        [(ratio - 1) * ratio ** (6 - abs(out - true)) for out in range(cap + 1)], dtype=np.int64
    )
    # Beyond k >= 1 the law sums to ratio ** (1 - k) / (ratio - 1), times (ratio - 1) / (ratio + 1).
    weights[0] += ratio ** (6 - true)
    weights[cap] += ratio ** (6 - cap + true)
    law = weights * (SCALE // (ratio**6 * (ratio + 1)))
    assert SCALE % (ratio**6 * (ratio + 1)) == 0
    assert law.sum() == SCALE
    return law


@cache
def transcript(counts, cap):
    """SCALE**3 times the law of three outputs; ratio 3 at first and after odd ones, else 2."""
    law = noisy_count(counts[0], cap, 3)
    for true in counts[1:]:
        kernel = np.stack(
            [noisy_count(true, cap, 2 if before % 2 == 0 else 3) for before in range(cap + 1)]
        )
        law = law[..., np.newaxis] * kernel
    return law


@cache
def dataset(units):
    """Units are (id, bits): a record for each bit."""
    rows = [(float(bit), name) for name, bits in units for bit in bits]
    return InMemory(
        np.array([[bit] for bit, _ in rows]).reshape(-1, 1),
        np.zeros(len(rows)),
        [u for _, u in rows],
    )


def ones(part):
    """Units of a part with a one, by records or by users: sensitivity one under replace-one."""
    chunk = part.whole
    hits = chunk.rows[:, 0] > 0
    return len(set(chunk.users[hits])) if part.unit == "user" else int(hits.sum())


def counts_of(units, relation, unit, source):
    return tuple(
        ones(part) for part in View(dataset(tuple(units)), relation, unit, source).parts(SHARES)
    )


def mixture(draws, cap):
    """The law of the transcript if all draws are equally likely, as integers."""
    return sum(times * transcript(counts, cap) for counts, times in Counter(draws).items())


@cache
def by_ranks(units, unit, cap):
    """Under replace-one: every permutation is equally likely."""
    orders = itertools.permutations(range(len(units)))
    return mixture([counts_of(units, "replace", unit, Drawn(order)) for order in orders], cap)


@cache
def by_coins(units, unit, cap):
    """Under add/remove: every assignment of units to three parts is equally likely."""
    places = itertools.product((1 / 6, 1 / 2, 5 / 6), repeat=len(units))
    return mixture(
        [counts_of(units, "add_remove", unit, Drawn(positions=place)) for place in places], cap
    )


def within(some, other, ratio):
    """Whether two laws have likelihood ratios of at most ``ratio``, without rounding."""
    if some.sum() < other.sum():
        some, other = other, some
    # 3**6 draws at most, and 3 for the ratio: nothing overflows.
    assert int(some.sum()) * 9 < 2**63
    assert some.sum() % other.sum() == 0
    other = other * (some.sum() // other.sum())
    return bool(np.all(some <= ratio * other) and np.all(other <= ratio * some))


def persons(bits, names="bdfhjl"):
    """Users with one record or two each; names leave room before, between and after."""
    return tuple((names[i], (bit,) if i % 2 else (bit, 0)) for i, bit in enumerate(bits))


def records(bits):
    return tuple(("x", (bit,)) for bit in bits)


def without(units, i):
    return (*units[:i], *units[i + 1 :])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_replaced_record_costs_what_the_worst_part_costs(n):
    pairs = [
        (
            by_ranks(records(bits), "record", n),
            by_ranks(records((*bits[:i], 1, *bits[i + 1 :])), "record", n),
        )
        for bits in itertools.product((0, 1), repeat=n)
        for i in range(n)
        if not bits[i]
    ]
    assert all(within(some, other, WORST) for some, other in pairs)
    assert not any(within(some, other, 1) for some, other in pairs)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_replaced_user_costs_what_the_worst_part_costs(n):
    """A new user has a new id, which may renumber all others, and other numbers of records."""
    for bits in itertools.product((0, 1), repeat=n):
        before = persons(bits)
        for i, name in itertools.product(range(n), "aez"):
            after = (*without(before, i), (name, (0, 0, 0) if bits[i] else (0, 1, 1)))
            assert within(by_ranks(before, "user", n), by_ranks(after, "user", n), WORST)
            assert not within(by_ranks(before, "user", n), by_ranks(after, "user", n), 1)


@pytest.mark.parametrize("n", [5, 6])
def test_five_and_six_units_one_replaced(n):
    for make, unit, new in ((records, "record", ("x", (1,))), (persons, "user", ("z", (1, 1, 0)))):
        before = make((0, 0, 1, 1, 0, 1)[:n])
        some, other = by_ranks(before, unit, n), by_ranks((*before[1:], new), unit, n)
        assert within(some, other, WORST)
        assert not within(some, other, 1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("unit", ["record", "user"])
def test_a_unit_more_or_less_costs_what_the_worst_part_costs(n, unit):
    make = records if unit == "record" else persons
    for bits in itertools.product((0, 1), repeat=n) if n < 4 else [(1, 0, 1, 1, 0, 1)[:n]]:
        for i in range(n) if n < 6 else [0]:
            some, other = (
                by_coins(units, unit, n) for units in (make(bits), without(make(bits), i))
            )
            assert within(some, other, WORST)
            # A unit without a one is not counted; its absence changes nothing.
            assert within(some, other, 1) == (not bits[i])


def test_a_replaced_unit_touches_one_part_of_a_fixed_order():
    """Given the order, the loss is that of one part: the first mechanism attains 3."""
    before, after = records((0, 1, 0)), records((1, 1, 0))
    for order in itertools.permutations(range(3)):
        some, other = (
            transcript(counts_of(u, "replace", "record", Drawn(order)), 3) for u in (before, after)
        )
        assert within(some, other, WORST)
        assert order[0] != 0 or not within(some, other, 2)


def cut_by(units, key):
    """Planted fault: consecutive parts of the units in the order of a key."""
    bits = [int(any(bits)) for _, bits in sorted(units, key=key)]
    ends = np.cumsum([0, *part_sizes(len(bits), SHARES)])
    return transcript(
        tuple(sum(bits[low:high]) for low, high in itertools.pairwise(ends)), len(bits)
    )


def test_parts_in_the_order_of_ids_or_values_cost_more():
    """One record goes from the first to the last place, and every part changes."""
    before = [(name, (bit,)) for name, bit in zip("bcdefg", (0, 0, 1, 1, 0, 0), strict=True)]
    after = [("z", (1,)), *before[1:]]
    assert not within(cut_by(before, lambda u: u[0]), cut_by(after, lambda u: u[0]), 2 * WORST)


def test_a_public_order_of_renumbered_users_costs_more():
    """Planted fault: positions drawn once and reused, where ids order as the draws."""
    before = [(name, (bit,)) for name, bit in zip("bcdefg", (0, 0, 1, 1, 0, 0), strict=True)]
    after = [("z", (1,)), *before[1:]]
    for order in ((0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0)):
        some, other = (
            transcript(counts_of(u, "replace", "user", Drawn(order)), 6) for u in (before, after)
        )
        assert not within(some, other, 2 * WORST)
    assert within(by_ranks(tuple(before), "user", 6), by_ranks(tuple(after), "user", 6), WORST)


def test_cuts_by_count_cost_more_under_add_remove():
    """Planted fault: ranks where a unit may be missing; without noise all three parts change."""
    units = records((0, 0, 1, 1, 0, 0))
    orders = ((0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4))
    some, other = (
        counts_of(part, "replace", "record", Drawn(order))
        for part, order in zip((units, units[1:]), orders, strict=True)
    )
    assert sum(a != b for a, b in zip(some, other, strict=True)) > 1
    assert not within(transcript(some, 6), transcript(other, 6), WORST)


@pytest.mark.parametrize("unit", ["record", "user"])
@pytest.mark.parametrize("seed", range(20))
def test_coupled_runs_differ_in_one_part(unit, seed):
    """No noise, 30 units, nested parts: the new unit takes the old slot, others stay."""
    rng = np.random.default_rng(seed)
    units = [
        (f"u{i:02}", tuple(rng.integers(0, 2, 1 if unit == "record" else rng.integers(1, 4))))
        for i in range(30)
    ]
    gone = int(rng.integers(30))
    new = (f"{rng.choice(['a', 'u15x', 'z'])}", (1,) if unit == "record" else (1, 0, 1, 1))
    after = [*units[:gone], new, *units[gone + 1 :]]
    order = rng.permutation(30)
    if unit == "record":
        coupled = order
    else:
        names = sorted(name for name, _ in units)
        renamed = sorted(name for name, _ in after)
        slots = [names[code] if names[code] != units[gone][0] else new[0] for code in order]
        coupled = np.array([renamed.index(name) for name in slots])
    found = []
    for data, drawn in ((units, order), (after, coupled)):
        parts = View(dataset(tuple(data)), "replace", unit, Drawn(drawn)).parts((0.4, 0.4, 0.2))
        leaves = [leaf for part in parts for leaf in part.parts((0.5, 0.5))]
        found.append(
            [sorted(zip(leaf.whole.users, leaf.whole.rows[:, 0], strict=True)) for leaf in leaves]
        )
    assert sum(some != other for some, other in zip(*found, strict=True)) == 1
    removed = [one for one in units if one is not units[gone]]
    positions = rng.uniform(size=30)
    found = []
    for data, drawn in ((units, positions), (removed, np.delete(positions, gone))):
        parts = View(dataset(tuple(data)), "add_remove", unit, Drawn(positions=drawn)).parts(
            (0.4, 0.4, 0.2)
        )
        leaves = [leaf for part in parts for leaf in part.parts((0.5, 0.5))]
        found.append(
            [sorted(zip(leaf.whole.users, leaf.whole.rows[:, 0], strict=True)) for leaf in leaves]
        )
    assert sum(some != other for some, other in zip(*found, strict=True)) == 1

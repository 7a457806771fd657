"""Numbers for people: risks are rounded up, room is rounded down, names cannot become markup."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfit.report import words
from dpfit.report.markup import Markup, name_of, tag, text

shares = st.floats(0.0, 1.0)


def spoken(said: str) -> float:
    part, many = re.fullmatch(r"([\d.]+) in ([\d,]+)", said).groups()
    return float(part) / float(many.replace(",", ""))


@given(shares)
def test_shares_are_rounded_up(share):
    assert share * (1 - 2e-9) <= spoken(words.out_of(share)) <= share + 0.001 + 1e-12


@given(st.floats(2e-9, 1.0))
def test_chances_are_rounded_up(chance):
    said = spoken(words.chance(chance))
    assert chance * (1 - 2e-9) <= said <= chance * 1.11 + 1e-12


@given(st.floats(0.0, 1e-9, exclude_min=True))
def test_tiny_chances_are_not_called_never(chance):
    assert words.chance(chance) in ("less than 1 in a billion", "1 in 1,000,000,000")


@given(st.floats(1e-6, 1e6))
def test_bounds_are_rounded_up_and_room_down(value):
    assert value * (1 - 2e-9) <= float(words.bound(value)) <= value * 1.0101
    assert value * 0.9899 <= float(words.room(value)) <= value * (1 + 2e-9)


@pytest.mark.parametrize(
    ("value", "said"), [(1.0, "1"), (0.3, "0.3"), (float("inf"), "unlimited"), (0.0, "0")]
)
def test_round_numbers_stay(value, said):
    assert words.bound(value) == said


@given(st.text())
def test_text_cannot_become_markup(value):
    shown = text(value)
    assert not set(shown) & set("<>\"'")
    assert re.sub(r"&(amp|lt|gt|quot|#x27);", "", shown).count("&") == 0
    assert shown.isprintable()
    shown.encode()


@given(st.text())
def test_attributes_stay_inside_their_quotes(value):
    assert tag("p", title=value).count('"') == 2


def test_direction_overrides_and_lone_surrogates_become_visible():
    assert text("a\u202eb\ud800c\x00d\ne") == "a\ufffdb\ufffdc\ufffdd e"
    assert name_of("\u202eegA") == '<bdi class="name">\ufffdegA</bdi>'


def test_markup_is_not_escaped_twice():
    inner = tag("b", "1 < 2")
    assert tag("p", inner) == "<p><b>1 &lt; 2</b></p>"
    assert isinstance(tag("p", inner), Markup)

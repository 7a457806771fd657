"""The reader's map names files that exist, and every room of the house."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAP = (ROOT / "docs/explanation/readers-map.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)`", MAP)))


def test_it_names_files():
    assert len(NAMED) > 30


@pytest.mark.parametrize("name", NAMED)
def test_a_file_that_it_names_exists(name):
    folder = ROOT if name.startswith(("benchmarks/", "tools/")) else ROOT / "src" / "dpfit"
    assert (folder / name).is_file()


def test_it_places_every_room():
    rooms = {path.parent.name for path in (ROOT / "src" / "dpfit").glob("*/__init__.py")}
    placed = MAP[MAP.index("## Who may import whom") :]
    assert {room for room in rooms if room not in placed} == set()

"""The how-to on JAX models runs, section by section, where its libraries are installed."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "bring-your-jax-model.md"
SECTIONS = dict(
    re.findall(r"```python\n# (\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
)
EXTRAS = {"plain": "jax", "flax": "flax", "equinox": "equinox"}


def test_the_page_has_a_section_for_each_library():
    assert set(SECTIONS) == set(EXTRAS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXTRAS)
def test_a_section_runs(name):
    pytest.importorskip(EXTRAS[name], reason=f"{EXTRAS[name]} is not installed")
    found = {"__name__": name}
    exec(compile(SECTIONS[name], f"{PAGE.name}, {name}", "exec"), found)
    assert found.get("accuracy", 1.0) > 0.9

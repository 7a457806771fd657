"""The picture of README: its script runs, and it shows the figures beside it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_quick_form_draws_a_picture_of_its_figures(tmp_path):
    picture = tmp_path / "picture.svg"
    subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "picture.py"), "--quick", "--out", str(picture)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
    )
    assert picture.read_text().count("<svg") == 1
    rows = json.loads(picture.with_suffix(".json").read_text())
    private = {row["model"]: row["accuracy"] for row in rows if "epsilon" in row}
    best = next(row["accuracy"] for row in rows if "epsilon" not in row)
    assert set(private) >= {"dpfit, add/remove", "dpfit, pure, add/remove"}
    assert all(0.5 < accuracy <= best + 0.02 for accuracy in private.values())


def test_the_picture_of_readme_has_its_figures_beside_it():
    rows = json.loads((ROOT / "docs" / "figures" / "adult.json").read_text())
    at_one = {row["model"]: row["accuracy"] for row in rows if row.get("epsilon") == 1.0}
    assert at_one["dpfit, add/remove"] > at_one["diffprivlib, pure, default C"]
    assert "docs/figures/adult.svg" in (ROOT / "README.md").read_text()

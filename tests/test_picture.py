"""The picture of README: its script runs, and it shows the figures beside it."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]


FIGURES = ROOT / "docs" / "figures"


def is_for_light_and_dark_pages(picture):
    """Whether a picture is well-formed, light by default and dark on dark pages."""
    text = picture.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    styles = "".join(style.text or "" for style in root.iter("{http://www.w3.org/2000/svg}style"))
    dark = re.search(r"@media \(prefers-color-scheme: dark\) \{ svg \{ filter: invert", styles)
    return bool(dark) and "fill: #ffffff" in text


def accuracies(rows):
    """The accuracy of each private model by epsilon, and that of the fit without privacy."""
    private = defaultdict(dict)
    for row in rows:
        if "epsilon" in row:
            private[row["model"]][row["epsilon"]] = row["accuracy"]
    return private, next(row["accuracy"] for row in rows if "epsilon" not in row)


@pytest.mark.slow
def test_the_quick_form_draws_a_picture_of_its_figures(tmp_path):
    picture = tmp_path / "picture.svg"
    subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "picture.py"), "--quick", "--out", str(picture)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
    )
    assert is_for_light_and_dark_pages(picture)
    private, best = accuracies(json.loads(picture.with_suffix(".json").read_text()))
    ours, pure = private["dpfit, add/remove"], private["dpfit, pure, add/remove"]
    for line in (ours, pure):
        # One run on a small table: the least budget may be as good as the largest.
        assert line[max(line)] > line[min(line)] - 0.02
        assert all(0.55 < accuracy <= best + 0.02 for accuracy in line.values())
    assert ours.keys() == pure.keys()
    assert all(ours[epsilon] > pure[epsilon] - 0.02 for epsilon in ours)


def test_the_picture_of_readme_shows_the_figures_beside_it():
    assert is_for_light_and_dark_pages(FIGURES / "adult.svg")
    assert "docs/figures/adult.svg" in (ROOT / "README.md").read_text()
    private, best = accuracies(json.loads((FIGURES / "adult.json").read_text()))
    ours, pure = private["dpfit, add/remove"], private["dpfit, pure, add/remove"]
    assert all(pure[epsilon] <= ours[epsilon] + 0.005 <= best + 0.01 for epsilon in ours)
    peers = {model: line for model, line in private.items() if not model.startswith("dpfit")}
    assert len(peers) >= 2
    for model, line in peers.items():
        same = pure if "pure" in model else ours
        assert all(same[epsilon] > line[epsilon] for epsilon in line), model

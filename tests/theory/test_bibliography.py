"""Every citation leads to a work: in guarantees, catalogue, docs and docstrings."""

from pathlib import Path

import pytest

from dpfit.catalogue import ENTRIES
from dpfit.theory.bibliography import DOCUMENTS, PAGES, WORKS, bibliography, citations, resolve

ROOT = Path(__file__).parents[2]
VENUES = ("CCS", "ICML", "NeurIPS", "UAI")


def missing(text):
    return [found.text for found in citations(text) if found.reference is None]


@pytest.mark.parametrize("row", ENTRIES, ids=lambda row: row.name)
def test_every_reference_of_the_catalogue_resolves_completely(row):
    """Theorems of plans are checked with the plans, in tests/test_catalogue.py."""
    assert resolve(row.reference)
    assert missing(row.reference) == []


@pytest.mark.parametrize("folder", ["src/dpfit", "docs", "README.md"])
def test_works_cited_by_year_are_in_the_bibliography(folder):
    root = ROOT / folder
    files = [root] if root.is_file() else [*root.rglob("*.py"), *root.rglob("*.md")]
    # This doctest shows a citation that is missing.
    files = [file for file in files if file.name != "bibliography.py"]
    lost = {
        f"{file.relative_to(ROOT)}: {each}"
        for file in files
        for each in missing(file.read_text(encoding="utf-8"))
        if each[-4:].rstrip(")").isdigit() and not each.startswith(VENUES)
    }
    assert not lost


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("[LD] Lemma C.1; [ASAP] Theorem 4, corrected", ["LD", "ASAP"]),
        ("exponential mechanism [ASAP, Lemma 5; LD, Theorem D.5]", ["ASAP", "LD"]),
        ("[ASAP, Lemma 5; Dong, Durfee, Rogers 2020]", ["ASAP", "Dong, Durfee and Rogers (2020)"]),
        ("Dwork and Roth (2014) Theorem 3.23; Dwork and Roth 2014", ["Dwork and Roth (2014)"]),
        ("Gaussian DP, Dong, Roth and\n    Su 2022)", ["Dong, Roth and Su (2022)"]),
        ("Ledoit and Péché (2011); Wang (2018)", ["Ledoit and Peche (2011)", "Wang (2018)"]),
        (
            "noisy steps (docs/explanation/trajectory.md, Theorem 2)",
            ["docs/explanation/trajectory.md"],
        ),
        ("Gaussian mechanism; group privacy", []),
    ],
)
def test_citations_are_found_in_every_form(text, keys):
    assert [each.key for each in resolve(text)] == keys
    assert missing(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "[XY19] Theorem 2",
        "[ASAP, Lemma 5; XY19, Lemma 1]",
        "Mironov (2018)",
        "Roth and Dwork (2014)",
        "Roth et al. (2014)",
    ],
)
def test_an_unknown_citation_is_reported(text):
    assert len(missing(text)) == 1


def test_works_are_complete_and_keys_are_unique():
    works = bibliography()
    assert (
        len({work.key for work in works}) == len(works) == len(DOCUMENTS) + len(WORKS) + len(PAGES)
    )
    assert all(work.title and work.venue for work in works)
    assert all(work.authors and work.year for work in WORKS)
    assert all((ROOT / page.key).is_file() for page in PAGES)

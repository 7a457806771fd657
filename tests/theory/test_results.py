"""The table of results names objects that exist, and the page shows the table."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from dpfit.catalogue import ENTRIES
from dpfit.theory.bibliography import DOCUMENTS, citations
from dpfit.theory.results import RESULTS, STATUSES, markdown

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "results.md"
KINDS = (
    "Algorithm|Appendix|Corollary|Definition|Equation|Example|Fact|Figure|Lemma|Proposition|Remark|"
    "Section|Theorem"
)
ALGORITHMS = {row.name for row in ENTRIES}


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: f"{row.document} {row.number}")
def test_the_object_of_a_result_exists(row):
    if "." not in row.object:
        assert row.object in ALGORITHMS
        return
    module, _, name = row.object.rpartition(".")
    assert callable(getattr(import_module(module), name))


TESTS = "\n".join(
    file.read_text(encoding="utf-8")
    for file in Path(__file__).parents[1].rglob("*.py")
    if file != Path(__file__)
)


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: f"{row.document} {row.number}")
def test_the_object_of_a_result_is_named_in_a_test_of_its_own(row):
    """Shared tests go through all algorithms and name none: they do not count."""
    assert re.search(rf"\b{re.escape(row.object.rpartition('.')[2])}\b", TESTS)


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: f"{row.document} {row.number}")
def test_rows_are_complete(row):
    assert re.fullmatch(
        rf"({KINDS}) ([A-I]|([A-I]\.)?\d+(\.\d+)*)(, (proof|application))?", row.number
    )
    assert row.document in DOCUMENTS
    assert row.title
    assert row.status in STATUSES
    assert row.note or row.status == "works"
    assert all(found.reference for found in citations(row.note))
    assert not set("|\n") & set(row.title + row.note)


def test_each_result_is_listed_once_and_every_document_has_some():
    assert len({(row.document, row.number) for row in RESULTS}) == len(RESULTS)
    assert {row.document for row in RESULTS} == set(DOCUMENTS)
    assert {row.status for row in RESULTS} == set(STATUSES)


@pytest.mark.parametrize("row", ENTRIES, ids=lambda row: row.name)
def test_documents_that_an_algorithm_cites_list_it_or_its_results(row):
    """An entry that cites a document by theorem rests on a tabulated result of it."""
    listed = {(each.document, each.number) for each in RESULTS}
    for document, numbers in re.findall(r"\[(\w+)\] ([^;\[]*)", row.reference):
        cited = re.findall(rf"\b({KINDS})s? ((?:[A-I]\.)?\d[\d.]*\d|\d)", numbers)
        if document in DOCUMENTS and cited:
            known = {f"{kind} {number}" for kind, number in cited}
            restated = {each for each in known if any(each in other.title for other in RESULTS)}
            assert known - restated <= {number for key, number in listed if key == document}


def test_the_page_is_generated_from_the_table():
    command = "python -m dpfit.theory.results docs/reference/results.md"
    assert PAGE.read_text(encoding="utf-8") == markdown(), (
        f"docs/reference/results.md is stale; run: {command}"
    )

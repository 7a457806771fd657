"""The table of results names objects that exist, and the page shows the table."""

import ast
import re
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import pytest

from dpfit.catalogue import ENTRIES
from dpfit.theory.bibliography import DOCUMENTS, citations
from dpfit.theory.result_tests import TESTS
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


ROOT = Path(__file__).parents[2]
HOMES = {row.name: row.where.partition(":")[0] for row in ENTRIES}


@lru_cache
def definitions(path):
    """Names that each definition of a module mentions, and the homes of imported names."""
    mentions, homes = {}, {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            homes |= {alias.asname or alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            mentions[node.name] = named(node)
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    mentions[f"{node.name}::{method.name}"] = named(method)
        elif isinstance(node, ast.FunctionDef):
            mentions[node.name] = named(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            mentions |= {name.id: named(node) for name in targets if isinstance(name, ast.Name)}
    return mentions, homes


def named(node):
    """Names, attributes and arguments (fixtures) in a piece of code."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    found |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return found | {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}


def reached(test, mentions):
    """Names that a test mentions, and those that these mention, within its module."""
    seen, waiting = set(), {test}
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting |= mentions.get(name, set()) - seen
    return seen


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: f"{row.document} {row.number}")
def test_the_test_of_a_result_exists_and_reaches_its_object(row):
    path, _, test = row.test.partition("::")
    mentions, homes = definitions(path)
    assert test in mentions
    assert test.rpartition("::")[2].startswith("test_")
    names = reached(test, mentions)
    home = HOMES.get(row.object, row.object.rpartition(".")[0])
    assert row.object.rpartition(".")[2] in names or home in {homes.get(name) for name in names}


def test_each_named_test_is_that_of_an_object_or_of_a_result():
    known = {row.object for row in RESULTS} | {f"{row.document} {row.number}" for row in RESULTS}
    assert set(TESTS) <= known


def test_a_test_that_does_not_reach_its_object_is_seen():
    mentions, homes = definitions("tests/theory/test_stability.py")
    names = reached("test_printed_constants_of_the_moment", mentions)
    assert "unconditional_moment" in names
    assert "dpfit.theory.gibbs" not in {homes.get(name) for name in names}


SOURCES = "\n".join(
    file.read_text(encoding="utf-8")
    for file in Path(__file__).parents[1].rglob("*.py")
    if file != Path(__file__)
)


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: f"{row.document} {row.number}")
def test_the_object_of_a_result_is_named_in_a_test_of_its_own(row):
    """Shared tests go through all algorithms and name none: they do not count."""
    assert re.search(rf"\b{re.escape(row.object.rpartition('.')[2])}\b", SOURCES)


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

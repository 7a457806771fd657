"""The commands of README and tutorials run, in order, and print what is shown."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dpfit
from dpfit.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/tutorials/first-model.md",
    pytest.param("docs/tutorials/a-dashboard-for-a-year.md", marks=pytest.mark.slow),
    "docs/how-to/command-line.md",
)


def sessions(text):
    """Commands of ``console`` blocks, each with the lines that are shown after it."""
    found, inside = [], False
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            found.append((shlex.split(line[2:], comments=True), []))
        elif inside and line.strip() not in ("", "..."):
            found[-1][1].append(" ".join(line.split()))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_commands_do_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = sessions((ROOT / page).read_text(encoding="utf-8"))
    assert len(commands) >= 5
    for (program, *arguments), shown in commands:
        if program == "cd":
            monkeypatch.chdir(arguments[0])
            continue
        assert program == "dpfit"
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
        refused = any(line.startswith("error:") for line in shown)
        assert (result.exit_code != 0) == refused, (arguments, result.output)
        said = [" ".join(line.split()) for line in result.output.splitlines()]
        places = [said.index(line) for line in shown]
        assert places == sorted(places)


def test_lines_that_are_shown_are_compared():
    text = "```console\n$ dpfit a \\\n  b   # why\nan  answer\n...\n$ cd x\n```\n$ not a command\n"
    assert sessions(text) == [(["dpfit", "a", "b"], ["an answer"]), (["cd", "x"], [])]


@pytest.mark.filterwarnings("ignore:delta")
def test_a_million_rows_runs_with_fewer(tmp_path, monkeypatch, capsys):
    """The Python of the tutorial, one block after the other, on 40,000 rows."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/tutorials/a-million-rows.md").read_text(encoding="utf-8")
    assert "n = 1_000_000" in text
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    names: dict[str, object] = {}
    exec(compile(code.replace("1_000_000", "40_000"), "tutorial", "exec"), names)
    said = capsys.readouterr().out
    assert said.startswith("phased_sgd\n")
    assert names["right"] > 0.95 * names["best"] > 0.5
    assert "1 pass over the data" in said
    assert "the order of rows does not depend on their values" in said
    assert "6 of the six large weights" in said


def changelog():
    """Versions of the changelog, newest first: name, and sections with their bullets."""
    versions = []
    for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            versions.append((line[3:], {}))
        elif line.startswith("### "):
            versions[-1][1][line[4:]] = []
        elif versions and line:
            bullets = list(versions[-1][1].values())[-1]
            bullets.append(line)
    return versions


def test_the_changelog_has_short_bullets_and_names_this_version():
    versions = changelog()
    name, sections = versions[0]
    assert name == dpfit.__version__
    assert list(sections)[0] == "Privacy"
    for _, parts in versions:
        order = [
            part for part in ("Privacy", "Added", "Changed", "Fixed", "Removed") if part in parts
        ]
        assert list(parts) == order
        for bullet in (line for lines in parts.values() for line in lines):
            assert bullet.startswith("- "), bullet
            assert bullet.endswith("."), bullet
            assert len(bullet) <= 165, bullet


def test_the_citation_names_this_version():
    assert f"\nversion: {dpfit.__version__}\n" in (ROOT / "CITATION.cff").read_text()

"""The commands of README and tutorials run, in order, and print what is shown."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
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


def run_and_kill(option, name, seconds, program, *arguments):
    """Run a command in a process of its own, and kill it as the page does."""
    assert (option, name, program) == ("-s", "KILL", "dpfit")
    command = [sys.executable, "-m", "dpfit", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            process.wait(float(seconds))
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.mark.parametrize("page", PAGES)
def test_commands_do_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = sessions((ROOT / page).read_text(encoding="utf-8"))
    assert len(commands) >= 5
    for (program, *arguments), shown in commands:
        if program == "cd":
            monkeypatch.chdir(arguments[0])
            continue
        if program == "timeout":
            run_and_kill(*arguments)
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
    assert next(iter(sections)) == "Privacy"
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


HOUSE_PAPERS = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\]\(([^)]+)\)")


def anchors(text):
    """What a link to a heading of this page may name, as GitHub writes it."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", HOUSE_PAPERS)
def test_each_link_of_a_house_paper_leads_to_a_file_and_a_heading(page):
    links = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert links
    for link in links:
        file, _, heading = link.partition("#")
        target = ROOT / file
        assert target.is_file(), link
        assert not heading or heading in anchors(target.read_text(encoding="utf-8")), link


def test_a_package_index_shows_no_relative_link():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    links = LINK.findall(text)
    assert len(links) > 20
    assert all(link.startswith(project["project"]["urls"]["Source"]) for link in links)


def test_the_sentences_under_the_picture_are_true_to_its_figures():
    rows = json.loads((ROOT / "docs/figures/adult.json").read_text())
    replaced = {row["epsilon"]: row for row in rows if row["model"] == "dpfit, replace-one"}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (
        f"With one record replaced, dpfit reaches {replaced[0.1]['accuracy']:.3f} at epsilon 0.1 "
        f"and {replaced[1.0]['accuracy']:.3f} at epsilon 1."
    ) in text
    assert {row["model"] for row in rows if "epsilon" in row} == {
        "dpfit, add/remove",
        "dpfit, pure, add/remove",
        "dpfit, replace-one",
        "diffprivlib, pure, default C",
        "Opacus DP-SGD, batch 1024, 20 epochs, rate 4, clip 0.5",
    }


def sentences(text):
    """Sentences of a page, without code, tables, headings and formulas."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"^(\||#| {4}).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`|\$[^$]*\$", "x", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*] |\d+\. )", text):
        yield from re.split(r"(?<=[.?!:;])\**\s+", " ".join(paragraph.split()))


def test_sentences_are_found_and_code_is_not():
    page = "# A title\n\nOne `a b c` here. Two\nlines: three.\n\n    code\n\n- An [item](b.md).\n"
    assert list(sentences(page))[1:] == ["One x here.", "Two lines:", "three.", "- An item."]


@pytest.mark.parametrize(
    "page",
    [
        *HOUSE_PAPERS,
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs/tutorials").glob("*.md"))),
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs/how-to").glob("*.md"))),
    ],
)
def test_no_sentence_has_more_than_thirty_words(page):
    found = list(sentences((ROOT / page).read_text(encoding="utf-8")))
    assert len(found) > 5
    assert max(len(sentence.split()) for sentence in found) <= 30, max(found, key=len)


def test_from_readme_to_a_report_takes_at_most_ten_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    install = re.search(r"```\n(python -m build .*?)```", text, re.DOTALL)
    assert install
    commands = [shlex.split(line, comments=True) for line in install[1].splitlines()]
    commands += [command for command, _ in sessions(text)]
    first_report = next(at for at, command in enumerate(commands, 1) if "--report" in command)
    assert first_report <= 10


def test_the_report_of_readme_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for (program, *arguments), _ in sessions((ROOT / "README.md").read_text(encoding="utf-8")):
        if program == "cd":
            monkeypatch.chdir(arguments[0])
        elif CliRunner().invoke(app, arguments).exit_code == 0 and "--report" in arguments:
            page = Path(arguments[arguments.index("--report") + 1]).read_text(encoding="utf-8")
            assert "epsilon = 0.5" in page
            return
    pytest.fail("README writes no report")

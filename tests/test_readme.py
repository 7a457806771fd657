"""The commands of README and tutorials run, in order, and print what is shown."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

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

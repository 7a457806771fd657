"""Help: each command has examples, they run, and names that are misspelt get a suggestion."""

import re
import shlex
import subprocess
import sys
import typing

import pytest
from typer.testing import CliRunner

from dpfit.catalogue import entries
from dpfit.cli.app import app
from dpfit.cli.examples import EXAMPLES

SLOW = {"audit", *(name for name in EXAMPLES if name.startswith("stream"))}
"""Commands whose examples take seconds."""


FIT = "dpfit fit patients.csv --schema schema.toml --epsilon 1"
QUERY = "dpfit query patients.csv --schema schema.toml --epsilon 1"


def run(line):
    return CliRunner().invoke(app, shlex.split(line)[1:], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("help") / "hospital"
    assert run(f"dpfit demo --folder {place}").exit_code == 0
    return place


@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in EXAMPLES],
)
def test_the_examples_of_a_command_run_in_the_folder_of_the_demo(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    if command == "predict":
        run(EXAMPLES["fit"][0])
    if command.startswith("stream "):
        for line in EXAMPLES["stream"]:
            run(line)
    for line in EXAMPLES[command]:
        if "--all --runs" not in line:  # the standing audits run these
            result = run(line)
            assert result.exit_code == 0, (line, result.output)


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_shows_the_examples(command):
    shown = " ".join(run(f"dpfit {command} --help").output.split())
    for line in EXAMPLES[command]:
        assert line in shown


def test_every_command_has_an_example():
    listed = {command.name or command.callback.__name__ for command in app.registered_commands}
    listed |= {group.name for group in app.registered_groups}
    listed |= {
        f"{group.name} {one.name or one.callback.__name__}"
        for group in app.registered_groups
        for one in group.typer_instance.registered_commands
    }
    assert listed == set(EXAMPLES)


def options_and_arguments():
    """Command, name and help of each option and argument."""
    commands = {one.name or one.callback.__name__: one.callback for one in app.registered_commands}
    for group in app.registered_groups:
        for one in group.typer_instance.registered_commands:
            commands[f"{group.name} {one.name or one.callback.__name__}"] = one.callback
    for command, call in commands.items():
        for name, kind in typing.get_type_hints(call, include_extras=True).items():
            if name != "return":
                yield command, name, kind.__metadata__[0].help


def test_each_option_says_in_one_short_sentence_what_it_takes():
    found = list(options_and_arguments())
    assert len(found) > 100
    for command, name, text in found:
        assert text, (command, name)
        assert text[0].isupper(), (command, name, text)
        assert text.endswith("."), (command, name, text)
        assert max(len(one.split()) for one in re.split(r"[.;:] ", text)) <= 20, text


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("dpfit fitt", "fit"),
        ("dpfit ledger shw x", "show"),
        ("dpfit algorithms gausian_mean", "gaussian_mean"),
        ("dpfit audit noisygd", "noisy_gd"),
        ("dpfit plan --epsilom 1", "--epsilon"),
        ("dpfit stream opne x", "Did you mean 'open'?"),
        (f"{FIT} --model logistc", "did you mean 'logistic'?"),
        (f"{FIT} --model logistic --relation repalce", "did you mean 'replace'?"),
        (f"{FIT} --model logistic --solver nosy_gd", "did you mean 'noisy_gd'?"),
        (f"{FIT} --model logistic --ledger budgets.ledger --dataset patient", "mean 'patients'?"),
        (
            f"{FIT} --model logistic --unit user --user-column daignosis --max-rows 2",
            "'diagnosis'?",
        ),
        (f"{QUERY} --by diagnoses", "did you mean 'diagnosis'?"),
        (f"{QUERY} --by diagnosis --noise gausian", "did you mean 'gaussian'?"),
        ("dpfit schema patients.csv --target Diagnosis", "did you mean 'diagnosis'?"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(line, suggestion, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = run(line)
    assert result.exit_code != 0
    assert suggestion in result.output


@pytest.mark.parametrize(
    ("entry", "misspelt"),
    [("lower", "lowr"), ("categories", "catgories"), ("[target]", "[tarjet]"), ("scale", "scal")],
)
def test_a_misspelt_entry_of_a_schema_gets_a_suggestion(entry, misspelt, folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = (folder / "schema.toml").read_text().replace(entry, misspelt, 1)
    (folder / "other.toml").write_text(text)
    result = run("dpfit plan --rows 500 --schema other.toml --model logistic --epsilon 1")
    assert result.exit_code == 2
    assert f"did you mean '{entry.strip('[]')}'?" in result.output


def test_each_recommended_algorithm_says_what_to_use_it_for():
    rows = list(entries(tier="recommended"))
    assert rows
    shown = run("dpfit algorithms").output
    for row in rows:
        assert row.use_for
        assert row.use_for in shown


def test_help_starts_without_numpy():
    code = (
        "import sys; sys.argv = ['dpfit', '--help']\n"
        "from dpfit.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'scipy', 'sklearn', 'numba', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")

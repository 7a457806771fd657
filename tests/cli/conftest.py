"""Tables, schemas and a way to call ``dpfit``."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from dpfit.cli.app import app

SCHEMA = """\
scale = "symmetric"

[columns.age]
lower = 0
upper = 100

[columns.ward]
categories = ["north", "south"]
"""
ILL = '\n[target]\nname = "ill"\ncategories = ["no", "yes"]\n'
STAY = '\n[target]\nname = "stay"\nlower = 0\nupper = 20\n'


@pytest.fixture
def dpfit():
    """Call the command line; the result has ``exit_code``, ``stdout`` and ``stderr``."""

    def call(*arguments: object):
        return CliRunner().invoke(app, [str(word) for word in arguments], env={"COLUMNS": "120"})

    return call


def write_table(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def patients(number):
    """Older patients are ill, and stay a tenth of their age."""
    ages = np.linspace(0, 100, number)
    return [
        {
            "age": f"{age:.2f}",
            "ward": ("north", "south")[i % 2],
            "ill": ("no", "yes")[int(age > 50)],
            "stay": f"{age / 10}",
        }
        for i, age in enumerate(ages)
    ]


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path / "patients.csv", patients(4000))


@pytest.fixture
def ill(tmp_path):
    """A schema whose target is a category."""
    path = tmp_path / "ill.toml"
    path.write_text(SCHEMA + ILL, encoding="utf-8")
    return path


@pytest.fixture
def stay(tmp_path):
    """A schema whose target is a number."""
    path = tmp_path / "stay.toml"
    path.write_text(SCHEMA + STAY, encoding="utf-8")
    return path

"""``dpfit demo``: a private model from public facts to a report, on patients that are public."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dpfit.cli import options
from dpfit.cli.outputs import check_new
from dpfit.cli.screen import explained, print_json

if TYPE_CHECKING:
    from dpfit.cli.fit import Fitted
    from dpfit.cli.task import Task

_EPSILON, _CAP = 2.0, 3.0

# What a pathologist would write down without looking at these patients.
_SCHEMA = """\
# Public facts about the columns of patients.csv, from a textbook, not from these patients.
scale = "symmetric"
intercept = true

[columns."worst radius"]
lower = 5.0
upper = 40.0

[columns."worst texture"]
lower = 10.0
upper = 50.0

[columns."worst smoothness"]
lower = 0.0
upper = 0.25

[columns."worst concavity"]
lower = 0.0
upper = 1.3

[target]
name = "diagnosis"
categories = ["benign", "malignant"]
"""


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="A new folder for the files; default: a temporary one."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit a private model to a medical table of scikit-learn: schema, plan, ledger, fit, report.

    The table, its schema and the ledger stay in the folder, to go on with.
    """
    from dpfit.cli.fit import fit_table
    from dpfit.cli.stored import to_text
    from dpfit.cli.task import Task, read_schema
    from dpfit.ledger import Ledger
    from dpfit.privacy import Budget
    from dpfit.report import Quality

    place = _new_folder(folder)
    console = Console(quiet=as_json)
    table, facts = place / "patients.csv", place / "schema.toml"
    number = write_patients(table)
    facts.write_text(_SCHEMA, encoding="utf-8")
    ledger = Ledger.create(place / "budgets.ledger")
    ledger.register("patients", Budget(epsilon=_CAP), note="dpfit demo")

    task = Task(read_schema(facts, None), "logistic", _EPSILON, ledger=ledger, dataset="patients")
    console.print(
        "[bold]The question[/bold]: is a tumour malignant, from four measurements of each of 569 "
        "patients?\n"
    )
    console.print("[bold]The plan[/bold], made from public facts before the data are read:")
    console.print(explained(task.plan(number), task.delta))

    fitted = fit_table(task, table)
    (place / "model.json").write_text(to_text(fitted.model, task.schema), encoding="utf-8")
    console.print("\n[bold]The release[/bold]: a model that keeps this promise.")
    fitted.show(console, {"model": place / "model.json"})

    accuracy, without = _accuracies(fitted, table)
    console.print(
        f"\nThe table is public, so here we may compare: {accuracy:.0%} of the patients are "
        "classified right, "
        f"{without:.0%} by a model without privacy."
    )
    page = place / "report.html"
    measured = Quality(
        "accuracy", accuracy, "public data", "share of the patients that are classified right"
    )
    page.write_text(fitted.page(measured), encoding="utf-8")

    refusal = _second(task, table)
    console.print(
        "\n[bold]A second fit[/bold] at the same price is refused, and nothing is charged:"
    )
    console.print(escape(refusal), highlight=False)
    console.print(
        f"\nNow open the report in a browser: [bold]{escape(str(page))}[/bold]", soft_wrap=True
    )
    if as_json:
        print_json(
            {
                **fitted.to_json(),
                "schema": "dpfit.demo/1",
                "accuracy": accuracy,
                "accuracy_without_privacy": without,
                "refused": refusal,
                "folder": str(place),
                "report": str(page),
            }
        )


def write_patients(path: Path) -> int:
    """Write the table, and return how many rows it has."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*found.feature_names, "diagnosis"])
        for measures, kind in zip(found.data.tolist(), found.target.tolist(), strict=True):
            writer.writerow([*measures, found.target_names[kind]])
    return len(found.data)


def _new_folder(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="dpfit-demo-"))
    check_new(folder)
    folder.mkdir()
    return folder


def _accuracies(fitted: Fitted, table: Path) -> tuple[float, float]:
    """The fraction of rows classified right, with and without privacy: the table is public."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from dpfit.data.files import read_table

    cells, schema = read_table(table), fitted.task.schema
    rows, labels = schema.matrix(cells), schema.labels(cells)
    names = np.asarray(fitted.task.estimator().classes)
    private = np.asarray(fitted.model.predict(rows)) == names[labels.astype(np.int64)]
    exact = LogisticRegression(C=np.inf, fit_intercept=False, max_iter=1000).fit(rows, labels)
    return float(private.mean()), float(exact.score(rows, labels))


def _second(task: Task, table: Path) -> str:
    """What the ledger says to the same fit once more."""
    from dpfit.cli.fit import fit_table
    from dpfit.ledger import BudgetExceeded

    try:
        fit_table(task, table)
    except BudgetExceeded as error:
        return str(error)
    return "it was not refused"

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
from dpfit.cli.screen import explained, print_json, progress

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
            metavar="FOLDER", help="New folder for the files; by default, a temporary one."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run every step once on a medical table: schema, plan, ledger, fit, report.

    The folder keeps the table, its schema and the ledger, for the next commands.
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

    def step(title: str, sentence: str) -> None:
        console.print(f"\n[bold]{title}[/bold] {sentence}", highlight=False)

    step("1. The question.", f"Is a tumour malignant? The table has {number} patients.")
    step("2. Public facts.", "Four ranges from a textbook, written down without the table:")
    console.print(escape(str(facts)), soft_wrap=True, highlight=False)
    step("3. The budget.", f"All releases about these patients may cost epsilon {_CAP:g}.")
    console.print(escape(str(ledger.path)), soft_wrap=True, highlight=False)
    step("4. The plan.", "It says what a fit would promise and cost. No record is read yet.")
    console.print(explained(task.plan(number), task.delta))

    step("5. The fit.", "The budget is charged, then the records are read.")
    with progress("fitting; the first fit compiles its loops, once", total=None):
        fitted = fit_table(task, table)
    (place / "model.json").write_text(to_text(fitted.model, task.schema), encoding="utf-8")
    fitted.show(console, {"model": place / "model.json"})

    accuracy, without = _accuracies(fitted, table)
    step(
        "6. How good is it?",
        f"This table is public, so we may look. The model classifies {accuracy:.0%} of the "
        f"patients right; without privacy it is {without:.0%}.",
    )
    page = place / "report.html"
    measured = Quality(
        "accuracy", accuracy, "public data", "share of the patients that are classified right"
    )
    page.write_text(fitted.page(measured), encoding="utf-8")

    refusal = _second(task, table)
    step("7. Once more?", "The budget does not allow it. The fit is refused, nothing is charged:")
    console.print(escape(refusal), highlight=False)
    step("8. The report", "for people who decide. Open it in a browser:")
    console.print(f"[bold]{escape(str(page))}[/bold]", soft_wrap=True)
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

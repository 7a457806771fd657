"""``dpfit query``: private counts of a table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpfit.cli import options
from dpfit.cli.options import Relation, Unit
from dpfit.cli.outputs import csv_text, kept, new_files
from dpfit.cli.screen import facts, print_json, progress, rows

if TYPE_CHECKING:
    from dpfit.ledger import Ledger
    from dpfit.privacy.spec import Json
    from dpfit.queries import CountResult
    from dpfit.queries.count import By

_HEADER = ("count of", "count", "lower", "upper")


def query(
    table: options.TableFile,
    schema: options.SchemaFile,
    by: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN", help="Column to count by; repeat the option to cross columns."
        ),
    ],
    epsilon: options.Epsilon,
    delta: options.Delta = 0.0,
    bins: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=N",
            help="Bins of a number or a date: N of equal width, or edges as in age=0,18,65,120.",
        ),
    ] = None,
    each: Annotated[
        bool,
        typer.Option("--each", help="Count by each column separately, without crossing them."),
    ] = False,
    noise: Annotated[
        str, typer.Option(help="Noise: auto, laplace, gaussian, generalized_gaussian or k_norm.")
    ] = "auto",
    relation: options.RelationOption = Relation.REPLACE,
    unit: options.UnitOption = Unit.RECORD,
    user_column: options.UserColumn = None,
    ledger: options.LedgerFile = None,
    dataset: options.Dataset = None,
    who: Annotated[
        str, typer.Option(help="Name of the person who asks; the ledger keeps it.")
    ] = "",
    why: Annotated[str, typer.Option(help="Purpose of the count; the ledger keeps it.")] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="New CSV file for the counts; by default, they are printed."
        ),
    ] = None,
    report: options.ReportFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Count the records of a table, with the noise of smallest expected error.

    Intervals hold with probability 95%.
    """
    from dpfit.cli.task import open_ledger, quiet, read_schema
    from dpfit.data.files import read_table
    from dpfit.queries import count

    if (unit == Unit.USER) != (user_column is not None):
        raise ValueError("--unit user and --user-column COLUMN go together")
    book = open_ledger(ledger)
    if (book is None) != (dataset is None):
        raise ValueError(
            "a ledger and a dataset in it go together: give both --ledger FILE and --dataset NAME"
        )
    cuts = dict(_cut(choice) for choice in bins or ())
    asked: By = [[name] for name in by] if each else by
    with new_files(out, report) as write:
        known = read_schema(schema, None)
        with progress("counting", total=None), quiet():
            counted = count(
                read_table(table),
                known,
                asked,
                epsilon=epsilon,
                delta=delta or None,
                relation=Relation(relation).value,
                bins=cuts,
                noise=noise,
                ledger=book,
                dataset=dataset,
                who=who,
                why=why,
                user=user_column,
            )
        found = counted.to_dict()
        lines = list(
            zip(found["label"], found["count"], found["lower"], found["upper"], strict=True)
        )
        with kept(lambda: _to_json(counted, lines, None, None)):
            if out is not None:
                write(out, csv_text(_HEADER, lines))
            if report is not None:
                write(report, _page(counted, by, delta, book, dataset))
            if as_json:
                print_json(_to_json(counted, lines, book, dataset))
            elif out is not None:
                typer.echo(f"wrote {out}")
            else:
                _show(counted, lines)


def _show(counted: CountResult, lines: list[tuple[str, float, float, float]]) -> None:
    console = Console()
    console.print(
        rows(_HEADER, ((name, *(f"{value:.6g}" for value in values)) for name, *values in lines))
    )
    console.print(facts([("promise", counted.release.guarantee)]))


def _cut(choice: str) -> tuple[str, int | list[float | date]]:
    """``age=10``, ``age=0,18,65,120`` or ``admitted=2025-01-01,2025-12-31``."""
    name, _, cut = choice.rpartition("=")
    try:
        if "," not in cut:
            return name, int(cut)
        return name, [_edge(text.strip()) for text in cut.split(",")]
    except ValueError:
        raise ValueError(f"--bins takes COLUMN=N or COLUMN=EDGE,EDGE,..., got {choice!r}") from None


def _edge(text: str) -> float | date:
    try:
        return float(text)
    except ValueError:
        return date.fromisoformat(text)


def _to_json(
    counted: CountResult,
    lines: list[tuple[str, float, float, float]],
    ledger: Ledger | None,
    dataset: str | None,
) -> dict[str, Json]:
    from dpfit.theory.bibliography import resolve

    guarantee, plan = counted.release.guarantee, counted.release.plan
    return {
        "schema": "dpfit.query/1",
        "counts": [
            dict(zip(("label", "count", "lower", "upper"), line, strict=True)) for line in lines
        ],
        "level": 0.95,
        "promise": str(guarantee),
        "guarantee": guarantee.to_json(),
        "references": [work.to_json() for work in resolve(guarantee.basis.theorem)],
        "plan": plan.to_json(),
        "private": counted.release.private,
        "budget": ledger.status(dataset).to_json()
        if ledger is not None and dataset is not None
        else None,
    }


def _page(
    counted: CountResult, by: list[str], delta: float, ledger: Ledger | None, dataset: str | None
) -> str:
    from dpfit.report import Estimate, Facts, report

    found = counted.to_dict()
    about = Facts(
        f"Counts by {', '.join(by)}",
        counted.release.plan,
        summary=f"How many records there are by {', '.join(by)}.",
        estimates=tuple(
            # Repaired counts may lie outside the interval, which is about the noise alone.
            Estimate(*line)
            for line in zip(
                found["label"], found["count"], found["lower"], found["upper"], strict=True
            )
        ),
        called="count",
        intervals="Each interval holds the true count with probability 95%. It comes from the "
        "law of the noise.",
        private=counted.release.private,
        delta=delta or 1e-6,
        date=datetime.now(UTC).date().isoformat(),
    )
    return report(about, ledger=ledger, dataset=dataset)

"""``dpfit schema``: a form for the public facts that a private algorithm needs about a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpfit.cli.options import AsJson
from dpfit.cli.outputs import new_files
from dpfit.cli.screen import print_json


def schema(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="A CSV file with a header, or a Parquet file.")
    ],
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    from_public_data: Annotated[
        bool,
        typer.Option(
            "--from-public-data",
            help="Read ranges and categories from the table, which must be public.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="New file for the form; by default, it is printed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a form for the public facts about a table; it reads names and types of columns only."""
    from dpfit.cli.form import template

    # A schema that somebody has filled in is never overwritten.
    with new_files(out) as write:
        text = template(table, target, from_public_data)
        if out is not None:
            write(out, text)
    if as_json:
        print_json({"schema": "dpfit.schema/1", "toml": text, "out": str(out) if out else None})
    else:
        typer.echo(text if out is None else f"wrote {out}\n", nl=False)

"""The commands of ``dpfit``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import dpfit
from dpfit.cli.audit import audit
from dpfit.cli.ledger import ledger_app

app = typer.Typer(help="Fit models, draw samples and answer queries under differential privacy.", no_args_is_help=True)

app.add_typer(ledger_app, name="ledger")
app.command()(audit)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpfit {dpfit.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List every algorithm: what it solves, what it promises, where it comes from."""
    from dpfit.catalogue import ENTRIES

    if as_json:
        typer.echo(json.dumps([entry.to_json() for entry in ENTRIES], indent=2))
        return
    table = Table(box=SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    for column in ("what it does", "promises", "reference"):
        table.add_column(column)
    for entry in ENTRIES:
        table.add_row(entry.name, entry.summary, ", ".join(entry.guarantees), escape(entry.reference))
    Console().print(table)


@app.command()
def demo() -> None:
    """Release a private mean of a small medical table that ships with scikit-learn, and say what is promised."""
    from dpfit.cli.demo import run_demo

    run_demo(Console())


def main() -> None:
    """Run the command line."""
    app()

"""The commands of ``dpfit``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import dpfit
from dpfit.cli import options
from dpfit.cli.audit import audit
from dpfit.cli.demo import demo
from dpfit.cli.errors import Commands
from dpfit.cli.fit import fit
from dpfit.cli.ledger import ledger_app
from dpfit.cli.plan import plan
from dpfit.cli.predict import predict
from dpfit.cli.query import query
from dpfit.cli.schema import schema
from dpfit.cli.screen import cited, facts, print_json, rows

app = typer.Typer(
    cls=Commands,
    help="Fit models, draw samples and answer queries under differential privacy.",
    epilog="Exit status: 0 done; 1 refused, over budget, or a broken promise; 2 wrong option, schema or file; "
    "3 unexpected.",
    no_args_is_help=True,
    # Tracebacks that show local variables would show records.
    pretty_exceptions_enable=False,
)

for command in (demo, schema, plan, fit, predict, query, audit):
    app.command()(command)
app.add_typer(ledger_app, name="ledger")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpfit {dpfit.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks. They may quote records: for your eyes only.")
    ] = False,
) -> None:
    pass


@app.command()
def algorithms(
    name: Annotated[str | None, typer.Argument(help="One algorithm, to be told all about it.")] = None,
    results: Annotated[
        bool, typer.Option("--results", help="List theorems of the source documents, and what serves each.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """List every algorithm: what it does, or of one also what it promises and where it comes from."""
    from dpfit.catalogue import ENTRIES, entry
    from dpfit.theory.bibliography import resolve

    if results:
        _show_results(name, as_json)
        return
    chosen = ENTRIES if name is None else (entry(name),)
    if as_json:
        print_json([each.to_json() for each in chosen])
    elif name is None:
        table = rows(("name", "what it does"), ((each.name, each.summary) for each in chosen))
        table.columns[0].no_wrap = True
        Console().print(table)
    else:
        (one,) = chosen
        told = {
            "name": one.name,
            "does": one.summary,
            "solves": one.problem,
            "promises": ", ".join(one.guarantees),
            "reference": one.reference,
            "plan with": f"from {one.where} import {one.name}",
        }
        Console().print(facts(told.items()))
        Console().print(cited(resolve(one.reference)))


def _show_results(name: str | None, as_json: bool) -> None:
    """Print the results that dpfit implements or replaces, all or those that one algorithm serves."""
    from dpfit.catalogue import entry
    from dpfit.theory.bibliography import DOCUMENTS
    from dpfit.theory.results import RESULTS

    served = [row for row in RESULTS if name is None or row.object == entry(name).name]
    if as_json:
        documents = [work.to_json() for work in DOCUMENTS.values()]
        print_json({"documents": documents, "results": [row.to_json() for row in served]})
        return
    for document, work in DOCUMENTS.items():
        lines = [
            (row.number, row.title, row.object, f"{row.status}: {row.note}" if row.note else row.status)
            for row in served
            if row.document == document
        ]
        if lines:
            Console().print(rows(("result", "what it states", "served by", "status"), lines, escape(str(work))))


def main() -> None:
    """Run the command line."""
    app()

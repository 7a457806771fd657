"""The commands of ``dpfit``."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

import dpfit
from dpfit.cli import options
from dpfit.cli.audit import audit
from dpfit.cli.demo import demo
from dpfit.cli.errors import Commands
from dpfit.cli.examples import epilog
from dpfit.cli.fit import fit
from dpfit.cli.ledger import ledger_app
from dpfit.cli.plan import plan
from dpfit.cli.predict import predict
from dpfit.cli.query import query
from dpfit.cli.schema import schema
from dpfit.cli.screen import cited, facts, print_json, rows
from dpfit.cli.stream import stream_app

if TYPE_CHECKING:
    from dpfit.catalogue import Entry

TIERS = ("recommended", "specialised", "reference")

app = typer.Typer(
    cls=Commands,
    help="Fit models, draw samples and answer queries under differential privacy.",
    epilog="Start with dpfit demo.\n\n"
    "Exit status: 0 done; 1 refused, over budget, or a broken promise; 2 wrong option, "
    "schema or file; 3 unexpected.",
    no_args_is_help=True,
    # Tracebacks that show local variables would show records.
    pretty_exceptions_enable=False,
)

for command in (demo, schema, plan, fit, predict, query, audit):
    app.command(epilog=epilog(command.__name__))(command)
app.add_typer(ledger_app, name="ledger", epilog=epilog("ledger"))
app.add_typer(stream_app, name="stream", epilog=epilog("stream"))


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
        bool,
        typer.Option(
            "--debug", help="Show tracebacks; they may quote records, so show them to nobody."
        ),
    ] = False,
) -> None:
    pass


@app.command(epilog=epilog("algorithms"))
def algorithms(
    name: Annotated[str | None, typer.Argument(help="Algorithm to show in full.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List specialised and reference algorithms as well.")
    ] = False,
    results: Annotated[
        bool,
        typer.Option(
            "--results",
            help="List theorems of the source documents, and the object that serves each.",
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """List the recommended algorithms and when to use each, or show one in full."""
    from dpfit.catalogue import entries, entry

    if results:
        _show_results(name, as_json)
        return
    if name is not None:
        chosen = [entry(name)]
    else:
        chosen = [
            row for tier in (TIERS if everything else TIERS[:1]) for row in entries(tier=tier)
        ]
    if as_json:
        print_json([each.to_json() for each in chosen])
    elif name is not None:
        _show_entry(chosen[0])
    else:
        for tier in TIERS:
            lines = [
                (each.name, each.use_for or each.summary) for each in chosen if each.tier == tier
            ]
            if lines:
                column = "use it for" if tier == TIERS[0] else "what it does"
                table = rows(("name", column), lines, tier)
                table.columns[0].no_wrap = True
                Console().print(table)
        if not everything:
            others = sum(1 for _ in entries()) - len(chosen)
            Console().print(
                f"dpfit algorithms NAME shows one in full; --all lists {others} more.\n"
                "A fit needs no name: --solver auto takes the one with the lowest predicted risk."
            )


_PROBLEMS = {
    "minimize": "fits of a loss to records (Minimize)",
    "answer": "queries of data (Answer)",
    "play": "queries and records that arrive over time (Interact)",
}
_GUARANTEES = {
    "pure": "pure DP",
    "approximate": "(epsilon, delta)-DP",
    "gdp": "Gaussian DP",
    "zcdp": "zero-concentrated DP",
}
_RELATIONS = {"replace": "one replaced", "add_remove": "one added or removed"}
"""What `algorithms` prints for the names in the declared facts."""


def _show_entry(one: Entry) -> None:
    """Print all that an algorithm declares."""
    from dpfit.theory.bibliography import resolve

    module, _, variable = one.where.partition(":")
    told = {
        "name": one.name,
        "what it does": one.summary,
        **({"use it for": one.use_for} if one.use_for else {}),
        "tier": one.tier,
        "solves": _PROBLEMS.get(one.problem, one.problem),
        "promises": ", ".join(_GUARANTEES[kind] for kind in one.guarantees),
        "neighbours": "; ".join(_RELATIONS[relation] for relation in one.relations),
        "protects": " or ".join(f"{unit}s" for unit in one.units),
        "supports": ", ".join(fact.replace("_", " ") for fact in one.supports)
        or "no optional facts",
        "options": ", ".join(one.options) or "none",
        "reference": one.reference,
        "plan with": f"from {module} import {variable}",
    }
    Console().print(facts(told.items()))
    Console().print(cited(resolve(one.reference)))


def _show_results(name: str | None, as_json: bool) -> None:
    """Print the results that dpfit implements or replaces, all or those of one algorithm."""
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
            (
                row.number,
                row.title,
                row.object,
                f"{row.status}: {row.note}" if row.note else row.status,
            )
            for row in served
            if row.document == document
        ]
        if lines:
            Console().print(
                rows(("result", "what it states", "served by", "status"), lines, escape(str(work)))
            )


def main() -> None:
    """Run the command line; characters that the terminal does not have are printed as escapes."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app()

"""``dpfit ledger``: the budgets of datasets, kept in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dpfit.ledger import Entry, Ledger, LedgerError, Status
from dpfit.ledger.amount import SYMBOLS, shown
from dpfit.privacy import Budget

ledger_app = typer.Typer(help="Keep the budgets of datasets in a file that cannot be overspent.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The ledger file, on a local disk.")]
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The name of a dataset.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Expected errors without a traceback; they say the way out themselves."""
    try:
        yield
    except (LedgerError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@ledger_app.command()
def create(file: File) -> None:
    """Write an empty ledger."""
    with _one_sentence():
        ledger = Ledger.create(file)
    typer.echo(f"created {ledger.path}; next: dpfit ledger register {file} DATASET --epsilon ... --delta ...")


@ledger_app.command()
def register(
    file: File,
    dataset: Dataset,
    epsilon: Annotated[float | None, typer.Option(help="Cap on epsilon; alone it is pure DP.")] = None,
    delta: Annotated[float | None, typer.Option(help="Cap on delta, with --epsilon.")] = None,
    mu: Annotated[float | None, typer.Option(help="Cap on the Gaussian-DP parameter.")] = None,
    rho: Annotated[float | None, typer.Option(help="Cap on the zero-concentrated-DP parameter.")] = None,
    unit: Annotated[str, typer.Option(help="Whose data is protected: record or user.")] = "record",
    relation: Annotated[str, typer.Option(help="What a neighbour is: replace or add_remove.")] = "replace",
    currency: Annotated[
        str | None, typer.Option(help="What an (epsilon, delta) cap is kept in: gdp (default), zcdp or pure.")
    ] = None,
    delta_share: Annotated[
        float | None, typer.Option(help="Part of delta for plans that promise (epsilon, delta) themselves.")
    ] = None,
    note: Annotated[str, typer.Option(help="Free text that is kept.")] = "",
) -> None:
    """Give a dataset its budget, once and for all."""
    with _one_sentence():
        cap = Budget(epsilon=epsilon, delta=delta, mu=mu, rho=rho, unit=unit, relation=relation)
        ledger = Ledger(file)
        ledger.register(dataset, cap, currency=currency, delta_share=delta_share, note=note)
        status = ledger.status(dataset)
    typer.echo(f"registered {dataset} with {cap}, kept as {_charge_text(status, 'cap')}")


@ledger_app.command()
def show(file: File, as_json: AsJson = False) -> None:
    """Show every dataset: its cap, what is spent, what is left."""
    with _one_sentence():
        ledger = Ledger(file)
        states = [ledger.status(dataset) for dataset in ledger.datasets()]
    if as_json:
        _print_json([status.to_json() for status in states])
        return
    table = _table("dataset", "budget", "per", "cap", "spent", "left", "next plan at most", "releases")
    for status in states:
        table.add_row(
            escape(status.dataset),
            escape(repr(status.budget)),
            f"{status.budget.unit}, {status.budget.relation}",
            *(_charge_text(status, name) for name in ("cap", "spent", "left")),
            escape(repr(status.fits)) if status.fits else "nothing",
            _releases(status),
        )
    Console().print(table)


@ledger_app.command()
def entries(file: File, dataset: Dataset, as_json: AsJson = False) -> None:
    """List what happened to a dataset, oldest first."""
    with _one_sentence():
        rows = Ledger(file).entries(dataset)
    if as_json:
        _print_json([row.to_json() for row in rows])
        return
    table = _table("no.", "time (UTC)", "what", "spent after", "who", "why", "hash")
    for row in rows:
        table.add_row(
            str(row.id),
            row.time if row.kind in ("register", "reserve") else "",
            _what(row),
            shown(row.spent.amount) + (f", delta {shown(row.spent.delta)}" if row.spent.delta else ""),
            escape(row.facts.get("who", "")),
            escape(row.facts.get("why", "") or row.facts.get("note", "")),
            row.hash[:12],
        )
    Console().print(table)


@ledger_app.command()
def verify(
    file: File,
    expect: Annotated[
        str | None, typer.Option(metavar="HASH", help="A hash printed earlier, which must still be in the chain.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute chain, totals and prices again, and print the hash of the newest row; keep that hash elsewhere."""
    with _one_sentence():
        head = Ledger(file).verify(expect)
    if as_json:
        _print_json({"head": head, "expected": expect, "holds": True})
    else:
        typer.echo(head)


@ledger_app.command()
def export(file: File) -> None:
    """Print the whole ledger as JSON."""
    with _one_sentence():
        _print_json(Ledger(file).export())


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, sort_keys=True))


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _charge_text(status: Status, which: str) -> str:
    charge = getattr(status, which)
    delta = f", delta {shown(charge.delta)}" if status.cap.delta else ""
    return f"{SYMBOLS[status.currency]} {shown(charge.amount)}{delta}"


def _releases(status: Status) -> str:
    pending = status.reservations - status.releases - status.abandoned
    parts = [str(status.releases)]
    parts += [f"{status.abandoned} abandoned"] if status.abandoned else []
    parts += [f"{pending} open"] if pending else []
    return ", ".join(parts)


def _what(row: Entry) -> str:
    if row.kind == "register":
        return "registered"
    if row.kind == "reserve":
        plan = row.facts["plan"]
        name = (plan.get("mechanism") or plan).get("kind", "plan")
        return f"reserved for {escape(str(name))}"
    seeded = "" if row.facts.get("private", True) else " (RNG seed set: not private)"
    return f"{'released' if row.kind == 'release' else 'abandoned'} {row.reservation}{seeded}"

"""``dpfit ledger``: the budgets of datasets, kept in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from dpfit.cli import screen
from dpfit.cli.errors import REFUSED, debugging
from dpfit.cli.examples import epilog
from dpfit.cli.options import AsJson
from dpfit.cli.screen import print_json

if TYPE_CHECKING:
    from dpfit.ledger import Entry, Ledger, Status
    from dpfit.privacy import Budget

ledger_app = typer.Typer(
    help="Keep the budgets of datasets in a file that cannot be overspent.", no_args_is_help=True
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="Ledger file, on a local disk.")]
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="Name of the dataset.")]


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Expected errors without a traceback; they say the way out themselves."""
    from dpfit.ledger import LedgerError

    try:
        yield
    except (LedgerError, ValueError) as error:
        if debugging():
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(REFUSED) from None


@ledger_app.command(epilog=epilog("ledger create"))
def create(file: File, as_json: AsJson = False) -> None:
    """Write an empty ledger."""
    from dpfit.ledger import Ledger

    with _one_sentence():
        ledger = Ledger.create(file)
    if as_json:
        print_json({"created": str(ledger.path)})
        return
    typer.echo(
        f"created {ledger.path}; next: dpfit ledger register {file} DATASET --epsilon ... "
        "--delta ..."
    )


@ledger_app.command(epilog=epilog("ledger register"))
def register(
    file: File,
    dataset: Dataset,
    epsilon: Annotated[
        float | None, typer.Option(help="Cap on epsilon; without --delta it means pure DP.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Cap on delta; it goes with --epsilon.")
    ] = None,
    mu: Annotated[
        float | None, typer.Option(help="Cap on mu, the parameter of Gaussian DP.")
    ] = None,
    rho: Annotated[
        float | None, typer.Option(help="Cap on rho, the parameter of zero-concentrated DP.")
    ] = None,
    unit: Annotated[str, typer.Option(help="Who is protected: record or user.")] = "record",
    relation: Annotated[
        str,
        typer.Option(
            help="Neighbours: one record replaced (replace), or added or removed (add_remove)."
        ),
    ] = "replace",
    currency: Annotated[
        str | None,
        typer.Option(
            help="Currency in which an (epsilon, delta) cap is kept: gdp (default), zcdp or pure."
        ),
    ] = None,
    delta_share: Annotated[
        float | None,
        typer.Option(
            help="Part of delta set aside for plans whose own promise has an epsilon and a delta."
        ),
    ] = None,
    note: Annotated[str, typer.Option(help="Note that the ledger keeps.")] = "",
    as_json: AsJson = False,
) -> None:
    """Give a dataset its budget; it cannot be changed later."""
    from dpfit.privacy import Budget

    with _one_sentence():
        cap = Budget(epsilon=epsilon, delta=delta, mu=mu, rho=rho, unit=unit, relation=relation)
        ledger = _opened(file)
        ledger.register(dataset, cap, currency=currency, delta_share=delta_share, note=note)
        status = ledger.status(dataset)
    if as_json:
        print_json(status.to_json())
        return
    typer.echo(f"registered {dataset} with {cap}, kept as {_charge_text(status, 'cap')}")


@ledger_app.command(epilog=epilog("ledger show"))
def show(file: File, as_json: AsJson = False) -> None:
    """Show the budget of every dataset: cap, spent, left."""
    with _one_sentence():
        ledger = _opened(file)
        states = [ledger.status(dataset) for dataset in ledger.datasets()]
    if as_json:
        print_json([status.to_json() for status in states])
        return
    if not states:
        typer.echo(
            "no dataset is registered; next: dpfit ledger register FILE DATASET --epsilon ... "
            "--delta ..."
        )
    console = Console()
    for place, status in enumerate(states):
        console.print(Text(f"\n{status.dataset}" if place else status.dataset, style="bold"))
        console.print(screen.facts(_facts(status)))


@ledger_app.command(epilog=epilog("ledger entries"))
def entries(file: File, dataset: Dataset, as_json: AsJson = False) -> None:
    """List the entries of a dataset, oldest first: who charged what, and why."""
    from dpfit.ledger.amount import shown

    with _one_sentence():
        found = _opened(file).entries(dataset)
    if as_json:
        print_json([row.to_json() for row in found])
        return
    lines = (
        (
            row.id,
            row.time if row.kind in ("register", "reserve") else "",
            _what(row),
            shown(row.spent.amount)
            + (f", delta {shown(row.spent.delta)}" if row.spent.delta else ""),
            row.facts.get("who", ""),
            row.facts.get("why", "") or row.facts.get("note", ""),
            row.hash[:12],
        )
        for row in found
    )
    columns = ("no.", "time (UTC)", "what", "spent after", "who", "why", "hash")
    Console().print(screen.rows(columns, lines))


@ledger_app.command(epilog=epilog("ledger verify"))
def verify(
    file: File,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="HASH", help="Hash that was printed earlier; it must still be in the chain."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute hash chain, totals and costs, and print the hash of the newest row.

    Keep that hash elsewhere.
    """
    with _one_sentence():
        head = _opened(file).verify(expect)
    if as_json:
        print_json({"head": head, "expected": expect, "holds": True})
    else:
        typer.echo(head)


@ledger_app.command(epilog=epilog("ledger export"))
def export(file: File) -> None:
    """Print the whole ledger as JSON."""
    with _one_sentence():
        print_json(_opened(file).export())


def _opened(file: Path) -> Ledger:
    """The ledger in a file; imported here, so that help starts without numpy."""
    from dpfit.ledger import Ledger

    return Ledger(file)


def _facts(status: Status) -> Iterator[tuple[str, object]]:
    """A dataset as a list of facts."""
    yield "  budget", status.budget
    yield "  protects", _protected(status.budget)
    for name in ("cap", "spent", "left"):
        yield f"  {name}", _charge_text(status, name)
    yield "  next plan", f"at most {status.fits}" if status.fits else "nothing is left"
    yield "  releases", _releases(status)


def _protected(budget: Budget) -> str:
    whose = "one record" if budget.unit == "record" else "all records of one user"
    return f"{whose}, {'replaced' if budget.relation == 'replace' else 'added or removed'}"


def _charge_text(status: Status, which: str) -> str:
    from dpfit.ledger.amount import SYMBOLS, shown, shown_left

    charge, cap = getattr(status, which), status.cap

    def text(value: Fraction, most: Fraction) -> str:
        return shown_left(value, most) if which == "left" else shown(value)

    delta = f", delta {text(charge.delta, cap.delta)}" if cap.delta else ""
    return f"{SYMBOLS[status.currency]} {text(charge.amount, cap.amount)}{delta}"


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
        return f"reserved for {row.algorithm}"
    if row.kind == "abandon":
        return f"abandoned {row.reservation} (budget {row.facts['budget']})"
    seeded = "" if row.facts.get("private", True) else " (RNG seed set: not private)"
    return f"released {row.reservation}{seeded}"

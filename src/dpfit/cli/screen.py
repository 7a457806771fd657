"""What the commands share in talking to people and to programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from dpfit.core import Plan
    from dpfit.privacy.spec import Json
    from dpfit.theory.bibliography import Reference


_NOT_CHOSEN = ("considered", "left out")
_PLAIN = ("method", "promise", "predicted", "caution", "work", "at most")
"""Rows of a plan that need no knowledge of privacy accounting."""
_NOTES = ("chosen", "advice", "missing")
"""Notes of a plan; its parts have none."""


def print_json(value: Json) -> None:
    """One JSON value on standard output."""
    typer.echo(json.dumps(value, indent=2, sort_keys=True))


def print_warnings(sentences: Iterable[str]) -> None:
    """On standard error, a line each."""
    for sentence in sentences:
        typer.echo(f"warning: {sentence}", err=True)


def rows(columns: Sequence[str], cells: Iterable[Sequence[object]], title: str = "") -> Table:
    """A table whose cells are plain text, whatever they contain."""
    from dpfit.privacy.plain_text import visible

    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for each in cells:
        table.add_row(*(escape(visible(str(cell))) for cell in each))
    return table


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """A list of facts: narrow enough for any terminal."""
    from dpfit.privacy.plain_text import visible

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(escape(visible(name)), escape(visible(str(value))))
    return table


def explained(plan: Plan, delta: float) -> Table:
    """Return the rows of a plan at the budget's delta: those for every reader, then the others.

    Solvers that were not chosen are left out.
    """
    found = [row for row in plan.rows(delta or 1e-6) if row.label not in _NOT_CHOSEN]
    parts = next((at for at, row in enumerate(found) if row.label == "part"), len(found))
    plain = [
        row
        for at, row in enumerate(found)
        if row.label in _NOTES or (at < parts and row.label in _PLAIN)
    ]
    experts = [row for at, row in enumerate(found) if at >= parts or row.label not in _PLAIN]
    experts = [row for row in experts if row.label not in _NOTES]
    return facts([*plain, ("for experts", ""), *experts])


def cited(works: Iterable[Reference]) -> Table:
    """List works, one a line; an empty table prints nothing."""
    return facts(("references" if place == 0 else "", work) for place, work in enumerate(works))


@contextmanager
def progress(subject: str, total: float | None = 1.0) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, on terminals only; indefinite without a ``total``.

    It then shows that work goes on, until a share is reported.

    What remains is estimated from the share of the planned work that is done.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(escape(subject), total=total)
        yield lambda share: bar.update(task, completed=share, total=1.0)

"""``dpfit stream``: private totals of a table that grows every day, for a whole horizon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpfit.cli import options
from dpfit.cli.examples import epilog
from dpfit.cli.options import Relation
from dpfit.cli.outputs import kept, new_files
from dpfit.cli.screen import facts, print_json, progress, rows

if TYPE_CHECKING:
    from dpfit.privacy.spec import Json
    from dpfit.queries.continual import ContinualCounts

stream_app = typer.Typer(
    help="Keep a private dashboard of a table that grows every day.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the stream.")]
LedgerMoved = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="Ledger file, if it was moved."),
]
Window = Annotated[
    int | None,
    typer.Option(metavar="N", help="Number of steps to add up; by default, all since the first."),
]


@stream_app.command("open", epilog=epilog("stream open"))
def open_stream(
    folder: Folder,
    schema: options.SchemaFile,
    steps: Annotated[int, typer.Option(help="Horizon: number of steps, such as 365 days.")],
    epsilon: options.Epsilon,
    delta: options.Delta = 0.0,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to count by; repeat the option for several."),
    ] = None,
    total: Annotated[
        list[str] | None,
        typer.Option(
            "--sum", metavar="COLUMN", help="Column of numbers to add up, in every category."
        ),
    ] = None,
    relation: options.RelationOption = Relation.ADD_REMOVE,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the name or id of the user; users are then protected.",
        ),
    ] = None,
    max_steps: Annotated[
        int, typer.Option(metavar="K", help="With --user: number of steps in which a user counts.")
    ] = 1,
    apart: Annotated[
        int,
        typer.Option(
            metavar="B", help="With --user: smallest distance of two steps in which a user counts."
        ),
    ] = 1,
    ledger: options.LedgerFile = None,
    dataset: options.Dataset = None,
    who: Annotated[
        str, typer.Option(help="Name of the person who asks; the ledger keeps it.")
    ] = "",
    why: Annotated[str, typer.Option(help="Purpose of the stream; the ledger keeps it.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Plan a stream and charge its whole horizon, once."""
    from dpfit.cli.task import open_ledger, quiet, read_schema
    from dpfit.privacy import Budget
    from dpfit.queries.continual import ContinualCounts, Measures

    book = open_ledger(ledger)
    if (book is None) != (dataset is None):
        raise ValueError(
            "a ledger and a dataset in it go together: give both --ledger FILE and --dataset NAME"
        )
    if not folder.parent.is_dir():
        raise ValueError(f"{folder} must be a new name in a folder that exists; choose another")
    budget = Budget(
        epsilon=epsilon,
        delta=delta or None,
        relation=Relation(relation).value,
        unit="record" if user is None else "user",
    )
    measures = Measures.of(read_schema(schema, None), by or [], total or [])
    with quiet():
        stream = ContinualCounts.open(
            folder, measures, steps=steps, budget=budget, user=user, max_steps=max_steps,
            apart=apart, ledger=book, dataset=dataset, who=who, why=why,
        )  # fmt: skip
    if as_json:
        print_json(_to_json(stream, None))
        return
    widths = stream.sums.half_widths()
    Console().print(
        facts(
            [
                ("opened", folder),
                ("promise", stream.plan.guarantee),
                ("steps", f"{steps}, all charged now"),
                ("noise", f"a total is within {widths[-1]:.3g} of its value in 95% of cases"),
            ]
        )
    )


@stream_app.command(epilog=epilog("stream add"))
def add(
    folder: Folder,
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...", help="Table of each step, or a folder with one table a step."
        ),
    ],
    step: Annotated[
        int | None, typer.Option(metavar="N", help="Step of the first table, counted from 1.")
    ] = None,
    ledger: LedgerMoved = None,
    as_json: options.AsJson = False,
) -> None:
    """Release one step for each table; a step released before is printed again, unread."""
    from dpfit.cli.task import quiet
    from dpfit.data.files import read_table
    from dpfit.queries.continual import ContinualCounts

    stream = ContinualCounts.resume(folder, ledger)
    files = [file for table in tables for file in _files(table)]
    first = stream.step + 1 if step is None else step
    with progress("adding") as bar, quiet():
        for place, file in enumerate(files):
            if stream.needs(first + place):
                stream.add(read_table(file), first + place)
            bar((place + 1) / len(files))
    last = first + len(files) - 1
    with kept(lambda: _to_json(stream, last)):
        if as_json:
            print_json(_to_json(stream, last))
        else:
            _show(stream, last)


def _files(table: Path) -> list[Path]:
    if not table.is_dir():
        return [table]
    found = sorted((*table.glob("*.csv"), *table.glob("*.parquet")))
    if not found:
        raise ValueError(f"there is no .csv or .parquet file in {str(table)!r}")
    return found


@stream_app.command(epilog=epilog("stream show"))
def show(
    folder: Folder,
    of: Annotated[
        str, typer.Option(metavar="LABEL", help="Label of the estimate in the figure.")
    ] = "all",
    window: Window = None,
    ledger: LedgerMoved = None,
    report: options.ReportFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the newest estimates and draw one of them over time, at no privacy cost."""
    from dpfit.queries.continual import ContinualCounts

    stream = ContinualCounts.resume(folder, ledger)
    if not stream.step:
        raise ValueError(f"no step was added yet; dpfit stream add {folder} TABLE --step 1")
    values, widths = stream.series(of, window)
    with new_files(report) as write:
        if report is not None:
            write(report, _page(stream, of, window))
    if as_json:
        series = [
            {"step": place, "value": value, "lower": value - half, "upper": value + half}
            for place, (value, half) in enumerate(
                zip(values.tolist(), widths.tolist(), strict=True), 1
            )
        ]  # fmt: skip
        print_json(
            {**_to_json(stream, stream.step), "label": of, "window": window, "series": series}
        )
        return
    _show(stream, stream.step)
    typer.echo(f"{_title(of, window)}, steps 1 to {stream.step}, with 95% intervals")
    typer.echo(chart(values.tolist(), widths.tolist()))


def _title(label: str, window: int | None) -> str:
    if window is None:
        return f"running total of {label}"
    return f"{label} in the last {window} steps" if window > 1 else f"{label} at each step"


def _show(stream: ContinualCounts, step: int) -> None:
    """Print all estimates at a step: its total, the last seven steps, and the step alone."""
    columns = ("", f"steps 1 to {step}", f"steps {max(1, step - 6)} to {step}", f"step {step}")
    found = [stream.estimates(step, window) for window in (None, 7, 1)]
    lines = [
        (
            label,
            *(
                f"{each['value'][place]:.6g} ± {each['upper'][place] - each['value'][place]:.3g}"
                for each in found
            ),
        )
        for place, label in enumerate(stream.measures.labels)
    ]
    console = Console()
    console.print(rows(columns, lines))
    left = stream.plan.final.rounds - stream.step  # type: ignore[attr-defined]
    console.print(facts([("promise", stream.plan.guarantee), ("steps left", left)]))


def chart(values: list[float], widths: list[float], columns: int = 60, height: int = 10) -> str:
    """Draw a series as text: estimates as blocks, their intervals as dots.

    >>> print(chart([2.0, 4.0], [2.0, 2.0], height=4))
             6 | ·
             4 |·█
             2 |█·
             0 |·
    """
    places = [
        round(k * (len(values) - 1) / max(1, min(columns, len(values)) - 1))
        for k in range(min(columns, len(values)))
    ]
    ends = [(values[p] - widths[p], values[p], values[p] + widths[p]) for p in places]
    low, high = min(low for low, _, _ in ends), max(high for _, _, high in ends)
    step = (high - low) / (height - 1) or 1.0
    lines = []
    for line in range(height - 1, -1, -1):
        cells = []
        for lower, value, upper in ends:
            first, middle, last = (round((end - low) / step) for end in (lower, value, upper))
            cells.append("█" if line == middle else "·" if first <= line <= last else " ")
        lines.append(f"{low + line * step:>10.4g} |{''.join(cells)}".rstrip())
    return "\n".join(lines)


def _to_json(stream: ContinualCounts, step: int | None) -> dict[str, Json]:
    guarantee = stream.plan.guarantee
    found: dict[str, Json] = {}
    if step:
        for name, window in (("total", None), ("last_7", 7), ("step", 1)):
            each = stream.estimates(step, window)
            found[name] = [
                dict(zip(("label", "value", "lower", "upper"), line, strict=True))
                for line in zip(
                    each["label"], each["value"], each["lower"], each["upper"], strict=True
                )
            ]
    book = stream.ledger
    return {
        "schema": "dpfit.stream/1",
        "step": step or 0,
        "steps": stream.plan.final.rounds,  # type: ignore[attr-defined]
        "estimates": found,
        "level": 0.95,
        "promise": str(guarantee),
        "guarantee": guarantee.to_json(),
        "budget": None
        if book is None or stream.dataset is None
        else book.status(stream.dataset).to_json(),
    }


def _page(stream: ContinualCounts, label: str, window: int | None) -> str:
    from dpfit.report import Estimate, Facts, report, series_figure

    found = stream.estimates()
    values, widths = stream.series(label, window)
    about = Facts(
        f"A dashboard after {stream.step} steps",
        stream.plan,
        summary=f"Running totals after step {stream.step} of {stream.plan.final.rounds}.",  # type: ignore[attr-defined]
        estimates=tuple(
            Estimate(*line)
            for line in zip(
                found["label"], found["value"], found["lower"], found["upper"], strict=True
            )
        ),
        called="total",
        intervals="Each interval holds the exact total with probability 95%. It comes from the "
        "law of the noise.",
    )
    figure = series_figure(values, widths, _title(label, window), "series")
    return report(about, ledger=stream.ledger, dataset=stream.dataset, figures=(figure,))


# The public example of the tutorial.

_DEMO_SCHEMA = """\
# Public facts about the columns of days/*.csv.

[columns.ward]
categories = ["surgery", "medicine", "children"]

[columns.cost]
lower = 0
upper = 500
"""


@stream_app.command(epilog=epilog("stream demo"))
def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for the files.")],
) -> None:
    """Write a schema and 365 tables of invented hospital visits, for the tutorial."""
    if folder.exists() or not folder.parent.is_dir():
        raise ValueError(f"{folder} must be a new name in a folder that exists; choose another")
    (folder / "days").mkdir(parents=True)
    (folder / "schema.toml").write_text(_DEMO_SCHEMA, encoding="utf-8")
    for day in range(1, 366):
        lines = ["patient,ward,cost"]
        # Fewer visits at weekends, more in winter; patients come back after some weeks.
        visits = (90 if day % 7 in (6, 0) else 160) + round(40 * abs(1 - day / 182.5))
        for visit in range(visits):
            ward = ("surgery", "medicine", "medicine", "children")[(visit + day) % 4]
            patient = (visit * 37 + day * 11) % 9000
            lines.append(f"p{patient:04d},{ward},{(visit * 53 + day * 29) % 480}")
        (folder / "days" / f"{day:03d}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    typer.echo(f"wrote {folder}/schema.toml and 365 tables in {folder}/days")

"""``dpfit audit``: is the promise kept?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dpfit.cli.errors import debugging
from dpfit.cli.screen import print_json, progress, rows

if TYPE_CHECKING:
    from dpfit.audit import Audit


def audit(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Algorithm, by its name in dpfit algorithms; or your own, as 'module:function'."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Audit all algorithms.")] = False,
    mu: Annotated[
        float | None, typer.Option(help="Gaussian DP budget at which to audit; by default, 1.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Pure DP budget at which to audit; by default, 1.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Number of runs on each of the two datasets.")] = 10_000,
    relation: Annotated[
        str,
        typer.Option(
            help="Neighbours: one record replaced (replace), or added or removed (add_remove)."
        ),
    ] = "replace",
    search: Annotated[
        bool,
        typer.Option(help="Search first for the pair of neighbours that is easiest to tell apart."),
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="For your own mechanism: .npy file with the records.")
    ] = None,
    neighbour: Annotated[
        Path | None,
        typer.Option(help="For your own mechanism: .npy file with the same records but one."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes; -1 uses all cores.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="New file for a figure of the trade-off curves.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="New HTML file: a report about the audit."),
    ] = None,
) -> None:
    """Attack an algorithm on neighbouring datasets: is its promise kept?

    Exit status: 1 if a promise is broken, 2 if the audit cannot tell.
    """
    from dpfit.audit.figure import draw
    from dpfit.catalogue import ENTRIES
    from dpfit.report import audit_report

    try:
        if every == (name is not None):
            raise ValueError("give the name of an algorithm, or --all")
        audits = []
        for subject in [row.name for row in ENTRIES] if every else [str(name)]:
            with progress(subject) as report:
                audits.append(
                    _audited(
                        subject,
                        mu,
                        epsilon,
                        relation,
                        data,
                        neighbour,
                        every,
                        runs,
                        jobs,
                        search,
                        report,
                    )
                )
        if plot is not None:
            draw(audits, plot)
        if page is not None:
            page.write_text(audit_report(audits), encoding="utf-8")
    except (ValueError, TypeError, OSError) as error:
        if debugging():
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        print_json([found.to_json() for found in audits])
    else:
        _show(audits, Console())
    if any(found.broken for found in audits):
        raise typer.Exit(1)
    if not all(found.kept for found in audits):
        raise typer.Exit(2)


def _audited(
    subject: str,
    mu: float | None,
    epsilon: float | None,
    relation: str,
    data: Path | None,
    neighbour: Path | None,
    every: bool,
    runs: int,
    jobs: int,
    search: bool,
    report: Callable[[float], None],
) -> Audit:
    import numpy as np

    from dpfit.audit import audit_algorithm, audit_callable, audit_entry
    from dpfit.audit.runs import imported
    from dpfit.privacy import Basis, Guarantee
    from dpfit.privacy.event import Gaussian, Pure

    if ":" not in subject:
        if every:
            # One budget does not fit all: each entry is asked for the kind of promise that it
            # makes.
            mu, epsilon = _possible(subject, mu, epsilon)
        return audit_entry(
            subject,
            mu=mu,
            epsilon=epsilon,
            relation=relation,
            search=search,
            progress=report,
            runs=runs,
            n_jobs=jobs,
        )
    target = imported(subject)
    if hasattr(target, "plan") and hasattr(target, "example"):
        return audit_algorithm(
            target,
            mu=mu,
            epsilon=epsilon,
            relation=relation,
            search=search,
            progress=report,
            runs=runs,
            n_jobs=jobs,
        )
    if search:
        raise ValueError(
            "--search needs an algorithm with a problem; give your own mechanism a pair of "
            "neighbours"
        )
    if data is None or neighbour is None:
        raise ValueError("your own mechanism needs --data FILE.npy and --neighbour FILE.npy")
    if (mu is None) == (epsilon is None):
        raise ValueError("say what your mechanism promises: --mu or --epsilon")
    basis = Basis("promised on the command line", relation)
    promise = Guarantee(Gaussian(1 / mu) if mu is not None else Pure(float(epsilon or 0.0)), basis)
    first, second = (np.load(file, allow_pickle=False) for file in (data, neighbour))
    return audit_callable(
        target, first, second, promise, subject=subject, progress=report, runs=runs, n_jobs=jobs
    )


def _possible(
    name: str, mu: float | None, epsilon: float | None
) -> tuple[float | None, float | None]:
    from dpfit.catalogue import ENTRIES

    kinds = next(row.guarantees for row in ENTRIES if row.name == name)
    return (mu if "gdp" in kinds and not (epsilon and "pure" in kinds) else None), (
        epsilon if "pure" in kinds else None
    )


def _show(audits: list[Audit], console: Console) -> None:
    for found in audits:
        console.print(
            escape(str(found)), style="red" if found.broken else "", highlight=False, soft_wrap=True
        )
    if len(audits) > 1:
        return
    lines = (
        (
            finding.attack,
            f"{finding.lower:.4f}",
            *(
                "-" if rate is None else f"{rate:.4f}"
                for rate in (finding.alpha_upper, finding.beta_upper)
            ),
            f"{finding.seconds:.2f}",
            finding.note,
        )
        for finding in audits[0].findings
    )
    table = rows(
        ("attack", "lower bound", "false alarms <=", "misses <=", "seconds", "note"), lines
    )
    table.columns[0].no_wrap = True
    console.print(table)

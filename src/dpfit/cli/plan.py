"""``dpfit plan``: what a fit would cost and how good it would be, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape

from dpfit.cli import options
from dpfit.cli.options import ModelName, Relation, Unit
from dpfit.cli.outputs import new_files
from dpfit.cli.screen import cited, explained, print_json, print_warnings, progress, rows

if TYPE_CHECKING:
    from dpfit.cli.task import Task
    from dpfit.core import Plan
    from dpfit.privacy.spec import Json

_AROUND = (0.1, 0.3, 1.0, 3.0, 10.0)
_LOWEST, _HIGHEST = 1e-3, 100.0
_TOLERANCE = 1.005


class Point(NamedTuple):
    """A point of risk against epsilon; without a solver if none fits the budget."""

    epsilon: float
    risk: float | None
    solver: str | None


class Payment(NamedTuple):
    """What a plan asks of a dataset's budget, in the ledger's currency."""

    dataset: str
    currency: str
    asked: float
    left: float
    fits: bool


def plan(
    number: Annotated[
        int,
        typer.Option(
            "--rows", metavar="N", min=1, help="Number of rows of the table, exact or approximate."
        ),
    ],
    schema: options.SchemaFile,
    model: options.Model,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget: smaller is more private, 1 is common.")
    ] = None,
    delta: options.Delta = 0.0,
    target: options.Target = None,
    relation: options.RelationOption = Relation.REPLACE,
    unit: options.UnitOption = Unit.RECORD,
    max_rows: options.MaxRows = None,
    rows_per_user: options.RowsPerUser = None,
    users: options.Users = None,
    solver: options.Solver = "auto",
    max_passes: options.MaxPasses = None,
    ridge: options.RidgeWeight = None,
    quantile: options.Quantile = None,
    l1_radius: options.L1Radius = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            metavar="FILE",
            help="Ledger file; the plan is compared with its budget, nothing is charged.",
        ),
    ] = None,
    dataset: options.Dataset = None,
    target_risk: Annotated[
        float | None,
        typer.Option(
            metavar="RISK",
            help="Instead of --epsilon: predicted risk to reach with the smallest epsilon.",
        ),
    ] = None,
    report: options.ReportFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the promise, privacy cost and predicted risk of a fit, without reading a table."""
    from dpfit.cli.task import Task, open_ledger, read_schema

    facts = (max_rows, rows_per_user, users)
    if (unit == Unit.USER) != any(fact is not None for fact in facts):
        raise ValueError("--unit user goes with --users N, and --rows-per-user M or --max-rows M")
    if unit == Unit.USER and users is None and (max_rows is None or relation == Relation.REPLACE):
        raise ValueError("--unit user needs --users N, how many users there are, or about")
    if (epsilon is None) == (target_risk is None):
        raise ValueError(
            "give --epsilon, what the fit may cost, or --target-risk RISK, how good it must be"
        )
    with new_files(report) as write:
        task = Task(
            read_schema(schema, target),
            ModelName(model).value,
            epsilon or 1.0,
            delta,
            Relation(relation).value,
            number if relation == Relation.ADD_REMOVE else None,
            max_rows,
            rows_per_user,
            users,
            solver,
            ridge,
            quantile,
            open_ledger(ledger),
            dataset,
            max_passes,
            l1_radius,
        )
        with progress("planning", total=None):
            if target_risk is not None:
                task = replace(
                    task,
                    epsilon=smallest_epsilon(
                        lambda at: _risk(replace(task, epsilon=at), number), target_risk
                    ),
                )
            planned = task.plan(number)
            curve = [
                _point(replace(task, epsilon=task.epsilon * times), number) for times in _AROUND
            ]
        if report is not None:
            from dpfit.report import report as page

            write(report, page(planned, title=f"Plan: a {task.title}"))
    paid = _payment(task, planned)
    if as_json:
        print_json(_to_json(task, number, planned, curve, target_risk, paid))
        return
    print_warnings(task.warnings(number))
    _show(Console(), task, number, planned, curve, target_risk, paid)


def smallest_epsilon(risk: Callable[[float], float], wanted: float) -> float:
    """An epsilon of risk at most ``wanted``; within 1% of the smallest if risk is monotone.

    >>> smallest_epsilon(lambda epsilon: 1 / epsilon**2, 0.25)
    2.01
    """
    if not wanted > 0:
        raise ValueError(f"--target-risk takes a risk above 0, got {wanted!r}")
    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    if risk(_HIGHEST) > wanted:
        raise ValueError(
            f"even epsilon = {_HIGHEST:g} is predicted to reach {risk(_HIGHEST):.3g} only; more "
            "rows, fewer columns or "
            "a larger --target-risk would help"
        )
    # The upper end always reaches it, whether or not the risk falls evenly.
    while high - low > math.log(_TOLERANCE):
        middle = (low + high) / 2
        low, high = (low, middle) if risk(math.exp(middle)) <= wanted else (middle, high)
    reached = math.exp(high)
    digits = 2 - math.floor(math.log10(reached))
    short = math.ceil(reached * 10**digits) / 10**digits
    return short if risk(short) <= wanted else reached


def _risk(task: Task, number: int) -> float:
    """The predicted risk, without end where the budget is too small for any solver."""
    from dpfit.privacy import BudgetUnreachable

    try:
        planned = task.plan(number)
    except BudgetUnreachable:
        return math.inf
    if planned.risk is None:
        raise ValueError(
            f"{planned.algorithm} predicts no risk here; give --epsilon, or choose another "
            "model or --solver auto"
        )
    return planned.risk.expected


def _point(task: Task, number: int) -> Point:
    """A point of the curve of error against epsilon."""
    from dpfit.privacy import BudgetUnreachable

    try:
        planned = task.plan(number)
    except BudgetUnreachable:
        return Point(task.epsilon, None, None)
    return Point(
        task.epsilon,
        planned.risk.expected if planned.risk is not None else None,
        planned.considered[0].name if planned.considered else planned.algorithm,
    )


def _payment(task: Task, planned: Plan) -> Payment | None:
    """What the plan would cost the dataset's budget, and whether that is left."""
    from dpfit.ledger.amount import SYMBOLS
    from dpfit.ledger.cost import cost_in_currency

    if task.ledger is None or task.dataset is None:
        return None
    status = task.ledger.status(task.dataset)
    asked = cost_in_currency(planned.guarantee, status.currency)
    return Payment(
        task.dataset,
        SYMBOLS[status.currency],
        float(asked.amount),
        float(status.left.amount),
        asked.amount <= status.left.amount and asked.delta <= status.left.delta,
    )


def _to_json(
    task: Task,
    number: int,
    planned: Plan,
    curve: list[Point],
    target_risk: float | None,
    paid: Payment | None,
) -> dict[str, Json]:
    from dpfit.theory.bibliography import resolve

    return {
        "schema": "dpfit.plan/1",
        "fitted": task.model,
        "target": task.target.name,
        "rows": number,
        "epsilon": task.epsilon,
        "delta": task.delta,
        "reach": target_risk,
        "promise": str(replace(planned.guarantee, shown_at=task.delta or 1e-6)),
        "guarantee": planned.guarantee.to_json(),
        "references": [work.to_json() for work in resolve(planned.basis.theorem)],
        "plan": planned.to_json(),
        "predicted_risk": planned.risk.expected if planned.risk is not None else None,
        "considered": [
            {
                "name": each.name,
                "risk": each.risk,
                "passes": each.work.passes,
                "gradients": each.work.gradients,
            }
            for each in planned.considered
        ],
        "curve": [point._asdict() for point in curve],
        "ledger": None if paid is None else paid._asdict(),
        "warnings": task.warnings(number),
    }


def _show(
    console: Console,
    task: Task,
    number: int,
    planned: Plan,
    curve: list[Point],
    target_risk: float | None,
    paid: Payment | None,
) -> None:
    from dpfit.theory.bibliography import resolve

    if target_risk is not None:
        console.print(
            f"epsilon = {task.epsilon:g} is predicted to reach {target_risk:g}\n", highlight=False
        )
    console.print(
        escape(f"A {task.title}, from {len(task.schema.columns)} columns of {number} rows:"),
        highlight=False,
    )
    console.print(explained(planned, task.delta))
    if planned.considered:
        lines = (
            (each.name, f"{each.risk:.3g}", f"{each.work.passes:g}") for each in planned.considered
        )
        console.print(rows(("solver", "predicted risk", "passes"), lines, "Considered, best first"))
    if any(at.risk is not None for at in curve):
        points = ((f"{at.epsilon:.3g}", _figure(at.risk), at.solver or "none can") for at in curve)
        console.print(rows(("epsilon", "predicted risk", "solver"), points, "Risk against epsilon"))
        console.print(
            "Predicted risk, the excess empirical risk: how far the mean loss will be above that "
            "of the best model without noise."
        )
    if paid is not None:
        from dpfit.privacy.rounding import up_to_digits

        asked = f"{up_to_digits(paid.asked, 4):.4g}"
        verdict = "fits" if paid.fits else "does not fit"
        console.print(
            escape(
                f"It {verdict} the budget of {paid.dataset}: it asks for {paid.currency} {asked}, "
                f"and {paid.left:.4g} is left."
            ),
            highlight=False,
        )
    console.print(cited(resolve(planned.basis.theorem)))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"

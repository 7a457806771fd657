"""``dpfit fit``: a private model of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpfit.cli import options
from dpfit.cli.options import ModelName, Relation, Unit
from dpfit.cli.outputs import kept, new_files
from dpfit.cli.screen import facts, print_json, print_warnings, progress, rows

if TYPE_CHECKING:
    from dpfit.cli.task import Task
    from dpfit.models.inputs import Floats, Values
    from dpfit.models.intervals import NoiseInterval
    from dpfit.models.linear import PrivateModel
    from dpfit.privacy.spec import Json
    from dpfit.report import Quality

_MOST_SHOWN = 40


def fit(
    table: options.TableFile,
    schema: options.SchemaFile,
    model: options.Model,
    epsilon: options.Epsilon,
    delta: options.Delta = 0.0,
    target: options.Target = None,
    relation: options.RelationOption = Relation.REPLACE,
    n_declared: options.DeclaredRows = None,
    unit: options.UnitOption = Unit.RECORD,
    user_column: options.UserColumn = None,
    max_rows: options.MaxRows = None,
    rows_per_user: options.RowsPerUser = None,
    users: options.Users = None,
    solver: options.Solver = "auto",
    max_passes: options.MaxPasses = None,
    ridge: options.RidgeWeight = None,
    quantile: options.Quantile = None,
    l1_radius: options.L1Radius = None,
    ledger: options.LedgerFile = None,
    dataset: options.Dataset = None,
    public: options.PublicTable = None,
    out: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="New file for the model.")
    ] = None,
    report: options.ReportFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit a private model to a table."""
    from dpfit.cli import stored
    from dpfit.cli.task import Task, open_ledger, read_schema

    if public is not None and not delta:
        raise ValueError(
            "a fit that starts from public records needs --delta, far below 1 / rows; or drop "
            "--public"
        )
    check_users(unit, user_column, (max_rows, rows_per_user, users))
    with new_files(out, report) as write:
        task = Task(
            read_schema(schema, target),
            ModelName(model).value,
            epsilon,
            delta,
            Relation(relation).value,
            n_declared,
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
        with progress(f"fitting a {task.title}", total=None) as done:
            fitted = fit_table(task, table, user_column, public, done)
        with kept(lambda: stored.to_json(fitted.model, task.schema)):
            if out is not None:
                write(out, stored.to_text(fitted.model, task.schema))
            if report is not None:
                write(report, fitted.page())
            files = {"model": out, "report": report}
            if as_json:
                print_json(
                    {
                        **fitted.to_json(),
                        **{name: str(file) if file else None for name, file in files.items()},
                    }
                )
                return
            print_warnings(fitted.warnings)
            fitted.show(Console(), {name: file for name, file in files.items() if file is not None})


def check_users(
    unit: Unit, user_column: str | None, facts: tuple[float | None, float | None, int | None]
) -> None:
    """Options about users go together: a column, and how many rows of a user are used."""
    max_rows, rows_per_user, _ = facts
    if unit == Unit.RECORD:
        if user_column is not None or any(fact is not None for fact in facts):
            raise ValueError(
                "--user-column, --max-rows, --rows-per-user and --users go with --unit user; add "
                "it, or leave them out"
            )
        return
    if user_column is None or (max_rows is None and rows_per_user is None):
        raise ValueError(
            "--unit user needs --user-column COLUMN, and --rows-per-user M or --max-rows M"
        )


@dataclass(frozen=True)
class Fitted:
    """A fitted model and what it was asked to be."""

    task: Task
    model: PrivateModel
    warnings: list[str]

    @property
    def coefficients(self) -> list[tuple[str, float]]:
        """Released numbers by name: columns of the schema, for several classes by class.

        A network has none: its weights are in the model file.
        """
        import numpy as np

        names = self.task.schema.names
        weights = np.atleast_2d(getattr(self.model, "coef_", np.zeros((1, 0))))
        if not weights.size:
            return []
        if len(weights) == 1:
            return list(zip(names, weights[0].tolist(), strict=True))
        return [
            (f"{category}: {name}", value)
            for category, line in zip(self.model.classes_, weights.tolist(), strict=True)
            for name, value in zip(names, line, strict=True)
        ]

    @property
    def chosen(self) -> list[str] | None:
        """Names of the columns that were chosen, None if the solver chooses none."""
        columns = self.model.chosen_columns_
        return None if columns is None else [self.task.schema.names[int(c)] for c in columns]

    @property
    def shown(self) -> list[tuple[str, float]]:
        """The coefficients that people read: all, or those of the chosen columns."""
        if self.chosen is None:
            return self.coefficients
        return [each for each in self.coefficients if each[1] or each[0] in self.chosen]

    @property
    def noise_interval(self) -> NoiseInterval | None:
        """Privacy noise interval of the coefficients, where the noise law is known exactly."""
        try:
            interval = self.model.noise_interval()
        except AttributeError:
            return None
        return interval if interval.exact else None

    def to_json(self) -> dict[str, Json]:
        """Stable names for programs; docs/how-to/command-line.md lists them."""
        from dpfit.theory.bibliography import resolve

        task, plan = self.task, self.model.plan_
        return {
            "schema": "dpfit.fit/1",
            "fitted": task.model,
            "target": task.target.name,
            "coefficients": [{"name": name, "value": value} for name, value in self.coefficients],
            "chosen_columns": self.chosen,
            "promise": str(self.model.guarantee_),
            "guarantee": self.model.guarantee_.to_json(),
            "references": [work.to_json() for work in resolve(self.model.guarantee_.basis.theorem)],
            "plan": plan.to_json(),
            "predicted_risk": plan.risk.expected if plan.risk is not None else None,
            "private": bool(self.model.private_),
            "budget": task.ledger.status(task.dataset).to_json()
            if task.ledger and task.dataset
            else None,
            "warnings": self.warnings,
        }

    def show(self, console: Console, files: dict[str, Path]) -> None:
        """What was done, for people."""
        from dpfit.core.notes import Advice, MissingOutcomes

        task, plan = self.task, self.model.plan_
        if 0 < len(self.shown) <= _MOST_SHOWN:
            columns = ("column, scaled to its range", "coefficient")
            console.print(rows(columns, ((name, f"{value:.4g}") for name, value in self.shown)))
        lines: list[tuple[str, object]] = [
            ("fitted", task.title),
            *([] if self.chosen is None else [("columns", ", ".join(self.chosen))]),
            ("promise", self.model.guarantee_),
        ]
        lines += [note.row for note in plan.notes if isinstance(note, MissingOutcomes | Advice)]
        lines += (
            [("predicted", f"{plan.risk.meaning} {plan.risk.expected:.3g}")]
            if plan.risk is not None
            else []
        )
        if task.ledger is not None and task.dataset is not None:
            left = task.ledger.status(task.dataset).fits
            lines.append(
                ("budget left", f"at most {left} for the next plan" if left else "nothing")
            )
        console.print(facts([*lines, *files.items()]))

    def _summary(self, columns: int) -> str:
        if not self.coefficients:
            return f"A {self.task.title}, predicted from {columns} columns by a network."
        return (
            f"The coefficients of a {self.task.title}, predicted from {columns} columns. "
            "Each column is scaled to the range that its schema gives, so that coefficients can be "
            "compared."
        )

    def page(self, *quality: Quality) -> str:
        """The report."""
        from dpfit.report import Estimate, Facts, report
        from dpfit.report.facts import ABOUT_INTERVALS

        columns, interval = len(self.task.schema.columns), self.noise_interval
        no_ends: list[tuple[float, ...]] = [()] * len(self.shown)
        ends = (
            no_ends
            if interval is None
            else zip(*(end.ravel().tolist() for end in interval.coef), strict=True)
        )
        about = Facts(
            f"A {self.task.title}",
            self.model.plan_,
            summary=self._summary(columns)
            + ("" if self.chosen is None else f" Chosen privately: {', '.join(self.chosen)}."),
            estimates=tuple(
                Estimate(name, value, *pair)
                for (name, value), pair in zip(self.shown, ends, strict=True)
            ),
            called="coefficient",
            intervals="" if interval is None else ABOUT_INTERVALS,
            private=bool(self.model.private_),
            delta=self.task.delta or 1e-6,
            date=datetime.now(UTC).date().isoformat(),
            quality=quality,
        )
        return report(about, ledger=self.task.ledger, dataset=self.task.dataset)


def fit_table(
    task: Task,
    path: Path,
    user_column: str | None = None,
    public: Path | None = None,
    report_progress: Callable[[float], None] | None = None,
) -> Fitted:
    """Read a table through the schema and fit; nothing said about the result depends on a cell."""
    import numpy as np

    from dpfit.cli.task import quiet
    from dpfit.data.files import read_table
    from dpfit.data.schema import Category
    from dpfit.data.table import Table
    from dpfit.data.users import count_users

    source = Table(read_table(path))

    def records(rows: Table) -> tuple[Floats, Values]:
        labels = task.schema.labels(rows)
        if isinstance(task.target, Category):
            # The label NaN, a missing outcome, is the last name: no class has it.
            names = np.array([*task.target.categories, None], dtype=object)
            return task.schema.matrix(rows), names[np.nan_to_num(labels, nan=-1.0).astype(np.int64)]
        return task.schema.matrix(rows), labels

    matrix, labels = records(source)
    users = None if user_column is None else source.texts(user_column)
    number = source.rows if task.n_declared is None else task.n_declared
    if number < 1:
        raise ValueError(f"{path.name} has no rows; a model needs some")
    if users is not None and task.relation == "replace" and task.n_users is None:
        task = replace(task, n_users=count_users(users))
    estimator = task.estimator()
    estimator.report_progress = report_progress
    if public is not None:
        estimator.set_params(public=records(Table(read_table(public))))
    with quiet():
        model = estimator.fit(matrix, labels, user_ids=users)
    return Fitted(task, model, task.warnings(number))

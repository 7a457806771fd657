"""Options that several commands take, said once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpfit.models.table import COMMANDS

ModelName = StrEnum("ModelName", {name.upper(): name for name in COMMANDS})  # type: ignore[misc]
"""The models that can be fitted."""


class Relation(StrEnum):
    """The neighbouring relation: what one person can change."""

    REPLACE = "replace"
    ADD_REMOVE = "add_remove"


class Unit(StrEnum):
    """The privacy unit."""

    RECORD = "record"
    USER = "user"


TableFile = Annotated[
    Path, typer.Argument(metavar="TABLE", help="A CSV file with a header, or a Parquet file.")
]
SchemaFile = Annotated[
    Path,
    typer.Option(
        "--schema",
        metavar="S.toml",
        help="Public ranges and categories of the columns; dpfit schema writes the form.",
    ),
]
Model = Annotated[ModelName, typer.Option("--model", help="Which model to fit.")]
Target = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column to predict; by default the target of the schema."),
]
Epsilon = Annotated[
    float, typer.Option(help="Privacy budget; smaller is more private, 1 is common.")
]
Delta = Annotated[
    float,
    typer.Option(help="The delta of (epsilon, delta)-DP, below 0.01 / rows; 0: pure epsilon-DP."),
]
RelationOption = Annotated[
    Relation,
    typer.Option(
        "--relation",
        help="One record is replaced (the number of rows is public), or added or removed.",
    ),
]
DeclaredRows = Annotated[
    int | None,
    typer.Option(
        "--n-declared", metavar="N", help="With add_remove: a public number near that of the rows."
    ),
]
UnitOption = Annotated[
    Unit, typer.Option("--unit", help="Protect each record, or each user with all its records.")
]
UserColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="With --unit user: column that names the user of a row."),
]
MaxRows = Annotated[
    int | None,
    typer.Option(
        "--max-rows",
        metavar="M",
        help="With --unit user: largest number of rows of a user that are used.",
    ),
]
RowsPerUser = Annotated[
    float | None,
    typer.Option(
        "--rows-per-user",
        metavar="M",
        help="With --unit user: typical number of rows of a user, a public fact.",
    ),
]
Users = Annotated[
    int | None,
    typer.Option(
        "--users",
        metavar="N",
        min=1,
        help="With --unit user: number of users; with add_remove a public number near it.",
    ),
]
Solver = Annotated[
    str, typer.Option(help="auto takes the least predicted error; or a name from dpfit algorithms.")
]
MaxPasses = Annotated[
    int | None,
    typer.Option(
        metavar="K", min=1, help="Largest number of passes over the table; by default the solver's."
    ),
]
RidgeWeight = Annotated[
    float | None, typer.Option("--ridge", help="Weight of the squared norm of the coefficients.")
]
L1Radius = Annotated[
    float | None,
    typer.Option(
        "--l1-radius",
        metavar="R",
        help="Few columns matter: bound on the sum of the absolute coefficients.",
    ),
]
Quantile = Annotated[
    float | None,
    typer.Option(help="With --model quantile: its level, between 0 and 1; by default 0.5."),
]
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="Charge the budget in this ledger."),
]
Dataset = Annotated[
    str | None, typer.Option("--dataset", metavar="NAME", help="Name of the dataset in the ledger.")
]
PublicTable = Annotated[
    Path | None,
    typer.Option("--public", metavar="TABLE", help="Public records of the same columns."),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="R.html", help="Write an HTML page for people who decide."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

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
        help="Schema file: public ranges and categories of columns; dpfit schema writes a form.",
    ),
]
Model = Annotated[
    ModelName,
    typer.Option(
        "--model",
        help="Model: logistic and svc for categories, network for both, others for numbers.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column to predict; by default, the target of the schema."),
]
Epsilon = Annotated[
    float, typer.Option(help="Privacy budget: smaller is more private, 1 is common.")
]
Delta = Annotated[
    float,
    typer.Option(
        help="Delta of (epsilon, delta)-DP; choose it below 0.01 / rows. 0 means pure epsilon-DP."
    ),
]
RelationOption = Annotated[
    Relation,
    typer.Option(
        "--relation",
        help="Neighbours: one record replaced (the number of rows is public), or added or removed.",
    ),
]
DeclaredRows = Annotated[
    int | None,
    typer.Option(
        "--n-declared",
        metavar="N",
        help="With add_remove: public number close to the number of rows.",
    ),
]
UnitOption = Annotated[
    Unit,
    typer.Option("--unit", help="Who is protected: each record, or each user with all records."),
]
UserColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="With --unit user: column with the name or id of the user."
    ),
]
MaxRows = Annotated[
    int | None,
    typer.Option(
        "--max-rows",
        metavar="M",
        help="With --unit user: largest number of rows that are used of each user.",
    ),
]
RowsPerUser = Annotated[
    float | None,
    typer.Option(
        "--rows-per-user",
        metavar="M",
        help="With --unit user: typical number of rows of a user, from public knowledge.",
    ),
]
Users = Annotated[
    int | None,
    typer.Option(
        "--users",
        metavar="N",
        min=1,
        help="With --unit user: number of users; with add_remove, a public number close to it.",
    ),
]
Solver = Annotated[
    str,
    typer.Option(
        help="Algorithm, by its name in dpfit algorithms; auto takes the lowest predicted risk."
    ),
]
MaxPasses = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        min=1,
        help="Largest number of passes over the table; by default, the algorithm decides.",
    ),
]
RidgeWeight = Annotated[
    float | None,
    typer.Option(
        "--ridge",
        help="L2 regularization: coefficient of half the squared norm of the coefficients.",
    ),
]
L1Radius = Annotated[
    float | None,
    typer.Option(
        "--l1-radius",
        metavar="R",
        help="Bound on the sum of absolute coefficients, for tables in which few columns matter.",
    ),
]
Quantile = Annotated[
    float | None,
    typer.Option(
        help="With --model quantile: quantile to predict, between 0 and 1; by default, 0.5."
    ),
]
LedgerFile = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="FILE",
        help="Ledger file; its budget is charged before a record is used.",
    ),
]
Dataset = Annotated[
    str | None, typer.Option("--dataset", metavar="NAME", help="Name of the dataset in the ledger.")
]
PublicTable = Annotated[
    Path | None,
    typer.Option(
        "--public", metavar="TABLE", help="Table of public records with the same columns."
    ),
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="R.html", help="New HTML file: a report for people who decide."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

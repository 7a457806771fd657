"""Shared by ``fit`` and ``plan``: a schema, a model and a budget from the options."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpfit.cli.screen import print_warnings
from dpfit.data.schema import Category, Number, Schema
from dpfit.ledger import Ledger
from dpfit.models.table import COMMANDS, Estimator
from dpfit.privacy.validate import did_you_mean

if TYPE_CHECKING:
    from dpfit.core import Plan
    from dpfit.models.linear import PrivateModel


@dataclass(frozen=True)
class Task:
    """Which model is fitted to which columns, within which budget, charged where."""

    schema: Schema
    model: str
    epsilon: float
    delta: float = 0.0
    relation: str = "replace"
    n_declared: int | None = None
    max_rows: int | None = None
    rows_per_user: float | None = None
    n_users: int | None = None
    solver: str = "auto"
    ridge: float | None = None
    quantile: float | None = None
    ledger: Ledger | None = None
    dataset: str | None = None
    max_passes: int | None = None
    l1_radius: float | None = None

    def __post_init__(self) -> None:
        if (self.ledger is None) != (self.dataset is None):
            raise ValueError(
                "a ledger and a dataset in it go together: give both --ledger FILE and --dataset "
                "NAME"
            )
        if self.quantile is not None and self.model != "quantile":
            raise ValueError("--quantile is for --model quantile; leave it out")
        if self.relation == "add_remove" and self.n_declared is None and self.n_users is None:
            raise ValueError(
                "with --relation add_remove the number of rows is private: give --n-declared N, "
                "a number near it that "
                "was not read off the data"
            )
        if not self.schema.columns:
            raise ValueError(
                "the schema has no columns to predict from; add [columns.NAME] with public facts"
            )
        if self._row is None:
            raise ValueError(self._wrong_target)
        if isinstance(self.target, Category):
            self._check_classes(self.target)

    @property
    def _row(self) -> Estimator | None:
        """The estimator that predicts what the target is, if the model has one."""
        wanted = isinstance(self.target, Category)
        return next((row for row in COMMANDS[self.model] if row.is_classifier == wanted), None)

    @property
    def _wrong_target(self) -> str:
        if isinstance(self.target, Category):
            return (
                f"--model {self.model} predicts a number, and column {self.target.name!r} has "
                "categories; use --model "
                "logistic, or give the column a lower and an upper end in the schema"
            )
        return (
            f"--model {self.model} predicts a category, and column {self.target.name!r} is a "
            "number; use --model "
            "linear, or list the categories of the column in the schema"
        )

    def _check_classes(self, target: Category) -> None:
        number = len(target.categories)
        if number < 2 or (self.model == "svc" and number > 2):
            raise ValueError(
                f"--model {self.model} needs {'two' if self.model == 'svc' else 'two or more'} "
                "categories, and column "
                f"{target.name!r} lists {number}; change the "
                f"schema{'' if number < 2 else ' or --model logistic'}"
            )

    @property
    def target(self) -> Number | Category:
        """The column that is predicted."""
        if self.schema.target is None:
            raise ValueError(
                "what is to be predicted? give --target COLUMN, or add [target] to the schema"
            )
        return self.schema.target

    @property
    def title(self) -> str:
        """The task in words."""
        return f"{self.model} model of {self.target.name}"

    def estimator(self) -> PrivateModel:
        """The model, not fitted yet."""
        target = self.target
        facts: dict[str, object] = (
            {"classes": list(target.categories)}
            if isinstance(target, Category)
            else {"y_bounds": (target.lower, target.upper)}
        )
        facts |= {"ridge": self.ridge} if self.ridge is not None else {}
        facts |= {"l1_radius": self.l1_radius} if self.l1_radius is not None else {}
        facts |= {"quantile": self.quantile} if self.quantile is not None else {}
        if self._row is None:
            raise ValueError(self._wrong_target)
        make: Callable[..., PrivateModel] = self._row.load()
        model = make(
            self.epsilon,
            self.delta,
            relation=self.relation,
            n_declared=self.n_declared,
            max_rows_per_user=self.max_rows,
            rows_per_user=self.rows_per_user,
            n_users=self.n_users,
            # The schema has bounded the rows, and has added the constant if it wants one.
            row_norm=self.schema.bound,
            fit_intercept=False,
            solver=self.solver,
            max_passes=self.max_passes,
            ledger=self.ledger,
            dataset=self.dataset,
            **facts,
        )
        model.rows_have_constant = self.schema.intercept
        model.missing_outcomes = self.schema.missing
        model.rows_are_scaled = True
        return model

    def plan(self, rows: int) -> Plan:
        """Return what a fit on this many rows would do; the plan has the ledger's currency."""
        with quiet():
            return self.estimator().plan(
                self.n_users or rows, len(self.schema.names), by_user=self.by_user
            )

    @property
    def by_user(self) -> bool:
        """Whether users are protected."""
        return self.max_rows is not None or self.rows_per_user is not None

    def warnings(self, rows: int) -> list[str]:
        """Warnings from public facts; with users, delta is compared with their number."""
        number, what, one = rows, "rows", "record"
        if self.by_user and self.n_users is not None:
            number, what, one = self.n_users, "users", "user"
        if self.delta and self.delta >= 1 / number:
            return [
                f"delta = {self.delta:g} is not far below 1 / {what} = {1 / number:.2g}: releasing "
                f"a random {one} outright would be allowed; take delta below 0.01 / {what}"
            ]
        return []


def read_schema(path: Path, target: str | None) -> Schema:
    """A schema whose target is the column of this name, if one is named."""
    if not path.is_file():
        raise ValueError(
            f"there is no schema {str(path)!r}; dpfit schema TABLE --out {path} writes a template"
        )
    schema = Schema.read(path)
    if target is None or (schema.target is not None and schema.target.name == target):
        return schema
    if schema.target is not None:
        raise ValueError(
            f"the schema says that {schema.target.name!r} is the target, not {target!r}; leave "
            "--target out, or change [target]"
        )
    for column in schema.columns:
        if column.name == target:
            return replace(
                schema, columns=tuple(c for c in schema.columns if c is not column), target=column
            )
    known = [column.name for column in schema.columns]
    raise ValueError(
        f"the schema has no column {target!r}; {did_you_mean(target, known)}it has "
        f"{', '.join(map(repr, known))}"
    )


def open_ledger(path: Path | None) -> Ledger | None:
    """The ledger of an option."""
    return None if path is None else Ledger(path)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of libraries, which may tell about records; the commands give their own.

    A release that is not in the ledger is a warning of dpfit's own, and is printed.
    """
    from dpfit.core.runner import ReleaseNotRecorded

    found: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ReleaseNotRecorded)
            yield
    finally:
        print_warnings(str(warning.message) for warning in found)

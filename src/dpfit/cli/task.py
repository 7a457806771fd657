"""What ``fit`` and ``plan`` share: a schema, a model and a budget, from the options of the command line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfit.data.schema import Category, Number, Schema
from dpfit.ledger import Ledger, NotChargeable
from dpfit.ledger.price import price

if TYPE_CHECKING:
    from dpfit.core import Plan

MODELS = {
    "logistic": "LogisticRegression",
    "svc": "LinearSVC",
    "linear": "LinearRegression",
    "ridge": "Ridge",
    "huber": "HuberRegressor",
    "quantile": "QuantileRegressor",
}
CLASSIFIERS = ("logistic", "svc")


@dataclass(frozen=True)
class Task:
    """Which model is fitted to which columns, at which cost, charged where."""

    schema: Schema
    model: str
    epsilon: float
    delta: float = 0.0
    neighbours: str = "replace"
    n_public: int | None = None
    max_rows: int | None = None
    solver: str = "auto"
    ridge: float | None = None
    quantile: float | None = None
    ledger: Ledger | None = None
    dataset: str | None = None

    def __post_init__(self) -> None:
        if (self.ledger is None) != (self.dataset is None):
            raise ValueError("a ledger and a dataset in it go together: give both --ledger FILE and --dataset NAME")
        if self.quantile is not None and self.model != "quantile":
            raise ValueError("--quantile is for --model quantile; leave it out")
        if self.neighbours == "add_remove" and self.n_public is None:
            raise ValueError(
                "with --neighbours add_remove the number of rows is private: give --n-public N, a number near it that "
                "was not read off the data"
            )
        if not self.schema.columns:
            raise ValueError("the schema has no columns to predict from; add [columns.NAME] with public facts")
        if self.model in CLASSIFIERS:
            self._check_classes()
        elif not isinstance(self.target, Number):
            raise ValueError(
                f"--model {self.model} predicts a number, and column {self.target.name!r} has categories; use --model "
                "logistic, or give the column a lower and an upper end in the schema"
            )

    def _check_classes(self) -> None:
        if not isinstance(self.target, Category):
            raise ValueError(
                f"--model {self.model} predicts a category, and column {self.target.name!r} is a number; use --model "
                "linear, or list the categories of the column in the schema"
            )
        number = len(self.target.categories)
        if number < 2 or (self.model == "svc" and number > 2):
            raise ValueError(
                f"--model {self.model} needs {'two' if self.model == 'svc' else 'two or more'} categories, and column "
                f"{self.target.name!r} lists {number}; change the schema{'' if number < 2 else ' or --model logistic'}"
            )

    @property
    def target(self) -> Number | Category:
        """The column that is predicted."""
        if self.schema.target is None:
            raise ValueError("what is to be predicted? give --target COLUMN, or add [target] to the schema")
        return self.schema.target

    @property
    def title(self) -> str:
        """The task in words."""
        return f"{self.model} model of {self.target.name}"

    def estimator(self) -> Any:
        """The model, not fitted yet."""
        from dpfit import models

        target = self.target
        facts: dict[str, Any] = (
            {"classes": list(target.categories)}
            if isinstance(target, Category)
            else {"y_bounds": (target.lower, target.upper)}
        )
        facts |= {"ridge": self.ridge} if self.ridge is not None else {}
        facts |= {"quantile": self.quantile} if self.quantile is not None else {}
        return getattr(models, MODELS[self.model])(
            self.epsilon,
            self.delta,
            neighbours=self.neighbours,
            n_public=self.n_public,
            max_rows_per_user=self.max_rows,
            # The schema has bounded the rows, and has added the constant if it wants one.
            row_norm=self.schema.bound,
            fit_intercept=False,
            solver=self.solver,
            ledger=self.ledger,
            dataset=self.dataset,
            **facts,
        )

    def plan(self, rows: int) -> Plan:
        """What a fit on so many rows would do."""
        with quiet():
            plan: Plan = self.estimator().plan(rows, len(self.schema.names), by_user=self.max_rows is not None)
        return plan

    def paid_by_ledger(self, rows: int) -> Task:
        """The task with the solver to use: the best of those that cost the dataset's budget least.

        Promises that look alike can differ much in price: pure epsilon is dear in a budget that adds up mu squared,
        and Gaussian noise has no price in one that adds up epsilons. Plans and the ledger are public, so is the choice.
        """
        if self.ledger is None or self.dataset is None or self.solver != "auto":
            return self
        currency = self.ledger.currency(self.dataset)
        prices: dict[str, float] = {}
        from dpfit.models.users import PerUser

        planned = self.plan(rows)
        chosen = planned.plan if isinstance(planned, PerUser) else planned
        names = [candidate.name for candidate in getattr(chosen, "considered", ())]
        for name in names:
            try:
                prices[name] = float(price(replace(self, solver=name).plan(rows).guarantee, currency).amount)
            except NotChargeable:
                continue
        # Candidates are ranked by risk; prices of the same promise may differ in the last digits.
        best = next((name for name, cost in prices.items() if cost <= 1.01 * min(prices.values())), None)
        return self if best in (None, names[0]) else replace(self, solver=str(best))

    def warnings(self, rows: int) -> list[str]:
        """What the caller should know, from public facts."""
        if self.delta and self.delta >= 1 / rows:
            return [
                f"delta = {self.delta:g} is not far below 1 / rows = {1 / rows:.2g}: releasing a random record "
                "outright would be allowed; take delta below 0.01 / rows"
            ]
        return []


def read_schema(path: Path, target: str | None) -> Schema:
    """A schema whose target is the column of this name, if one is named."""
    if not path.is_file():
        raise ValueError(f"there is no schema {str(path)!r}; dpfit schema TABLE --out {path} writes a template")
    schema = Schema.read(path)
    if target is None or (schema.target is not None and schema.target.name == target):
        return schema
    if schema.target is not None:
        raise ValueError(
            f"the schema says that {schema.target.name!r} is the target, not {target!r}; leave --target out, or "
            "change [target]"
        )
    for column in schema.columns:
        if column.name == target:
            return replace(schema, columns=tuple(c for c in schema.columns if c is not column), target=column)
    known = ", ".join(repr(column.name) for column in schema.columns)
    raise ValueError(f"the schema has no column {target!r}; it has {known}")


def open_ledger(path: Path | None) -> Ledger | None:
    """The ledger of an option."""
    return None if path is None else Ledger(path)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of libraries, which may tell about records; the commands give their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

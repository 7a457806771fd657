"""A schema of public facts turns a table into the bounded matrix that private algorithms expect.

The caller writes down the facts of each column without looking at the data.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.data.cells import as_day
from dpfit.data.columns import Category, Column, Date, Number, plain_number, yes_or_no
from dpfit.data.table import Table
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import did_you_mean, option, positive

__all__ = ["Category", "Column", "Date", "Number", "Schema"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Facts(Spec):
    """Facts of a schema. Only these are frozen: pipelines set attributes on their steps."""

    columns: tuple[Column, ...]
    omitted: ClassVar = ("missing",)
    target: Column | None = None
    scale: str = "symmetric"
    intercept: bool = True
    row_norm: float | None = None
    missing: str = "drop"

    def __post_init__(self) -> None:
        if not isinstance(self.columns, tuple) or not all(
            isinstance(c, Number | Category) for c in self.columns
        ):
            raise ValueError("columns must be a tuple of Number and Category columns")
        if not isinstance(self.target, Number | Category | None):
            raise ValueError("target must be a Number or Category column, or None")
        if isinstance(self.target, Date):
            raise ValueError(
                f"the target {self.target.name!r} is a date; models predict numbers and "
                "categories: choose another target"
            )
        names = [
            column.name for column in (*self.columns, *((self.target,) if self.target else ()))
        ]
        if len(set(names)) != len(names):
            raise ValueError("a column may stand in a schema once")
        option("scale", self.scale, ("unit", "symmetric"))
        option("missing", self.missing, ("drop", "refuse"))
        object.__setattr__(self, "intercept", yes_or_no("intercept", self.intercept))
        if self.row_norm is not None:
            positive("row_norm", self.row_norm)
            object.__setattr__(self, "row_norm", plain_number("row_norm", self.row_norm))


class Schema(_Facts):
    """Public facts about the columns of a table, and how they become a matrix.

    ``scale`` is "symmetric" (numbers in [-1, 1], so that the middle of a range is 0) or "unit"
    ([0, 1], with more error at the same bound on rows); ``intercept`` adds a constant column;
    ``row_norm`` caps the length of each row (longer rows are scaled down), which lowers the noise
    of algorithms. ``missing`` (in TOML under ``[target]``) is "drop" or "refuse": records
    without an outcome add nothing to a fit, or a target is refused whose type has empty cells.

    >>> schema = Schema((Number("age", 0, 120), Category("ward", ("A", "B"))))
    >>> schema.matrix({"age": [30, 999, None], "ward": ["B", "Z", "A"]})
    array([[-0.5,  0. ,  1. ,  0. ,  1. ],
           [ 1. ,  0. ,  0. ,  1. ,  1. ],
           [ 0. ,  1. ,  0. ,  0. ,  1. ]])
    >>> schema.names
    ('age', 'ward = A', 'ward = B', 'ward is other', 'intercept')
    """

    kind = "schema"
    _output: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the matrix columns."""
        return (
            *(name for column in self.columns for name in column.outputs),
            *(("intercept",) if self.intercept else ()),
        )

    @property
    def bound(self) -> float:
        """The largest length a row can have, from public facts (rounded up)."""
        square = sum(column.squared_norm(self._low) for column in self.columns) + float(
            self.intercept
        )
        natural = math.nextafter(math.sqrt(square), math.inf)
        return natural if self.row_norm is None else min(self.row_norm, natural)

    def matrix(self, table: object) -> Array:
        """The bounded matrix, one row for each row of the table."""
        source = Table(table)
        parts = [part for column in self.columns for part in column.encode(source, self._low)]
        parts += [np.ones(source.rows)] if self.intercept else []
        rows = np.stack(parts, axis=1) if parts else np.zeros((source.rows, 0))
        if self.row_norm is None:
            return rows
        # The computed norm errs by a few units for each entry; shrinking by more than that keeps
        # the bound exact.
        lengths = np.sqrt(np.sum(rows**2, axis=1)) * (1 + (len(self.names) + 4) * 2.0**-52)
        rows *= np.minimum(1.0, self.row_norm / np.maximum(lengths, 1e-300))[:, None]
        return np.asarray(rows)

    def labels(self, table: object) -> Array:
        """Return the target: a number in its range, or the position of its class; NaN if missing.

        A record with the label NaN adds nothing to any sum of gradients, and the declared number of
        records stays. A category that the schema does not list is missing, too: no class is
        invented for it. With ``missing="refuse"`` a type that can hold empty cells is refused.
        """
        if self.target is None:
            raise ValueError(
                "this schema has no target; add [target] with the name and the public facts of "
                "the column"
            )
        source = Table(table)
        self.check_outcomes(source, self.target.name)
        if isinstance(self.target, Number):
            return np.where(
                np.isnan(source.numbers(self.target.name)), np.nan, self.target.clamp(source)
            )
        codes = self.target.codes(source)
        return np.where(codes < len(self.target.categories), codes.astype(np.float64), np.nan)

    def check_outcomes(self, table: Table, name: str) -> None:
        """Refuse a column of outcomes by its type alone, if ``missing`` says so."""
        if self.missing == "refuse" and table.can_be_empty(name):
            raise ValueError(
                f"the schema refuses missing outcomes, and the type of column {name!r} has empty "
                "cells; give a type without them (numbers of NumPy, a required column of Parquet), "
                'or say missing = "drop"'
            )

    def fit(self, X: object, y: object = None) -> Schema:
        """Do nothing: a schema is public. It makes the schema a step of scikit-learn pipelines."""
        return self

    def transform(self, X: object) -> Any:
        """Return the bounded matrix in the container set by `set_output` or by scikit-learn."""
        from sklearn import get_config

        rows, output = self.matrix(X), self._output or get_config()["transform_output"]
        if output == "pandas":
            import pandas as pd

            return pd.DataFrame(
                rows, X.index if isinstance(X, pd.DataFrame) else None, self.get_feature_names_out()
            )
        if output == "polars":
            import polars as pl

            return pl.DataFrame(rows, self.names, orient="row")
        return rows

    def fit_transform(self, X: object, y: object = None) -> Any:
        """The bounded matrix."""
        return self.transform(X)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Names of the matrix columns."""
        return np.array(self.names, dtype=object)

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Nothing to tune."""
        return {}

    def set_params(self, **params: object) -> Schema:
        """Nothing to tune."""
        if params:
            raise ValueError(f"a schema has no parameter {min(params)!r}: make another one")
        return self

    def set_output(self, *, transform: str | None = None) -> Schema:
        """Set the output of `transform`: "default" (matrix), "pandas", "polars"; None: keep."""
        if transform is not None:
            self._output = option("transform", transform, ("default", "pandas", "polars"))
        return self

    def __sklearn_clone__(self) -> Schema:
        return replace(self).set_output(transform=self._output)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> object:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            requires_fit=False,
        )

    @property
    def _low(self) -> float:
        return 0.0 if self.scale == "unit" else -1.0

    @staticmethod
    def from_toml(text: str) -> Schema:
        """Read a schema.

        >>> Schema.from_toml('''
        ... intercept = false
        ... [columns.age]
        ... lower = 0
        ... upper = 120
        ... [columns.ward]
        ... categories = ["A", "B"]
        ... ''').names
        ('age', 'ward = A', 'ward = B', 'ward is other')
        """
        try:
            facts = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"the schema is not valid TOML: {error}") from None
        except RecursionError:
            raise ValueError(
                "the schema is not valid TOML: its tables or lists are nested too deeply"
            ) from None
        known = {"columns", "target", "scale", "intercept", "row_norm"}
        if unknown := set(facts) - known:
            raise ValueError(
                f"a schema has no entry {min(unknown)!r}; {did_you_mean(min(unknown), known)}it "
                f"has {', '.join(sorted(known))}"
            )
        columns = facts.pop("columns", {})
        target = facts.pop("target", None)
        if isinstance(target, dict) and "missing" in target:
            facts["missing"] = target.pop("missing")
        if not isinstance(columns, dict) or not all(
            isinstance(entry, dict) for entry in columns.values()
        ):
            raise ValueError(
                "columns must be tables: [columns.NAME] with lower and upper, or categories"
            )
        return Schema(
            columns=tuple(_column(name, entry) for name, entry in columns.items()),
            target=_target(target) if target is not None else None,
            **facts,
        )

    @staticmethod
    def read(path: str | Path) -> Schema:
        """Read a schema from a TOML file."""
        return Schema.from_toml(Path(path).read_text(encoding="utf-8"))

    def to_toml(self) -> str:
        """Write the schema; `from_toml` is its inverse."""
        lines = [f"scale = {_toml(self.scale)}", f"intercept = {_toml(self.intercept)}"]
        lines += [f"row_norm = {_toml(self.row_norm)}"] if self.row_norm is not None else []
        for column in self.columns:
            lines += ["", f"[columns.{_toml(column.name)}]", *_facts(column)]
        if self.target is not None:
            lines += ["", "[target]", f"name = {_toml(self.target.name)}", *_facts(self.target)]
            lines += [f"missing = {_toml(self.missing)}"] if self.missing != "drop" else []
        return "\n".join(lines) + "\n"


_ENTRIES = ("lower", "upper", "nullable", "categories", "other")
"""What the TOML table of a column may have."""


def _column(name: str, entry: dict[str, Any]) -> Column:
    """A column from its TOML table: a range, or categories."""
    facts = dict(entry)
    try:
        if "categories" in facts:
            if not isinstance(categories := facts.pop("categories"), list | tuple):
                raise ValueError(f"the categories of column {name!r} must be a list")
            return Category(name, tuple(map(str, categories)), **facts)
        ends = [facts.get("lower"), facts.get("upper")]
        dates = [not math.isnan(as_day(end)) for end in ends]
        if any(dates) and None not in ends and not all(dates):
            raise ValueError(f"column {name!r} needs two dates or two numbers, got {ends!r}")
        return (Date if all(dates) else Number)(name, **facts)
    except TypeError:
        allowed = "lower, upper and nullable, or categories"
        unknown = sorted(entry.keys() - set(_ENTRIES))
        close = did_you_mean(unknown[0], _ENTRIES) if unknown else ""
        raise ValueError(
            f"column {name!r} has {', '.join(sorted(entry)) or 'nothing'}; {close}it takes "
            f"{allowed}"
        ) from None


def _target(entry: object) -> Column:
    if not isinstance(entry, dict) or "name" not in entry:
        raise ValueError("[target] needs a name, and lower and upper or categories")
    return _column(
        str(entry["name"]), {key: value for key, value in entry.items() if key != "name"}
    )


def _facts(column: Column) -> list[str]:
    if isinstance(column, Category):
        complete = [] if column.other else ["other = false"]
        return [f"categories = {_toml(column.categories)}", *complete]
    nullable = ["nullable = true"] if column.nullable else []
    return [
        f"lower = {column.shown(column.lower)}",
        f"upper = {column.shown(column.upper)}",
        *nullable,
    ]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        escaped = "".join(
            c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in value
        )
        return f'"{escaped}"'
    return repr(value)

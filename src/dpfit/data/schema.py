"""A schema of public facts turns a table into the bounded matrix that private algorithms expect.

For each column the caller writes down, without looking at the data, a range of numbers or dates, or
a list of categories. Values outside are mapped into the range, unknown categories to an "other"
column, empty cells to the middle of the range (with an indicator column if the column may be
empty): mapped, not reported, since a message about a cell would be a leak.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.data.cells import EPOCH, as_day
from dpfit.data.table import Table
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import did_you_mean, integer, option, positive, real

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Number(Spec):
    """A number in [``lower``, ``upper``]; ``nullable`` adds a column that marks empty cells."""

    kind = "column_number"
    name: str
    lower: float
    upper: float
    nullable: bool = False

    def __post_init__(self) -> None:
        lower, upper = self.place("lower", self.lower), self.place("upper", self.upper)
        if not (lower < upper and float(upper) - float(lower) < math.inf):
            raise ValueError(
                f"column {self.name!r} needs finite lower < upper with a finite difference, got "
                f"[{self.shown(lower)}, {self.shown(upper)}]"
            )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "nullable", _yes_or_no("nullable", self.nullable))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the matrix columns."""
        return (self.name, f"{self.name} is missing") if self.nullable else (self.name,)

    def place(self, name: str, value: object) -> float:
        """An end or an edge, which the caller calls ``name``, as a number."""
        return _plain(name, value)

    def shown(self, value: float) -> str:
        """An end as a schema has it."""
        return repr(value)

    def label(self, edge: float) -> str:
        """An edge as tables of counts show it."""
        return f"{edge:g}"

    def values(self, table: Table) -> Array:
        """The column as numbers; NaN where a cell is empty or something else."""
        return table.numbers(self.name)

    def clamp(self, table: Table) -> Array:
        """The column inside its range; empty cells in the middle."""
        values = self.values(table)
        middle = self.lower / 2 + self.upper / 2
        return np.asarray(
            np.clip(np.where(np.isnan(values), middle, values), self.lower, self.upper)
        )

    def encode(self, table: Table, low: float) -> list[Array]:
        """The column scaled to [low, 1], and the indicator."""
        values = self.values(table)
        empty = np.isnan(values)
        share = (np.clip(values, self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        # The middle of a narrow range may round to one of its ends; that of [low, 1] does not.
        scaled = np.where(empty, (low + 1.0) / 2, np.clip(low + (1.0 - low) * share, low, 1.0))
        return [scaled, empty.astype(np.float64)] if self.nullable else [scaled]

    def squared_norm(self, low: float) -> float:
        """The largest squared length of the encoded entries."""
        missing = ((low + 1.0) / 2) ** 2 + 1.0
        return max(1.0, missing) if self.nullable else 1.0


@dataclass(frozen=True)
class Date(Number):
    """A day in [``lower``, ``upper``], given as dates or ISO texts; kept as days since 1970.

    Cells are dates, moments, or texts such as 2025-01-31; the time of day is left out.

    >>> column = Date("admitted", "2025-01-01", date(2025, 12, 31))
    >>> column.encode(Table({"admitted": ["2025-07-02", date(2030, 1, 1), "soon"]}), -1.0)
    [array([0., 1., 0.])]
    """

    kind = "column_date"
    lower: Any
    upper: Any

    def place(self, name: str, value: object) -> float:
        try:
            if isinstance(value, str):
                value = datetime.fromisoformat(value)
            if isinstance(value, date):
                return value.toordinal() - EPOCH.toordinal()
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            days = integer(name, whole, -EPOCH.toordinal() + 1)
            self.shown(days)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name} must be a date such as 2025-01-31, got {value!r}") from None
        return days

    def shown(self, value: float) -> str:
        return (EPOCH + timedelta(days=math.ceil(value))).isoformat()

    def label(self, edge: float) -> str:
        return self.shown(edge)

    def values(self, table: Table) -> Array:
        return table.days(self.name)


@dataclass(frozen=True)
class Category(Spec):
    """One of the listed ``categories``; anything else, and nothing, is "other".

    With ``other=False`` the list is complete: there is no "other", and such a cell has no category.
    """

    kind = "column_category"
    omitted: ClassVar = ("other",)
    name: str
    categories: tuple[str, ...]
    other: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "other", _yes_or_no("other", self.other))
        texts = isinstance(self.categories, tuple) and all(
            isinstance(c, str) for c in self.categories
        )
        if not texts or not self.categories:
            raise ValueError(
                f"column {self.name!r} needs a non-empty tuple (in TOML: list) of categories "
                "(texts)"
            )
        if len(set(self.categories)) != len(self.categories):
            raise ValueError(f"column {self.name!r} lists a category twice")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the matrix columns."""
        listed = tuple(f"{self.name} = {category}" for category in self.categories)
        return (*listed, f"{self.name} is other") if self.other else listed

    def codes(self, table: Table, empty: int | None = None) -> NDArray[np.int64]:
        """The position of each cell's category; the number of categories for "other".

        An empty cell has the code ``empty``, by default that of "other".
        """
        # A cell that is the number 1.0 has the text "1"; a category "1.0" means it, unless "1" is
        # one, too.
        place = {_whole(category): index for index, category in enumerate(self.categories)}
        place |= {category: index for index, category in enumerate(self.categories)}
        other = len(self.categories)
        none = other if empty is None else empty
        texts = table.texts(self.name)
        return np.array([none if text is None else place.get(text, other) for text in texts], int)

    def encode(self, table: Table, low: float) -> list[Array]:
        """One column for each category, and one for "other"; at most one of them is 1."""
        codes = self.codes(table)
        return [(codes == index).astype(np.float64) for index in range(len(self.outputs))]

    def squared_norm(self, low: float) -> float:
        """At most one entry is 1."""
        return 1.0


Column = Number | Category


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
        object.__setattr__(self, "intercept", _yes_or_no("intercept", self.intercept))
        if self.row_norm is not None:
            positive("row_norm", self.row_norm)
            object.__setattr__(self, "row_norm", _plain("row_norm", self.row_norm))


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


def _plain(name: str, value: object) -> float:
    """A number of Python's own, since those of others may overflow and are not written as TOML."""
    checked = real(name, value)
    return value if type(value) is int else checked


def _yes_or_no(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def _whole(category: str) -> str:
    """A whole number without its decimal point; any other text as it is."""
    digits = category.removesuffix(".0")
    return digits if digits.removeprefix("-").isdecimal() else category


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

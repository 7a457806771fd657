"""`count`: noisy counts of a table, planned from public facts, charged, drawn and repaired."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypedDict

import numpy as np

from dpfit.core import Answer, Plan, Release, TransformedPlan
from dpfit.data.schema import Schema
from dpfit.data.table import Table
from dpfit.ledger import Ledger, account_for, currency_of
from dpfit.mechanisms.additive import NOISES, Floats, NoisySums
from dpfit.mechanisms.counts import counts
from dpfit.privacy import Budget
from dpfit.privacy.validate import did_you_mean
from dpfit.queries.axes import BinChoice, axis, columns_of
from dpfit.queries.histogram import Histogram
from dpfit.queries.marginals import Marginals
from dpfit.queries.one_row import OneRowOfEachUser, UserTable
from dpfit.queries.predicates import Predicate, Predicates
from dpfit.queries.workload import TableQueries

By: TypeAlias = TableQueries | Predicate | str | Sequence[str | Predicate | Sequence[str]]
"""A workload, a predicate, the name of a column, or several predicates, names or lists of names."""


class CountColumns(TypedDict):
    """Columns for a data frame, one entry for each count."""

    label: list[str]
    count: list[float]
    lower: list[float]
    upper: list[float]


@dataclass(frozen=True)
class CountResult:
    """Noisy counts: repaired ``values`` with ``labels``, and the release they come from."""

    values: Floats
    release: Release

    @property
    def mechanism(self) -> NoisySums:
        """What was run."""
        return _mechanism(self.release.plan)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each value counts."""
        return _workload(self.release.plan).labels

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """Bounds that hold each count (``simultaneous``: all) with at least this probability.

        They come from the law of the noise, around what was released before repair, and cost no
        privacy.
        """
        width = self.mechanism.half_width(level, simultaneous)
        noisy = np.asarray(self.release.value)
        return np.maximum(noisy - width, 0.0), np.maximum(noisy + width, 0.0)

    def to_dict(self) -> CountColumns:
        """Columns for a data frame: label, count, and the ends of 95% intervals."""
        lower, upper = self.interval()
        return {
            "label": list(self.labels),
            "count": self.values.tolist(),
            "lower": lower.tolist(),
            "upper": upper.tolist(),
        }


def count(
    table: object,
    schema: Schema,
    by: By,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    relation: str = "replace",
    bins: BinChoice | None = None,
    max_per_record: int | None = None,
    noise: str = "auto",
    minimize: str | float = "max",
    nonnegative: bool = True,
    consistent: bool = True,
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    who: str = "",
    why: str = "",
    random_state: int | None = None,
    at_most: int | None = None,
    user: str | None = None,
) -> CountResult:
    """Count the records, or the users, of a table with differential privacy.

    Parameters
    ----------
    table
        A pandas, polars or Arrow table, or a mapping from names to columns.
    schema
        Public facts about its columns. Values outside of them are mapped into them in silence.
    by
        A column or several: their histogram. A list of lists of columns: these marginals. A list of
        predicates (`where`): their counts. Or a workload such as `Ranges.prefixes(bins)`.
    epsilon, delta, mu, rho, relation
        The budget, as in `dpfit.Budget`, for one record, or for one user.
    user
        The column that says whose record a row is. Users are then counted instead of records: each
        counts by one of its rows, drawn at random, and is protected with all of them.
    bins
        How to cut columns of numbers: a number of equal bins, or edges.
    max_per_record
        For predicates that overlap: how many of them one record may count in. It is enforced.
    noise
        "auto", or one of "laplace", "gaussian", "generalized_gaussian", "k_norm".
    minimize
        What the choice goes by: "max" (expected largest error), "average", or a level (quantile of
        the largest error).
    nonnegative, consistent
        Whether to move the noisy counts to the nearest ones that are not negative and add up.
    ledger, dataset, who, why
        Where to charge the release. Noise without a cost in additive currencies (generalized
        Gaussian) is charged as (epsilon, delta), for which the dataset's budget needs a delta
        column. On a dataset whose budget adds up rho or mu squared, "auto" takes Gaussian noise.
    random_state
        An RNG seed, for tests: the release is then not private.

    Examples
    --------
    >>> from dpfit.data.schema import Category, Number, Schema
    >>> schema = Schema((Number("age", 0, 120), Category("ward", ("A", "B"))))
    >>> table = {"age": [34, 51, 67, 29] * 500, "ward": ["A", "B", "B", "A"] * 500}
    >>> wards = count(table, schema, by="ward", epsilon=1.0, random_state=1)
    >>> [round(value, -2) for value in wards.values.tolist()], wards.release.guarantee.pure
    ([1000.0, 1000.0, 0.0], 1.0)
    """
    if at_most is not None:
        warnings.warn(
            "at_most is now max_per_record; the old name works in this version only",
            DeprecationWarning,
            2,
        )
        max_per_record = at_most
    unit = "record" if user is None else "user"
    budget = Budget(epsilon=epsilon, delta=delta, mu=mu, rho=rho, relation=relation, unit=unit)
    currency = currency_of(ledger, dataset)
    plan = plan_count(
        schema,
        by,
        budget,
        bins=bins,
        max_per_record=max_per_record,
        noise=noise,
        minimize=minimize,
        currency=currency,
    )
    workload = _workload(plan)
    account = account_for(plan, ledger, dataset, delta=budget.delta, who=who, why=why)
    data = Table(table) if user is None else UserTable(table, user)
    release = plan.run(data, account=account, random_state=random_state)
    return CountResult(
        workload.repaired(release.value, consistent=consistent, nonnegative=nonnegative), release
    )


def plan_count(
    schema: Schema,
    by: By,
    budget: Budget,
    *,
    bins: BinChoice | None = None,
    max_per_record: int | None = None,
    noise: str = "auto",
    minimize: str | float = "max",
    currency: str | None = None,
) -> Plan:
    """Return the plan of `count`, from public facts alone.

    ``currency`` is that of the ledger which pays: a budget that adds up rho or mu squared has a low
    privacy cost for Gaussian noise only, so "auto" takes Gaussian noise there if the budget has a
    delta, mu or rho.

    >>> from dpfit.data.schema import Category, Schema
    >>> schema = Schema((Category("ward", ("A", "B")),))
    >>> print(plan_count(schema, ["ward"], Budget(epsilon=1.0)).explain())
    method     counts: counting queries with the noise of smallest predicted error
    promise    epsilon = 1, with one record replaced
    runs       a pure DP mechanism (epsilon 1)
    rests on   K-norm mechanism in the maximum norm [Gan22, Section 2.1]
    enforced   one neighbour change moves at most 2 answers, each by one
    rounding   no rounding error weakens the promise
    work       1 pass over the data
    predicted  largest error of the 3 counts 3
    chosen     K-norm, for its expected largest error: 3, Laplace 3.667
    """
    workload = _asked(schema, by, bins or {}, max_per_record)
    if noise == "auto" and currency in ("gdp", "zcdp") and budget.kind != "pure":
        noise = "gaussian"
    laws = tuple(NOISES) if noise == "auto" else (noise,)
    one = replace(budget, unit="record")
    plan = counts.plan(Answer(workload=workload), one, minimize=minimize, noise=laws)
    return plan if budget.unit == "record" else TransformedPlan.of(OneRowOfEachUser(), plan)


def _asked(schema: Schema, by: By, bins: BinChoice, max_per_record: int | None) -> TableQueries:
    """The workload that ``by`` stands for."""
    if not isinstance(by, TableQueries):
        asked = [by] if isinstance(by, str | Predicate) else list(by)
        predicates = tuple(part for part in asked if isinstance(part, Predicate))
        if asked and len(predicates) == len(asked):
            return Predicates(columns_of(schema), predicates, max_per_record)
        if not asked:
            raise ValueError("nothing to count by: name a column, a list of columns, or predicates")
        by = _histograms(schema, asked, bins)
    if max_per_record is not None:
        raise ValueError(
            "max_per_record is for predicates; how often a record counts elsewhere is known"
        )
    return by


def _histograms(
    schema: Schema, asked: Sequence[str | Predicate | Sequence[str]], bins: BinChoice
) -> TableQueries:
    """One histogram for names of columns, several for lists of names."""
    names = [part for part in asked if isinstance(part, str)]
    flat = len(names) == len(asked)
    groups = [names] if flat else [_names(part) for part in asked]
    if unused := [name for name in bins if not any(name in names for names in groups)]:
        known = [name for names in groups for name in names]
        raise ValueError(
            f"bins must name columns of by, got {unused[0]!r}; {did_you_mean(unused[0], known)}"
            "leave it out, or count by it"
        )
    tables = tuple(Histogram(tuple(axis(schema, name, bins) for name in names)) for names in groups)
    return tables[0] if flat else Marginals(tables)


def _names(part: str | Predicate | Sequence[str]) -> list[str]:
    if not isinstance(part, list | tuple) or not all(isinstance(name, str) for name in part):
        raise ValueError(
            "by takes names of columns, or lists of names, or predicates made by where(...), "
            "unmixed"
        )
    return list(part)


def _mechanism(plan: Plan) -> NoisySums:
    if not isinstance(plan.final, NoisySums):
        raise TypeError("not a plan of noisy counts")
    return plan.final


def _workload(plan: Plan) -> TableQueries:
    workload = _mechanism(plan).workload
    if not isinstance(workload, TableQueries):
        raise TypeError("the counts are not those of a table")
    return workload

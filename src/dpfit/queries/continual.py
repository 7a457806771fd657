"""Counts and sums of a table that grows step by step, for a whole horizon on one budget.

`ContinualCounts.open` charges once. `add` releases one step. Running totals, daily values and
windows, with intervals, are functions of what was released.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Interact, Interaction, Plan, Release, plan_from_json, resume
from dpfit.core.store import create, sync_folder
from dpfit.data.dataset import InMemory
from dpfit.data.schema import Date, Number, Schema
from dpfit.data.table import Table
from dpfit.ledger import BudgetExceeded, Ledger, NotChargeable, account_for
from dpfit.mechanisms.prefix_sums import RunningSums, StreamSums, prefix_sums
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.privacy.spec import Spec, from_json
from dpfit.privacy.validate import did_you_mean, integer
from dpfit.queries.axes import Axis, BinChoice, axis, column_of

Floats = NDArray[np.float64]

_FORMAT = "dpfit.stream/1"
_PLAN, _STATE = "plan.json", "state"
"""The files of a folder: public facts, and private values."""


class EstimateColumns(TypedDict):
    """Columns for a data frame, one entry for each estimate."""

    label: list[str]
    value: list[float]
    lower: list[float]
    upper: list[float]


@dataclass(frozen=True)
class Measures(Spec):
    """What is counted and added up: records by category, and numbers by category.

    Each column of ``axes`` is a partition: a record counts in one of its cells. Each column of
    ``sums`` is added up in every cell. A number that is missing, NaN or infinite adds zero.

    >>> from dpfit.data.schema import Category
    >>> schema = Schema((Category("ward", ("A", "B")), Number("cost", 0, 500)))
    >>> measures = Measures.of(schema, by=["ward"], sums=["cost"])
    >>> measures.labels[:4], measures.bound
    (('all', 'ward = A', 'ward = B', 'ward is other'), 1.4142135623730951)
    """

    kind = "continual_measures"
    omitted: ClassVar = ("axes", "sums")
    axes: tuple[Axis, ...] = ()
    sums: tuple[Number, ...] = ()

    @classmethod
    def of(
        cls, schema: Schema, by: Sequence[str], sums: Sequence[str], bins: BinChoice | None = None
    ) -> Measures:
        """Return the measures of named columns of a schema."""
        numbers = []
        for name in sums:
            column = column_of(schema, name)
            if not isinstance(column, Number) or isinstance(column, Date):
                noun = "dates" if isinstance(column, Date) else "categories"
                raise ValueError(f"column {name!r} has {noun}; sums are of numbers")
            numbers.append(column)
        return cls(tuple(axis(schema, name, bins or {}) for name in by), tuple(numbers))

    @property
    def groups(self) -> int:
        """Number of entries of a row that are not zero, at most."""
        return max(1, len(self.axes)) * (1 + len(self.sums))

    @property
    def bound(self) -> float:
        """Largest l2 norm of a row: each entry is at most 1."""
        return float(np.sqrt(self.groups))

    @property
    def dimension(self) -> int:
        """Number of entries of a row: the cells of each axis, for counts and for each sum."""
        return self._cells * (1 + len(self.sums))

    @property
    def _cells(self) -> int:
        return sum(each.size for each in self.axes) or 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that are read."""
        axes = tuple(each.name for each in self.axes)
        return axes + tuple(column.name for column in self.sums)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each estimate is about."""
        cells = ["all"]
        for each in self.axes:
            cells += [
                f"{each.name} is other" if label == "other" else f"{each.name} = {label}"
                for label in each.labels
            ]
        return (*cells, *(f"{column.name}: {cell}" for column in self.sums for cell in cells))

    @property
    def outputs(self) -> Floats:
        """Estimates (rows) as functions of the entries of a row (columns), in the caller's units.

        The total is the sum of the cells of the first axis: it costs nothing beyond them.
        """
        first = self.axes[0].size if self.axes else 1
        block = np.eye(self._cells)[: self._cells if self.axes else 0]
        block = np.vstack([np.where(np.arange(self._cells) < first, 1.0, 0.0), block])
        scales = [1.0, *(_scale(column) for column in self.sums)]
        return np.asarray(np.kron(np.diag(scales), block), dtype=np.float64)

    @property
    def non_negative(self) -> bool:
        """Whether no entry is negative."""
        return all(column.lower >= 0 for column in self.sums)

    def rows(self, table: Table) -> Floats:
        """Return the rows of records: 1 in the cell of each axis, and scaled numbers there."""
        if missing := [name for name in self.columns if name not in table.names]:
            raise ValueError(
                f"the table has no column {missing[0]!r}; "
                f"{did_you_mean(missing[0], table.names)}it has {', '.join(map(repr, table.names))}"
            )
        blocks = [np.eye(each.size)[each.cells(table)] for each in self.axes]
        cells = np.hstack(blocks) if blocks else np.ones((table.rows, 1))
        values = [np.ones((table.rows, 1))]
        for column in self.sums:
            found = table.numbers(column.name)
            clipped = np.clip(found, column.lower, column.upper)
            kept = np.where(np.isfinite(found), clipped, 0.0)
            values.append((kept / _scale(column))[:, np.newaxis])
        return np.hstack([cells * value for value in values])


def _scale(column: Number) -> float:
    return max(abs(column.lower), abs(column.upper))


class ContinualCounts:
    """A private dashboard: a folder with a public plan and a private state file.

    Examples
    --------
    >>> import tempfile
    >>> from dpfit.data.schema import Category
    >>> folder = tempfile.mkdtemp() + "/visits"
    >>> schema = Schema((Category("ward", ("A", "B")),))
    >>> measures, budget = Measures.of(schema, ["ward"], []), Budget(epsilon=1, delta=1e-6)
    >>> stream = ContinualCounts.open(folder, measures, steps=365, budget=budget)
    >>> stream.add({"ward": ["A", "B", "A"]}, step=1)
    >>> again = ContinualCounts.resume(folder)
    >>> again.step, again.estimates()["value"] == stream.estimates()["value"]
    (1, True)
    """

    def __init__(self, folder: Path, facts: dict[str, Any], session: Interaction) -> None:
        self.folder, self.session = folder, session
        self.measures = from_json(facts["measures"], Measures)
        self.user: str | None = facts["user"]
        self.dataset: str | None = facts["dataset"]
        self.ledger = None if facts["ledger"] is None else Ledger(facts["ledger"])

    @staticmethod
    def open(
        folder: str | Path,
        measures: Measures,
        *,
        steps: int,
        budget: Budget,
        user: str | None = None,
        max_steps: int = 1,
        apart: int = 1,
        ledger: Ledger | str | Path | None = None,
        dataset: str | None = None,
        who: str = "",
        why: str = "",
    ) -> ContinualCounts:
        """Plan a horizon, charge it in full, and write the folder.

        An opening that was killed is repeated by the same call; it is charged once.

        Parameters
        ----------
        steps : int
            The horizon. It is public and cannot be extended; open another stream for later steps.
        user : str, optional
            Column of user ids; the budget then protects users (``unit="user"``), who count in at
            most ``max_steps`` steps, at least ``apart`` steps from each other.
        """
        place = Path(folder)
        work = StreamSums(
            measures.dimension,
            measures.bound,
            l1_bound=float(measures.groups),
            times=max_steps,
            apart=apart,
            non_negative=measures.non_negative,
        )
        if (user is None) != (budget.unit == "record"):
            raise ValueError("a column of user ids and unit='user' go together; give both")
        plan = prefix_sums.plan(Interact(workload=work, rounds=integer("steps", steps)), budget)
        if cast(RunningSums, plan.final).kept < steps:
            raise ValueError(
                f"a dashboard keeps all totals; {measures.dimension} cells in {steps} steps are "
                "too many, so count by fewer columns or open a shorter stream"
            )
        account = account_for(plan, ledger, dataset, delta=budget.delta, who=who, why=why)
        asked = {
            "schema": _FORMAT,
            "plan": plan.to_json(),
            "measures": measures.to_json(),
            "user": user,
            "ledger": None if account is None else str(account.path),
            "dataset": dataset,
        }
        facts = _opening(place, asked)
        if account is not None:
            account = replace(account, opening=str(facts["opening"]))
        with (place / _PLAN).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                session = plan.open(store=place / _STATE, account=account)
            except (ValueError, BudgetExceeded, NotChargeable):
                # Nothing was charged.
                if not (place / _STATE).exists():
                    (place / _PLAN).unlink()
                    with suppress(OSError):
                        place.rmdir()
                raise
        return ContinualCounts(place, facts, session)

    @staticmethod
    def resume(folder: str | Path, ledger: str | Path | None = None) -> ContinualCounts:
        """Go on with a stream, in this or another process; nothing is charged again.

        ``ledger`` names the ledger file if it was moved.
        """
        place = Path(folder)
        try:
            facts = _facts(place)
        except (OSError, ValueError, TypeError, KeyError):
            raise ValueError(
                f"{str(place)!r} is not the folder of a stream; open one first"
            ) from None
        if not (place / _STATE).exists():
            raise ValueError(
                f"the opening of {str(place)!r} was interrupted; repeat it with the same "
                "arguments, it is charged once"
            )
        if ledger is not None:
            facts["ledger"] = str(ledger)
        plan = plan_from_json(facts["plan"])
        account = None
        if facts["ledger"] is not None:
            account = Ledger(facts["ledger"]).account(facts["dataset"])
        return ContinualCounts(place, facts, resume(plan, place / _STATE, account=account))

    @property
    def plan(self) -> Plan:
        """The plan of the whole horizon."""
        return self.session.plan

    @property
    def sums(self) -> RunningSums:
        """The mechanism."""
        return cast(RunningSums, self.plan.final)

    @property
    def step(self) -> int:
        """The newest step that was answered; 0 before the first."""
        return self.session.steps

    def add(self, table: object, step: int | None = None) -> None:
        """Release one step; a step that was answered is not read again.

        ``step`` is the number of the step, from 1; it guards against a batch that is added twice
        or left out. By default it is the next one. Where the answer of a step could not be stored,
        the same call again stores it and reads nothing.
        """
        if not self.needs(step):
            return
        if self.session.withheld:
            self.session.retry()
            return
        source = Table(table)
        users = None if self.user is None else source.texts(self.user)
        rows = self.measures.rows(source)
        self.session.observe(InMemory(rows, np.zeros(len(rows)), users))

    def needs(self, step: int | None) -> bool:
        """Whether a step is still to be released; ValueError if it is not the next one."""
        if (self.step + 1 if step is None else step) > self.sums.rounds:
            raise ValueError(
                f"the stream ends after {self.sums.rounds} steps, as it was charged; open another "
                "stream for later steps"
            )
        if step is None or integer("step", step) == self.step + 1:
            return True
        if step > self.step:
            raise ValueError(
                f"step must be at most {self.step + 1}, the next one, got {step}; add the steps "
                "in order, with an empty table for a step without records"
            )
        return False

    def estimates(
        self, step: int | None = None, window: int | None = None, level: float = 0.95
    ) -> EstimateColumns:
        """Return all estimates at a step, the newest by default.

        They are running totals or, with ``window``, sums of the last ``window`` steps. Each
        interval holds its exact value with probability ``level``. They cost no privacy.
        """
        at = self.step if step is None else integer("step", step)
        if not 1 <= at <= self.step:
            raise ValueError(f"step must lie between 1 and {self.step}, got {at}")
        values, width = self._estimates(window, level)
        found, half = values[at - 1], width[at - 1]
        return {
            "label": list(self.measures.labels),
            "value": found.tolist(),
            "lower": (found - half).tolist(),
            "upper": (found + half).tolist(),
        }

    def series(
        self, label: str = "all", window: int | None = None, level: float = 0.95
    ) -> tuple[Floats, Floats]:
        """Return one estimate at each step so far, and the half-widths of its intervals."""
        if label not in self.measures.labels:
            known = self.measures.labels
            raise ValueError(
                f"there is no estimate {label!r}; {did_you_mean(label, known)}there are "
                f"{', '.join(map(repr, known))}"
            )
        values, width = self._estimates(window, level)
        place = self.measures.labels.index(label)
        return values[:, place], width[:, place]

    def _estimates(self, window: int | None, level: float) -> tuple[Floats, Floats]:
        """Values and half-widths, a row for each step so far and a column for each estimate."""
        outputs, sums = self.measures.outputs, self.session.value
        if window is not None:
            sums = sums - np.pad(sums, ((window, 0), (0, 0)))[: len(sums)]
        # An estimate adds up entries of the rows, all with one factor.
        entries, factors = np.count_nonzero(outputs, axis=1), np.abs(outputs).max(axis=1)
        width = {
            count: self.sums.half_widths(level, window, entries=count)[: len(sums)]
            for count in set(entries.tolist())
        }
        half = np.stack([width[count] for count in entries.tolist()], axis=1)
        return sums @ outputs.T, half * factors

    def close(self) -> Release:
        """End the stream: its reservation is committed, and no step is answered any more."""
        return self.session.close()


def _facts(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / _PLAN).read_text(encoding="utf-8"))
    if found["schema"] != _FORMAT:
        raise ValueError(f"{str(place)!r} is of another version")
    return found


def _opening(place: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Write the public file of a new folder, with a random key, or read that of a killed opening.

    The key is on the disk before anything is charged.
    """
    key = "".join(f"{int(word):016x}" for word in Source().words(2))
    text = json.dumps(asked | {"opening": key}, indent=1)
    with suppress(FileExistsError):
        place.mkdir()
        sync_folder(place.parent)
    # Hidden files are what a killed process left.
    if place.is_dir() and all(file.name.startswith(".") for file in place.iterdir()):
        with suppress(FileExistsError):
            create(place / _PLAN, text.encode())
    try:
        facts = _facts(place)
        same = {name: facts[name] for name in (*asked, "opening")} | {"opening": key}
    except (OSError, ValueError, TypeError, KeyError):
        same = {}
    if (place / _STATE).exists() or same != json.loads(text):
        raise ValueError(
            f"{str(place)!r} exists and is not an interrupted opening of this stream; add to it, "
            "or choose a new name"
        )
    return facts

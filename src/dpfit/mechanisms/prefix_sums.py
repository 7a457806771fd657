"""Running sums of records that arrive, for a whole horizon on one budget.

After each step the sum of all rows so far is estimated. Daily values, windows and any other linear
function of the steps follow from the same releases, at no further cost. Proofs and numbers:
docs/explanation/streams.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.core import Algorithm, Example, Interact, Interactive, Plan, Risk, Run, State, Step
from dpfit.core.log import Log
from dpfit.data.chunk import Chunk
from dpfit.data.dataset import Dataset, InMemory
from dpfit.data.tasks import Saturated
from dpfit.data.users import user_codes
from dpfit.data.view import View, require_records
from dpfit.kernels.fixed_point import coarser
from dpfit.losses.guards import RowBall
from dpfit.mechanisms.aggregates.contribution import Contribution
from dpfit.mechanisms.aggregates.encoders import Encoder, Toeplitz, Tree, encoder_for
from dpfit.mechanisms.aggregates.prefix_sums import PrefixSums
from dpfit.mechanisms.aggregates.sampling import Arriving
from dpfit.noise import Grid
from dpfit.noise.lattice import LIMIT
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import in_safe_range, integer, option, probability
from dpfit.theory import laplace_sums

Floats = NDArray[np.float64]

FINER = 10
"""Bits by which the grid of rows is finer than that of their sums."""

ONCE = Assumption("no record arrives twice", "declared")
PREFIXES = ("toeplitz", "tree", "independent")

WIDE, ALL_TOTALS, NEWEST_TOTALS = 2**10, 2**22, 2**16
"""Rows with more entries are wide. A state keeps all totals of wide rows up to so many numbers;
beyond, the newest ones.
"""


@dataclass(frozen=True)
class StreamSums(Spec):
    """The workload: running sums of rows that arrive.

    Parameters
    ----------
    dimension : int
        Number of entries of a row.
    bound : float
        Largest l2 norm of a row, or of the sum of one user's rows in one step. Longer ones are
        scaled down.
    l1_bound : float, optional
        Largest l1 norm, for pure budgets; by default sqrt(dimension) times ``bound``.
    times, apart : int
        A user counts in at most ``times`` steps, at least ``apart`` steps from each other.
    non_negative : bool
        Whether entries below 0 count as 0.
    """

    kind = "stream_sums"
    omitted: ClassVar = ("l1_bound", "times", "apart", "non_negative")
    dimension: int
    bound: float = 1.0
    l1_bound: float | None = None
    times: int = 1
    apart: int = 1
    non_negative: bool = False

    def __post_init__(self) -> None:
        integer("dimension", self.dimension)
        in_safe_range("bound", self.bound)
        if self.l1_bound is not None:
            in_safe_range("l1_bound", self.l1_bound)
        integer("times", self.times)
        integer("apart", self.apart)

    @property
    def largest_l1(self) -> float:
        """Largest l1 norm of what a unit adds in one step."""
        general = math.sqrt(self.dimension) * self.bound * (1 + 2.0**-50)
        return general if self.l1_bound is None else self.l1_bound


@dataclass(frozen=True)
class BoundedRows(Contribution):
    """A record adds its row, and a user the sum of its rows, scaled into a ball.

    A row with NaN or infinite entries adds zero. Rows are added on a finer grid, and each sum is
    rounded once: many equal rows, which all round alike, would be off by as many half steps.
    """

    dimension: int
    bound: float
    norm: str = "l2"
    non_negative: bool = False
    per: str = "record"

    @cached_property
    def _ball(self) -> RowBall:
        return RowBall(self.bound)

    def total(self, data: Dataset, grid: Grid) -> NDArray[np.int64]:
        fine = Grid(grid.exponent - FINER)
        if self.per == "record":
            found = data.reduce(lambda chunk: Saturated(self._sum(_rows(chunk), fine)))
            return coarser(found.steps, FINER)
        # The rows of a user may lie in several chunks.
        ids = np.empty(0, dtype=object) if data.users is None else data.users
        codes = user_codes(ids)
        sums = np.zeros((int(codes.max(initial=-1)) + 1, self.dimension))
        start = 0
        for chunk in data.chunks():
            part = codes[start : start + len(chunk)]
            start += len(chunk)
            with np.errstate(over="ignore", invalid="ignore"):
                np.add.at(sums, part[part >= 0], self._clean(_rows(chunk))[part >= 0])
        return coarser(self._sum(sums, fine), FINER)

    def totals(self, rows: Floats, sizes: Sequence[int], grid: Grid) -> NDArray[np.int64]:
        """Return the exact sums of consecutive batches of rows, of these sizes."""
        fine = Grid(grid.exponent - FINER)
        steps = fine.quantize(np.clip(self._bounded(rows), -self.bound, self.bound))
        ends = np.cumsum(sizes)
        if len(steps) * (int(fine.quantize(self.bound)) + 1) > LIMIT:
            parts = np.split(rows, ends[:-1])
            return coarser(np.stack([self._sum(part, fine) for part in parts]), FINER)
        # Running sums stay within 64 bits: a batch is the difference of two of them.
        running = np.concatenate([np.zeros((1, self.dimension), np.int64), np.cumsum(steps, 0)])
        return coarser(running[ends] - running[ends - np.asarray(sizes)], FINER)

    def _sum(self, rows: Floats, grid: Grid) -> NDArray[np.int64]:
        return grid.sum(self._bounded(rows), self.bound)

    def _clean(self, rows: Floats) -> Floats:
        finite = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
        return np.maximum(finite, 0.0) if self.non_negative else finite

    def _bounded(self, rows: Floats) -> Floats:
        clean = self._clean(rows) if self.non_negative or self.norm == "l1" else rows
        if self.norm == "l2":
            return self._ball.apply(clean)
        # As in RowBall: the margin covers the rounding errors of the sum and of the product.
        margin = (self.dimension + 16) * 2.0**-53
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sum(np.abs(clean), axis=1, keepdims=True)
            shrunk = clean * (self.bound * (1 - 4 * margin) / np.maximum(norms, 1e-300))
        return np.where(norms * (1 + margin) <= self.bound, clean, shrunk)


def _rows(chunk: Chunk) -> Floats:
    rows = chunk.rows
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)


@dataclass(frozen=True)
class RunningSums(Interactive):
    """The running sum after each step; the value is the table of those that are ``kept``.

    Examples
    --------
    >>> plan = prefix_sums.plan(Interact(workload=StreamSums(1), rounds=365), Budget(mu=1.0))
    >>> sums = plan.mechanism
    >>> [round(float(sums.half_widths(window=days)[-1]), 2) for days in (None, 7, 1)]
    [11.54, 10.61, 7.59]
    """

    kind = "running_sums"
    observes: ClassVar[bool] = True
    workload: StreamSums
    aggregate: PrefixSums

    @property
    def rounds(self) -> int:
        return self.aggregate.rounds

    @property
    def kept(self) -> int:
        """Number of newest totals in the state: all of them, unless rows are wide.

        >>> wide = prefix_sums.plan(Interact(workload=StreamSums(10**6), rounds=9), Budget(mu=1.0))
        >>> wide.mechanism.kept
        1
        """
        width = self.workload.dimension
        if width <= WIDE or width * self.rounds <= ALL_TOTALS:
            return self.rounds
        return max(1, NEWEST_TOTALS // width)

    @property
    def event(self) -> Event:
        return self.aggregate.event

    @property
    def risk(self) -> Risk:
        """The root mean square of the noise over all steps, in one entry."""
        errors = self.deviations()
        return Risk(float(np.sqrt(np.mean(errors**2))), "rms noise of a running sum")

    def check(self, data: View) -> None:
        require_records(data)
        if data.width != self.workload.dimension:
            raise ValueError(
                f"a batch must have rows of {self.workload.dimension} entries, got {data.width}"
            )

    def init(self, data: View, run: Run) -> State:
        sums: Log | list[Floats] = Log() if self.kept == self.rounds else []
        return {"aggregate": self.aggregate.init(data, run), "sums": sums}

    def step(self, state: State, given: Any, data: View, run: Run) -> tuple[State, Floats]:
        """Add a batch, and return the noisy running sum."""
        state_, answer = self.aggregate.step(state["aggregate"], self._asked, data, run)
        return {"aggregate": state_, "sums": self._grown(state["sums"], [answer])}, answer

    def _grown(self, sums: Log | list[Floats], answers: list[Floats]) -> Log | list[Floats]:
        return sums.extended(answers) if isinstance(sums, Log) else [*sums, *answers][-self.kept :]

    def observe_many(
        self, state: State, batches: Sequence[View], run: Run
    ) -> tuple[State, list[object]]:
        """Observe batches with one pass over their rows and one draw of noise."""
        whole = [batch.whole for batch in batches]
        held = [chunk for chunk in whole if chunk is not None]
        if self.aggregate.per == "user" or len(held) < len(whole):
            return super().observe_many(state, batches, run)
        grid, rows = self.aggregate.scale(self.workload.dimension).inputs, [*map(_rows, held)]
        inputs = self._asked.totals(np.concatenate(rows), [len(part) for part in rows], grid)
        aggregate, answers = self.aggregate.answer_many(
            state["aggregate"], self.workload.dimension, inputs, run
        )
        return {"aggregate": aggregate, "sums": self._grown(state["sums"], answers)}, [*answers]

    @cached_property
    def _asked(self) -> BoundedRows:
        """What records add."""
        work, aggregate = self.workload, self.aggregate
        norm = "l1" if aggregate.noise == "laplace" else "l2"
        return BoundedRows(work.dimension, aggregate.bound, norm, work.non_negative, aggregate.per)

    def finish(self, state: State) -> Floats:
        return np.array(list(state["sums"])).reshape(-1, self.workload.dimension)

    def deviations(self, window: int | None = None) -> Floats:
        """Return the standard deviation of the noise at each step.

        It is that of running sums or, with ``window``, of the sums of the last ``window`` steps.
        """
        if window is not None:
            integer("window", window)
        return self._unit * self.aggregate.encoder.window_deviations(window)

    def half_widths(
        self,
        level: float = 0.95,
        window: int | None = None,
        simultaneous: bool = False,
        entries: int = 1,
    ) -> Floats:
        """Return the half-width of an interval at each step; see `deviations`.

        Each holds the sum of the bounded rows with probability ``level``; with ``simultaneous``
        all of them do, over all steps and entries. With ``entries`` it is for the sum of that many
        entries of a row.
        """
        tail = 1 - _between(level)
        if simultaneous:
            tail /= self.rounds * self.workload.dimension
        if isinstance(self.aggregate.encoder, Tree) and self.aggregate.noise == "laplace":
            terms = entries * self.aggregate.encoder.window_nodes(window)
            found, place = np.unique(terms, return_inverse=True)
            widths = np.array([laplace_sums.equal_width(each, 1 - tail) for each in found.tolist()])
            return np.asarray(self._scale * widths[place])
        return _quantile(tail) * math.sqrt(entries) * self.deviations(window)

    def linear(
        self, weights: ArrayLike, sums: ArrayLike, level: float = 0.95
    ) -> tuple[Floats, Floats]:
        """Return linear functions of the steps, and their half-widths at ``level``.

        ``weights`` has a row for each function and a column for each step so far; ``sums`` are the
        running sums that were released.
        """
        released = np.asarray(sums, dtype=np.float64).reshape(-1, self.workload.dimension)
        asked = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        if asked.shape[1] != len(released):
            raise ValueError(
                f"weights must have a column for each of the {len(released)} steps, got "
                f"{asked.shape[1]}"
            )
        tail, steps = 1 - _between(level), np.diff(released, axis=0, prepend=0.0)
        padded = np.pad(asked, ((0, 0), (0, self.rounds - len(released))))
        encoder = self.aggregate.encoder
        if isinstance(encoder, Tree) and self.aggregate.noise == "laplace":
            rows = encoder.coefficients(padded)
            widths = np.array([laplace_sums.width(row, 1 - tail) for row in rows])
        else:
            widths = _quantile(tail) * encoder.deviations(padded)
        return asked @ steps, self._scale * widths

    @property
    def _scale(self) -> float:
        return self.aggregate.deviation(self.workload.dimension)

    @property
    def _unit(self) -> float:
        """Standard deviation of the noise in each entry of a release."""
        return self._scale * (math.sqrt(2) if self.aggregate.noise == "laplace" else 1.0)


def _between(level: float) -> float:
    if not 0 < probability("level", level) < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
    return level


def _quantile(tail: float) -> float:
    """Return what a standard normal variable exceeds, on either side, with this probability."""
    from scipy.stats import norm

    return float(norm.isf(tail / 2))


class PrefixSumsOfStream(Algorithm[Interact]):
    """Release a running sum of records that arrive, after each step of a public horizon.

    Use it for dashboards: counts and sums that grow every day. One charge covers the horizon.
    Guarantee: mu-GDP for all steps, mu = 1 / noise_multiplier, also for adaptively chosen inputs.
    Reference: [Liu24] Theorem 7.2.2 with its tree replaced; docs/explanation/streams.md.

    Parameters
    ----------
    prefix : {"toeplitz", "tree", "independent"}, optional
        What is released: the searched coefficients, the binary tree, or each step by itself. The
        default is the first, and the tree for pure budgets.

    Examples
    --------
    >>> problem = Interact(workload=StreamSums(1), rounds=365)
    >>> plan = prefix_sums.plan(problem, Budget(epsilon=1.0, delta=1e-6, relation="add_remove"))
    >>> round(plan.risk.expected, 2)
    11.75
    """

    name = "prefix_sums"
    summary = "running sums, daily values and windows of records that arrive, on one budget"
    use_for = "dashboards of a table that grows"
    reference = "[Liu24] Theorem 7.2.2; [LD] Lemma C.1"
    solves = Interact
    workloads = (StreamSums,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    units = ("record", "user")
    tier = "recommended"

    def _plan(self, problem: Interact, budget: Budget, *, prefix: str | None = None) -> Plan:
        """Plan one release for each of ``problem.rounds`` steps."""
        work: Any = problem.workload
        pure = budget.kind == "pure"
        if prefix is not None:
            option("prefix", prefix, PREFIXES)
        if pure and prefix not in (None, "tree"):
            raise ValueError("a pure budget needs prefix='tree'; give a delta, mu or rho")
        if budget.unit == "record" and (work.times, work.apart) != (1, 1):
            raise ValueError("times and apart count the steps of a user; plan with unit='user'")
        encoder = encoder_named("tree" if pure else prefix or "toeplitz", problem.rounds, work)
        theorem = (
            "Laplace mechanism [Gan22, Fact 3]"
            if pure
            else "adaptive Gaussian steps [LD, Lemma C.1]"
        )
        why = Basis(
            theorem, budget.relation, budget.unit, (self._assumption(work, budget.unit),), "exact"
        )
        template = PrefixSums(
            1, 1.0, problem.rounds, budget.relation, Arriving(), budget.unit, encoder,
            bound=work.largest_l1 if pure else work.bound, times=work.times, apart=work.apart,
            non_negative=work.non_negative, noise="laplace" if pure else "gaussian",
        )  # fmt: skip

        def make(level: float) -> Step:
            return Step(RunningSums(work, replace(template, noise_multiplier=level)), why)

        plan = calibrate(make, budget)
        plan.mechanism.aggregate.check_scale(  # type: ignore[attr-defined]
            BoundedRows(work.dimension, template.bound, non_negative=work.non_negative)
        )
        return plan

    def _assumption(self, work: StreamSums, unit: str) -> Assumption:
        if unit == "record":
            return ONCE
        steps = "1 step" if work.times == 1 else f"{work.times} steps, {work.apart} apart"
        return Assumption(f"a user counts in at most {steps}", "enforced")

    def example(self, relation: str) -> Example:
        """Return two streams of three batches; one record changes its sign, or is missing."""
        problem = Interact(workload=StreamSums(dimension=1, bound=1.0), rounds=3)
        batches = [InMemory(np.full((2, 1), 1.0), np.zeros(2)) for _ in range(3)]
        changed = [[1.0], [-1.0]] if relation == "replace" else [[1.0]]
        return Example(
            problem, tuple(batches), (InMemory(changed, np.zeros(len(changed))), *batches[1:])
        )


def encoder_named(prefix: str, rounds: int, work: StreamSums) -> Encoder:
    """Return an encoder for a stream."""
    if prefix == "tree":
        return Tree(rounds)
    if prefix == "independent":
        return Toeplitz(rounds, 0.0, 1)
    return encoder_for(rounds, work.dimension, work.times, work.apart)


prefix_sums = PrefixSumsOfStream()

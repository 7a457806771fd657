"""Making the runs: the shipped path, many times, in as many processes as are given.

Each block of runs has noise of its own: from the operating system, or, in seeded tests, from
children of one RNG seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

from dpfit.audit.outcomes import Outcomes, Raised
from dpfit.core import Plan, Run
from dpfit.data.view import view_of
from dpfit.noise import Source
from dpfit.privacy.validate import integer

T = TypeVar("T")

_LARGEST_SEED = 2**62
_BLOCKS = 32
_TOGETHER = 500
"""Runs side by side share what a call costs; from some hundreds on, little of it is left."""


class Sampler(Protocol):
    """Something that can be run many times on one dataset."""

    def __call__(self, data: object, runs: int, source: Source | None) -> list[object]:
        """Outcomes of independent runs; noise from ``source``, or from the system if None."""


@dataclass(frozen=True)
class PlanRuns:
    """Runs of a plan through the runner, or in batches where its mechanism can."""

    plan: Plan
    queries: tuple[object, ...] = ()

    @property
    def together(self) -> int:
        """How many runs are made at once, at least, if there are as many."""
        return _TOGETHER if self._batched else 1

    @property
    def _batched(self) -> bool:
        return self.plan.batched and not self.queries

    def __call__(self, data: object, runs: int, source: Source | None) -> list[object]:
        if self._batched:
            return _guarded(lambda: self._together(data, runs, source or Source()), runs)
        if source is None:
            seeds: Sequence[int | None] = [None] * runs
        else:
            seeds = [int(seed) for seed in source.integers(_LARGEST_SEED, runs)]
        return [
            _attempt(lambda seed=seed: self.plan.run(data, self.queries, random_state=seed).value)  # type: ignore[misc]
            for seed in seeds
        ]

    def _together(self, data: object, runs: int, source: Source) -> list[object]:
        view = view_of(data, self.plan.basis.relation, self.plan.basis.unit, source)
        self.plan.check(view)
        return list(self.plan.execute_many(view, Run(source), runs))


@dataclass(frozen=True)
class CallableRuns:
    """Runs of a function of data and a noise source."""

    mechanism: Callable[[Any, Source], object]

    def __call__(self, data: object, runs: int, source: Source | None) -> list[object]:
        stream = source or Source()
        return [_attempt(lambda: self.mechanism(data, stream)) for _ in range(runs)]


def imported(path: str) -> Any:
    """The object at an import path "module:name".

    >>> imported("math:sqrt")(4.0)
    2.0
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"an import path looks like 'module:function', got {path!r}")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {path!r}: {error}") from None


def collect(
    sampler: Sampler,
    data: object,
    neighbour: object,
    runs: int,
    *,
    n_jobs: int = 1,
    random_state: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Outcomes, Outcomes]:
    """Outcomes on both datasets, ``runs`` each, in blocks that alternate between them."""
    from joblib import Parallel, delayed

    sizes = _block_sizes(integer("runs", runs), getattr(sampler, "together", 1))
    root = None if random_state is None else Source(random_state)
    sources = [None] * (2 * len(sizes)) if root is None else root.spawn(2 * len(sizes))
    jobs = [
        (side, size, source)
        for (size, side), source in zip(
            [(s, d) for s in sizes for d in (data, neighbour)], sources, strict=True
        )
    ]
    blocks = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(sampler)(side, size, source) for side, size, source in jobs
    )
    values: tuple[list[object], list[object]] = ([], [])
    for number, block in enumerate(blocks):
        values[number % 2].extend(block)
        if progress is not None:
            progress((number + 1) / len(jobs))
    return Outcomes(values[0]), Outcomes(values[1])


def _block_sizes(runs: int, together: int) -> list[int]:
    """Blocks of nearly equal size, from public numbers, whatever the number of processes."""
    blocks = min(_BLOCKS, max(1, runs // together))
    return [runs // blocks + (index < runs % blocks) for index in range(blocks)]


def _attempt(run: Callable[[], T]) -> T | Raised:
    # An exception is an output: whoever sees it on one dataset and not on its neighbour has told
    # them apart.
    try:
        return run()
    except Exception as error:
        return Raised(type(error).__name__, str(error))


def _guarded(batch: Callable[[], list[object]], runs: int) -> list[object]:
    values = _attempt(batch)
    return [values] * runs if isinstance(values, Raised) else values

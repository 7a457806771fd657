"""Markov chains on a potential: a pure start and a pure step, and one runner for all of them.

A chain is a Spec of public numbers. ``init`` makes the first states of independent chains, ``step``
the next ones from them, a target and a source of randomness; nothing else is remembered. What a
draw is worth says its certificate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from dpfit.core import Minimize
from dpfit.data.dataset import Dataset
from dpfit.kernels.cached_logistic import repeated_sums
from dpfit.noise import Source
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, positive
from dpfit.samplers.certificate import Certificate, Uncertified
from dpfit.samplers.potential import Floats, Potential

State = TypeVar("State")


@dataclass(frozen=True)
class Chain(Spec, ABC, Generic[State]):
    """A chain that is run for ``steps`` steps, of which the last state is the draw."""

    steps: int

    @property
    @abstractmethod
    def certificate(self) -> Certificate:
        """What holds for the law of a draw, for every dataset."""

    @abstractmethod
    def init(self, target: Potential, chains: int, source: Source) -> State:
        """The first states of independent chains."""

    @abstractmethod
    def step(self, state: State, target: Potential, source: Source) -> State:
        """The next states."""

    @abstractmethod
    def points(self, state: State) -> Floats:
        """Where the chains are, (chains, d)."""

    def draw(
        self,
        target: Potential,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """Last points of independent chains, (chains, d); ``progress`` gets the share of steps."""
        # Where a chain goes depends on records, so that a warning of overflow would tell about
        # them.
        with np.errstate(all="ignore"):
            state = self.init(target, chains, source)
            for index in range(self.steps):
                state = self.step(state, target, source)
                if progress is not None:
                    progress((index + 1) / self.steps)
        return self.points(state)


@dataclass(frozen=True)
class UncertifiedChain(Chain[State]):
    """A chain of noisy gradient steps whose law is near the target, but without certificate."""

    step_size: float

    def __post_init__(self) -> None:
        integer("steps", self.steps)
        positive("step_size", self.step_size)

    @property
    def certificate(self) -> Uncertified:
        """None: no explicit rate is known to hold."""
        return Uncertified()


def chain_target(problem: Minimize, data: Dataset, inverse_temperature: float) -> Potential:
    """Return `Potential.gibbs`, with data prepared for many steps where the loss allows it.

    >>> from dpfit.geometry import L2Ball
    >>> from dpfit.data.dataset import InMemory
    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(
    ...     n=2, loss=Logistic(), bounds=Bounds(1.0), n_features=1, domain=L2Ball(1, 1.0), ridge=0.5
    ... )
    >>> target = chain_target(problem, InMemory([[1.0], [-0.5]], [1.0, -1.0]), 2.0)
    >>> target.energy(np.zeros((1, 1)))[1]
    array([[-1.5]])
    """
    target = Potential.gibbs(problem, data, inverse_temperature)
    whole = data.whole
    sums = (
        None
        if whole is None
        else repeated_sums(whole.rows, whole.labels, problem.loss, **problem.guards)
    )
    if sums is None:
        return target

    def convex(points: Floats) -> tuple[Floats, Floats]:
        values, gradients = sums(points)
        return inverse_temperature * values, inverse_temperature * gradients

    return replace(target, convex=convex)

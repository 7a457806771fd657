"""The exponential mechanism on a continuous domain, regularized for the empirical or the population risk.

A sample of exp(-t (sum of losses + (n ridge / 2) norm(theta)**2)) on a domain of reach R has, for the ridge added to
that of the problem, an expected excess risk of at most

    d / (t n) + added * R**2 / 2,                             of the mean loss of the records, and
    d / (t n) + added * R**2 / 2 + stable / (ridge * n)       of that of the population they are drawn from,

where stable is the Lipschitz constant of a loss times that of the difference of two: replacing a record moves the
sample by at most (difference) / (n ridge), surely under some coupling. By bounded range (the exponential mechanism
itself) t = epsilon / range whatever the ridge, by strong log-concavity t = mu**2 n ridge / lipschitz**2: the plan takes
what has the smaller bound, under a pure budget the former.

Guarantee: that of `asap_perturb`, for every dataset.
Reference: [Liu24] Theorems 3.6.2, 3.6.7, 3.6.8 (corrected); [LD] Theorems D.1, E.4; docs/explanation/gibbs.md,
sections 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpfit.core import Minimize, Risk, Step, require_records
from dpfit.data.dataset import InMemory
from dpfit.privacy import Budget
from dpfit.samplers.potential import bounded_domain
from dpfit.solvers.gibbs.asap_perturb import PerturbedSample, allowed, asap_perturb, planned_sample, promises

_BIAS = 0.1
"""By bounded range only speed asks for a ridge: it may add this share of what the temperature costs."""


@dataclass(frozen=True)
class RegularizedSample(PerturbedSample):
    """A sample; the ridge of its problem is chosen, ``own_ridge`` is the one that was asked for."""

    kind = "regularized_sample"
    own_ridge: float = 0.0

    @property
    def risk(self) -> Risk:
        excess = bound(self.problem, self.own_ridge, self.inverse_temperature)
        return Risk(excess, f"excess {self.problem.objective} risk of the exact sample (proven bound)")


def bound(problem: Minimize, own_ridge: float, inverse_temperature: float) -> float:
    """The expected excess risk, where the ridge of the problem is chosen."""
    excess = problem.dimension / (inverse_temperature * problem.n)
    excess += (problem.ridge - own_ridge) * bounded_domain(problem).reach() ** 2 / 2
    if problem.objective == "population":
        excess += stability(problem) / (problem.ridge * problem.n)
    return excess


def stability(problem: Minimize) -> float:
    """Lipschitz constant of one loss, times that of the difference of two."""
    return problem.lipschitz("add_remove") * problem.lipschitz("replace")


@dataclass(frozen=True)
class RegularizedExponentialMechanism:
    """Plans a sample with the ridge of the least proven risk."""

    name: str = "regularized_exp_mech"

    def plan(self, problem: Minimize, budget: Budget, *, sampler: str = "auto", spend_all: bool = False) -> Step:
        """The sample with the least proven risk; ``sampler`` as in `asap_perturb`.

        For the population risk a colder density than d / (t n) = stable / (2 ridge n) hardly helps, and takes longer to
        sample: the plan then promises more privacy than was asked for, unless ``spend_all``.

        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Bounds, Hinge
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(n=10_000, loss=Hinge(), bounds=Bounds(1.0), n_features=20, domain=ball)
        >>> budget = Budget(epsilon=1, delta=1e-6)
        >>> round(regularized_exp_mech.plan(problem, budget).risk.expected, 4)
        0.0054
        """
        require_records(self.name, budget)
        if not isinstance(problem, Minimize):
            raise ValueError(f"{self.name} solves a Minimize problem, not {getattr(problem, 'kind', problem)!r}")
        bounded_domain(problem)
        if problem.objective == "population" and budget.kind != "pure" and not spend_all:
            budget = _useful(problem, budget)
        chosen = min((_ridged(problem, budget, promise) for promise in promises(budget)), key=lambda one: one.bound)
        return planned_sample(RegularizedSample, chosen.problem, budget, sampler, own_ridge=problem.ridge)

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Linear losses that cancel, of which one turns around or leaves."""
        problem, _, _ = asap_perturb.example(relation)
        rows = np.repeat([[1.0, 0.0], [-1.0, 0.0]], 3, axis=0)
        other = rows[:-1] if relation == "add_remove" else np.vstack([rows[:-1], [[1.0, 0.0]]])
        return replace(problem, ridge=0.0), InMemory(rows, np.zeros(6)), InMemory(other, np.zeros(len(other)))


class Ridged(NamedTuple):
    """The problem with a ridge, and what it promises."""

    problem: Minimize
    bound: float


def _ridged(problem: Minimize, budget: Budget, promise: str) -> Ridged:
    """With the ridge that is best for a promise, or that of the problem if it is larger."""
    best = _ridge_by_curvature if promise == "gdp" else _ridge_by_range
    ridged = replace(problem, ridge=max(problem.ridge, best(problem, budget)))
    return Ridged(ridged, bound(ridged, problem.ridge, _coldest(ridged, budget, promise)))


def _coldest(problem: Minimize, budget: Budget, promise: str) -> float:
    change = PerturbedSample.change(problem, budget.relation)
    return allowed(promise, budget, problem.n * problem.ridge, change)


def _ridge_by_curvature(problem: Minimize, budget: Budget) -> float:
    """Where d / (t n) + ridge R**2 / 2 (+ stable / (ridge n)) is least, t being proportional to the ridge."""
    added = stability(problem) if problem.objective == "population" else 0.0
    each = problem.dimension / _coldest(replace(problem, ridge=1.0), budget, "gdp") + added
    return math.sqrt(2 * each / problem.n) / bounded_domain(problem).reach()


def _ridge_by_range(problem: Minimize, budget: Budget) -> float:
    """Where ridge R**2 / 2 + stable / (ridge n) is least, and at least what makes sampling fast."""
    reach = bounded_domain(problem).reach()
    fast = 2 * _BIAS * problem.dimension / (_coldest(problem, budget, "bounded_range") * problem.n * reach**2)
    if problem.objective == "empirical":
        return fast
    return max(fast, math.sqrt(2 * stability(problem) / problem.n) / reach)


def _useful(problem: Minimize, budget: Budget) -> Budget:
    """The part of the budget that helps: the mu at which d / (t n) = stable / (2 ridge n)."""
    if problem.dimension / _coldest(replace(problem, ridge=1.0), budget, "gdp") >= stability(problem) / 2:
        return budget
    change = problem.lipschitz(budget.relation)
    mu = change * math.sqrt(2 * problem.dimension / (stability(problem) * problem.n))
    return Budget(mu=mu, unit=budget.unit, relation=budget.relation)


regularized_exp_mech = RegularizedExponentialMechanism()

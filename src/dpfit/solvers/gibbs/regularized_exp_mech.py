"""Continuous exponential mechanism; its ridge suits the empirical or the population risk.

A sample of exp(-t (sum of losses + (n ridge / 2) norm(theta)**2)) on a domain of reach R has, for
the ridge added to that of the problem, an expected excess risk of at most

    d / (t n) + added * R**2 / 2,                             of the mean loss of the records, and
    d / (t n) + added * R**2 / 2 + stable / (ridge * n)       of that of the population they are
    drawn from,

where stable is the Lipschitz constant of a loss times that of the difference of two: replacing a
record moves the sample by at most (difference) / (n ridge), surely under some coupling. By bounded
range (the exponential mechanism itself) t = epsilon / range for every ridge. By strong
log-concavity t = mu**2 n ridge / lipschitz**2. The plan takes the theorem with the smaller bound; a
pure budget allows bounded range only.

Guarantee: that of `asap_perturb`, for every dataset.
Reference: [Liu24] Theorems 3.6.2, 3.6.7, 3.6.8 (corrected); [LD] Theorems D.1, E.4;
docs/explanation/gibbs.md, sections 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpfit.core import Algorithm, Example, Minimize, Plan, Step
from dpfit.core.algorithm import CONVEX
from dpfit.data.dataset import InMemory
from dpfit.privacy import Budget
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.potential import bounded_domain
from dpfit.solvers.gibbs.asap_perturb import AsapPerturb
from dpfit.solvers.gibbs.perturbed_sample import BALL_OR_BOX, LossSensitivity, PerturbedSample
from dpfit.solvers.gibbs.sample_budget import SampleBudget

_BIAS = 0.1
"""By bounded range only speed asks for a ridge: it may add this share of what the temperature
costs.
"""


class RegularizedExpMech(Algorithm[Minimize]):
    """Certified sample on a ball or a box, with the ridge of the smallest excess-risk bound.

    Use it on domains about as wide as the distance of good parameters; the bound is for the worst
    case. Guarantee: that of the budget, for every dataset. Reference: [Liu24] Theorems 3.6.2,
    3.6.7, 3.6.8 (corrected).
    """

    name = "regularized_exp_mech"
    summary = (
        "the exponential mechanism on a ball or a box, with the ridge of least proven "
        "empirical or population risk"
    )
    reference = "[Liu24] Theorems 3.6.2, 3.6.7, 3.6.8, corrected; [LD] Theorems D.1 and E.4"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (CONVEX, BALL_OR_BOX)
    supports = frozenset({"ridge", "domain", "population"})
    tier = "specialised"

    def _plan(
        self, problem: Minimize, budget: Budget, *, sampler: str = "auto", spend_all: bool = False
    ) -> Plan:
        """Return the sample with the smallest excess-risk bound; ``sampler`` as in `asap_perturb`.

        For the population risk a larger inverse temperature than d / (t n) = stable / (2 ridge n)
        hardly lowers the bound, and chains then take longer. Where a chain draws, the plan spends
        less than the budget, unless ``spend_all``. Exact rejection always spends all of it.

        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Bounds, Hinge
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(
        ...     n=10_000, loss=Hinge(), bounds=Bounds(1.0), n_features=20, domain=ball
        ... )
        >>> budget = Budget(epsilon=1, delta=1e-6)
        >>> round(regularized_exp_mech.plan(problem, budget).risk.expected, 4)
        0.0054
        """
        whole = _best(problem, budget, sampler)
        useful = _useful(problem, budget)
        rejection = isinstance(PerturbedSample.of(whole.mechanism).sampler, GibbsRejection)
        if spend_all or rejection or useful is budget:
            return whole
        return _best(problem, useful, sampler)

    def example(self, relation: str) -> Example:
        """Linear losses that cancel; one is turned around or removed."""
        problem = replace(AsapPerturb().example(relation).problem, ridge=0.0)
        rows = np.repeat([[1.0, 0.0], [-1.0, 0.0]], 3, axis=0)
        other = rows[:-1] if relation == "add_remove" else np.vstack([rows[:-1], [[1.0, 0.0]]])
        return Example(problem, InMemory(rows, np.zeros(6)), InMemory(other, np.zeros(len(other))))


def _best(problem: Minimize, budget: Budget, sampler: str) -> Step:
    """Return the sample with the smallest excess-risk bound that spends this budget."""
    candidates = (
        _ridged(problem, budget, promise) for promise in SampleBudget(problem, budget).promises
    )
    chosen = min(candidates, key=lambda one: one.bound)
    return SampleBudget(chosen.problem, budget).step(sampler, own_ridge=problem.ridge)


class Ridged(NamedTuple):
    """A problem with a chosen ridge, and its excess-risk bound."""

    problem: Minimize
    bound: float


def _ridged(problem: Minimize, budget: Budget, promise: str) -> Ridged:
    """Return the problem with the best ridge for a theorem, or its own ridge if larger."""
    best = _ridge_by_curvature if promise == "gdp" else _ridge_by_range
    ridged = replace(problem, ridge=max(problem.ridge, best(problem, budget)))
    t = SampleBudget(ridged, budget).max_inverse_temperature(promise)
    return Ridged(ridged, PerturbedSample.excess_bound(ridged, problem.ridge, t))


def _ridge_by_curvature(problem: Minimize, budget: Budget) -> float:
    """Return the ridge of least d / (t n) + ridge R**2 / 2 (+ stable / (ridge n)), t ~ ridge."""
    added = LossSensitivity.stability(problem) if problem.objective == "population" else 0.0
    each = problem.dimension / _per_ridge(problem, budget) + added
    return math.sqrt(2 * each / problem.n) / bounded_domain(problem).reach()


def _per_ridge(problem: Minimize, budget: Budget) -> float:
    """Return the largest inverse temperature at ridge 1, by strong log-concavity."""
    return SampleBudget(replace(problem, ridge=1.0), budget).max_inverse_temperature("gdp")


def _ridge_by_range(problem: Minimize, budget: Budget) -> float:
    """Return the ridge that minimizes ridge R**2 / 2 + stable / (ridge n).

    A smaller ridge is raised to one at which the sampler is fast.
    """
    reach = bounded_domain(problem).reach()
    t = SampleBudget(problem, budget).max_inverse_temperature("bounded_range")
    fast = 2 * _BIAS * problem.dimension / (t * problem.n * reach**2)
    if problem.objective == "empirical":
        return fast
    return max(fast, math.sqrt(2 * LossSensitivity.stability(problem) / problem.n) / reach)


def _useful(problem: Minimize, budget: Budget) -> Budget:
    """Return the useful part of the budget: the mu at which d / (t n) = stable / (2 ridge n).

    That is the budget itself for the empirical risk, and for pure budgets.
    """
    if problem.objective == "empirical" or budget.kind == "pure":
        return budget
    if problem.dimension / _per_ridge(problem, budget) >= LossSensitivity.stability(problem) / 2:
        return budget
    change = LossSensitivity.of(problem, budget.relation).lipschitz
    mu = change * math.sqrt(
        2 * problem.dimension / (LossSensitivity.stability(problem) * problem.n)
    )
    return Budget(mu=mu, unit=budget.unit, relation=budget.relation)


regularized_exp_mech = RegularizedExpMech()

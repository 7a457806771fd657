"""One posterior sample by underdamped Langevin steps, charged for the whole trajectory.

The target density is proportional to exp(-t (sum of losses + (n ridge / 2) norm(theta)**2)), as for
`dpfit.solvers.gibbs.gibbs_posterior_sampler`. Each step reveals no more of the gradient g than g
plus Gaussian noise, so positions and velocities of all steps together are mu-GDP with mu**2 = u (t
s)**2 time / (2 friction), s the sensitivity of the gradient sum: for any loss and any data.

Guarantee: mu-GDP for every dataset. Convergence affects accuracy only: bias of the steps is small
and there is no certificate. Arithmetic: idealised. Reference: [GT20] Section 6, priced as [LD]
Lemma C.1; docs/explanation/chains.md, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_discrete_lyapunov
from scipy.special import lambertw

from dpfit.core import Algorithm, Example, Mechanism, Minimize, Plan, Risk, Run, Step, Work
from dpfit.core.algorithm import BOUNDED, RIDGE, SMOOTH
from dpfit.core.examples import opposite_records
from dpfit.data.view import View
from dpfit.losses.custom import declared_basis
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Gaussian, GaussianPrivate
from dpfit.privacy.validate import option, positive
from dpfit.samplers.markov import chain_target
from dpfit.samplers.potential import Floats
from dpfit.samplers.underdamped_langevin_sampler import UnderdampedLangevin

_UP, _DOWN = 1 + 1e-12, 1 - 1e-11


@dataclass(frozen=True)
class UnderdampedSample(Mechanism):
    """Last position of an underdamped Langevin chain.

    Guarantee: mu-GDP for the trajectory. Sensitivity: one record moves the gradient of the
    potential by at most ``inverse_temperature`` times the gradient sensitivity, in l2; enforced.
    """

    kind = "underdamped_sample"
    problem: Minimize
    relation: str
    inverse_temperature: float
    chain: UnderdampedLangevin

    def __post_init__(self) -> None:
        option("relation", self.relation, ("replace", "add_remove"))
        positive("inverse_temperature", self.inverse_temperature)
        self.problem.constants(self.relation).require_sensitivity()

    @property
    def event(self) -> GaussianPrivate:
        change = self.problem.constants(self.relation).require_sensitivity()
        return GaussianPrivate(_UP * self.chain.trajectory_mu(self.inverse_temperature * change))

    @property
    def work(self) -> Work:
        return Work(
            gradients=float(self.chain.steps) * self.problem.n, passes=float(self.chain.steps)
        )

    @property
    def risk(self) -> Risk:
        """Excess of a normal target of the largest curvature, with the bias of the steps."""
        t, problem = self.inverse_temperature, self.problem
        curvature = problem.constants(self.relation).smoothness + problem.ridge
        bias = (
            stationary_variance(self.chain, t * problem.n * curvature) * t * problem.n * curvature
        )
        return Risk(
            bias * problem.dimension / (2 * t * problem.n), "excess regularized empirical risk"
        )

    def run(self, data: View, run: Run) -> Floats:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: View, run: Run, count: int) -> Sequence[Floats]:
        """Draw independent samples, with one pass for all at each step."""
        target = chain_target(self.problem, data, self.inverse_temperature)
        return list(self.chain.draw(target, count, run.noise, run.progress))


def stationary_variance(chain: UnderdampedLangevin, curvature: float) -> float:
    """Return the variance to which positions tend, for a quadratic potential on the line.

    >>> chain = UnderdampedLangevin(1, 1e-4, friction=2.0)
    >>> round(stationary_variance(chain, 4.0), 4)
    0.25
    """
    decay = -math.expm1(-chain.friction * chain.step_size)
    u, gamma = chain.velocity_variance, chain.friction
    pull = u / gamma * curvature
    step = np.array(
        [
            [1 - pull * (chain.step_size - decay / gamma), decay / gamma],
            [-pull * decay, 1 - decay],
        ]
    )
    position, velocity, joint = chain.covariance
    noise = np.array([[position, joint], [joint, velocity]])
    return float(solve_discrete_lyapunov(step, noise)[0, 0])


class UnderdampedGibbsSampler(Algorithm[Minimize]):
    """One sample of a tempered posterior by underdamped Langevin steps.

    Use it to compare: `gibbs_posterior_sampler` has more than twice its inverse temperature.
    Guarantee: mu-GDP for all positions and velocities together, for any loss and any data.
    Reference: [GT20] Section 6; docs/explanation/chains.md, section 4.
    Work: about 4.6 (smoothness / ridge + 1) / step passes over the data.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(
    ...     n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20, ridge=0.01
    ... )
    >>> plan = underdamped_gibbs_sampler.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> plan.mechanism.chain.steps, round(plan.guarantee.mu, 6)
    (241, 0.236704)
    """

    name = "underdamped_gibbs_sampler"
    summary = "one posterior sample by underdamped Langevin steps, charged for the trajectory"
    reference = "[GT20] Section 6; docs/explanation/chains.md"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (BOUNDED, SMOOTH, RIDGE)
    supports = frozenset({"ridge", "domain"})
    tier = "reference"

    def _plan(
        self, problem: Minimize, budget: Budget, *, tolerance: float = 1e-3, step: float = 0.5
    ) -> Plan:
        """Plan the posterior of the largest inverse temperature whose trajectory is in the budget.

        The friction is critical in a direction where the ridge alone is curved: there (1 + x)
        exp(-x) = ``tolerance`` of the start is left after the time x / sqrt(strong convexity).
        ``step`` is relative to the longest that the energy argument of `samplers.discretization`
        allows.
        """
        if not (0 < positive("tolerance", tolerance) < 1 and 0 < positive("step", step) <= 1):
            raise ValueError(
                "tolerance must lie strictly between 0 and 1 and step be at most 1, got "
                f"{tolerance!r} and {step!r}"
            )
        mu = _DOWN / calibrate(Gaussian, budget).noise_multiplier
        constants = problem.constants(budget.relation)
        strong, change = problem.n * problem.ridge, constants.require_sensitivity()
        # (1 + x) exp(-x) = tolerance, on the branch x > 0.
        left = -1 - float(lambertw(-tolerance / math.e, -1).real)
        # mu^2 = t^2 change^2 time / (2 friction), with time / friction = left / (2 t strong).
        steep = problem.max_records(budget.relation) * constants.smoothness + strong
        steps = math.ceil(left * steep / (2 * step * strong))
        t = 4 * mu**2 * strong / (change**2 * left)
        root = math.sqrt(t * strong)
        chain = UnderdampedLangevin(steps, left / root / steps, 2 * root)
        sample = UnderdampedSample(problem, budget.relation, t, chain)
        return Step(sample, _basis(problem, budget))

    def example(self, relation: str) -> Example:
        """Return opposite records, with a ridge."""
        return opposite_records(relation, ridge=0.1)


def _basis(problem: Minimize, budget: Budget) -> Basis:
    """Return why the trajectory is private."""
    status = problem.loss.status
    assumptions = [
        Assumption("rows and labels are scaled and clamped into the declared bounds", "enforced"),
        Assumption("gradients have the loss's Lipschitz constant within these bounds", status),
    ]
    if budget.relation == "add_remove":
        word = "the number n that scales the ridge was not read off the data"
        assumptions.append(Assumption(word, "declared"))
    theorem = "Gaussian noise on every gradient (docs/explanation/chains.md, section 4)"
    return declared_basis(
        Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "idealised"), problem.loss
    )


underdamped_gibbs_sampler = UnderdampedGibbsSampler()

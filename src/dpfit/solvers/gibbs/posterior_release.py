"""A certified posterior sample of least excess-risk bound, on the domain or on a ball.

On a bounded domain it is `regularized_exp_mech`, which chooses the ridge and the theorem. Without a
domain the sample is drawn on a ball around a noisy minimizer, as in `localized_asap`, and the
minimizer is not released. That needs a ridge and a pure budget. It does not help where there is a
domain to choose a ridge for: at the best ridge its bound is above 4 times d lipschitz R / (epsilon
n), that of a sample on the whole domain 2.3 times.

Guarantee: that of the budget, for every dataset. Reference: [Liu24] Theorems 3.1.5 and 3.4.1;
[ASAP] Theorems 2 and 3; docs/explanation/certificates.md, section 7.
"""

from __future__ import annotations

from dpfit.core import Algorithm, Composition, Example, Last, Minimize, Plan, Requirement
from dpfit.core.algorithm import BOUNDED_EVERYWHERE, CONVEX, SMOOTH
from dpfit.privacy import Budget
from dpfit.solvers.gibbs.localized_asap import EMPIRICAL, LocalizedAsap
from dpfit.solvers.gibbs.perturbed_sample import BALL_OR_BOX
from dpfit.solvers.gibbs.regularized_exp_mech import RegularizedExpMech

REGION = Requirement(
    "a bounded domain that is a ball or a box, or a pure budget and ridge > 0 without a domain",
    "pass domain, an L2Ball for example",
    lambda problem, budget, options: (
        BALL_OR_BOX.holds(problem, budget, options)
        or (problem.domain is None and budget.kind == "pure" and problem.ridge > 0)
    ),
)


def _without_domain(requirement: Requirement) -> Requirement:
    """Return the requirement for problems without a domain only."""
    return Requirement(
        f"{requirement.text} where there is no domain",
        f"pass domain, or {requirement.hint}",
        lambda problem, budget, options: (
            problem.domain is not None or requirement.holds(problem, budget, options)
        ),
    )


class PosteriorRelease(Algorithm[Minimize]):
    """Certified posterior sample with the smallest excess-risk bound; nothing to tune.

    Guarantee: that of the budget, for every dataset. Reference: [Liu24] Theorems 3.1.5, 3.4.1;
    [ASAP] Theorems 2, 3.
    """

    name = "posterior_release"
    summary = (
        "a certified posterior sample with the ridge that has the least proven risk; "
        "nothing to tune"
    )
    use_for = "a proven bound on the risk, with pure epsilon"
    reference = "[Liu24] Theorems 3.1.5, 3.4.1; [ASAP] Theorems 2, 3"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (CONVEX, REGION, *map(_without_domain, (BOUNDED_EVERYWHERE, SMOOTH, EMPIRICAL)))
    supports = frozenset({"ridge", "domain", "population"})
    tier = "recommended"

    def _plan(self, problem: Minimize, budget: Budget, *, sampler: str = "auto") -> Plan:
        """Return the sample with the smallest excess-risk bound; ``sampler`` as in `asap_perturb`.

        >>> from dataclasses import replace
        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Bounds, Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(
        ...     n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20, domain=ball
        ... )
        >>> plan = posterior_release.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.risk.expected, 4)
        0.003
        >>> ridged = replace(problem, domain=None, ridge=0.01)
        >>> round(posterior_release.plan(ridged, Budget(epsilon=1)).guarantee.pure, 4)
        1.0
        """
        if problem.domain is not None:
            return RegularizedExpMech().plan(problem, budget, sampler=sampler)
        return Composition(LocalizedAsap().stages(problem, budget, sampler=sampler), combine=Last())

    def example(self, relation: str) -> Example:
        """That of `regularized_exp_mech`."""
        return RegularizedExpMech().example(relation)


posterior_release = PosteriorRelease()

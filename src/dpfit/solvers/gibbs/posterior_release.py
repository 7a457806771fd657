"""A certified posterior sample of the least proven risk, on the domain or, if there is none, on a ball of its own.

On a bounded domain it is `regularized_exp_mech`, which chooses the ridge and the theorem. Without a domain a pure
promise can be had for an objective with a ridge: the sample is drawn on a ball around a noisy minimizer, which is not
released (`localized_asap` releases both). That does not help where there is a domain to choose a ridge for: at the best
ridge its bound is above 4 times d lipschitz R / (epsilon n), that of a sample on the whole domain 2.3 times.

Guarantee: that of the budget, for every dataset. Reference: [Liu24] Theorems 3.1.5 and 3.4.1; [ASAP] Theorems 2 and 3;
docs/explanation/certificates.md, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpfit.core import Minimize, Step, require_records
from dpfit.privacy import Budget
from dpfit.solvers.gibbs.localized_asap import LocalizedSample, localized_asap
from dpfit.solvers.gibbs.regularized_exp_mech import regularized_exp_mech


@dataclass(frozen=True)
class PosteriorRelease:
    """Plans a posterior sample."""

    name: str = "posterior_release"

    def plan(self, problem: Minimize, budget: Budget, *, sampler: str = "auto") -> Step:
        """The sample with the least proven risk; ``sampler`` as in `asap_perturb`.

        Without a domain the budget must be pure, the loss smooth and Lipschitz everywhere, and there must be a ridge.

        >>> from dataclasses import replace
        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Bounds, Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20, domain=ball)
        >>> plan = posterior_release.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.risk.expected, 4)
        0.0029
        >>> ridged = replace(problem, domain=None, ridge=0.01)
        >>> round(posterior_release.plan(ridged, Budget(epsilon=1)).guarantee.pure, 4)
        1.0
        """
        require_records(self.name, budget)
        if not isinstance(problem, Minimize):
            raise ValueError(f"{self.name} solves a Minimize problem, not {getattr(problem, 'kind', problem)!r}")
        if problem.domain is not None or budget.kind != "pure":
            return regularized_exp_mech.plan(problem, budget, sampler=sampler)
        if not problem.ridge > 0:
            raise ValueError("certified samples need a ridge above zero, or a bounded domain to choose one for")
        stages = localized_asap.plan(problem, budget, sampler=sampler)
        return Step(LocalizedSample(stages), stages.basis)

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """That of `regularized_exp_mech`."""
        return regularized_exp_mech.example(relation)


posterior_release = PosteriorRelease()

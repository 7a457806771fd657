"""Every algorithm in one table. Shared tests, `dpfit algorithms`, the docs and the audit iterate it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from dpfit.core import Algorithm


@dataclass(frozen=True)
class Entry:
    """One algorithm: its name, the problem it solves, the kinds of promise it makes, where it comes from."""

    name: str
    where: str
    problem: str
    guarantees: tuple[str, ...]
    reference: str
    summary: str

    def load(self) -> Algorithm:
        """The algorithm itself, imported now."""
        return cast(Algorithm, getattr(import_module(self.where), self.name))

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
        return {
            "name": self.name,
            "problem": self.problem,
            "guarantees": list(self.guarantees),
            "reference": self.reference,
            "summary": self.summary,
        }


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "gaussian_mean",
        "dpfit.mechanisms.mean",
        "answer",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Example 5, Fact 15; [Liu24] Definition 3.3.1",
        "mean of bounded records with Gaussian noise",
    ),
    Entry(
        "laplace_mean",
        "dpfit.mechanisms.mean",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Example 2, Fact 3",
        "mean of bounded records with Laplace noise",
    ),
    Entry(
        "ranged_mean",
        "dpfit.mechanisms.ranged_mean",
        "answer",
        ("approximate", "gdp", "zcdp"),
        "[ASAP] Lemma 14",
        "private range of one column, then the mean inside it",
    ),
    Entry(
        "private_bounds",
        "dpfit.mechanisms.private_bounds",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Facts 3 and 15; noisy histograms",
        "a range for each column, from noisy histograms on powers of two",
    ),
    Entry(
        "above_threshold",
        "dpfit.mechanisms.above_threshold",
        "play",
        ("pure",),
        "Dwork and Roth (2014) Theorem 3.23; [Liu24] Algorithms 27 and 34",
        "which query is the first above (or below) a threshold",
    ),
    Entry(
        "counts",
        "dpfit.mechanisms.counts",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] chapter 2",
        "counting queries with the noise that is predicted to err least",
    ),
    Entry(
        "laplace_counts",
        "dpfit.mechanisms.laplace_counts",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Example 2, Fact 3",
        "counting queries with Laplace noise",
    ),
    Entry(
        "gaussian_counts",
        "dpfit.mechanisms.gaussian_counts",
        "answer",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Example 5, Fact 15",
        "counting queries with Gaussian noise",
    ),
    Entry(
        "generalized_gaussian",
        "dpfit.mechanisms.generalized_gaussian",
        "answer",
        ("approximate",),
        "[Gan22] Theorems 17 and 34",
        "counting queries with noise of density exp(-|x|^p): small largest errors",
    ),
    Entry(
        "declared_answers",
        "dpfit.mechanisms.declared_answers",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] chapter 2, under l1, l2 and l-infinity sensitivities",
        "real-valued sums of declared sensitivities with the noise that is predicted to err least",
    ),
    Entry(
        "truncated_generalized_gaussian",
        "dpfit.mechanisms.truncated_generalized_gaussian",
        "answer",
        ("approximate",),
        "[Gan22] proof of Theorem 17",
        "counting queries whose errors are bounded with certainty",
    ),
    Entry(
        "k_norm",
        "dpfit.mechanisms.k_norm",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Section 2.1",
        "up to about a hundred overlapping counting queries, pure epsilon",
    ),
    Entry(
        "sparse_vector",
        "dpfit.mechanisms.sparse_vector",
        "play",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Theorem 36; Dwork and Roth (2014) Section 3.6",
        "find and answer the few queries of a stream that are above a threshold",
    ),
    Entry(
        "sparse_corrected",
        "dpfit.mechanisms.sparse_corrected",
        "answer",
        ("approximate",),
        "[Gan22] Theorems 18 and 37",
        "generalized Gaussian counts corrected by sparse vector (reference implementation)",
    ),
    Entry(
        "noisy_gd",
        "dpfit.solvers.gradient.noisy_gd",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[LD] Lemma C.1; [ASAP] Theorem 4, corrected; [Gan22] Section 1.4",
        "full-batch gradient descent with noise, momentum and averaging; nothing to tune",
    ),
    Entry(
        "preconditioned_gd",
        "dpfit.solvers.gradient.preconditioned_gd",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[LD] Lemma C.1; [ASAP] Lemma 14",
        "noisy gradient descent in the geometry of a private or public second-moment matrix",
    ),
    Entry(
        "last_iterate_gd",
        "dpfit.solvers.gradient.last_iterate_gd",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[LD] Lemma I.2, sharpened",
        "gradient descent of which only the last iterate leaves, so that steps are free",
    ),
    Entry(
        "langevin",
        "dpfit.solvers.gradient.langevin",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[LD] Theorems F.1, F.2, F.4, F.5, corrected",
        "noisy descent with the optimal schedule and a proven bound on its risk",
    ),
    Entry(
        "dp_sgd",
        "dpfit.solvers.gradient.dp_sgd",
        "minimize",
        ("approximate",),
        "[LD] Algorithm 1, repaired; Abadi et al. (2016); Balle, Barthe and Gaboardi (2018)",
        "gradient descent on Poisson samples with clipped gradients and noise; nothing to tune",
    ),
    Entry(
        "warm_start_gd",
        "dpfit.solvers.public_data.warm_start",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Section 1.4, Figure 4.1",
        "noisy descent that starts at a fit of public records and takes its settings from them",
    ),
    Entry(
        "pda_dpmd",
        "dpfit.solvers.public_data.pda_dpmd",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Algorithm 1, Theorem 74, corrected; Theorem 81",
        "private mirror descent with the loss of public records as mirror map",
    ),
    Entry(
        "output_perturbation",
        "dpfit.solvers.perturbation.output_perturbation",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[ASAP] Algorithm 4, Lemma 18 (corrected); Chaudhuri, Monteleoni, Sarwate (2011)",
        "the minimizer of a strongly convex objective, with noise",
    ),
    Entry(
        "objective_perturbation",
        "dpfit.solvers.perturbation.objective_perturbation",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "Iyengar et al. (2019); Redberg, Koskela, Wang (2023), improved",
        "the minimizer of an objective with a random linear term, for linear models and several classes",
    ),
    Entry(
        "sufficient_statistics",
        "dpfit.solvers.perturbation.sufficient_statistics",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "Vu and Slavkovic (2009); Wang (2018)",
        "least squares from a noisy Gram matrix and noisy moments",
    ),
    Entry(
        "exponential",
        "dpfit.mechanisms.exponential",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[ASAP] Lemma 5, Definition 16; [Liu24] Equation 3.2",
        "the best of finitely many candidates, nearly, with bounded range",
    ),
    Entry(
        "asap_perturb",
        "dpfit.solvers.gibbs.asap_perturb",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[ASAP] Algorithm 2, Theorem 2, Lemmas 4 and 5; [Liu24] Theorem 3.4.1",
        "one certified sample of a Gibbs density, with noise as large as its sampler may be off",
    ),
    Entry(
        "posterior_release",
        "dpfit.solvers.gibbs.posterior_release",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Liu24] Theorems 3.1.5, 3.4.1; [ASAP] Theorems 2, 3",
        "a certified posterior sample with the ridge that has the least proven risk; nothing to tune",
    ),
    Entry(
        "gibbs_posterior_sampler",
        "dpfit.solvers.gibbs.gibbs_posterior_sampler",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[GT20] Section 1.2 (application); [LD] Lemma I.2, sharpened",
        "one posterior sample by Langevin steps that are private whether they have converged or not",
    ),
    Entry(
        "exponential_net",
        "dpfit.mechanisms.net",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[LD] Theorem D.5; [ASAP] Lemma 5",
        "the exponential mechanism on a net: any loss, convex or not, in few dimensions",
    ),
    Entry(
        "regularized_exp_mech",
        "dpfit.solvers.gibbs.regularized_exp_mech",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Liu24] Theorems 3.6.2, 3.6.7, 3.6.8, corrected; [LD] Theorems D.1 and E.4",
        "the exponential mechanism on a ball or a box, with the ridge of least proven empirical or population risk",
    ),
    Entry(
        "localized_asap",
        "dpfit.solvers.gibbs.localized_asap",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[ASAP] Algorithm 3, Theorem 3, with certified samplers",
        "a noisy minimizer, then a certified sample in a ball around it; needs no domain",
    ),
    Entry(
        "iterated_exponential_mechanism",
        "dpfit.solvers.gibbs.iterated_exponential_mechanism",
        "minimize",
        ("pure",),
        "[LD] Algorithm 3, Theorem D.3, Lemma D.4",
        "certified samples in smaller and smaller balls, each around the last; pure epsilon, needs no domain",
    ),
    Entry(
        "dp_from_sampler_closeness",
        "dpfit.solvers.gibbs.dp_from_sampler_closeness",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[GT20] Section 1.2, corrected; [Liu24] Theorem 3.6.4, corrected",
        "one sample as it comes from a sampler, with the promise that its certificate allows",
    ),
    Entry(
        "iterated_exponential_mechanism_sco",
        "dpfit.solvers.gibbs.iterated_exponential_mechanism_sco",
        "minimize",
        ("pure",),
        "[LD] Theorem E.6, Lemma E.5, repaired",
        "balls from one half of the records, a certified sample for the population from the other; pure epsilon",
    ),
)


def entry(name: str) -> Entry:
    """The entry of that name."""
    for candidate in ENTRIES:
        if candidate.name == name:
            return candidate
    raise ValueError(f"no algorithm {name!r}; known: {', '.join(e.name for e in ENTRIES)}")

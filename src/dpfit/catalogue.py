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
    cards: tuple[str, ...]
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
            "cards": list(self.cards),
            "summary": self.summary,
        }


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "gaussian_mean",
        "dpfit.mechanisms.mean",
        "answer",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Example 5, Fact 15; [Liu24] Definition 3.3.1",
        ("10/C02", "30/E01", "50/GN-2", "70/C15"),
        "mean of bounded records with Gaussian noise",
    ),
    Entry(
        "laplace_mean",
        "dpfit.mechanisms.mean",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Example 2, Fact 3",
        ("10/C01", "70/C15"),
        "mean of bounded records with Laplace noise",
    ),
    Entry(
        "ranged_mean",
        "dpfit.mechanisms.ranged_mean",
        "answer",
        ("approximate", "gdp", "zcdp"),
        "[ASAP] Lemma 14",
        ("10/C02", "30/E05"),
        "private range of one column, then the mean inside it",
    ),
    Entry(
        "private_bounds",
        "dpfit.mechanisms.private_bounds",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Facts 3 and 15; noisy histograms",
        ("10/C01", "10/C02"),
        "a range for each column, from noisy histograms on powers of two",
    ),
    Entry(
        "above_threshold",
        "dpfit.mechanisms.above_threshold",
        "play",
        ("pure",),
        "Dwork and Roth (2014) Theorem 3.23; [Liu24] Algorithms 27 and 34",
        ("70/C1",),
        "which query is the first above (or below) a threshold",
    ),
    Entry(
        "counts",
        "dpfit.mechanisms.counts",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] chapter 2",
        ("10/C07", "10/C09", "10/C11"),
        "counting queries with the noise that is predicted to err least",
    ),
    Entry(
        "laplace_counts",
        "dpfit.mechanisms.laplace_counts",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Example 2, Fact 3",
        ("10/C01",),
        "counting queries with Laplace noise",
    ),
    Entry(
        "gaussian_counts",
        "dpfit.mechanisms.gaussian_counts",
        "answer",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Example 5, Fact 15",
        ("10/C02",),
        "counting queries with Gaussian noise",
    ),
    Entry(
        "generalized_gaussian",
        "dpfit.mechanisms.generalized_gaussian",
        "answer",
        ("approximate",),
        "[Gan22] Theorems 17 and 34",
        ("10/C06", "10/C07", "10/C08", "10/C09"),
        "counting queries with noise of density exp(-|x|^p): small largest errors",
    ),
    Entry(
        "declared_answers",
        "dpfit.mechanisms.declared_answers",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] chapter 2, under l1, l2 and l-infinity sensitivities",
        ("10/C01", "10/C02", "10/C07", "10/C08", "10/C11"),
        "real-valued sums of declared sensitivities with the noise that is predicted to err least",
    ),
    Entry(
        "truncated_generalized_gaussian",
        "dpfit.mechanisms.truncated_generalized_gaussian",
        "answer",
        ("approximate",),
        "[Gan22] proof of Theorem 17",
        ("10/C10",),
        "counting queries whose errors are bounded with certainty",
    ),
    Entry(
        "k_norm",
        "dpfit.mechanisms.k_norm",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Section 2.1",
        ("10/C11",),
        "up to about a hundred overlapping counting queries, pure epsilon",
    ),
    Entry(
        "sparse_vector",
        "dpfit.mechanisms.sparse_vector",
        "play",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Theorem 36; Dwork and Roth (2014) Section 3.6",
        ("10/C12",),
        "find and answer the few queries of a stream that are above a threshold",
    ),
    Entry(
        "sparse_corrected",
        "dpfit.mechanisms.sparse_corrected",
        "answer",
        ("approximate",),
        "[Gan22] Theorems 18 and 37",
        ("10/C13",),
        "generalized Gaussian counts corrected by sparse vector (reference implementation)",
    ),
    Entry(
        "noisy_gd",
        "dpfit.solvers.gradient.noisy_gd",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[LD] Lemma C.1; [ASAP] Theorem 4, corrected; [Gan22] Section 1.4",
        ("20/A1", "20/C1", "30/E20", "10/C05"),
        "full-batch gradient descent with noise, momentum and averaging; nothing to tune",
    ),
    Entry(
        "preconditioned_gd",
        "dpfit.solvers.gradient.preconditioned_gd",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[LD] Lemma C.1; [ASAP] Lemma 14",
        ("20/A1",),
        "noisy gradient descent in the geometry of a private or public second-moment matrix",
    ),
    Entry(
        "last_iterate_gd",
        "dpfit.solvers.gradient.last_iterate_gd",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[LD] Lemma I.2, sharpened",
        ("20/A2",),
        "gradient descent of which only the last iterate leaves, so that steps are free",
    ),
    Entry(
        "langevin",
        "dpfit.solvers.gradient.langevin",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[LD] Theorems F.1, F.2, F.4, F.5, corrected",
        ("20/C2", "20/C3", "20/C4", "20/C5", "20/A5"),
        "noisy descent with the optimal schedule and a proven bound on its risk",
    ),
    Entry(
        "dp_sgd",
        "dpfit.solvers.gradient.dp_sgd",
        "minimize",
        ("approximate",),
        "[LD] Algorithm 1, repaired; Abadi et al. (2016); Balle, Barthe and Gaboardi (2018)",
        ("20/C6",),
        "gradient descent on Poisson samples with clipped gradients and noise; nothing to tune",
    ),
    Entry(
        "warm_start_gd",
        "dpfit.solvers.public_data.warm_start",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Sections 1.4 and 4.3",
        ("10/C05", "10/C33"),
        "noisy descent that starts at a fit of public records and takes its settings from them",
    ),
    Entry(
        "pda_dpmd",
        "dpfit.solvers.public_data.pda_dpmd",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Algorithm 1, Theorem 74, corrected; Theorem 81",
        ("10/C28", "10/C29", "10/C31"),
        "private mirror descent with the loss of public records as mirror map",
    ),
    Entry(
        "output_perturbation",
        "dpfit.solvers.perturbation.output_perturbation",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[ASAP] Algorithm 4, Lemma 18 (corrected); Chaudhuri, Monteleoni, Sarwate (2011)",
        ("30/E18",),
        "the minimizer of a strongly convex objective, with noise",
    ),
    Entry(
        "objective_perturbation",
        "dpfit.solvers.perturbation.objective_perturbation",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "Iyengar et al. (2019); Redberg, Koskela, Wang (2023), improved",
        ("30/E18",),
        "the minimizer of an objective with a random linear term, for linear models and several classes",
    ),
    Entry(
        "sufficient_statistics",
        "dpfit.solvers.perturbation.sufficient_statistics",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "Vu and Slavkovic (2009); Wang (2018)",
        ("30/E18",),
        "least squares from a noisy Gram matrix and noisy moments",
    ),
    Entry(
        "exponential",
        "dpfit.mechanisms.exponential",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[ASAP] Lemma 5, Definition 16; [Liu24] Equation 3.2",
        ("30/E03", "10/C03"),
        "the best of finitely many candidates, nearly, with bounded range",
    ),
    Entry(
        "asap_perturb",
        "dpfit.solvers.gibbs.asap_perturb",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[ASAP] Algorithm 2, Theorem 2, Lemmas 4 and 5; [Liu24] Theorem 3.4.1",
        ("30/E17", "30/E02", "30/E03", "30/X1", "30/X2", "30/X3"),
        "one certified sample of a Gibbs density, with noise as large as its sampler may be off",
    ),
    Entry(
        "posterior_release",
        "dpfit.solvers.gibbs.posterior_release",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Liu24] Theorems 3.1.5, 3.4.1; [ASAP] Theorems 2, 3",
        ("30/X5", "30/E07"),
        "a certified posterior sample with the ridge that has the least proven risk; nothing to tune",
    ),
    Entry(
        "gibbs_posterior_sampler",
        "dpfit.solvers.gibbs.gibbs_posterior_sampler",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[GT20] Section 1.2 (application); [LD] Lemma I.2, sharpened",
        ("20/E10", "10/C27"),
        "one posterior sample by Langevin steps that are private whether they have converged or not",
    ),
    Entry(
        "exponential_net",
        "dpfit.mechanisms.net",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[LD] Theorem D.5; [ASAP] Lemma 5",
        ("20/B2", "30/E03", "60/N11"),
        "the exponential mechanism on a net: any loss, convex or not, in few dimensions",
    ),
    Entry(
        "regularized_exp_mech",
        "dpfit.solvers.gibbs.regularized_exp_mech",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Liu24] Theorems 3.6.2, 3.6.7, 3.6.8, corrected; [LD] Theorems D.1 and E.4",
        ("30/E07", "30/E08", "30/E03", "10/C03", "20/B1", "20/B4"),
        "the exponential mechanism on a ball or a box, with the ridge of least proven empirical or population risk",
    ),
    Entry(
        "localized_asap",
        "dpfit.solvers.gibbs.localized_asap",
        "minimize",
        ("pure", "approximate", "gdp", "zcdp"),
        "[ASAP] Algorithm 3, Theorem 3, with certified samplers",
        ("30/E19", "30/X5"),
        "a noisy minimizer, then a certified sample in a ball around it; needs no domain",
    ),
    Entry(
        "iterated_exponential_mechanism",
        "dpfit.solvers.gibbs.iterated_exponential_mechanism",
        "minimize",
        ("pure",),
        "[LD] Algorithm 3, Theorem D.3, Lemma D.4",
        ("20/B3",),
        "certified samples in smaller and smaller balls, each around the last; pure epsilon, needs no domain",
    ),
    Entry(
        "dp_from_sampler_closeness",
        "dpfit.solvers.gibbs.dp_from_sampler_closeness",
        "minimize",
        ("approximate", "gdp", "zcdp"),
        "[GT20] Section 1, corrected; [Liu24] Theorem 3.6.4, corrected",
        ("20/E9", "10/C23", "30/E06", "50/GN-3"),
        "one sample as it comes from a sampler, with the promise that its certificate allows",
    ),
    Entry(
        "iterated_exponential_mechanism_sco",
        "dpfit.solvers.gibbs.iterated_exponential_mechanism_sco",
        "minimize",
        ("pure",),
        "[LD] Theorem E.6, Lemma E.5, repaired",
        ("20/B5",),
        "balls from one half of the records, a certified sample for the population from the other; pure epsilon",
    ),
)


SERVED: dict[str, str] = {
    "10/C14": "dpfit.theory.subgamma.log_moment_bound",
    "10/C15": "dpfit.samplers.potential.Potential",
    "10/C16": "dpfit.samplers.ula_sampler.LangevinSampler",
    "10/C17": "dpfit.samplers.discretization.movement_mu",
    "10/C18": "dpfit.samplers.discretization.langevin_movement",
    "10/C19": "dpfit.samplers.discretization.langevin_discretization",
    "10/C20": "dpfit.samplers.discretization.langevin_discretization",
    "10/C21": "dpfit.samplers.discretization.langevin_mixing",
    "10/C22": "dpfit.samplers.discretization.langevin_certificate",
    "10/C24": "dpfit.samplers.discretization.lipschitz_discretization",
    "10/C25": "dpfit.samplers.underdamped_langevin_sampler.UnderdampedLangevin",
    "10/C26": "dpfit.samplers.discretization.underdamped_discretization",
    "20/A3": "dpfit.privacy.last_iterate.last_iterate_mu",
    "20/D2": "dpfit.theory.hard_instances.stalled_displacement",
}
"""Cards that are no algorithms of their own, and the object that serves each (docs/explanation/readers-map.md)."""


def served(card: str) -> tuple[str, ...]:
    """What serves a card: names of algorithms, else of an object.

    >>> served("20/E9"), served("20/A3")
    (('dp_from_sampler_closeness',), ('dpfit.privacy.last_iterate.last_iterate_mu',))
    """
    named = tuple(row.name for row in ENTRIES if card in row.cards)
    return named or ((SERVED[card],) if card in SERVED else ())


def entry(name: str) -> Entry:
    """The entry of that name."""
    for candidate in ENTRIES:
        if candidate.name == name:
            return candidate
    raise ValueError(f"no algorithm {name!r}; known: {', '.join(e.name for e in ENTRIES)}")

"""Results of the five source documents that dpfit has or replaces, with their objects.

docs/reference/results.md is `markdown()`, written to a file by ``python -m dpfit.theory.results
FILE``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from dpfit.theory.bibliography import DOCUMENTS, bibliography
from dpfit.theory.result_tests import TESTS

STATUSES = {
    "works": "The object does what the result states; a note names a corrected constant.",
    "partly": "The note says what is missing.",
    "replaced": "The note says what takes the place of the printed statement, and why.",
}


@dataclass(frozen=True)
class Result:
    """A result by printed number; ``object`` is an algorithm or a dotted name in dpfit."""

    document: str
    number: str
    title: str
    object: str
    status: str
    note: str = ""

    @property
    def test(self) -> str:
        """The test of the result, by pytest's name for it."""
        return TESTS.get(f"{self.document} {self.number}") or TESTS[self.object]

    def to_json(self) -> dict[str, str]:
        """Return the fields and the test as plain values."""
        return asdict(self) | {"test": self.test}


_GAN22 = (
    ("Example 2", "Laplace mechanism", "laplace_counts", "works"),
    ("Fact 3", "Privacy and error of the Laplace mechanism", "laplace_counts", "works"),
    ("Example 5", "Gaussian mechanism", "gaussian_counts", "works"),
    (
        "Fact 6",
        "Classical calibration of the Gaussian mechanism",
        "dpfit.privacy.gaussian.mu",
        "replaced",
        "by the exact privacy profile; the printed formula fails from epsilon = 8.8 on (delta = "
        "1e-6)",
    ),
    (
        "Example 7",
        "Exponential mechanism",
        "exponential",
        "works",
        "the printed exponent is 4 times too large and is corrected",
    ),
    ("Theorem 8", "Privacy of the exponential mechanism", "exponential", "works"),
    ("Theorem 10", "Adaptive composition", "dpfit.privacy.event.Composed", "works"),
    (
        "Section 1.4",
        "Differentially private gradient descent",
        "noisy_gd",
        "works",
        "the sensitivity under replace-one is 2 L / n, not L / n",
    ),
    (
        "Definition 13",
        "Renyi divergence",
        "dpfit.privacy.event.Renyi",
        "works",
        "the print omits the logarithm",
    ),
    (
        "Theorem 14",
        "Renyi divergence to (epsilon, delta)",
        "dpfit.privacy.renyi.epsilon",
        "replaced",
        "by the tighter conversion of Canonne, Kamath and Steinke (2020)",
    ),
    ("Fact 15", "Renyi divergence of two Gaussians", "dpfit.privacy.renyi.gaussians", "works"),
    ("Theorem 16", "Composition of Renyi divergences", "dpfit.privacy.event.Composed", "works"),
    (
        "Section 2.1",
        "Counting queries by the exponential mechanism with l-infinity loss",
        "k_norm",
        "works",
    ),
    (
        "Theorem 17",
        "Generalized Gaussian mechanism for counting queries",
        "generalized_gaussian",
        "works",
    ),
    (
        "Theorem 17, proof",
        "Truncated noise, for errors that are bounded with certainty",
        "truncated_generalized_gaussian",
        "replaced",
        "noise beyond the bound is drawn again, where the proof releases the exact answers",
    ),
    (
        "Theorem 18",
        "Generalized Gaussian noise with corrections by sparse vector",
        "sparse_corrected",
        "partly",
        "private, but without gain: largest error 410 at k = 1000 against 400 without corrections",
    ),
    (
        "Definition 19",
        "Generalized Gaussian distribution",
        "dpfit.noise.add_generalized_gaussian",
        "works",
    ),
    (
        "Definition 20",
        "Sub-gamma random variables",
        "dpfit.theory.subgamma.log_moment_bound",
        "works",
    ),
    ("Lemma 22", "Sub-gamma tails", "dpfit.theory.subgamma.deviation", "works"),
    ("Lemma 25", "Laplace tail", "dpfit.theory.generalized_gaussian.survival", "works"),
    (
        "Lemma 27",
        "Privacy loss of generalized Gaussian noise",
        "dpfit.privacy.event.GeneralizedGaussian",
        "replaced",
        "by exact accounting of the worst change",
    ),
    (
        "Lemma 30",
        "Scale of generalized Gaussian noise",
        "dpfit.privacy.event.GeneralizedGaussian",
        "replaced",
        "by exact accounting; the printed scale is 154 times too large at k = 100, p = 4, (1, "
        "1e-6)",
    ),
    (
        "Lemma 31",
        "Coordinates of a random point on an l_p sphere",
        "dpfit.theory.generalized_gaussian.IndependentErrors",
        "replaced",
        "by the exact law of the largest error",
    ),
    (
        "Corollary 33",
        "Tail of the largest coordinate on an l_p sphere",
        "dpfit.theory.generalized_gaussian.IndependentErrors",
        "replaced",
        "by the exact law of the largest error",
    ),
    (
        "Theorem 34",
        "Largest error of the generalized Gaussian mechanism",
        "generalized_gaussian",
        "works",
        "the exact law of the largest error replaces the printed tail, which is false for small t",
    ),
    (
        "Corollary 35",
        "Expected largest coordinate on an l_p sphere",
        "dpfit.theory.generalized_gaussian.IndependentErrors",
        "replaced",
        "by the exact law of the largest error",
    ),
    (
        "Theorem 36",
        "Sparse vector with answers",
        "sparse_vector",
        "works",
        "the budget is split to lower the noise of the answers",
    ),
    (
        "Theorem 37",
        "Parameters of the correction by sparse vector",
        "dpfit.theory.counting_queries.printed_correction",
        "partly",
        "parameters only: at any size of practical interest they correct nothing",
    ),
    (
        "Fact 38",
        "Moments of generalized Gaussians",
        "dpfit.theory.generalized_gaussian.moment",
        "works",
    ),
    (
        "Lemma 40",
        "Upper sub-gamma tail of a generalized gamma",
        "dpfit.theory.subgamma.gradient_mean",
        "works",
    ),
    (
        "Lemma 41",
        "Lower sub-gamma tail of a generalized gamma",
        "dpfit.theory.subgamma.gradient_mean",
        "replaced",
        "by a stronger bound with scale 0; the printed proof has a gap",
    ),
    (
        "Section 3.2",
        "Privacy of a sampler that is close to a private law",
        "dp_from_sampler_closeness",
        "works",
        "both directions at one order, or total variation if that is less; the printed 3 delta is "
        "corrected",
    ),
    (
        "Section 3.2, application",
        "Private Gibbs posterior by Langevin steps",
        "gibbs_posterior_sampler",
        "works",
        "private whether or not the chain has converged",
    ),
    (
        "Section 3.4",
        "Discretized overdamped Langevin",
        "dpfit.samplers.ula_sampler.LangevinSampler",
        "works",
    ),
    (
        "Equation 3.1",
        "Underdamped Langevin",
        "dpfit.samplers.underdamped_langevin_sampler.UnderdampedLangevin",
        "works",
    ),
    (
        "Theorem 42",
        "Langevin close to its target in both Renyi divergences",
        "dpfit.samplers.certified_langevin.plan_langevin",
        "works",
        "explicit constants; runnable in two or three dimensions only",
    ),
    (
        "Theorem 49",
        "Langevin close to its target in one Renyi divergence",
        "dpfit.samplers.certified_langevin.plan_langevin",
        "works",
        "start='narrow'",
    ),
    ("Fact 46", "Weak triangle inequality", "dpfit.privacy.renyi.weak_triangle", "works"),
    (
        "Lemma 47",
        "Divergence of paths with bounded movement",
        "dpfit.samplers.discretization.movement_mu",
        "works",
    ),
    (
        "Corollary 48",
        "Divergence of chain and diffusion with bounded movement",
        "dpfit.samplers.discretization.movement_mu",
        "works",
    ),
    (
        "Lemma 50",
        "Movement of Langevin paths",
        "dpfit.samplers.discretization.langevin_movement",
        "works",
    ),
    (
        "Lemma 51",
        "Moments from conditional moments",
        "dpfit.theory.stability.unconditional_moment",
        "works",
        "with the last factor corrected; no guarantee uses it",
    ),
    (
        "Theorem 52",
        "Discretization error of Langevin",
        "dpfit.samplers.discretization.langevin_discretization",
        "works",
        "with M^2 where the print has M^4",
    ),
    (
        "Lemma 53",
        "Divergence of the start N(minimizer, I / M)",
        "dpfit.samplers.discretization.langevin_mixing",
        "works",
    ),
    (
        "Lemma 54",
        "Mixing of the Langevin diffusion",
        "dpfit.samplers.discretization.langevin_mixing",
        "works",
    ),
    (
        "Lemma 55",
        "Movement of Langevin paths for Lipschitz potentials",
        "dpfit.samplers.discretization.lipschitz_discretization",
        "works",
    ),
    (
        "Theorem 56",
        "Discretization error for Lipschitz potentials",
        "dpfit.samplers.discretization.lipschitz_discretization",
        "works",
        "with M^2 where the print has M^4",
    ),
    (
        "Lemma 57",
        "Mixing in the reverse divergence",
        "dpfit.samplers.discretization.langevin_mixing",
        "works",
    ),
    ("Lemma 58", "Mixing across orders", "dpfit.samplers.discretization.langevin_mixing", "works"),
    (
        "Lemma 59",
        "Divergence of the start N(minimizer, I / m)",
        "dpfit.samplers.discretization.langevin_mixing",
        "works",
    ),
    (
        "Fact 62",
        "Renyi divergence of negative order",
        "dpfit.privacy.renyi.at_negative_order",
        "works",
    ),
    (
        "Lemma 63",
        "Divergence of underdamped paths",
        "dpfit.samplers.discretization.movement_mu",
        "works",
        "with smoothness sqrt(velocity variance / friction)",
    ),
    (
        "Lemma 64",
        "Speed of underdamped paths",
        "dpfit.samplers.discretization.underdamped_speed",
        "works",
    ),
    (
        "Theorem 65",
        "Discretization error of underdamped Langevin",
        "dpfit.samplers.discretization.underdamped_discretization",
        "works",
        "every order, both directions, without strong convexity",
    ),
    (
        "Section 4.3",
        "Gaussian width of a convex set",
        "dpfit.theory.gaussian_width.gaussian_width",
        "works",
        "of ellipsoids, boxes and cross-polytopes; the l1 ball has sqrt(log d), not log d",
    ),
    (
        "Algorithm 1",
        "Mirror descent with public data (PDA-DPMD)",
        "pda_dpmd",
        "partly",
        "smooth generalized linear losses, on the whole space or a Euclidean ball",
    ),
    (
        "Theorem 74",
        "Privacy of PDA-DPMD",
        "pda_dpmd",
        "works",
        "calibrated exactly; the printed noise fails from epsilon = 8 on (delta = 1e-5)",
    ),
    (
        "Theorem 76",
        "Risk of PDA-DPMD in linear regression",
        "public_mirror_descent",
        "replaced",
        "by a bound with explicit constants whose private term, sum 1 / h, is at most chi; on the "
        "set of the theorem with steps 1 / (c (t + t0))",
    ),
    (
        "Lemma 78",
        "Public gradient at the minimizer of the population",
        "dpfit.theory.mirror_descent.trusted_slope",
        "works",
        "with the explicit constant of Pinelis (1994)",
    ),
    (
        "Lemma 80",
        "Hessians of samples within a factor 2 of the expectation",
        "dpfit.theory.mirror_descent.enough_public",
        "works",
        "the outer inequalities; the inner ones need more records than printed",
    ),
    (
        "Theorem 81",
        "Noise along the eigenvectors of the public Hessian",
        "dpfit.theory.mirror_descent.noise_profile",
        "works",
        "plan.mechanism.setting(public).noise_profile() gives it for a plan",
    ),
    (
        "Theorem 83",
        "Risk of PDA-DPMD for convex losses",
        "public_mirror_descent",
        "works",
        "with explicit constants, and the expected squared dual norm in place of the squared width "
        "plus the squared radius",
    ),
    (
        "Theorem 86",
        "Population risk of PDA-DPMD",
        "public_mirror_descent",
        "partly",
        "the bound is on the empirical risk over the population's minimizer, so Lemma 84 is not "
        "needed; what the sample understates is bounded for falling steps only (theory."
        "mirror_descent.stability)",
    ),
    (
        "Theorem 87",
        "Noise of a mirror map with fixed eigenvectors",
        "dpfit.theory.mirror_descent.noise_profile_bound",
        "works",
        "corrected: the root of squares holds along eigenvectors only",
    ),
    (
        "Figure 4.1",
        "Cold start, warm start and mirror descent in linear regression",
        "warm_start_gd",
        "works",
        "benchmarks/public_data.py repeats the experiment",
    ),
    (
        "Theorem 9",
        "Privacy of post-processing",
        "dpfit.core.TransformedPlan",
        "works",
        "the map of released values leaves the event as it is",
    ),
    (
        "Fact 44",
        "Renyi divergences grow with the order",
        "dpfit.samplers.certificate.WithinRenyi",
        "works",
        "total variation follows from any order by Pinsker's inequality",
    ),
    (
        "Fact 45",
        "Renyi divergence of post-processed laws",
        "dpfit.core.TransformedPlan",
        "works",
        "the map of released values leaves the event as it is",
    ),
    (
        "Theorem 72",
        "Risk of PDA-DPMD in linear regression, informal",
        "public_mirror_descent",
        "replaced",
        "as Theorem 76",
    ),
    (
        "Theorem 73",
        "Risk of PDA-DPMD for convex losses, informal",
        "public_mirror_descent",
        "works",
        "as Theorem 83, which it restates (the print names Theorem 86)",
    ),
    (
        "Lemma 26",
        "Chernoff bound, for the number of positive coordinates",
        "dpfit.privacy.event.GeneralizedGaussian",
        "replaced",
        "by exact accounting of the worst change",
    ),
    (
        "Lemma 29",
        "Mean and sub-gamma tails of gradients of generalized Gaussian noise",
        "dpfit.theory.subgamma.gradient_mean",
        "works",
        "with the left scale 0, which is stronger than 3 / 2",
    ),
    (
        "Lemma 32",
        "Surfaces of convex bodies, for coordinates on an l_p sphere",
        "dpfit.theory.generalized_gaussian.IndependentErrors",
        "replaced",
        "by the exact law of the largest error",
    ),
    (
        "Lemma 77",
        "Gradients of squared losses at the minimizer",
        "dpfit.losses.Squared",
        "replaced",
        "by the Lipschitz constant on the whole domain; no bound on residuals at the minimizer is "
        "assumed",
    ),
    (
        "Lemma 79",
        "Lipschitz constant of squared losses on the domain",
        "dpfit.losses.Squared",
        "works",
        "exact, where the print has O(1)",
    ),
    (
        "Lemma 85",
        "Population risk of a private algorithm",
        "dpfit.theory.mirror_descent.stability",
        "replaced",
        "by uniform stability with explicit constants, for falling step sizes only",
    ),
)

_LIU24 = (
    (
        "Algorithm 2",
        "Private meta algorithm: noisy gradients of samples",
        "dp_sgd",
        "replaced",
        "by Poisson samples, which have a tighter accountant than samples of fixed size",
    ),
    (
        "Theorem 1.3.1",
        "Noise of the private meta algorithm",
        "dp_sgd",
        "replaced",
        "by numerical calibration; the printed constants are not explicit",
    ),
    (
        "Algorithm 5",
        "Iterative localization",
        "localized",
        "replaced",
        "disjoint parts, so each phase spends the full budget; times fall fourfold, not 32-fold",
    ),
    (
        "Theorem 1.5.1",
        "Population risk by iterative localization",
        "localized",
        "partly",
        "privacy only; it has more risk than `noisy_gd` on all records",
    ),
    (
        "Fact 2.1.1",
        "Total variation of a conditioned law",
        "dpfit.privacy.event.WithinTotalVariation",
        "works",
    ),
    (
        "Definition 2.2.1",
        "Gaussian convolution of a function",
        "dpfit.losses.GaussianSmoothed",
        "works",
        "in closed form for losses of the margin with one kink",
    ),
    ("Proposition 2.4.2", "Properties of Renyi DP", "dpfit.privacy.event.Renyi", "works"),
    (
        "Corollary 2.4.3",
        "Approximate Renyi DP to (epsilon, delta)",
        "dpfit.privacy.event.WithinTotalVariation",
        "works",
    ),
    (
        "Lemma 2.4.4",
        "Composition of approximate Renyi DP",
        "dpfit.privacy.accountant.total_variation",
        "works",
    ),
    ("Equation 3.2", "Exponential mechanism on a convex set", "regularized_exp_mech", "works"),
    ("Definition 3.3.1", "Privacy curve", "dpfit.privacy.gaussian.delta", "works"),
    ("Definition 3.3.2", "Trade-off function", "dpfit.privacy.gaussian.tradeoff", "works"),
    (
        "Corollary 3.3.12",
        "Concentration of Lipschitz functions",
        "dpfit.theory.gibbs.lipschitz_tail",
        "works",
    ),
    (
        "Theorem 3.4.1",
        "Gaussian DP of strongly log-concave samples (also Theorem 3.2.1)",
        "dpfit.solvers.gibbs.perturbed_sample.LossSensitivity",
        "works",
    ),
    (
        "Corollary 3.4.3",
        "Divergences of strongly log-concave samples",
        "dpfit.solvers.gibbs.perturbed_sample.LossSensitivity",
        "works",
    ),
    (
        "Algorithm 13",
        "Alternating sampler",
        "dpfit.samplers.alternating_sampler.AlternatingSampler",
        "works",
    ),
    (
        "Theorem 3.5.2",
        "Convergence of the alternating sampler",
        "dpfit.samplers.alternating_sampler.AlternatingSampler",
        "works",
        "with explicit constants",
    ),
    (
        "Algorithm 14",
        "Restricted Gaussian oracle from values",
        "dpfit.samplers.subsampled_rgo.subsampled_rgo",
        "works",
    ),
    (
        "Lemma 3.5.3",
        "Rejection by unbiased values",
        "dpfit.samplers.subsampled_rgo.subsampled_rgo",
        "works",
    ),
    ("Lemma 3.5.4", "Gaussian concentration", "dpfit.theory.gibbs.lipschitz_tail", "works"),
    (
        "Lemma 3.5.5",
        "Error of the oracle",
        "dpfit.samplers.subsampled_rgo.Truncation",
        "works",
        "with explicit constants",
    ),
    (
        "Theorem 3.5.6",
        "Sampling by values of single losses (also Theorem 3.2.3)",
        "dpfit.samplers.value_query_sampler.ValueQuerySampler",
        "works",
        "with explicit constants; 1.5e8 values at n = 300",
    ),
    ("Lemma 3.6.1", "Excess of a Gibbs sample", "dpfit.theory.gibbs.expected_excess", "works"),
    (
        "Theorem 3.6.2",
        "Empirical risk of the regularized exponential mechanism (also Theorem 3.1.5)",
        "regularized_exp_mech",
        "works",
    ),
    (
        "Lemma 3.6.3",
        "Closed form of the GDP parameter",
        "dpfit.privacy.gaussian.closed_form_mu",
        "works",
        "as a bracket; plans solve the exact curve",
    ),
    (
        "Theorem 3.6.4",
        "Empirical risk with a sampler",
        "regularized_exp_mech",
        "works",
        "the printed cost of total variation is corrected; the sampler is certified in W-infinity",
    ),
    (
        "Theorem 3.6.5",
        "Talagrand transportation inequality, for stability",
        "dpfit.theory.gibbs.sample_stability",
        "replaced",
        "by a bound in W-infinity, which implies the one in W2",
    ),
    (
        "Theorem 3.6.7",
        "Generalization of a Gibbs sample",
        "dpfit.theory.gibbs.generalization_gap",
        "works",
    ),
    (
        "Theorem 3.6.8",
        "Population risk of the regularized exponential mechanism (also Theorem 3.1.6)",
        "regularized_exp_mech",
        "works",
        "the printed generalization term is corrected; chains spend no more than helps the bound",
    ),
    (
        "Theorem 3.6.9",
        "Population risk with a sampler",
        "regularized_exp_mech",
        "works",
        "by a sampler certified in W-infinity",
    ),
    (
        "Theorem 3.7.1",
        "Lower bound for value queries",
        "dpfit.theory.hard_instances.ValueQueries",
        "works",
        "the printed constant is corrected",
    ),
    (
        "Corollary 3.7.7",
        "Lower bound for samplers by value queries",
        "dpfit.theory.hard_instances.sampling_lower_bound",
        "works",
    ),
    (
        "Theorem 4.1.3",
        "Gaussian DP of strongly log-concave samples in any norm",
        "dpfit.solvers.gibbs.perturbed_sample.LossSensitivity",
        "partly",
        "Euclidean norm only",
    ),
    (
        "Fact 4.2.4",
        "Closed form of the GDP parameter",
        "dpfit.privacy.gaussian.closed_form_mu",
        "works",
        "as a bracket; the simplified form that later proofs use fails from epsilon = 7 on "
        "(delta = 1e-6)",
    ),
    (
        "Proposition 4.4.1",
        "Excess of a Gibbs sample",
        "dpfit.theory.gibbs.expected_excess",
        "works",
    ),
    (
        "Proposition 4.4.3",
        "Stability of a Gibbs sample",
        "dpfit.theory.gibbs.sample_stability",
        "works",
        "in W-infinity, which implies W2",
    ),
    (
        "Corollary 4.4.4",
        "Stability of expectations in any norm",
        "dpfit.theory.gibbs.generalization_gap",
        "works",
        "the caller gives the constants in one norm",
    ),
    (
        "Proposition 4.4.5",
        "Generalization from stability",
        "dpfit.theory.gibbs.generalization_gap",
        "works",
    ),
    (
        "Proposition 4.4.8",
        "Sampling by values of single losses",
        "dpfit.samplers.value_query_sampler.ValueQuerySampler",
        "works",
        "with explicit constants",
    ),
    (
        "Corollary 4.4.10, proof",
        "Privacy of a sampler close in total variation",
        "dpfit.privacy.event.WithinTotalVariation",
        "works",
        "the cost is (1 + exp(epsilon)) times the distance, not the distance",
    ),
    (
        "Corollary 4.4.11",
        "Private optimization in the l1 norm",
        "sparse_descent",
        "replaced",
        "by a private choice of columns and a fit on them; the printed law has a certified sampler "
        "in few dimensions only",
    ),
    (
        "Lemma 4.4.14",
        "Concentration of Lipschitz functions in any norm",
        "dpfit.theory.gibbs.lipschitz_tail",
        "works",
    ),
    (
        "Algorithm 15",
        "Alternating sampler in any norm",
        "dpfit.samplers.alternating_sampler.AlternatingSampler",
        "partly",
        "Euclidean norm only",
    ),
    (
        "Algorithm 16",
        "Inner loop of the alternating sampler",
        "dpfit.samplers.subsampled_rgo.subsampled_rgo",
        "partly",
        "Euclidean norm only; the printed stopping probability 1 / b is corrected to 1 / b!",
    ),
    (
        "Proposition 5.4.7",
        "Error of the inner loop",
        "dpfit.samplers.subsampled_rgo.Truncation",
        "partly",
        "Euclidean norm only; with explicit constants",
    ),
    ("Lemma 5.7.3", "Excess of a Gibbs sample", "dpfit.theory.gibbs.expected_excess", "works"),
    (
        "Proposition 5.7.4",
        "Lower bound for value queries on l_p balls",
        "dpfit.theory.hard_instances.ValueQueries",
        "partly",
        "p = 2 only",
    ),
    ("Theorem 6.2.8", "Basic composition", "dpfit.privacy.event.Composed", "works"),
    (
        "Theorem 6.2.9",
        "Advanced composition",
        "dpfit.privacy.event.Composed",
        "replaced",
        "by composition of privacy profiles, which is tighter",
    ),
    (
        "Theorem 6.4.8",
        "Exponential mechanism for non-convex losses",
        "exponential_net",
        "partly",
        "the net of 1e9 / n points by default has the printed rate in few dimensions only; "
        "empirical risk only",
    ),
    (
        "Algorithm 19",
        "Alternating sampler",
        "dpfit.samplers.alternating_sampler.AlternatingSampler",
        "works",
    ),
    (
        "Lemma 6.6.2",
        "Rejection sampler from values",
        "dpfit.samplers.subsampled_rgo.subsampled_rgo",
        "works",
        "with explicit constants",
    ),
    (
        "Theorem 7.2.2",
        "Tree mechanism",
        "prefix_sums",
        "replaced",
        "by square-root coefficients with a third of the noise; the tree stays as prefix='tree', "
        "with its top level and exact calibration",
    ),
    (
        "Algorithm 20",
        "Tree mechanism",
        "dpfit.mechanisms.aggregates.encoders.Tree",
        "works",
        "with the level that the print lacks, and steps that count from 1",
    ),
    (
        "Proposition 8.2.5",
        "Tree mechanism",
        "prefix_sums",
        "replaced",
        "as Theorem 7.2.2; its index t mod Sigma leaves every period without noise",
    ),
    ("Algorithm 27", "Above threshold", "above_threshold", "works"),
    ("Lemma 9.2.4", "Privacy of above threshold", "above_threshold", "works"),
    (
        "Algorithm 28",
        "Filtered mean of users, for adaptive queries",
        "filtered_means",
        "replaced",
        "weights in place of coins need no logarithm; the score has sensitivity 2, not 1",
    ),
    (
        "Theorem 9.3.2",
        "Privacy of the filtered mean",
        "filtered_mean",
        "replaced",
        "by explicit constants for every n; the printed noise certifies less than the proof needs",
    ),
    (
        "Lemma 9.3.3",
        "Change of the inclusion probabilities",
        "dpfit.mechanisms.aggregates.inlier_levels.sensitivity",
        "replaced",
        "the printed bound of 2 omits the slope of the ramp: it is up to 7",
    ),
    (
        "Lemma 9.3.5",
        "Change of the filtered mean",
        "dpfit.mechanisms.aggregates.inlier_levels.sensitivity",
        "replaced",
        "by two lemmas for weights, with one and with two radii",
    ),
    (
        "Proposition 9.3.6",
        "A low score passes with small probability",
        "dpfit.mechanisms.aggregates.inlier_levels.margin_for",
        "replaced",
        "by margins from the exact tail of the noise; the printed n is too small for scores of "
        "sensitivity 2",
    ),
    (
        "Proposition 9.3.7",
        "Concentrated users pass",
        "dpfit.mechanisms.aggregates.inlier_levels.least_n",
        "replaced",
        "by the smallest n with levels; users within tau of a centre are within 2 tau of each "
        "other",
    ),
    (
        "Algorithm 29",
        "Descent on filtered means of users",
        "noisy_gd",
        "partly",
        "filtered=True, without ball smoothing; clipped means of users have less noise",
    ),
    (
        "Theorem 9.4.1",
        "Privacy and excess risk of descent on users",
        "noisy_gd",
        "partly",
        "the privacy, for any data; the risk is predicted, not bounded, since the loss is not "
        "smoothed",
    ),
    (
        "Lemma 9.4.4",
        "Radius of the means of users",
        "dpfit.solvers.descents.scales.user_radius",
        "replaced",
        "by a tuned factor over the root of the rows, without the logarithm: a radius never "
        "affects privacy",
    ),
    (
        "Lemma 9.4.5",
        "From approximate to pure DP",
        "dpfit.solvers.descents.scales.user_radius",
        "replaced",
        "holds for local randomizers, not for datasets; the radius does not rely on it",
    ),
    (
        "Lemma 9.4.6",
        "Radius at adaptive iterates",
        "dpfit.solvers.descents.scales.user_radius",
        "replaced",
        "as Lemma 9.4.4; the radius is the same at all iterates",
    ),
    ("Definition 10.6.3", "Laplace mechanism", "laplace_mean", "works"),
    ("Lemma 10.6.4", "Privacy of the Laplace mechanism", "laplace_mean", "works"),
    ("Definition 10.6.5", "Gaussian mechanism", "gaussian_mean", "works"),
    (
        "Lemma 10.6.6",
        "Calibration of the Gaussian mechanism",
        "dpfit.privacy.gaussian.mu",
        "replaced",
        "by the exact privacy profile; the printed variance fails from epsilon = 9.7 on (delta = "
        "1e-6)",
    ),
    (
        "Lemma 10.6.7",
        "Advanced composition",
        "dpfit.privacy.event.Composed",
        "replaced",
        "by composition of privacy profiles, which is tighter",
    ),
    (
        "Lemma 10.6.8",
        "Amplification by sampling",
        "dpfit.privacy.event.Sampled",
        "replaced",
        "by the tighter profile of Balle, Barthe and Gaboardi (2018)",
    ),
    ("Algorithm 34", "Above threshold", "above_threshold", "works"),
    ("Lemma 10.6.9", "Privacy of above threshold", "above_threshold", "works"),
    (
        "Lemma 12.8.1",
        "Clipped steps on generalized linear losses do not expand distances",
        "dpfit.solvers.descents.one_pass.OnePass",
        "works",
        "rows are scaled, so the smoothness of every record is enforced",
    ),
    (
        "Algorithm 43",
        "One pass of clipped SGD in phases",
        "phased_sgd",
        "replaced",
        "by growing parts and times that fall 2 to 4 times; the printed noise is twice the need",
    ),
    (
        "Theorem 3.2.2",
        "Population risk of a Gibbs sample of strongly convex losses",
        "dpfit.theory.gibbs.generalization_gap",
        "works",
        "with the Lipschitz constant of a loss times that of a difference, where the print has the "
        "square of the latter; plus d / k",
    ),
    (
        "Proposition 3.3.3",
        "Order of privacy curves and of trade-off functions",
        "dpfit.privacy.gaussian.tradeoff",
        "partly",
        "for Gaussian DP only, where both are closed forms",
    ),
    (
        "Proposition 3.3.11",
        "Isoperimetry of strongly log-concave laws",
        "dpfit.theory.gibbs.lipschitz_tail",
        "replaced",
        "by concentration of Lipschitz functions about their mean",
    ),
    (
        "Lemma 3.6.6",
        "Generalization from replaced records",
        "dpfit.theory.gibbs.generalization_gap",
        "works",
    ),
    (
        "Lemma 3.7.3",
        "Least error of a test between two laws",
        "dpfit.theory.hard_instances.ValueQueries",
        "partly",
        "as a step of its lower bound; no function of its own",
    ),
    (
        "Lemma 3.7.4",
        "Least error of estimated signs",
        "dpfit.theory.hard_instances.ValueQueries",
        "partly",
        "as a step of its lower bound, at the drift for which it is d / 4",
    ),
    (
        "Corollary 3.7.6",
        "Lower bound for private population risk by value queries",
        "dpfit.theory.hard_instances.ValueQueries",
        "partly",
        "losses that are Lipschitz on average: they are not conditioned on their norms",
    ),
    (
        "Theorem 13.3.12",
        "Online convex optimization",
        "ftrl",
        "replaced",
        "by descent on running sums of clipped gradients, for any loss and order; the printed "
        "p = eta / epsilon spends 2 epsilon on a resampled point",
    ),
)

_LD = (
    (
        "Equation 1",
        "Langevin diffusion",
        "dpfit.samplers.ula_sampler.LangevinSampler",
        "works",
        "discretized",
    ),
    ("Equation 2", "Projected Langevin diffusion", "noisy_gd", "works", "discretized"),
    ("Definition B.2", "Renyi divergence", "dpfit.privacy.event.Renyi", "works"),
    (
        "Fact B.5",
        "Renyi DP to (epsilon, delta)",
        "dpfit.privacy.renyi.epsilon",
        "replaced",
        "by the tighter conversion of Canonne, Kamath and Steinke (2020)",
    ),
    ("Lemma B.8", "Renyi divergence of Gaussians", "dpfit.privacy.renyi.gaussians", "works"),
    ("Fact B.9", "Adaptive composition of Renyi DP", "dpfit.privacy.event.Composed", "works"),
    ("Fact B.10", "Weak triangle inequality", "dpfit.privacy.renyi.weak_triangle", "works"),
    ("Definition B.11", "Exponential mechanism", "exponential", "works"),
    (
        "Algorithm 1",
        "Differentially private stochastic gradient descent",
        "dp_sgd",
        "works",
        "Poisson samples with calibrated noise; the printed variance lacks a factor 1 / n^2",
    ),
    (
        "Lemma C.1",
        "Privacy of the whole trajectory (also Lemma 1.1)",
        "dpfit.privacy.last_iterate.trajectory_mu",
        "works",
    ),
    ("Algorithm 2", "Exponential mechanism on a convex set", "regularized_exp_mech", "works"),
    ("Theorem D.1", "Risk of the exponential mechanism", "regularized_exp_mech", "works"),
    ("Algorithm 3", "Iterated exponential mechanism", "iterated_exponential_mechanism", "works"),
    (
        "Theorem D.3",
        "Risk of the iterated exponential mechanism (also Theorem 1.2)",
        "iterated_exponential_mechanism",
        "works",
    ),
    (
        "Lemma D.4",
        "Distance of a sample from the minimizer",
        "dpfit.theory.gibbs.distance_quantile",
        "works",
    ),
    (
        "Theorem D.5",
        "Exponential mechanism for non-convex losses",
        "exponential_net",
        "partly",
        "on a net of 1e9 / n points by default, which reaches the bound of the theorem in one "
        "dimension, and in two up to n = 4000; points=2_000_000 reaches it at n = 16000",
    ),
    (
        "Lemma E.1",
        "Stability of projected noisy descent",
        "dpfit.theory.stability.descent_distance",
        "works",
    ),
    (
        "Corollary E.2",
        "Stability of the diffusion for strongly convex losses",
        "dpfit.theory.stability.diffusion_distance",
        "works",
    ),
    (
        "Corollary E.3",
        "Stability of the regularized exponential mechanism",
        "dpfit.theory.gibbs.generalization_gap",
        "works",
    ),
    (
        "Theorem E.4",
        "Population risk of the exponential mechanism (also Theorem 1.3)",
        "regularized_exp_mech",
        "works",
        "objective='population'",
    ),
    (
        "Lemma E.5",
        "Distance between the empirical and the population minimizer",
        "iterated_exponential_mechanism_sco",
        "works",
    ),
    (
        "Theorem E.6",
        "Population risk of the iterated exponential mechanism (also Theorem 1.4)",
        "iterated_exponential_mechanism_sco",
        "works",
        "repaired: the last sample uses records that the ball does not depend on",
    ),
    (
        "Theorem F.1",
        "Empirical risk of Langevin diffusion, convex",
        "langevin",
        "works",
        "releases the time average, for which the printed proof holds; a kink is smoothed",
    ),
    (
        "Theorem F.2",
        "Empirical risk of Langevin diffusion, strongly convex",
        "langevin",
        "works",
        "the printed schedule stands still for large n and is replaced; a kink is smoothed",
    ),
    (
        "Lemma F.3",
        "Stability of the diffusion in finite time",
        "dpfit.theory.stability.diffusion_distance",
        "works",
        "with 2 where the print has 4",
    ),
    (
        "Theorem F.4",
        "Population risk of Langevin diffusion, convex",
        "langevin",
        "works",
        "losses that are smooth or have one kink",
    ),
    (
        "Theorem F.5",
        "Population risk of Langevin diffusion, strongly convex",
        "langevin",
        "works",
        "losses that are smooth or have one kink",
    ),
    (
        "Theorem G.1",
        "Hard instance for non-convex losses (also Theorem 1.5)",
        "dpfit.losses.Wells",
        "works",
        "with centres and bits of theory.hard_instances.Packing; the printed factor log(1 / delta) "
        "is false",
    ),
    (
        "Appendix H",
        "Diffusion that is accurate before it mixes",
        "dpfit.theory.hard_instances.stalled_displacement",
        "works",
        "docs/explanation/chains.md, section 8, runs the diffusion",
    ),
    (
        "Lemma I.1",
        "Divergence of long diffusions",
        "dpfit.samplers.long_run.long_run_divergence",
        "works",
        "explicit constants; the printed time lacks a factor 1 / (beta m)",
    ),
    (
        "Lemma I.2",
        "Privacy of the last iterate",
        "dpfit.privacy.last_iterate.last_iterate_mu",
        "works",
        "sharpened: half of the printed divergence",
    ),
    (
        "Theorem B.12",
        "Hard distribution for private selection",
        "dpfit.theory.hard_instances.Packing",
        "partly",
        "the law of the bits; the bound on the number of records is not computed",
    ),
    (
        "Lemma B.15",
        "Population risk from uniform stability",
        "dpfit.theory.gibbs.generalization_gap",
        "works",
    ),
    (
        "Lemma D.2",
        "Stationary law of the projected diffusion",
        "dpfit.samplers.ula_sampler.LangevinSampler",
        "partly",
        "up to the bias of steps, which has no certificate on a domain",
    ),
)

_GT20 = (
    (
        "Theorem 1",
        "Langevin close to its target in both Renyi divergences",
        "dpfit.samplers.certified_langevin.plan_langevin",
        "works",
        "explicit constants; runnable in two or three dimensions only",
    ),
    (
        "Section 1.2",
        "Privacy of a sampler that is close to a private law",
        "dp_from_sampler_closeness",
        "works",
        "both directions at one order, or total variation if that is less; the printed 3 delta is "
        "corrected",
    ),
    (
        "Section 1.2, application",
        "Private Gibbs posterior by Langevin steps",
        "gibbs_posterior_sampler",
        "works",
        "private whether or not the chain has converged",
    ),
    (
        "Section 2.1",
        "Discretized overdamped Langevin",
        "dpfit.samplers.ula_sampler.LangevinSampler",
        "works",
    ),
    ("Definition 2", "Renyi divergence", "dpfit.privacy.event.Renyi", "works"),
    (
        "Fact 4",
        "Renyi divergence to (epsilon, delta)",
        "dpfit.privacy.renyi.epsilon",
        "replaced",
        "by the tighter conversion of Canonne, Kamath and Steinke (2020)",
    ),
    (
        "Lemma 5",
        "Divergence of paths with bounded movement",
        "dpfit.samplers.discretization.movement_mu",
        "works",
    ),
    (
        "Theorem 6",
        "Langevin close to its target in one Renyi divergence",
        "dpfit.samplers.certified_langevin.plan_langevin",
        "works",
        "start='narrow'",
    ),
    (
        "Lemma 7",
        "Movement of Langevin paths",
        "dpfit.samplers.discretization.langevin_movement",
        "works",
    ),
    (
        "Lemma 8",
        "Moments from conditional moments",
        "dpfit.theory.stability.unconditional_moment",
        "works",
        "with the last factor corrected; no guarantee uses it",
    ),
    (
        "Theorem 9",
        "Discretization error of Langevin",
        "dpfit.samplers.discretization.langevin_discretization",
        "works",
        "with M^2 where the print has M^4",
    ),
    (
        "Lemma 10",
        "Divergence of the start N(minimizer, I / M)",
        "dpfit.samplers.discretization.langevin_mixing",
        "works",
    ),
    (
        "Lemma 11",
        "Mixing of the Langevin diffusion",
        "dpfit.samplers.discretization.langevin_mixing",
        "works",
    ),
    (
        "Theorem 12",
        "Discretization error for Lipschitz potentials",
        "dpfit.samplers.discretization.lipschitz_discretization",
        "works",
        "with M^2 where the print has M^4",
    ),
    (
        "Lemma 13",
        "Mixing in the reverse divergence",
        "dpfit.samplers.discretization.langevin_mixing",
        "works",
    ),
    ("Lemma 14", "Mixing across orders", "dpfit.samplers.discretization.langevin_mixing", "works"),
    (
        "Lemma 15",
        "Divergence of the start N(minimizer, I / m)",
        "dpfit.samplers.discretization.langevin_mixing",
        "works",
    ),
    (
        "Section 6",
        "Underdamped Langevin",
        "underdamped_gibbs_sampler",
        "works",
        "released at the price of its trajectory",
    ),
    (
        "Theorem 16",
        "Discretization error of underdamped Langevin",
        "dpfit.samplers.discretization.underdamped_discretization",
        "works",
        "every order, both directions, without strong convexity",
    ),
)

_ASAP = (
    ("Definition 2", "Hockey-stick divergence", "dpfit.privacy.gaussian.delta", "works"),
    (
        "Definition 3",
        "Gaussian differential privacy",
        "dpfit.privacy.event.GaussianPrivate",
        "works",
    ),
    (
        "Lemma 4",
        "Gaussian DP of posterior samples",
        "dpfit.solvers.gibbs.perturbed_sample.LossSensitivity",
        "works",
    ),
    (
        "Lemma 5",
        "Pure DP of posterior samples",
        "dpfit.privacy.event.BoundedRange",
        "works",
        "the range doubles under replace-one",
    ),
    ("Lemma 6", "Excess of a posterior sample", "dpfit.theory.gibbs.expected_excess", "works"),
    ("Section 3.1", "Cost of total variation", "dpfit.privacy.event.WithinTotalVariation", "works"),
    ("Definition 7", "W-infinity distance", "dpfit.theory.distances.bottleneck_distance", "works"),
    (
        "Lemma 8",
        "Total variation to W-infinity",
        "dpfit.theory.gibbs.log_variation_for_distance",
        "works",
    ),
    ("Lemma 9", "Least density of a Gibbs law", "dpfit.theory.gibbs.log_least_density", "works"),
    (
        "Algorithm 1",
        "Metropolis-adjusted Langevin with constraint",
        "dpfit.samplers.constrained_mala.MetropolisLangevin",
        "works",
        "acceptance ratio corrected; a step that would leave is rejected, without restarts; no "
        "certificate",
    ),
    (
        "Theorem 1",
        "Mixing time of Algorithm 1",
        "dpfit.samplers.proximal_sampler_winf.ProximalSampler",
        "replaced",
        "by a chain with a W-infinity certificate and explicit constants, which the theorem lacks",
    ),
    (
        "Corollary 10",
        "Mixing time in W-infinity",
        "dpfit.samplers.proximal_sampler_winf.ProximalSampler",
        "replaced",
        "by a chain with a W-infinity certificate and explicit constants, which the corollary "
        "lacks",
    ),
    (
        "Remark 11",
        "Rejection sampling of the posterior",
        "dpfit.samplers.exact_gibbs_rejection.GibbsRejection",
        "replaced",
        "by rejection with a self-concordant minorant, which the remark deems infeasible",
    ),
    (
        "Algorithm 2",
        "Approximate sample perturbation (ASAP)",
        "asap_perturb",
        "works",
        "with a public displacement for which noise is hardly visible",
    ),
    ("Theorem 2", "Privacy of ASAP", "asap_perturb", "works"),
    (
        "Algorithm 3",
        "Localized ASAP",
        "localized_asap",
        "works",
        "with a sampler whose certificate holds for every centre of the ball",
    ),
    (
        "Theorem 3",
        "Privacy and risk of localized ASAP",
        "localized_asap",
        "works",
        "with a sampler whose certificate holds for every centre of the ball",
    ),
    ("Lemma 14", "Adaptive composition", "dpfit.privacy.event.Composed", "works"),
    ("Lemma 15", "Pure DP to Gaussian DP", "dpfit.privacy.gaussian.from_pure", "works"),
    ("Definition 16", "Exponential mechanism", "exponential", "works"),
    (
        "Algorithm 4",
        "Approximate output perturbation",
        "output_perturbation",
        "works",
        "strong convexity comes from a public ridge",
    ),
    (
        "Lemma 18",
        "Sensitivity of a strongly convex minimizer",
        "output_perturbation",
        "works",
        "the printed constant holds for replace-one; add/remove needs half",
    ),
    ("Lemma 19", "Privacy of output perturbation", "output_perturbation", "works"),
    (
        "Fact 1",
        "Optimal rates for strongly convex losses",
        "dpfit.theory.rates.StronglyConvexRates",
        "works",
    ),
    (
        "Corollary 20",
        "Least density of a posterior",
        "dpfit.theory.gibbs.log_least_density",
        "partly",
        "the caller bounds the oscillation",
    ),
    (
        "Lemma 22",
        "Characterization of W-infinity",
        "dpfit.theory.distances.bottleneck_distance",
        "works",
    ),
    (
        "Lemma 25",
        "Mean and mode of a log-concave law",
        "dpfit.theory.gibbs.mean_to_mode",
        "works",
        "sqrt(d / m); the printed sqrt(3 / m) is false from d = 6 on",
    ),
    ("Lemma 27", "Moments of a gamma tail", "dpfit.theory.gibbs.gamma_tail_moments", "works"),
    (
        "Theorem 4",
        "Noisy gradient descent, Lipschitz",
        "noisy_gd",
        "partly",
        "privacy only, with the printed variance doubled; the plan predicts its risk and proves "
        "no bound",
    ),
    (
        "Theorem 5",
        "Noisy gradient descent, smooth",
        "noisy_gd",
        "partly",
        "privacy only, with the printed variance doubled; the plan predicts its risk and proves "
        "no bound",
    ),
    (
        "Lemma 24",
        "Half of a small ball is within the domain",
        "dpfit.theory.gibbs.log_variation_for_distance",
        "works",
    ),
    (
        "Lemma 26",
        "Coupling of laws that are close in W-infinity",
        "dpfit.theory.distances.bottleneck_distance",
        "partly",
        "for samples of equal size, where the coupling is a matching",
    ),
    (
        "Lemma 28",
        "Strassen's theorem",
        "dpfit.theory.distances.bottleneck_distance",
        "partly",
        "for samples of equal size, where the coupling is a matching",
    ),
)

RESULTS = tuple(
    Result(document, *row)
    for document, rows in (
        ("Gan22", _GAN22),
        ("Liu24", _LIU24),
        ("LD", _LD),
        ("GT20", _GT20),
        ("ASAP", _ASAP),
    )
    for row in rows
)


def markdown() -> str:
    """Return docs/reference/results.md: a table for each document, then the bibliography."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Results of the source documents"
    yield ""
    yield "dpfit implements results of five documents."
    yield (
        "Each table names the result with its number in the document, the algorithm or object "
        "that serves it, and a test that fails without it."
    )
    yield (
        "`dpfit algorithms --results --json` prints the same rows; [errata](../errata.md) "
        "explains the corrections."
    )
    yield ""
    yield from (f"- **{status}**: {meaning}" for status, meaning in STATUSES.items())
    for key, document in DOCUMENTS.items():
        yield from ("", f"## {key}", "", f"{document}.", "")
        yield "| result | what it states | served by | status | note | test |"
        yield "|---|---|---|---|---|---|"
        for row in RESULTS:
            if row.document == key:
                yield (
                    f"| {row.number} | {row.title} | `{row.object}` | {row.status} | {row.note} | "
                    f"`{row.test.rpartition('::')[2]}` |"
                )
    yield from ("", "## Bibliography", "")
    yield "Guarantees, algorithms and docs cite these works."
    yield ""
    yield from (f"- {work}." for work in bibliography())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")

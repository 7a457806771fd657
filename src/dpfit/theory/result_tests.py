"""Tests of the results: which test is about which objects, and about which single results.

The test of a result is that of its number, else that of its object. `dpfit.theory.results` shows
it; tests/theory/test_results.py checks that it exists and reaches its object.
"""

from __future__ import annotations

ABOUT: dict[str, dict[str, tuple[str, ...]]] = {
    "tests/core/test_plan.py": {
        "test_a_transformation_changes_what_the_plan_sees_and_what_its_value_means": (
            "dpfit.core.TransformedPlan",
        ),
    },
    "tests/losses/test_constants.py": {
        "test_lipschitz_constants_are_reached_but_never_exceeded": ("dpfit.losses.Squared",),
    },
    "tests/losses/test_smoothed.py": {
        "test_values_and_slopes_are_means_under_normal_shifts": ("dpfit.losses.GaussianSmoothed",),
    },
    "tests/losses/test_wells.py": {
        "test_the_exponential_mechanism_finds_the_best_well": ("dpfit.losses.Wells",),
    },
    "tests/mechanisms/test_above_threshold.py": {
        "test_halting_times_follow_the_law": ("above_threshold",),
    },
    "tests/mechanisms/test_counting.py": {
        "test_noise_has_the_spread_that_is_predicted": (
            "gaussian_counts",
            "laplace_counts",
        ),
    },
    "tests/mechanisms/test_exponential.py": {
        "test_choices_have_the_law": ("Gan22 Theorem 8",),
        "test_log_ratios_of_all_neighbours_have_range_epsilon_at_most_and_attain_it": (
            "exponential",
        ),
    },
    "tests/mechanisms/test_filtered_mean.py": {
        "test_an_attack_near_the_threshold_finds_no_more_than_is_guaranteed": (
            "filtered_mean",
            "filtered_means",
        ),
        "test_descent_takes_filtered_means": ("Liu24 Algorithm 29",),
        "test_false_answers_are_as_likely_as_quadrature_says": (
            "dpfit.mechanisms.aggregates.inlier_levels.margin_for",
        ),
        "test_the_smallest_n_is_named_and_enough": (
            "dpfit.mechanisms.aggregates.inlier_levels.least_n",
        ),
        "test_no_replaced_value_moves_the_mean_further_than_the_lemmas_say": ("Liu24 Lemma 9.3.5",),
        "test_sensitivities_are_the_tabulated_ones": (
            "dpfit.mechanisms.aggregates.inlier_levels.sensitivity",
        ),
    },
    "tests/mechanisms/test_generalized_gaussian.py": {
        "test_slopes_of_the_largest_error_over_four_decades": ("generalized_gaussian",),
    },
    "tests/mechanisms/test_k_norm.py": {
        "test_half_of_the_noise_is_caught": ("k_norm",),
    },
    "tests/mechanisms/test_mean.py": {
        "test_the_noise_has_the_planned_law": ("gaussian_mean",),
        "test_the_plan_meets_its_budget_and_little_less_noise_would_not": ("laplace_mean",),
    },
    "tests/mechanisms/test_prefix_sums.py": {
        "test_the_noise_is_that_of_the_budget": ("prefix_sums",),
        "test_the_worst_pattern_moves_the_releases_as_far_as_promised": (
            "dpfit.mechanisms.aggregates.encoders.Tree",
        ),
    },
    "tests/mechanisms/test_sparse_corrected.py": {
        "test_it_gains_nothing": ("dpfit.theory.counting_queries.printed_correction",),
        "test_the_predicted_error_is_that_of_simulation": ("sparse_corrected",),
    },
    "tests/mechanisms/test_sparse_vector.py": {
        "test_answers_have_noise_of_their_own_law": ("sparse_vector",),
    },
    "tests/mechanisms/test_truncated_generalized_gaussian.py": {
        "test_the_whole_promise_keeps_the_budget_and_pays_for_the_bound": (
            "truncated_generalized_gaussian",
        ),
    },
    "tests/noise/test_additive.py": {
        "TestScale::test_variance": ("dpfit.noise.add_generalized_gaussian",),
    },
    "tests/privacy/test_bounds_that_add.py": {
        "test_renyi_values_add_at_the_same_orders": ("dpfit.privacy.event.Renyi",),
    },
    "tests/privacy/test_calibrate.py": {
        "test_calibrated_curve_matches_importance_sampling": (
            "dpfit.privacy.event.GeneralizedGaussian",
        ),
        "test_printed_constant_is_about_160_times_too_large": ("Gan22 Lemma 30",),
    },
    "tests/privacy/test_composition.py": {
        "test_heterogeneous_composition_covers_enumeration": ("dpfit.privacy.event.Composed",),
        "test_total_variation_adds_up_over_a_composition": (
            "dpfit.privacy.accountant.total_variation",
        ),
        "test_total_variation_price_is_attained_by_two_points": (
            "dpfit.privacy.event.WithinTotalVariation",
        ),
    },
    "tests/privacy/test_curves.py": {
        "test_bounded_range_covers_the_exponential_mechanism": ("ASAP Lemma 5",),
        "test_bounded_range_is_the_supremum_over_two_point_pairs": (
            "dpfit.privacy.event.BoundedRange",
        ),
        "test_poisson_add_remove_matches_quadrature": ("dpfit.privacy.event.Sampled",),
        "test_renyi_divergences_match_the_tabulated_ones": ("dpfit.privacy.renyi.epsilon",),
    },
    "tests/privacy/test_gaussian.py": {
        "test_closed_forms_match_the_tabulated_values": ("dpfit.privacy.gaussian.closed_form_mu",),
        "test_delta_is_an_upper_bound_and_tight": ("dpfit.privacy.gaussian.delta",),
        "test_mu_matches_the_tabulated_values": ("dpfit.privacy.gaussian.mu",),
        "test_pure_to_gaussian_dominates_and_touches": ("dpfit.privacy.gaussian.tradeoff",),
        "test_pure_to_gaussian_matches_the_tabulated_values": ("dpfit.privacy.gaussian.from_pure",),
    },
    "tests/privacy/test_renyi.py": {
        "test_negative_orders_follow_from_the_other_direction": (
            "dpfit.privacy.renyi.at_negative_order",
            "dpfit.privacy.renyi.gaussians",
        ),
    },
    "tests/samplers/test_alternating_sampler.py": {
        "test_both_certificates_are_attained_by_a_slight_slope": (
            "dpfit.samplers.alternating_sampler.AlternatingSampler",
        ),
    },
    "tests/samplers/test_certificate.py": {
        "test_closeness_at_one_order_is_at_most_the_triangle_of_three": (
            "dpfit.samplers.certificate.WithinRenyi",
        ),
        "test_gaussian_closeness_is_attained_by_shifts": ("dpfit.privacy.event.GaussianPrivate",),
    },
    "tests/samplers/test_certified_langevin.py": {
        "test_a_chain_with_its_mode_far_from_the_centre_is_as_close_as_certified": (
            "dpfit.samplers.certified_langevin.plan_langevin",
        ),
        "test_the_narrow_start_is_as_far_as_its_bound_at_every_order": (
            "GT20 Lemma 10",
            "Gan22 Lemma 53",
        ),
        "test_the_narrow_start_takes_fewer_steps_for_its_one_direction": (
            "GT20 Theorem 6",
            "Gan22 Theorem 49",
        ),
    },
    "tests/samplers/test_constrained_mala.py": {
        "test_the_law_of_one_step": ("dpfit.samplers.constrained_mala.MetropolisLangevin",),
    },
    "tests/samplers/test_discretization.py": {
        "test_divergences_of_gaussian_chains_are_below_the_bounds_both_ways": (
            "dpfit.samplers.discretization.langevin_discretization",
        ),
        "test_divergences_of_underdamped_paths_tend_to_their_entropy": (
            "dpfit.samplers.discretization.underdamped_discretization",
        ),
        "test_movements_of_paths": ("dpfit.samplers.discretization.langevin_movement",),
        "test_speeds_of_underdamped_chains": ("dpfit.samplers.discretization.underdamped_speed",),
        "test_stopped_paths": ("dpfit.samplers.discretization.movement_mu",),
        "test_the_entropy_of_paths_is_attained_by_quadratics": (
            "dpfit.samplers.discretization.lipschitz_discretization",
        ),
        "test_the_order_is_raised_by_the_diffusion": (
            "GT20 Lemma 14",
            "Gan22 Lemma 58",
        ),
        "test_the_start_is_as_far_as_the_bound_for_the_worst_quadratic": (
            "dpfit.samplers.discretization.langevin_mixing",
        ),
    },
    "tests/samplers/test_exact_gibbs_rejection.py": {
        "test_linear_losses_give_a_normal_law": (
            "dpfit.samplers.exact_gibbs_rejection.GibbsRejection",
        ),
    },
    "tests/samplers/test_long_run.py": {
        "test_exact_divergences_of_quadratic_losses_are_below_the_bound": (
            "dpfit.samplers.long_run.long_run_divergence",
        ),
    },
    "tests/samplers/test_proximal_sampler_winf.py": {
        "test_the_chain_forgets_its_start_at_the_certified_rate": (
            "dpfit.samplers.proximal_sampler_winf.ProximalSampler",
        ),
    },
    "tests/samplers/test_subsampled_rgo.py": {
        "test_the_error_bound_is_above_the_error": ("dpfit.samplers.subsampled_rgo.Truncation",),
        "test_the_law_of_the_oracle": ("dpfit.samplers.subsampled_rgo.subsampled_rgo",),
    },
    "tests/samplers/test_ula_sampler.py": {
        "test_the_law_on_a_quadratic_is_normal_with_the_known_moments": (
            "dpfit.samplers.ula_sampler.LangevinSampler",
        ),
        "test_the_projected_chain_against_a_grid": ("LD Lemma D.2",),
    },
    "tests/samplers/test_underdamped_langevin_sampler.py": {
        "test_the_law_on_a_quadratic": (
            "dpfit.samplers.underdamped_langevin_sampler.UnderdampedLangevin",
        ),
    },
    "tests/samplers/test_value_query_sampler.py": {
        "test_the_price_of_the_oracle_is_in_the_certificate": (
            "dpfit.samplers.value_query_sampler.ValueQuerySampler",
        ),
    },
    "tests/solvers/gibbs/test_asap_perturb.py": {
        "test_either_promise_covers_the_densities_and_not_with_a_tenth_less": (
            "ASAP Lemma 4",
            "Liu24 Theorem 3.4.1",
        ),
        "test_linear_losses_release_a_normal_law": ("asap_perturb",),
        "test_the_range_is_that_of_losses_not_of_slopes": (
            "dpfit.solvers.gibbs.perturbed_sample.LossSensitivity",
        ),
        "test_what_is_released_keeps_the_promise_after_few_steps": ("ASAP Theorem 2",),
    },
    "tests/solvers/gibbs/test_dp_from_sampler_closeness.py": {
        "test_what_each_certificate_costs": ("dp_from_sampler_closeness",),
    },
    "tests/solvers/gibbs/test_exponential_net.py": {
        "test_the_bound_is_that_of_the_theorem_where_the_net_is_fine_enough": ("LD Theorem D.5",),
        "test_the_excess_risk_is_below_the_bound_and_falls_with_n": ("exponential_net",),
    },
    "tests/solvers/gibbs/test_gibbs_posterior_sampler.py": {
        "test_linear_losses_give_the_exact_normal_law_and_attain_the_promise": (
            "gibbs_posterior_sampler",
        ),
    },
    "tests/solvers/gibbs/test_iterated_exponential_mechanism.py": {
        "test_stages_compose_to_the_budget": ("iterated_exponential_mechanism",),
    },
    "tests/solvers/gibbs/test_iterated_exponential_mechanism_sco.py": {
        "test_temperatures_and_risk_in_closed_form": ("iterated_exponential_mechanism_sco",),
        "test_the_population_risk_is_below_the_bound": ("LD Theorem E.6",),
    },
    "tests/solvers/gibbs/test_localized_asap.py": {
        "test_the_excess_risk_is_below_the_bound": ("ASAP Theorem 3",),
        "test_the_law_is_that_of_the_two_stages": ("localized_asap",),
    },
    "tests/solvers/gibbs/test_regularized_exp_mech.py": {
        "test_pure_budgets_have_the_temperature_of_the_exponential_mechanism": ("LD Theorem D.1",),
        "test_the_empirical_bound_under_gdp": ("regularized_exp_mech",),
        "test_the_law_of_the_sample_in_closed_form": ("Liu24 Equation 3.2",),
        "test_the_population_bound_under_gdp": (
            "LD Theorem E.4",
            "Liu24 Theorem 3.6.8",
            "Liu24 Theorem 3.6.9",
        ),
    },
    "tests/solvers/gibbs/test_underdamped_gibbs_sampler.py": {
        "test_the_price_is_that_of_the_shifts_of_all_steps": ("underdamped_gibbs_sampler",),
    },
    "tests/solvers/descents/test_scales.py": {
        "test_the_radius_of_users_is_the_spread_of_their_mean_gradients": (
            "dpfit.solvers.descents.scales.user_radius",
        ),
    },
    "tests/solvers/gradient/test_dp_sgd.py": {
        "TestPromise::test_one_step_keeps_its_curve_and_would_not_with_a_tenth_less_noise": (
            "dp_sgd",
        ),
    },
    "tests/solvers/gradient/test_langevin.py": {
        "test_rates_in_n_and_d": (
            "LD Theorem F.4",
            "LD Theorem F.5",
        ),
        "test_strong_convexity_shapes_the_noise": ("LD Theorem F.2",),
        "test_the_measured_risk_of_a_quadratic_stays_below": ("langevin",),
    },
    "tests/solvers/gradient/test_last_iterate_gd.py": {
        "test_it_never_costs_more_than_the_trajectory": (
            "dpfit.privacy.last_iterate.trajectory_mu",
        ),
        "test_reference_values": ("dpfit.privacy.last_iterate.last_iterate_mu",),
    },
    "tests/solvers/gradient/test_localized.py": {
        "test_one_record_is_in_one_phase": ("localized",),
    },
    "tests/solvers/gradient/test_noisy_gd.py": {
        "test_plans_meet_their_budget_and_pure_ones_are_refused": ("noisy_gd",),
    },
    "tests/solvers/gradient/test_ftrl.py": {
        "test_one_record_changes_one_batch_only": ("ftrl",),
    },
    "tests/solvers/gradient/test_phased_sgd.py": {
        "test_clipped_steps_on_a_loss_of_points_expand_distances_and_are_refused": (
            "dpfit.solvers.descents.one_pass.OnePass",
        ),
        "test_no_neighbour_moves_an_average_further_than_declared": ("phased_sgd",),
    },
    "tests/solvers/gradient/test_sparse_descent.py": {
        "test_true_columns_are_found_and_fitted": ("sparse_descent",),
    },
    "tests/solvers/perturbation/test_output_perturbation.py": {
        "test_the_noise_has_the_declared_law": ("ASAP Lemma 19",),
        "test_the_sensitivity_is_attained": ("output_perturbation",),
    },
    "tests/solvers/public_data/test_public_data.py": {
        "test_clips_come_from_public_records_and_are_charged": ("Gan22 Theorem 74",),
        "test_public_records_touch_neither_promise_nor_noise": ("warm_start_gd",),
        "test_the_quadratic_mirror_step_is_a_damped_newton_step": ("pda_dpmd",),
    },
    "tests/solvers/public_data/test_public_mirror_descent.py": {
        "test_the_mean_excess_is_below_the_planned_risk": (
            "Gan22 Theorem 73",
            "Gan22 Theorem 83",
        ),
        "test_the_planned_risk_is_that_of_the_theorem": ("public_mirror_descent",),
        "test_the_planned_risk_of_falling_steps_is_that_of_the_theorem": (
            "Gan22 Theorem 72",
            "Gan22 Theorem 76",
        ),
    },
    "tests/theory/test_error_laws.py": {
        "test_density_tail_moments_and_information_are_one_law": (
            "dpfit.theory.generalized_gaussian.moment",
            "dpfit.theory.generalized_gaussian.survival",
        ),
        "test_the_largest_error_has_the_law_of_a_maximum": (
            "dpfit.theory.generalized_gaussian.IndependentErrors",
        ),
    },
    "tests/theory/test_gibbs_theory.py": {
        "TestDistances::test_matching_agrees_with_quantiles_on_the_line": (
            "dpfit.theory.distances.bottleneck_distance",
        ),
        "TestGibbs::test_distances_and_tails": (
            "dpfit.theory.gibbs.distance_quantile",
            "dpfit.theory.gibbs.lipschitz_tail",
        ),
        "TestGibbs::test_gamma_tails": ("dpfit.theory.gibbs.gamma_tail_moments",),
        "TestGibbs::test_one_sided_normal_coordinates_break_the_printed_mean_to_mode_bound": (
            "dpfit.theory.gibbs.mean_to_mode",
        ),
        "TestGibbs::test_stability_in_w_infinity_is_attained_and_never_exceeded": (
            "dpfit.theory.gibbs.generalization_gap",
            "dpfit.theory.gibbs.sample_stability",
        ),
        "TestGibbs::test_the_excess_of_a_norm_and_of_a_quadratic": (
            "dpfit.theory.gibbs.expected_excess",
        ),
        "TestGibbs::test_the_least_density": ("dpfit.theory.gibbs.log_least_density",),
        "TestGibbs::test_total_variation_to_w_infinity": (
            "dpfit.theory.gibbs.log_variation_for_distance",
        ),
        "TestHardInstances::test_the_reach_of_a_stalled_diffusion_is_that_of_concentration": (
            "dpfit.theory.hard_instances.stalled_displacement",
        ),
        "TestHardInstances::test_packings": ("dpfit.theory.hard_instances.Packing",),
        "TestHardInstances::test_value_queries": ("dpfit.theory.hard_instances.ValueQueries",),
        "test_rates_are_those_of_the_printed_figure": ("dpfit.theory.rates.StronglyConvexRates",),
        "test_the_lower_bound_of_samplers_grows_like_the_condition_over_its_logarithm": (
            "dpfit.theory.hard_instances.sampling_lower_bound",
        ),
        "test_the_weak_triangle_inequality_is_attained_by_shifted_gaussians": (
            "dpfit.privacy.renyi.weak_triangle",
        ),
    },
    "tests/theory/test_mirror_descent.py": {
        "test_coupled_runs_are_as_stable_as_claimed_and_a_tenth_more_is_attained": (
            "dpfit.theory.mirror_descent.stability",
        ),
        "test_the_noise_profile_is_that_of_simulation": (
            "dpfit.theory.mirror_descent.noise_profile",
        ),
        "test_the_profile_bound_holds_for_a_separable_map_and_is_nearly_attained": (
            "dpfit.theory.mirror_descent.noise_profile_bound",
        ),
        "test_the_number_of_public_records_is_needed_deep_in_the_tail": (
            "dpfit.theory.mirror_descent.enough_public",
        ),
        "test_the_trusted_slope_is_attained_by_means_of_signs_deep_in_the_tail": (
            "dpfit.theory.mirror_descent.trusted_slope",
        ),
        "test_widths_are_those_of_simulation": ("dpfit.theory.gaussian_width.gaussian_width",),
    },
    "tests/theory/test_printed_constants.py": {
        "test_gradients_of_the_noise_are_sub_gamma_on_both_sides": (
            "Gan22 Lemma 40",
            "dpfit.theory.subgamma.gradient_mean",
            "dpfit.theory.subgamma.log_moment_bound",
        ),
        "test_sub_gamma_tails_cover_gamma_variables": ("dpfit.theory.subgamma.deviation",),
    },
    "tests/theory/test_stability.py": {
        "test_coupled_descents_on_a_linear_change_are_exactly_as_far_apart": (
            "dpfit.theory.stability.descent_distance",
        ),
        "test_short_steps_tend_to_the_diffusion": ("dpfit.theory.stability.diffusion_distance",),
        "test_the_average_is_the_integral_of_the_distances": ("LD Lemma F.3",),
        "test_the_moment_is_the_integral_of_the_best_tail_bound": (
            "dpfit.theory.stability.unconditional_moment",
        ),
    },
}

TESTS = {
    what: f"{file}::{test}"
    for file, tests in ABOUT.items()
    for test, about in tests.items()
    for what in about
}
"""The test of an object, or of a result by document and number."""

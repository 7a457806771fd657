"""What was measured on synthetic problems; written by benchmarks/calibrate_auto.py."""

FACTORS = {"noisy_gd": 1.0, "objective_perturbation": 1.0, "output_perturbation": 1.0, "preconditioned_gd": 1.0}
"""Predicted risks are multiplied by these before they are compared."""

CLIP_BIAS = 0.0019
"""Excess risk by clipping gradients of losses of classes to 0.6 of their bound, over slope bound and deviation of
margins."""

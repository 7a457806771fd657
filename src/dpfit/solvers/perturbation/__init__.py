"""Noise on the minimizer, on the objective, or on what the objective is made of."""

"""Solvers that follow noisy gradients."""

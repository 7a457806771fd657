"""Solvers: one algorithm per file, by method."""

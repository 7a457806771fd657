"""Randomness: the only room in which it is made."""

from dpfit.noise.additive import (
    add_gaussian,
    add_generalized_gaussian,
    add_l2_laplace,
    add_laplace,
    add_linf_laplace,
)
from dpfit.noise.discrete import choices, discrete_gaussian, discrete_laplace
from dpfit.noise.fine import fine_exponential, fine_gaussian
from dpfit.noise.lattice import INTEGERS, Grid
from dpfit.noise.laws import Gaussian, GeneralizedGaussian, Laplace, Law, Uniform
from dpfit.noise.rounded import rounded, rounded_l2_laplace, rounded_linf_laplace
from dpfit.noise.source import Source

__all__ = [
    "INTEGERS",
    "Gaussian",
    "GeneralizedGaussian",
    "Grid",
    "Laplace",
    "Law",
    "Source",
    "Uniform",
    "add_gaussian",
    "add_generalized_gaussian",
    "add_l2_laplace",
    "add_laplace",
    "add_linf_laplace",
    "choices",
    "discrete_gaussian",
    "discrete_laplace",
    "fine_exponential",
    "fine_gaussian",
    "rounded",
    "rounded_l2_laplace",
    "rounded_linf_laplace",
]

"""Domains: closed convex parameter sets, with projections, sizes, samples, minimizers."""

from dpfit.geometry.base import Domain
from dpfit.geometry.box import Box
from dpfit.geometry.l1_ball import L1Ball
from dpfit.geometry.l2_ball import L2Ball
from dpfit.geometry.simplex import Simplex
from dpfit.geometry.whole_space import WholeSpace

__all__ = ["Box", "Domain", "L1Ball", "L2Ball", "Simplex", "WholeSpace"]

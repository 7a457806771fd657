"""Former names, until dp_sgd, last_iterate_gd and the Gibbs samplers have moved."""

from dpfit.mechanisms.aggregates.contribution import clipped_sensitivity as change
from dpfit.solvers.descents.scales import CLIP, natural_unit
from dpfit.solvers.descents.scales import gradient_bound as unclipped

__all__ = ["CLIP", "change", "natural_unit", "unclipped"]

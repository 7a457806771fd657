"""Former names of `dpfit.solvers.reference_designs`; this file goes with its last caller."""

from dpfit.solvers.reference_designs import Design as Supposed
from dpfit.solvers.reference_designs import clipping_excess_risk as off_by_clipping
from dpfit.solvers.reference_designs import fitted_margins, within
from dpfit.solvers.reference_designs import power_mean_risk as typical
from dpfit.solvers.reference_designs import reference_designs as suppositions
from dpfit.solvers.reference_designs import reference_margins as supposed_margins

__all__ = ["Supposed", "fitted_margins", "off_by_clipping", "supposed_margins", "suppositions", "typical", "within"]

"""What models say of results that no guarantee covers."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

from dpfit.core import Chain, Plan, Step
from dpfit.privacy import Assumption, Basis
from dpfit.solvers.auto import Chosen

FROM_DATA = "from_data"
"""What ranges and classes are set to that are read off the records, which leaks."""


class LeakWarning(UserWarning):
    """A result that tells about the records and is not covered by any guarantee."""


def leaky(plan: Plan, what: str) -> Plan:
    """The plan whose basis says what is not protected."""
    if isinstance(plan, Chosen):
        return replace(plan, plan=leaky(plan.plan, what))
    if isinstance(plan, Step):
        why: Basis = plan.why
        return replace(plan, why=replace(why, assumptions=(*why.assumptions, Assumption(what, "declared"))))
    if isinstance(plan, Chain):
        return replace(plan, stages=(leaky(plan.stages[0], what), *plan.stages[1:]))
    return plan


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called a model, however deep the call: Python shows a warning once for each line."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("dpfit.models."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def leaky_score() -> None:
    """Say that a score is not private."""
    warnings.warn(
        "a score computed from private records is not private; use dpfit.models.private_score, or public records",
        LeakWarning,
        stacklevel=3,
    )

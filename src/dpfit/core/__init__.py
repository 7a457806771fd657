"""The spine: a problem and a budget make a plan, a plan and data make a release."""

from dpfit.core.algorithm import Algorithm, require_records
from dpfit.core.mechanism import Batched, Interactive, Iterative, Mechanism, Risk, Run, Session, Work
from dpfit.core.plan import (
    BindingChangedTheEvent,
    Chain,
    Key,
    Plan,
    Policy,
    Scored,
    Select,
    Split,
    Step,
    Until,
    plan_from_json,
)
from dpfit.core.problem import Answer, Interact, Minimize, Problem, Sample
from dpfit.core.runner import Account, Interaction, InteractionClosed, Release, open_plan, run_plan

__all__ = [
    "Account",
    "Algorithm",
    "Answer",
    "Batched",
    "BindingChangedTheEvent",
    "Chain",
    "Interact",
    "Interaction",
    "InteractionClosed",
    "Interactive",
    "Iterative",
    "Key",
    "Mechanism",
    "Minimize",
    "Plan",
    "Policy",
    "Problem",
    "Release",
    "Risk",
    "Run",
    "Sample",
    "Scored",
    "Select",
    "Session",
    "Split",
    "Step",
    "Until",
    "Work",
    "open_plan",
    "plan_from_json",
    "require_records",
    "run_plan",
]

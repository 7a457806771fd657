"""The spine: a problem and a budget make a plan, a plan and data make a release."""

from dpfit.core.algorithm import Algorithm, Example, Forecast, Requirement
from dpfit.core.binding import Binding, BindingChangedTheEvent, StartAt
from dpfit.core.composition import Combine, Composition, Last, Stage
from dpfit.core.constants import Constants
from dpfit.core.loop import Loop, VectorizedLoop
from dpfit.core.mechanism import Batched, Halted, Interactive, Mechanism, Risk, Run, State, Work
from dpfit.core.notes import Chosen, Considered, Leak, LeftOut, Note, Row, Tuned, Tuning
from dpfit.core.plan import Plan, Step, plan_from_json
from dpfit.core.problem import Answer, DataFacts, Interact, Minimize, Problem
from dpfit.core.runner import (
    Account,
    AnswerWithheld,
    Interaction,
    InteractionClosed,
    Release,
    open_plan,
    resume,
    run_plan,
)
from dpfit.core.selection import Scored, Selection
from dpfit.core.transformed_plan import Transformation, TransformedPlan

__all__ = [
    "Account",
    "Algorithm",
    "Answer",
    "AnswerWithheld",
    "Batched",
    "Binding",
    "BindingChangedTheEvent",
    "Chosen",
    "Combine",
    "Composition",
    "Considered",
    "Constants",
    "DataFacts",
    "Example",
    "Forecast",
    "Halted",
    "Interact",
    "Interaction",
    "InteractionClosed",
    "Interactive",
    "Last",
    "Leak",
    "LeftOut",
    "Loop",
    "Mechanism",
    "Minimize",
    "Note",
    "Plan",
    "Problem",
    "Release",
    "Requirement",
    "Risk",
    "Row",
    "Run",
    "Scored",
    "Selection",
    "Stage",
    "StartAt",
    "State",
    "Step",
    "Transformation",
    "TransformedPlan",
    "Tuned",
    "Tuning",
    "VectorizedLoop",
    "Work",
    "open_plan",
    "plan_from_json",
    "resume",
    "run_plan",
]

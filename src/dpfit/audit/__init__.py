"""Attacks on planned releases, with lower confidence bounds on the true privacy loss."""

from dpfit.audit.attacks import (
    DEFAULT,
    Attack,
    Cells,
    Learned,
    LikelihoodRatio,
    LowBits,
    Projection,
    Shape,
    Transcript,
)
from dpfit.audit.auditor import audit_algorithm, audit_callable, audit_entry, audit_plan, audit_runs
from dpfit.audit.bounds import epsilon_lower, lower_rate, mu_lower, upper_rate
from dpfit.audit.currency import Balanced, Currency, Epsilon, Mu
from dpfit.audit.exact import exact_densities, exact_gaussian, exact_masses
from dpfit.audit.neighbours import Pair, random_pairs, record_pairs, user_pairs, worst_pair
from dpfit.audit.one_run import (
    audit_one_run,
    curve_refutes,
    guess_p_value,
    one_run_epsilon,
    one_run_mu,
)
from dpfit.audit.result import Audit, Finding
from dpfit.audit.runs import CallableRuns, PlanRuns
from dpfit.audit.search import problem_pairs, search_pair
from dpfit.audit.thresholds import Band, Fixed, HeldOut, Scores, Strategy, UnionBound
from dpfit.audit.tradeoff import TradeOff

__all__ = [
    "DEFAULT",
    "Attack",
    "Audit",
    "Balanced",
    "Band",
    "CallableRuns",
    "Cells",
    "Currency",
    "Epsilon",
    "Finding",
    "Fixed",
    "HeldOut",
    "Learned",
    "LikelihoodRatio",
    "LowBits",
    "Mu",
    "Pair",
    "PlanRuns",
    "Projection",
    "Scores",
    "Shape",
    "Strategy",
    "TradeOff",
    "Transcript",
    "UnionBound",
    "audit_algorithm",
    "audit_callable",
    "audit_entry",
    "audit_one_run",
    "audit_plan",
    "audit_runs",
    "curve_refutes",
    "epsilon_lower",
    "exact_densities",
    "exact_gaussian",
    "exact_masses",
    "guess_p_value",
    "lower_rate",
    "mu_lower",
    "one_run_epsilon",
    "one_run_mu",
    "problem_pairs",
    "random_pairs",
    "record_pairs",
    "search_pair",
    "upper_rate",
    "user_pairs",
    "worst_pair",
]

"""Algorithms: each declares what it solves and requires; `plan` checks both for all of them."""

from __future__ import annotations

import inspect
import math
import warnings
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, final

from dpfit.core.mechanism import Risk, Work
from dpfit.core.notes import Tuned, Tuning
from dpfit.core.plan import Plan
from dpfit.core.problem import Minimize, Problem
from dpfit.losses.vector import VectorLoss
from dpfit.privacy import Assumption, Budget, BudgetUnreachable
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import did_you_mean

P = TypeVar("P", bound=Problem)
A = TypeVar("A", bound="Algorithm[Any]")

RELATIONS = ("replace", "add_remove")
TIERS = ("recommended", "specialised", "reference")

DECLARED_N = Assumption("the number n that divides the sums was not read off the data", "declared")
"""Joins every basis under add/remove whose noise or sums are divided by the declared n."""


@dataclass(frozen=True)
class Requirement:
    """A condition on the problem: how it reads after "needs", a hint, and the test.

    ``holds`` takes the problem, the budget and the options of `Algorithm.plan`.
    """

    text: str
    hint: str
    holds: Callable[[Any, Budget, Mapping[str, object]], bool]


def _has_clip(options: Mapping[str, object]) -> bool:
    return options.get("clip_norm") is not None


CONVEX = Requirement(
    "a convex loss",
    "use noisy_gd, which takes any loss",
    lambda problem, budget, options: problem.loss.convex,
)
SMOOTH = Requirement(
    "a smooth loss",
    "use a smoothed one (SmoothedHinge, Huber, QuantileHuber), or noisy_gd",
    lambda problem, budget, options: problem.constants(budget.relation).smooth,
)
MARGIN_LOSS = Requirement(
    "a generalized linear loss",
    "use a loss of dpfit.losses.glm, or noisy_gd",
    lambda problem, budget, options: problem.loss.is_glm,
)
BOUNDED = Requirement(
    "gradients with a bound",
    "pass clip_norm, or bound the labels or the domain",
    lambda problem, budget, options: (
        _has_clip(options) or problem.constants(budget.relation).bounded
    ),
)
BOUNDED_EVERYWHERE = Requirement(
    "gradients with a bound at every parameter",
    "use a loss of bounded slope, such as Huber or Logistic",
    lambda problem, budget, options: problem.constants(budget.relation, everywhere=True).bounded,
)
RIDGE = Requirement(
    "ridge > 0",
    "pass ridge: the strong convexity must come from it",
    lambda problem, budget, options: problem.ridge > 0,
)
BOUNDED_DOMAIN = Requirement(
    "a bounded domain",
    "pass domain, an L2Ball for example",
    lambda problem, budget, options: problem.radius is not None,
)
NO_DOMAIN = Requirement(
    "no domain", "leave domain out", lambda problem, budget, options: problem.domain is None
)
ROWS = Requirement(
    "rows and labels",
    "this loss reads points without labels; use noisy_gd",
    lambda problem, budget, options: not isinstance(problem.loss, VectorLoss),
)


class Example(NamedTuple):
    """A small problem with two neighbouring datasets that attain the guarantee, or nearly."""

    problem: Any
    data: Any
    neighbour: Any


class Forecast(NamedTuple):
    """What an algorithm would reach: predicted risk and work, and options that plan exactly this.

    ``plan`` is the plan itself where the forecast had to make it.
    """

    risk: Risk
    work: Work
    options: Mapping[str, object]
    plan: Plan | None = None


class Algorithm(ABC, Generic[P]):
    """A way to solve a kind of problem. One file each; it says only what is new about it.

    A subclass declares the class variables below and implements ``_plan(problem, budget, **options)
    -> Plan`` and `example`. The catalogue, the command line, the auditor, `auto` and the docs read
    the declared facts.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    use_for: ClassVar[str] = ""
    """What a user would take it for; every recommended algorithm says it."""
    reference: ClassVar[str]
    solves: ClassVar[type[Problem]]
    workloads: ClassVar[tuple[type[Spec], ...]] = ()
    """The workloads that it answers, for `Answer` and `Interact`."""
    guarantees: ClassVar[tuple[str, ...]]
    """The kinds of budget that it can meet: "pure", "approximate", "gdp", "zcdp"."""
    relations: ClassVar[tuple[str, ...]] = RELATIONS
    under_other_relations: ClassVar[str] = ""
    """What the refusal of another relation adds: "; " and what to do."""
    units: ClassVar[tuple[str, ...]] = ("record",)
    requires: ClassVar[tuple[Requirement, ...]] = ()
    """What the problem must have."""
    supports: ClassVar[frozenset[str]] = frozenset()
    """The optional facts that it acts on: ridge, domain, centre, trust_ball, ridge_map; population
    is a wish.
    """
    tier: ClassVar[str] = "reference"
    tunings: ClassVar[tuple[Tuning, ...]] = ()
    """The tuned numbers of its rules; each plan notes them."""
    auto_candidate: ClassVar[bool] = False
    """Whether `auto` may take it."""
    auto_passes: ClassVar[float] = math.inf
    """Most passes within which `auto` considers it: with more of them others have less error."""
    listed: ClassVar[bool] = True
    """Whether the catalogue lists it."""

    _plan: Callable[..., Plan]
    _options: Mapping[str, object] = {}

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        if "_plan" in cls.__dict__:
            # The signature of `plan` is that of `_plan`, for help(), the command line and the docs.
            def plan(self: Algorithm[P], problem: P, budget: Budget, **options: object) -> Plan:
                return Algorithm._checked_plan(self, problem, budget, options)

            plan.__doc__ = cls._plan.__doc__
            plan.__signature__ = inspect.signature(cls._plan)  # type: ignore[attr-defined]
            plan.__qualname__ = f"{cls.__qualname__}.plan"
            plan.__module__ = cls.__module__
            cls.plan = plan  # type: ignore[method-assign]

    def plan(self, problem: P, budget: Budget, **options: object) -> Plan:
        """Return a plan within the budget; raise ValueError with a hint if none can be made."""
        return self._checked_plan(problem, budget, options)

    @final
    def _checked_plan(self, problem: Problem, budget: Budget, given: Mapping[str, object]) -> Plan:
        """Check the declared facts, plan, and check that the guarantee meets the budget."""
        options = {**self._options, **current_names(self.name, given)}
        self._check_options(options)
        self.require(problem, budget, options)
        plan = self._plan(problem, budget, **options)
        self._verify(plan, budget, options)
        notes = tuple(dict.fromkeys((*plan.notes, *map(Tuned, self.tunings))))
        return replace(plan, problem=problem, algorithm=plan.algorithm or self.name, notes=notes)

    def require(
        self, problem: Problem, budget: Budget, options: Mapping[str, object] | None = None
    ) -> None:
        """Refuse a problem or budget that the declared facts exclude."""
        if not isinstance(problem, self.solves):
            got = getattr(problem, "kind", type(problem).__name__)
            raise ValueError(f"{self.name} solves a {self.solves.__name__} problem, got {got!r}")
        workload = getattr(problem, "workload", None)
        if self.workloads and not isinstance(workload, self.workloads):
            names = " or ".join(known.__name__ for known in self.workloads)
            raise ValueError(
                f"{self.name} answers {names}, got {getattr(workload, 'kind', workload)!r}"
            )
        if budget.unit not in self.units:
            raise ValueError(
                f"{self.name} protects {' or '.join(self.units)}s, got unit={budget.unit!r}; "
                "plan with unit='record' "
                "and convert the guarantee with to_user(max_rows), or reduce the data to one "
                "record per user"
            )
        if budget.relation not in self.relations:
            raise ValueError(
                f"{self.name} needs relation={' or '.join(map(repr, self.relations))}, got "
                f"{budget.relation!r}{self.under_other_relations}"
            )
        if budget.kind not in self.guarantees:
            by_group = ", or cap the rows of each user and charge them as a group"
            raise BudgetUnreachable(
                f"{self.name} cannot guarantee {_KINDS[budget.kind]}; "
                + self._hint(budget.kind, problem)
                + (by_group if (budget.kind, budget.unit) == ("pure", "user") else "")
            )
        given = {**self._options, **(options or {})}
        for requirement in self.requires:
            if not requirement.holds(problem, budget, given):
                raise ValueError(f"{self.name} needs {requirement.text}; {requirement.hint}")
        for fact in sorted(problem.facts - self.supports):
            raise ValueError(
                f"{self.name} does not support {fact}; leave it out, or use another algorithm"
            )

    def _hint(self, kind: str, problem: Problem) -> str:
        if kind == "pure" and len(self.guarantees) > 1:
            other = ""
            if isinstance(problem, Minimize):
                takes_any = "exponential_net in few dimensions"
                other = "output_perturbation" if problem.loss.convex else takes_any
            return f"give a delta (below 0.01 / n), mu or rho{other and f', or use {other}'}"
        return f"give a budget of {' or '.join(_KINDS[known] for known in self.guarantees)}"

    def _check_options(self, options: Mapping[str, object]) -> None:
        known = self.options
        for name in options:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise TypeError(
                    f"{self.name} has no option {name!r}; {did_you_mean(name, known)}its options: "
                    f"{listed}"
                )

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options of `plan`."""
        kinds = (inspect.Parameter.KEYWORD_ONLY,)
        return tuple(
            p.name for p in inspect.signature(self._plan).parameters.values() if p.kind in kinds
        )

    def _verify(self, plan: Plan, budget: Budget, options: Mapping[str, Any]) -> None:
        basis = plan.basis
        if (basis.relation, basis.unit) != (budget.relation, budget.unit):
            raise RuntimeError(
                f"{self.name} planned for {basis.relation}, {basis.unit}: this is a defect of dpfit"
            )
        if not budget.admits(plan.event):
            raise RuntimeError(
                f"{self.name} planned more than the budget allows: this is a defect of dpfit"
            )
        allowed = options.get("max_passes")
        if allowed is not None and plan.work.passes > allowed:
            raise ValueError(
                f"{self.name} takes {plan.work.passes:g} passes, {allowed} are allowed; raise "
                "max_passes"
            )

    def using(self: A, **options: object) -> A:
        """Return the algorithm with options set: what reductions take as their solver."""
        self._check_options(options)
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._options = {**self._options, **options}
        return copy

    def forecast(self, problem: P, budget: Budget, **options: object) -> Forecast:
        """Return what `plan` would reach; by default it plans."""
        plan = self.plan(problem, budget, **options)
        if plan.risk is None:
            raise ValueError(f"{self.name} predicts no risk")
        return Forecast(plan.risk, plan.work, options, plan)

    def is_candidate(self, problem: P) -> bool:
        """Whether `auto` considers it for this problem; others are not listed as left out."""
        return self.auto_candidate

    def example(self, relation: str) -> Example:
        """Return a small problem and two neighbouring datasets, for shared tests and audits."""
        raise NotImplementedError(f"{self.name} has no example")

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        return f"{self.name}.using({options})" if options else self.name


RENAMED = {"clip": "clip_norm"}
"""Former names of options, which work for one version."""


def current_names(name: str, options: Mapping[str, object]) -> dict[str, object]:
    """Return the options under their names of today, with a warning for former ones."""
    for old in RENAMED.keys() & options.keys():
        warnings.warn(
            f"{name}: option {old} is now {RENAMED[old]}", DeprecationWarning, stacklevel=5
        )
    return {RENAMED.get(option, option): value for option, value in options.items()}


_KINDS = {
    "pure": "pure epsilon",
    "approximate": "(epsilon, delta)",
    "gdp": "mu-GDP",
    "zcdp": "rho-zCDP",
}

Minimizer = Algorithm[Minimize]


def minimizer(name: str, value: object) -> Minimizer:
    """Return the value of an option that must be a minimizer; ValueError if it is none."""
    if not isinstance(value, Algorithm) or not issubclass(Minimize, value.solves):
        raise ValueError(
            f"{name} must be an Algorithm that minimizes, got {value!r}; pass the object, "
            "noisy_gd.using(max_passes=100) for example"
        )
    return value

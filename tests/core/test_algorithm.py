"""Algorithms declare; `plan` checks what they declare, and that the guarantee meets the budget."""

import inspect
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpfit.core import Algorithm, Example, Mechanism, Minimize, Requirement, Step, Work, registry
from dpfit.core.algorithm import BOUNDED, CONVEX, RIDGE, SMOOTH
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Hinge, Logistic, Squared
from dpfit.privacy import Basis, Budget, BudgetUnreachable, calibrate
from dpfit.privacy.event import Event, Gaussian

PROBLEM = Minimize(n=10, loss=Logistic(), bounds=Bounds(1.0), n_features=2, ridge=0.1)
BUDGET = Budget(epsilon=1.0, delta=1e-6)


@dataclass(frozen=True)
class Zero(Mechanism):
    """Noise around zero: enough to be planned."""

    kind = "test_zero"
    noise_multiplier: float
    passes: float = 1.0

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def work(self) -> Work:
        return Work(passes=self.passes)

    def run(self, data, run):
        return self.noise_multiplier * run.noise.gaussian(2)


class Toy(Algorithm[Minimize]):
    """Release noise."""

    name = "toy"
    summary = "noise around zero"
    reference = "[Gan22] Fact 15"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (CONVEX,)
    supports = frozenset({"ridge"})
    wrong_noise = 1.0
    wrong_relation = None

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        max_passes: int | None = None,
        clip_norm: float | None = None,
    ):
        """Plan noise."""
        why = Basis(
            "Gaussian mechanism [Gan22, Fact 15]",
            self.wrong_relation or budget.relation,
            budget.unit,
        )
        step = calibrate(lambda level: Step(Zero(level, 7.0), why), budget)
        return step.map_steps(
            lambda m: replace(m, noise_multiplier=self.wrong_noise * m.noise_multiplier)
        )

    def example(self, relation: str) -> Example:
        return Example(PROBLEM, np.zeros(3), np.ones(3))


toy = Toy()


def test_a_plan_is_stamped_with_what_was_asked_and_who_planned_it():
    plan = toy.plan(PROBLEM, BUDGET)
    assert (plan.problem, plan.algorithm) == (PROBLEM, "toy")
    assert plan.guarantee.epsilon(1e-6) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("problem", "budget", "options", "error", "match"),
    [
        ("no problem", BUDGET, {}, ValueError, "solves a Minimize problem, got 'str'"),
        (
            PROBLEM,
            Budget(epsilon=1.0),
            {},
            BudgetUnreachable,
            "cannot guarantee pure epsilon; give a delta",
        ),
        (PROBLEM, Budget(mu=1.0, unit="user"), {}, ValueError, "protects records, got unit='user'"),
        (
            replace(PROBLEM, domain=L2Ball(2, 1.0)),
            BUDGET,
            {},
            ValueError,
            "does not support domain",
        ),
        (replace(PROBLEM, centre=(1.0, 1.0)), BUDGET, {}, ValueError, "does not support centre"),
        (
            replace(PROBLEM, trust_ball=L2Ball(2, 1.0)),
            BUDGET,
            {},
            ValueError,
            "does not support trust_ball",
        ),
        (
            PROBLEM,
            BUDGET,
            {"steps": 3},
            TypeError,
            "has no option 'steps'; its options: max_passes, clip_norm",
        ),
        (PROBLEM, BUDGET, {"max_passes": 6}, ValueError, "takes 7 passes, 6 are allowed"),
    ],
)
def test_what_is_not_declared_is_refused(problem, budget, options, error, match):
    with pytest.raises(error, match=match):
        toy.plan(problem, budget, **options)


def test_relations_and_requirements_are_checked():
    class Picky(Toy):
        relations = ("replace",)
        requires = (
            SMOOTH,
            BOUNDED,
            RIDGE,
            Requirement("an even n", "add a record", lambda p, b, o: p.n % 2 == 0),
        )

    picky = Picky()
    picky.plan(PROBLEM, BUDGET)
    for problem, budget, match in (
        (PROBLEM, replace(BUDGET, relation="add_remove"), "needs relation='replace'"),
        (replace(PROBLEM, loss=Hinge()), BUDGET, "needs a smooth loss"),
        (replace(PROBLEM, loss=Squared()), BUDGET, "needs gradients with a bound"),
        (replace(PROBLEM, ridge=0.0), BUDGET, "needs ridge > 0"),
        (replace(PROBLEM, n=11), BUDGET, "needs an even n; add a record"),
    ):
        with pytest.raises(ValueError, match=match):
            picky.plan(problem, budget)
    picky.plan(replace(PROBLEM, loss=Squared()), BUDGET, clip_norm=1.0)


def test_a_plan_beyond_the_budget_is_caught():
    """A share wrong by 0.1% in any file fails here, before data are read."""

    class Loud(Toy):
        wrong_noise = 0.999

    class Twisted(Toy):
        wrong_relation = "add_remove"

    for algorithm in (Loud(), Twisted()):
        with pytest.raises(RuntimeError, match="defect"):
            algorithm.plan(PROBLEM, BUDGET)


def test_options_travel_by_using():
    few = toy.using(max_passes=6)
    with pytest.raises(ValueError, match="6 are allowed"):
        few.plan(PROBLEM, BUDGET)
    assert few.using(max_passes=7).plan(PROBLEM, BUDGET) == toy.plan(PROBLEM, BUDGET)
    assert few.plan(PROBLEM, BUDGET, max_passes=8) == toy.plan(PROBLEM, BUDGET)
    assert repr(few) == "toy.using(max_passes=6)"
    with pytest.raises(TypeError, match="no option"):
        toy.using(step=1)


def test_former_names_of_options_work_and_warn():
    with pytest.warns(DeprecationWarning, match="clip is now clip_norm"):
        assert toy.plan(PROBLEM, BUDGET, clip=1.0) == toy.plan(PROBLEM, BUDGET, clip_norm=1.0)


def test_the_signature_is_that_of_the_own_plan():
    assert list(inspect.signature(toy.plan).parameters) == [
        "problem",
        "budget",
        "max_passes",
        "clip_norm",
    ]
    assert toy.plan.__doc__ == "Plan noise."
    assert toy.options == ("max_passes", "clip_norm")


def test_packages_register_algorithms_by_entry_points(monkeypatch):
    class Point:
        name, value = "toy", "my_package:toy"

        def load(self):
            return toy

    monkeypatch.setattr(registry, "entry_points", lambda group: [Point()])
    registry.plugins.cache_clear()
    try:
        row = registry.entry("toy")
        assert (row.guarantees, row.tier, row.where) == (
            ("approximate", "gdp", "zcdp"),
            "reference",
            "my_package:toy",
        )
        assert row.name in {each.name for each in registry.entries(problem="minimize")}
        assert row.name not in {each.name for each in registry.entries(tier="recommended")}
    finally:
        registry.plugins.cache_clear()


def test_unknown_names_get_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'noisy_gd'"):
        registry.entry("noisy_dg")
    assert registry.find(toy, "minimize") is toy
    with pytest.raises(ValueError, match="solves 'minimize' problems"):
        registry.find(toy, "answer")


def test_a_parameter_that_moves_the_sensitivity_of_a_relation_is_not_shared():
    """Constants are cached by loss, bounds, radius and relation: two relations never share one."""
    replaced, removed = (PROBLEM.constants(relation) for relation in ("replace", "add_remove"))
    assert replaced.gradient_sensitivity == pytest.approx(2 * removed.gradient_sensitivity)
    near = replace(PROBLEM, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), domain=L2Ball(2, 1.0))
    far = replace(near, domain=L2Ball(2, 5.0))
    assert near.constants("replace").lipschitz < far.constants("replace").lipschitz < np.inf
    assert far.constants("replace", everywhere=True).lipschitz == np.inf
    assert PROBLEM.constants("replace") is replace(PROBLEM, ridge=0.5).constants("replace")


def test_requirements_see_the_options_that_an_algorithm_was_given_by_using():
    problem = Minimize(n=10, loss=Squared(), bounds=Bounds(1.0), n_features=2)
    noisy_gd = registry.find("noisy_gd")
    with pytest.raises(ValueError, match="pass clip_norm"):
        noisy_gd.require(problem, BUDGET)
    noisy_gd.using(clip_norm=1.0).require(problem, BUDGET)

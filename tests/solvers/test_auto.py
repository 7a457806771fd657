"""The choice of a solver: the ranking, its notes, the currency of a ledger, and what is planned."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Forecast, LeftOut, Minimize, Risk, plan_from_json
from dpfit.core.examples import opposite_records
from dpfit.core.mechanism import Run
from dpfit.core.reference_designs import start_risk
from dpfit.data.dataset import InMemory
from dpfit.data.view import view_of
from dpfit.geometry import L2Ball
from dpfit.ledger import NotChargeable
from dpfit.ledger.cost import cost_in_currency
from dpfit.losses import (
    Bounds,
    Hinge,
    Huber,
    HuberDistance,
    Logistic,
    SmoothedHinge,
    Softmax,
    Squared,
)
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable
from dpfit.solvers.auto import auto, candidates
from dpfit.solvers.descents.predicted import predicted_risk
from dpfit.solvers.gradient.langevin import TUNING as LANGEVIN
from dpfit.solvers.gradient.langevin import langevin
from dpfit.solvers.gradient.preconditioned_gd import TUNING as PRECONDITIONER
from dpfit.solvers.perturbation.objective_perturbation import (
    ObjectivePerturbation,
    objective_perturbation,
)

ANY_PROBLEM = opposite_records("replace").problem
SOLVERS = {algorithm.name: algorithm for algorithm in candidates(ANY_PROBLEM)}


def left_out(plan):
    return [note.reason for note in plan.notes if isinstance(note, LeftOut)]


@pytest.fixture
def favour(monkeypatch):
    """Multiply the forecasts of a solver."""

    def favour(name, factor=1e-9):
        kind, forecast = type(SOLVERS[name]), SOLVERS[name].forecast

        def favoured(self, problem, budget, **options):
            found = forecast(problem, budget, **options)
            return found._replace(risk=Risk(factor * found.risk.expected, found.risk.meaning))

        monkeypatch.setattr(kind, "forecast", favoured)

    return favour


def logistic(n=10_000, d=20, **more):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, **more)


BUDGETS = [
    Budget(epsilon=0.1, delta=1e-6),
    Budget(epsilon=3.0, relation="add_remove"),
    Budget(mu=1.0),
    Budget(rho=0.1),
]
LOSSES = [Logistic(), Huber(0.2), SmoothedHinge(0.5)]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: b.kind)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_the_plan_is_that_of_the_solver_with_the_smallest_risk(loss, budget):
    problem = Minimize(n=3000, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=8)
    chosen = auto.plan(problem, budget)
    name = chosen.considered[0].name
    alone = SOLVERS[name].plan(problem, budget)
    assert replace(chosen, notes=alone.notes, predicted=None, algorithm=name) == alone
    risks = [candidate.risk for candidate in chosen.considered]
    assert risks == sorted(risks)
    assert chosen.guarantee.meets(budget)
    expected = set(SOLVERS) - (
        {"noisy_gd", "preconditioned_gd"} if budget.kind == "pure" else set()
    )
    assert {candidate.name for candidate in chosen.considered} == expected
    for candidate in chosen.considered:
        assert (
            f"considered {candidate.name}: predicted risk {candidate.risk:.3g}" in chosen.explain()
        )
    assert sorted(refusal.split()[0].rstrip(":") for refusal in left_out(chosen)) == sorted(
        set(SOLVERS) - expected
    )
    assert all(f"left out   {refusal}" in chosen.explain() for refusal in left_out(chosen))


def test_it_says_why_this_one():
    least, next_one = auto.plan(logistic(), Budget(epsilon=1.0)).considered[:2]
    why = (
        f"{least.name}, for its predicted risk "
        f"({next_one.name}: {next_one.risk / least.risk:.2f} times as high)"
    )
    assert f"chosen     {why}" in auto.plan(logistic(), Budget(epsilon=1.0)).explain()
    alone = auto.plan(replace(logistic(), loss=Hinge()), Budget(epsilon=1.0)).explain()
    assert "chosen     phased_sgd, the only one that can do this" in alone


@pytest.mark.parametrize(
    ("loss", "bounds"), [(Logistic(), Bounds(1.0)), (Huber(0.2), Bounds(1.0, -1.0, 1.0))]
)
def test_a_plan_that_is_hardly_better_than_guessing_says_so(loss, bounds):
    def advice(n, epsilon):
        problem = Minimize(n=n, loss=loss, bounds=bounds, n_features=5)
        plan = auto.plan(problem, Budget(epsilon=epsilon))
        return plan, [row.text for row in plan.rows() if row.label == "advice"]

    poor, said = advice(30, 0.1)
    assert len(said) == 1
    assert "hardly better than guessing" in said[0]
    assert poor.risk.expected > 0.9 * start_risk(poor.problem)
    assert plan_from_json(poor.to_json()) == poor
    good, said = advice(3000, 1.0)
    assert said == []
    assert good.risk.expected < 0.1 * start_risk(good.problem)


@pytest.mark.parametrize(("n", "epsilon"), list(itertools.product([500, 20_000], [0.1, 5.0])))
def test_a_forecast_is_close_to_the_plan_and_its_options_make_it(n, epsilon):
    budget = Budget(epsilon=epsilon, delta=1e-6)
    forecast = objective_perturbation.forecast(logistic(n=n), budget)
    planned = objective_perturbation.plan(logistic(n=n), budget)
    assert objective_perturbation.using(**forecast.options).plan(logistic(n=n), budget) == planned
    assert forecast.options == {"ridge": planned.mechanism.ridge}
    assert forecast.work == planned.work
    assert forecast.risk.expected == pytest.approx(planned.risk.expected, rel=0.15)


def test_a_forecast_refuses_what_a_plan_refuses():
    with pytest.raises(ValueError, match="needs a smooth loss"):
        objective_perturbation.forecast(replace(logistic(), loss=Hinge()), Budget(epsilon=1.0))


@pytest.mark.parametrize(
    "budget", [Budget(epsilon=1.0), Budget(epsilon=1.0, delta=1e-6)], ids=["pure", "approximate"]
)
def test_a_plan_has_one_predicted_risk(budget):
    """That of the ranking, for the plan and on every line that shows one for it."""
    plan = auto.plan(logistic(), budget)
    assert plan.risk.expected == plan.considered[0].risk
    expected = [line for line in plan.explain().splitlines() if line.startswith("predicted")]
    assert expected == [f"predicted  excess empirical risk {plan.considered[0].risk:.4g}"]


def test_losers_are_not_calibrated(monkeypatch, favour):
    problem, budget = logistic(n=30_000, d=100), Budget(epsilon=0.1, delta=1e-6)
    favour("noisy_gd")

    def refuse(*_, **__):
        raise AssertionError("a solver that lost was planned")

    monkeypatch.setattr(ObjectivePerturbation, "_plan", refuse)
    assert auto.plan(problem, budget).considered[0].name == "noisy_gd"


@pytest.mark.parametrize("name", SOLVERS)
def test_the_least_forecast_decides(favour, name):
    favour(name)
    assert auto.plan(logistic(), Budget(epsilon=1.0, delta=1e-6)).considered[0].name == name


def test_the_next_best_is_planned_if_the_best_cannot_be(monkeypatch, favour):
    favour("objective_perturbation")
    before = auto.plan(logistic(), Budget(epsilon=1.0, delta=1e-6))

    def unreachable(self, problem, budget, *, ridge=None):
        raise BudgetUnreachable("no noise meets this budget")

    monkeypatch.setattr(ObjectivePerturbation, "_plan", unreachable)
    after = auto.plan(logistic(), Budget(epsilon=1.0, delta=1e-6))
    assert after.considered == before.considered[1:]
    assert "objective_perturbation: no noise meets this budget" in left_out(after)


def test_losses_with_kinks_are_left_to_noisy_gd_and_phased_sgd():
    problem = Minimize(n=1000, loss=Hinge(), bounds=Bounds(1.0), n_features=5)
    plan = auto.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    assert {c.name for c in plan.considered} == {"noisy_gd", "phased_sgd"}
    assert any(
        line.startswith("preconditioned_gd is skipped for losses with kinks")
        for line in left_out(plan)
    )
    with pytest.raises(
        ValueError,
        match=r"no solver can do this: noisy_gd cannot.*; objective_pert.* needs a smooth",
    ):
        auto.plan(replace(problem, loss=Hinge().enveloped(0.5)), Budget(epsilon=1.0))


@pytest.mark.parametrize(
    "problem",
    [
        Minimize(n=1000, loss=Softmax(3), bounds=Bounds(1.0), n_features=4),
        Minimize(
            n=1000, loss=HuberDistance(0.1), bounds=Bounds(1.0), n_features=3, domain=L2Ball(3, 1.0)
        ),
        Minimize(
            n=1000,
            loss=Squared(),
            bounds=Bounds(1.0, -1.0, 1.0),
            n_features=3,
            domain=L2Ball(3, 2.0),
        ),
        logistic(n=1, d=1),
        logistic(n=10**8, d=1, ridge=0.3),
    ],
    ids=["softmax", "distance", "squared", "tiny", "ridge"],
)
@pytest.mark.parametrize("mu", [1e-4, 1.0, 1e4])
def test_predictions_are_finite_for_every_loss_and_budget(problem, mu):
    for candidate in auto.plan(problem, Budget(mu=mu)).considered:
        assert 0 < candidate.risk < np.inf


def test_large_tables_get_no_matrix():
    for problem in (
        logistic(d=PRECONDITIONER.max_columns + 1),
        logistic(n=round(PRECONDITIONER.max_entries), d=2),
    ):
        plan = auto.plan(problem, Budget(mu=1.0))
        assert "preconditioned_gd" not in {candidate.name for candidate in plan.considered}
        assert left_out(plan) == [
            "preconditioned_gd is skipped above 500 columns or 2e7 entries; pass "
            "solver='preconditioned_gd' to use it"
        ]


@pytest.mark.parametrize("currency", ["gdp", "zcdp", "pure"])
def test_a_currency_takes_the_least_risk_among_the_least_costs(currency):
    """Low dimension: pure epsilon has less noise at (epsilon, delta), but costs much mu^2."""
    problem, budget = logistic(n=3000, d=3), Budget(epsilon=1.0, delta=1e-6)
    plain, chosen = auto.plan(problem, budget), auto.plan(problem, budget, currency=currency)
    assert {c.name for c in chosen.considered} == {c.name for c in plain.considered}
    costs = {}
    for candidate in plain.considered:
        try:
            costs[candidate.name] = cost_in_currency(
                SOLVERS[candidate.name].plan(problem, budget).guarantee, currency
            ).amount
        except NotChargeable:
            continue
    cheap = [
        c.name for c in plain.considered if costs.get(c.name, np.inf) <= 1.01 * min(costs.values())
    ]
    assert [c.name for c in chosen.considered][: len(cheap)] == cheap
    assert chosen.considered[0].name == cheap[0]
    assert cost_in_currency(chosen.guarantee, currency).amount == costs[cheap[0]]
    if cheap[0] != plain.considered[0].name:
        assert f"predicted risk at the lowest cost in {currency} currency" in chosen.explain()


def test_a_currency_changes_the_choice(favour):
    """Pure noise would win by risk and costs more mu^2 than Gaussian noise does."""
    problem, budget = logistic(n=3000, d=3), Budget(epsilon=1.0, delta=1e-6)
    favour("output_perturbation")
    assert auto.plan(problem, budget).considered[0].name == "output_perturbation"
    assert auto.plan(problem, budget).mechanism.noise == "l2_laplace"
    chosen = auto.plan(problem, budget, currency="gdp")
    assert chosen.considered[0].name != "output_perturbation"
    assert "at the lowest cost in gdp currency" in chosen.explain()
    with pytest.raises(ValueError, match="currency"):
        auto.plan(problem, budget, currency="euro")


def test_equal_risks_are_ranked_by_name(monkeypatch):
    for solver in SOLVERS.values():
        forecast = solver.forecast

        def equal(self, problem, budget, forecast=forecast, **options):
            found = forecast(problem, budget, **options)
            return Forecast(
                Risk(1.0, "excess empirical risk"), found.work, found.options, found.plan
            )

        monkeypatch.setattr(type(solver), "forecast", equal)
    plan = auto.plan(logistic(), Budget(mu=1.0))
    assert [c.name for c in plan.considered] == sorted(SOLVERS)


def test_max_passes_is_kept():
    chosen = auto.plan(
        Minimize(n=99, loss=Hinge().enveloped(0.5), bounds=Bounds(1.0), n_features=2),
        Budget(mu=1.0),
        max_passes=7,
    )
    assert chosen.work.passes == 7
    assert {c.name for c in auto.plan(logistic(), Budget(mu=1.0), max_passes=7).considered} == {
        "noisy_gd",
        "phased_sgd",
        "preconditioned_gd",
    }
    pure = auto.plan(logistic(), Budget(epsilon=1.0), max_passes=7)
    assert "objective_perturbation: takes 20 passes, 7 are allowed" in left_out(pure)


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=str)
def test_one_pass_goes_to_phased_sgd(loss):
    problem = Minimize(n=10**6, loss=loss, bounds=Bounds(1.0), n_features=20)
    chosen = auto.plan(problem, Budget(epsilon=1.0, delta=1e-8), max_passes=1)
    assert chosen.algorithm == chosen.considered[0].name == "phased_sgd"
    assert "noisy_gd" in {each.name for each in chosen.considered}
    assert chosen.work.passes <= 1


@pytest.mark.slow
def test_the_better_solver_is_picked_where_the_difference_is_clear():
    """Many columns, middling budget: descent. Few, large: anything but output noise."""
    rng = np.random.default_rng(5)
    perturbations = ("objective_perturbation", "output_perturbation")
    for n, d, epsilon, beaten in (
        (3000, 60, 2.0, perturbations),
        (2000, 5, 8.0, perturbations[1:]),
    ):
        rows = rng.standard_normal((n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        labels = np.where(rng.random(n) < 1 / (1 + np.exp(-4 * np.sqrt(d) * rows[:, 0])), 1.0, -1.0)
        problem, budget = logistic(n=n, d=d), Budget(epsilon=epsilon, delta=1e-6)
        losses = {}
        for name, solver in SOLVERS.items():
            source = Source(6)
            view = view_of(InMemory(rows, labels), "replace", "record", source)
            values = solver.plan(problem, budget).execute_many(view, Run(source), 8)
            thetas = np.array(
                [value[-1] if isinstance(value, tuple) else value for value in values]
            )
            losses[name] = np.log1p(np.exp(-labels * (thetas @ rows.T))).mean(axis=1)
        picked = auto.plan(problem, budget).considered[0].name
        for name, reached in losses.items():
            margin = 5 * reached.std() / np.sqrt(8)
            assert losses[picked].mean() < reached.mean() + (-margin if name in beaten else margin)


def in_ball(n, d, radius):
    return Minimize(
        n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, domain=L2Ball(d, radius)
    )


def test_langevin_is_considered_in_a_bounded_domain_only():
    names = {each.name for each in candidates(in_ball(4000, 25, 3.3))}
    assert "langevin" in names
    assert "langevin" not in {each.name for each in candidates(logistic())}
    population = replace(in_ball(4000, 25, 3.3), objective="population")
    assert "langevin" not in {each.name for each in candidates(population)}
    corners = replace(in_ball(4000, 25, 3.3), loss=Hinge())
    assert "langevin" not in {each.name for each in candidates(corners)}


def test_langevin_is_picked_where_noise_dominates_and_not_elsewhere():
    """Its own prediction has to be below 1 / 2.2 of the next one."""
    noisy = auto.plan(in_ball(5000, 21, 2.0), Budget(epsilon=1.76, delta=1e-6))
    assert noisy.considered[0].name == "langevin"
    assert noisy.risk.expected == noisy.considered[0].risk
    quiet = auto.plan(in_ball(30_000, 10, 5.0), Budget(epsilon=1.0, delta=1e-6))
    risks = {each.name: each.risk for each in quiet.considered}
    assert risks["langevin"] > 2 * min(risks.values())


def test_langevin_forecasts_the_best_of_some_step_sizes_with_its_margin():
    problem, budget = in_ball(4109, 25, 3.285), Budget(epsilon=1.293, delta=1e-6)
    found = langevin.forecast(problem, budget, max_passes=100)
    plan = langevin.using(**found.options).plan(problem, budget)
    moves = plan.mechanism.optimizer
    assert moves.schedule.steps == 100
    assert moves.step_size == found.options["step_size"]
    predicted = predicted_risk(plan.mechanism).expected
    assert found.risk.expected == pytest.approx(LANGEVIN.margin * predicted)
    halved = langevin.plan(problem, budget, max_passes=100, step_size=moves.step_size / 2)
    assert predicted_risk(halved.mechanism).expected >= predicted
    assert plan.risk.proven
    with pytest.raises(ValueError, match="step_size must be below"):
        langevin.plan(problem, budget, max_passes=100, step_size=4.1)

"""Each skeleton is one file outside the package that gets planning, ledger and audit."""

import json
from importlib import import_module

import numpy as np
import pytest
from typer.testing import CliRunner

from dpfit.audit import audit_entry
from dpfit.audit.auditor import audit_algorithm, audit_runs
from dpfit.audit.neighbours import require_neighbours
from dpfit.audit.runs import PlanRuns
from dpfit.cli.app import app
from dpfit.core import InteractionClosed, Run, plan_from_json, registry, resume
from dpfit.core.registry import entry_of
from dpfit.data.dataset import InMemory
from dpfit.data.view import View
from dpfit.ledger import Ledger
from dpfit.mechanisms.prefix_sums import prefix_sums
from dpfit.models import LogisticRegression
from dpfit.noise import Source
from dpfit.privacy import Budget, FilterExhausted
from dpfit.solvers.gradient.localized import localized
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.phased_sgd import phased_sgd
from dpfit.solvers.gradient.sparse_descent import sparse_descent
from dpfit.theory.bibliography import citations

NAMES = (
    "positive_count",
    "spider",
    "model_averaging",
    "experts",
    "gibbs_toy",
)
BUDGETS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "gdp": {"mu": 1.0},
    "zcdp": {"rho": 0.5},
}
STREAMS = ("experts",)
RUNS = {
    "spider": 60,
    "model_averaging": 60,
}
"""Runs of an audit; 250 where one is quick."""


def algorithm_of(name):
    return getattr(import_module(f"skeletons.{name}"), name)


def budget_of(algorithm, kind, relation, **changes):
    return Budget(**(BUDGETS[kind] | changes), relation=relation, unit=algorithm.units[0])


def cases():
    for name in NAMES:
        algorithm = algorithm_of(name)
        yield from (
            (name, relation, kind)
            for relation in algorithm.relations
            for kind in algorithm.guarantees
        )


def planned(name, relation="replace", kind=None, **options):
    algorithm = algorithm_of(name)
    problem, data, neighbour = algorithm.example(relation)
    plan = algorithm.plan(
        problem, budget_of(algorithm, kind or algorithm.guarantees[-1], relation), **options
    )
    return plan, data, neighbour


@pytest.fixture
def installed(monkeypatch):
    """The skeletons as a package registers them: by entry points."""

    class Point:
        def __init__(self, name):
            self.name, self.value = name, f"skeletons.{name}:{name}"

        def load(self):
            return algorithm_of(self.name)

    monkeypatch.setattr(registry, "entry_points", lambda group: [Point(name) for name in NAMES])
    registry.plugins.cache_clear()
    yield
    registry.plugins.cache_clear()


@pytest.mark.parametrize(("name", "relation", "kind"), list(cases()))
def test_plans_keep_every_budget_and_are_read_back_equal(name, relation, kind):
    algorithm = algorithm_of(name)
    problem, data, _ = algorithm.example(relation)
    budget = budget_of(algorithm, kind, relation)
    plan = algorithm.plan(problem, budget)
    assert budget.admits(plan.event)
    assert (plan.basis.relation, plan.basis.unit) == (relation, algorithm.units[0])
    back = plan_from_json(json.loads(json.dumps(plan.to_json())))
    assert back == plan
    assert back.guarantee == plan.guarantee
    assert plan.explain()
    # The seed is fixed, so equal plans release the same numbers.
    first, second = (each.run(data, random_state=3).value for each in (plan, back))
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_charged_and_committed(name, tmp_path):
    plan, data, _ = planned(name)
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", budget_of(algorithm_of(name), "zcdp", "replace", rho=1.0))
    release = plan.run(data, account=ledger.account("people"))
    assert release.private
    assert release.guarantee == plan.guarantee
    assert [entry.kind for entry in ledger.entries("people")] == ["register", "reserve", "release"]
    assert ledger.entries("people")[1].facts["algorithm"] == name
    ledger.verify()


@pytest.mark.parametrize("name", NAMES)
def test_the_registry_lists_and_finds_it(name, installed):
    row = registry.entry(name)
    assert row in list(registry.entries(problem=row.problem, tier="reference"))
    assert registry.find(name, row.problem) is row.load() is algorithm_of(name)


@pytest.mark.parametrize("name", NAMES)
def test_its_row_in_the_docs_is_complete_and_its_reference_resolves(name):
    algorithm = algorithm_of(name)
    row = entry_of(algorithm, f"skeletons.{name}:{name}").to_json()
    assert row["name"] == name
    assert all(
        row[fact]
        for fact in ("problem", "guarantees", "relations", "units", "tier", "summary", "reference")
    )
    cited = [*citations(algorithm.reference), *citations(planned(name)[0].basis.theorem)]
    assert cited
    assert [each.text for each in cited if each.reference is None] == []
    assert type(algorithm).__doc__
    assert type(algorithm)._plan.__doc__


@pytest.mark.parametrize(
    ("name", "relation"), list(dict.fromkeys((name, relation) for name, relation, _ in cases()))
)
def test_an_audit_does_not_break_it(name, relation):
    algorithm = algorithm_of(name)
    found = audit_algorithm(
        algorithm, algorithm.guarantees, relation=relation, runs=RUNS.get(name, 250), random_state=5
    )
    assert found.verdict != "broken"
    assert found.subject == name


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_audit_breaks_it_with_an_eighth_of_the_noise(name):
    """The plan of eight times the budget runs, and the promise is that of the budget."""
    algorithm = algorithm_of(name)
    kind, eight = ("pure", "epsilon") if "pure" in algorithm.guarantees else ("gdp", "mu")
    promised, data, neighbour = planned(name, kind=kind)
    loud = budget_of(algorithm, kind, "replace", **{eight: 8.0})
    plan = algorithm.plan(algorithm.example("replace").problem, loud)
    queries = () if plan.interactive is None else plan.interactive.adversarial(data, neighbour)
    found = audit_runs(
        PlanRuns(plan, tuple(queries)),
        data,
        neighbour,
        promised.guarantee,
        runs=2000,
        random_state=5,
    )
    assert found.verdict == "broken"


def test_an_audit_sees_a_stream_with_too_little_noise(monkeypatch):
    """A twentieth of the noise is planted: audits of streams have power."""
    module = import_module("dpfit.mechanisms.aggregates.prefix_sums")
    honest = module.add_gaussian

    def quiet(values, *, noise_multiplier, **options):
        return honest(values, noise_multiplier=noise_multiplier / 20, **options)

    monkeypatch.setattr(module, "add_gaussian", quiet)
    assert audit_algorithm(prefix_sums, ("gdp",), runs=200, random_state=5).verdict == "broken"


def test_streams_are_neighbours_in_one_batch():
    _, data, neighbour = prefix_sums.example("add_remove")
    require_neighbours(data, neighbour, "add_remove")
    for first, second, match in (
        (data, data, "exactly one of the batches must differ, 0 do"),
        (data, (neighbour[0], neighbour[0], data[2]), "must differ, 2 do"),
        (data, neighbour[:2], "as many batches"),
        (
            data,
            (data[0], data[1], InMemory([[5.0], [5.0]], [0.0, 0.0])),
            "differ by one, got 2 and 2",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            require_neighbours(first, second, "add_remove")


def test_an_audit_by_name_finds_an_installed_one(installed):
    assert audit_entry("gibbs_toy", runs=200, random_state=5).verdict != "broken"


def test_the_command_line_lists_shows_and_audits_an_installed_one(installed):
    listed, shown, audited = (
        CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
        for arguments in (
            ["algorithms", "--all", "--json"],
            ["algorithms", "positive_count"],
            ["audit", "positive_count", "--runs", "2000", "--json"],
        )
    )
    assert "positive_count" in [row["name"] for row in json.loads(listed.stdout)]
    assert algorithm_of("positive_count").summary in shown.stdout
    assert [(row["subject"], row["verdict"]) for row in json.loads(audited.stdout)] == [
        ("positive_count", "kept")
    ]


@pytest.mark.parametrize(
    "name", [name for name in NAMES if algorithm_of(name).solves.kind == "minimize"]
)
def test_its_plan_refuses_other_data_before_it_charges(name, tmp_path):
    plan, data, _ = planned(name)
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", budget_of(algorithm_of(name), "approximate", "replace", epsilon=3.0))
    wide = InMemory(np.ones((len(data), 3)), data.labels, data.users)
    with pytest.raises(ValueError, match="rows of 2 entries, got 3"):
        plan.run(wide, account=ledger.account("people"))
    assert len(ledger.entries("people")) == 1


# 2. Reductions take any solver, by `using`.


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_reductions_wrap_reductions(relation):
    problem, data, _ = sparse_descent.example(relation)
    budget = budget_of(sparse_descent, "gdp", relation)
    for solver in (phased_sgd, localized.using(solver=noisy_gd.using(max_passes=3))):
        plan = sparse_descent.plan(problem, budget, columns=1, solver=solver)
        assert plan_from_json(plan.to_json()) == plan
        assert np.count_nonzero(plan.run(data, random_state=1).output) <= 1


# 4. SPIDER.


def test_a_filter_halts_spider_and_no_call_is_free():
    plan, data, _ = planned("spider", steps=50)
    release = plan.run(data, random_state=1)
    assert release.halted
    assert np.isfinite(release.value).all()
    mechanism = plan.mechanism
    with pytest.raises(RuntimeError, match="no filter"):
        # Without its filter a call would be uncounted.
        mechanism.run(View(data, "replace", "record", Source(1)), Run(Source(1)))


def test_spider_never_spends_more_than_its_cap():
    plan, data, _ = planned("spider", kind="gdp", steps=50, drift=0.0)
    session = plan.open(data, random_state=1)
    spent = []
    while not session.done:
        session.step()
        spent.append(session._run.filter.spent)
    assert len(spent) == 5  # four gradients, and the call that did not fit
    with pytest.raises(FilterExhausted):
        session._run.charge(plan.event.cap)


# 5, 6 and 10. Streams.


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_answers_its_rounds_and_no_more(name):
    plan, data, _ = planned(name)
    with plan.open() as session:
        for batch in data:
            session.observe(batch)
        with pytest.raises(InteractionClosed):
            session.observe(data[0])
    with pytest.raises(ValueError, match="rows of"):
        plan.open().observe(InMemory(np.ones((1, 9)), [0.0]))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_killed_and_resumed_at_every_step(name, tmp_path):
    plan, data, _ = planned(name)
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", Budget(rho=10.0))
    for stop in range(len(data) + 1):
        store = tmp_path / f"{stop}.state"
        session = plan.open(store=store, account=ledger.account("people"))
        before = [session.observe(batch) for batch in data[:stop]]
        del session  # as if the process had ended here
        again = resume(plan, store, account=ledger.account("people"))
        if before:
            np.testing.assert_array_equal(again.last, before[-1])
        after = [again.observe(batch) for batch in data[stop:]]
        with pytest.raises(InteractionClosed):
            again.observe(data[0])
        release = again.close()
        assert list(release.value)[1:] == before + after
    assert [entry.kind for entry in ledger.entries("people")].count("release") == len(data) + 1


# 7 and 8. Users.


def test_data_without_users_is_refused():
    plan, data, _ = planned("model_averaging")
    with pytest.raises(ValueError, match="user ids"):
        plan.run(InMemory(data.matrix, data.labels))


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_one_user_changes_one_model(relation):
    """Coupled positions: all groups but one give the same model."""
    plan, data, neighbour = planned("model_averaging", relation)
    models = []
    for each in (data, neighbour):
        view = View(each, relation, "user", Source(4))
        models.append(plan.transformation.transform(view, Run(Source(1))).whole.rows)
    changed = np.any(models[0] != models[1], axis=1)
    assert changed.sum() == 1


# Sampler and estimator.


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_sampler_keeps_its_range_exactly(relation):
    """The probabilities of all candidates on both neighbours, in closed form."""
    plan, data, neighbour = planned("gibbs_toy", relation, "pure")
    mechanism, logs = plan.mechanism, []
    for each in (data, neighbour):
        losses, _ = each.gradients(
            mechanism.problem.loss, mechanism.candidates, **mechanism.problem.guards
        )
        scores = -mechanism.beta * losses
        logs.append(scores - np.logaddexp.reduce(scores))
    moved = logs[0] - logs[1]
    assert 0.2 < np.ptp(moved) <= 1.0


@pytest.mark.parametrize("solver", ["noisy_gd", "phased_sgd"])
def test_an_estimator_takes_solvers_as_names_and_objects(solver, installed):
    from skeletons.estimator import TinyClassifier

    rng = np.random.default_rng(1)
    rows = rng.normal(size=(1000, 2)) / 3
    labels = np.where(rows[:, 0] > 0, 1, 0)
    by_name = TinyClassifier(solver=solver, epsilon=5.0).fit(rows, labels, random_state=1)
    by_object = TinyClassifier(solver=registry.find(solver), epsilon=5.0).fit(
        rows, labels, random_state=1
    )
    np.testing.assert_array_equal(by_name.coef_, by_object.coef_)
    assert Budget(epsilon=5.0, delta=1e-6).admits(by_name.guarantee_.event)
    assert set(by_name.predict(rows)) <= {-1.0, 1.0}


def test_a_model_takes_a_skeleton_as_its_solver():
    rows = np.random.default_rng(1).uniform(-1, 1, (500, 2))
    public = {"epsilon": 5.0, "delta": 1e-6, "bounds": (-1.0, 1.0)}
    for name in ("spider",):
        model = LogisticRegression(solver=algorithm_of(name), **public).fit(rows, rows[:, 0] > 0)
        assert model.plan_.algorithm == name
        assert set(model.predict(rows)) <= {False, True}

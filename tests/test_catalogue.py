"""Every algorithm of the catalogue keeps the protocol."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpfit.audit.neighbours import require_neighbours
from dpfit.catalogue import ENTRIES, entry
from dpfit.core import Interactive, Step, plan_from_json
from dpfit.losses import CustomLoss
from dpfit.privacy import Budget
from dpfit.theory.bibliography import citations

BUDGETS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "gdp": {"mu": 1.0},
    "zcdp": {"rho": 0.5},
}
RELATIONS = ("replace", "add_remove")
CASES = [(e, kind, relation) for e in ENTRIES for kind in e.guarantees for relation in e.relations]


@pytest.mark.parametrize(("row", "kind", "relation"), CASES, ids=lambda v: getattr(v, "name", v))
def test_plans_are_public_and_keep_their_budget(row, kind, relation):
    algorithm = row.load()
    budget = Budget(**BUDGETS[kind], relation=relation)
    problem, data, neighbour = algorithm.example(relation)
    plan = algorithm.plan(problem, budget)
    if relation == "replace":
        assert algorithm.plan(problem, budget) == plan
    assert plan.guarantee.meets(budget)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    cited = citations(plan.basis.theorem)
    assert cited, "the theorem cites nothing"
    assert [each.text for each in cited if each.reference is None] == []
    assert plan.basis.relation == relation
    assert plan.explain()
    if isinstance(plan, Step) and isinstance(plan.mechanism, Interactive):
        return
    one, two = (_shape(plan.run(rows, random_state=1).value) for rows in (data, neighbour))
    assert one == two


def _shape(value):
    """Shapes and types are part of the output: they must not depend on the data."""
    if isinstance(value, tuple):
        return tuple(map(_shape, value))
    return type(value), np.shape(value), getattr(value, "dtype", None)


LINEAR = (
    "phased_sgd",
    "preconditioned_gd",
    "warm_start_gd",
    "pda_dpmd",
    "public_mirror_descent",
    "objective_perturbation",
    "sufficient_statistics",
    "sparse_descent",
)


@pytest.mark.parametrize(
    "row", [e for e in ENTRIES if e.problem == "minimize"], ids=lambda e: e.name
)
def test_losses_of_the_caller_are_not_claimed_to_be_exact(row):
    """This loss centres its batch: a replaced record moves all others' gradients."""
    centred = CustomLoss(
        value_function=lambda theta, rows, labels: (rows - rows.mean(axis=0)) @ theta,
        gradient_function=lambda theta, rows, labels: rows - rows.mean(axis=0),
        lipschitz_bound=2.0,
        smoothness_bound=1.0,
        is_convex=True,
    )
    problem = replace(row.load().example("replace")[0], loss=centred)
    budget = Budget(**BUDGETS[row.guarantees[-1]])
    if row.name == "robust_gd":
        with pytest.raises(ValueError, match="levels off"):
            row.load().plan(problem, budget)
        return
    if row.name in LINEAR:
        with pytest.raises(ValueError, match=r"generalized linear|Squared"):
            row.load().plan(problem, budget)
        return
    basis = row.load().plan(problem, budget).basis
    assert basis.arithmetic == "idealised"
    assert any(
        "that record and the parameter only" in a.text
        for a in basis.assumptions
        if a.status == "declared"
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("row", ENTRIES, ids=lambda e: e.name)
def test_examples_are_neighbours(row, relation):
    if relation not in row.relations:
        return
    _, data, neighbour = row.load().example(relation)
    if isinstance(data, tuple):  # a stream: neighbours differ in one of the batches
        require_neighbours(data, neighbour, relation)
    elif relation == "replace":
        assert len(data) == len(neighbour)
        assert sum(bool(np.any(a != b)) for a, b in zip(data, neighbour, strict=True)) == 1
    else:
        assert abs(len(data) - len(neighbour)) == 1


@pytest.mark.parametrize("row", ENTRIES, ids=lambda e: e.name)
def test_rows_are_complete(row):
    assert row.load().name == row.name
    assert row.problem in ("minimize", "sample", "answer", "play")
    assert set(row.guarantees) <= set(BUDGETS)
    assert row.guarantees
    assert row.reference
    docs = Path(__file__).parents[1] / "docs" / "algorithms.md"
    assert f"`{row.name}`" in docs.read_text()


def test_names_are_unique_and_unknown_ones_are_said():
    assert len({e.name for e in ENTRIES}) == len(ENTRIES)
    with pytest.raises(ValueError, match=r"there is no algorithm .magic.*dpfit algorithms --all"):
        entry("magic")

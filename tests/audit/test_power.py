"""Power: how much of the promise a fixed score finds at confidence 1 - 1e-6."""

import pytest

from dpfit.audit import Projection, audit_callable, audit_entry
from dpfit.catalogue import entry
from dpfit.core import Run
from dpfit.data.view import view_of
from dpfit.privacy import Budget

BUDGETS = {"gaussian_mean": {"mu": 1.0}, "laplace_mean": {"epsilon": 1.0}}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUDGETS)
def test_ten_thousand_runs_find_four_fifths_of_a_tight_promise(name):
    """In-process, one noise stream; the same share through the runner is in the slow test below."""
    algorithm = entry(name).load()
    problem, data, neighbour = algorithm.example("replace")
    plan = algorithm.plan(problem, Budget(**BUDGETS[name]))

    def mechanism(rows, source):
        return plan.execute(view_of(rows, "replace", "record", source), Run(source))

    audit = audit_callable(
        mechanism,
        data,
        neighbour,
        plan.guarantee,
        runs=10_000,
        attacks=(Projection(),),
        random_state=1,
    )
    assert 0.8 * audit.promised <= audit.lower <= audit.promised
    assert audit.kept


@pytest.mark.slow
@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize(("runs", "share"), [(10_000, 0.8), (100_000, 0.93)])
def test_the_shipped_runner_is_audited_as_sharply(name, runs, share):
    audit = audit_entry(name, runs=runs, attacks=(Projection(),), n_jobs=2, random_state=1)
    assert share * audit.promised <= audit.lower <= audit.promised

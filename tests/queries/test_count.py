"""The table interface: from table to ledger row, with errors before any charge."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpfit.data.schema import Category, Number, Schema
from dpfit.ledger import BudgetExceeded, Ledger
from dpfit.privacy import Budget
from dpfit.queries import Bins, Ranges, count, plan_count, where

SCHEMA = Schema(
    (Category("ward", ("A", "B")), Number("age", 0, 90)), target=Category("ill", ("yes", "no"))
)
RNG = np.random.default_rng(0)
TABLE = {
    "ward": RNG.choice(["A", "B", "Z"], size=3000, p=[0.5, 0.4, 0.1]).tolist(),
    "age": RNG.integers(0, 90, size=3000).tolist(),
    "ill": RNG.choice(["yes", "no"], size=3000).tolist(),
}
TRUE_WARDS = np.array([TABLE["ward"].count(ward) for ward in ("A", "B", "Z")])
AGES = Bins(Number("age", 0, 90), (0.0, 30.0, 60.0, 90.0))


@pytest.mark.parametrize(
    "make", [dict, pd.DataFrame, pl.DataFrame, pa.table], ids=["dict", "pandas", "polars", "arrow"]
)
def test_any_table_gives_the_same_counts(make):
    found = count(make(TABLE), SCHEMA, "ward", epsilon=1.0, random_state=3)
    assert found.labels == ("ward = A", "ward = B", "ward = other")
    assert found.values == pytest.approx(TRUE_WARDS, abs=25)
    assert np.array_equal(
        found.values, count(TABLE, SCHEMA, ["ward"], epsilon=1.0, random_state=3).values
    )
    assert not found.release.private


def test_what_by_stands_for():
    budget = Budget(epsilon=1.0)
    assert plan_count(SCHEMA, "ward", budget).mechanism.workload.number == 3
    assert plan_count(SCHEMA, ["ward", "ill"], budget).mechanism.workload.number == 9
    pairs = plan_count(
        SCHEMA, [["ward", "ill"], ["age"]], budget, bins={"age": 3}
    ).mechanism.workload
    assert (pairs.number, pairs.max_changed_answers("replace")) == (12, 4)
    both = plan_count(
        SCHEMA, [where(ward="A"), where(age=(0, 30))], budget, max_per_record=2
    ).mechanism.workload
    assert both.max_changed_answers("add_remove") == 2
    assert plan_count(SCHEMA, Ranges.prefixes(AGES), budget).mechanism.workload.number == 3


@pytest.mark.parametrize(
    ("by", "options", "words"),
    [
        ([], {}, "nothing to count by"),
        (["height"], {}, "no column 'height'"),
        (["age"], {}, "say how to cut it"),
        (["ward"], {"bins": {"age": 3}}, "bins must name columns of by"),
        (["ward", where(ward="A")], {}, "names of columns"),
        ([["ward"], "ill"], {}, "names of columns"),
        ([3], {}, "names of columns"),
        ([where(ward="A"), where(ill="yes")], {}, "may hold for one record"),
        ([where(ward="Z")], {}, "no category 'Z'"),
        (["ward"], {"max_per_record": 2}, "max_per_record is for predicates"),
        (["ward"], {"noise": "cauchy"}, "'cauchy'"),
        (["ward"], {"minimize": "median"}, "minimize"),
        (["ward"], {"epsilon": -1.0}, "epsilon"),
        (["ward"], {"relation": "swap"}, "relation"),
    ],
)
def test_bad_questions_are_refused(by, options, words):
    with pytest.raises(ValueError, match=words):
        count(TABLE, SCHEMA, by, **{"epsilon": 1.0} | options)


def test_messages_do_not_depend_on_cells(recwarn):
    """Odd cells are mapped in silence; shape and type of what comes out stay."""
    odd = {
        "ward": [None, float("nan"), 7, "A"],
        "age": ["x", 1e300, -1e300, None],
        "ill": [[], {}, "yes", "no"],
    }
    plain = {"ward": ["A"] * 4, "age": [1] * 4, "ill": ["no"] * 4}
    for by in (["ward", "ill"], [["age"], ["ward"]]):
        bins = {"age": 3} if by != ["ward", "ill"] else None
        shapes = {
            count(table, SCHEMA, by, epsilon=1.0, bins=bins, random_state=1).values.shape
            for table in (odd, plain)
        }
        assert len(shapes) == 1
    assert len(recwarn) == 0


def test_intervals_hold_the_truth():
    """200 releases of three counts: 80% to 98% hold at level 0.9, jointly above 80%."""
    inside, jointly = [], []
    for seed in range(200):
        found = count(TABLE, SCHEMA, "ward", mu=0.3, random_state=seed)
        low, high = found.interval(0.9)
        inside.append((low <= TRUE_WARDS) & (high >= TRUE_WARDS))
        low, high = found.interval(0.9, simultaneous=True)
        jointly.append(np.all((low <= TRUE_WARDS) & (high >= TRUE_WARDS)))
    assert 0.8 < np.mean(inside) < 0.98
    assert 0.8 < np.mean(jointly) < 0.99


def test_results_are_columns_for_a_frame():
    frame = pd.DataFrame(count(TABLE, SCHEMA, "ward", epsilon=1.0, random_state=1).to_dict())
    assert list(frame.columns) == ["label", "count", "lower", "upper"]
    assert np.all(frame["lower"] <= frame["upper"])


def test_marginals_add_up_and_are_not_negative():
    found = count(TABLE, SCHEMA, [["ward", "ill"], ["ward"], ["ill"]], epsilon=0.2, random_state=5)
    pairs, wards, ills = found.values[:9].reshape(3, 3), found.values[9:12], found.values[12:]
    assert np.all(found.values >= 0)
    assert pairs.sum(axis=1) == pytest.approx(wards, abs=1e-3)
    assert pairs.sum(axis=0) == pytest.approx(ills, abs=1e-3)
    raw = count(
        TABLE,
        SCHEMA,
        [["ward", "ill"], ["ward"]],
        epsilon=0.2,
        consistent=False,
        nonnegative=False,
        random_state=5,
    )
    assert np.array_equal(raw.values, raw.release.value)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budgets.ledger")


def test_counts_are_charged_before_they_are_made(ledger):
    ledger.register("patients", Budget(epsilon=1.0))
    count(
        TABLE,
        SCHEMA,
        "ward",
        epsilon=0.75,
        ledger=ledger,
        dataset="patients",
        who="ann",
        why="table 1",
    )
    assert float(ledger.status("patients").left.amount) == pytest.approx(0.25)
    with pytest.raises(BudgetExceeded):
        count(TABLE, SCHEMA, "ward", epsilon=0.5, ledger=str(ledger.path), dataset="patients")
    assert ledger.status("patients").releases == 1


def test_slips_cost_nothing(ledger):
    ledger.register("patients", Budget(epsilon=1.0))
    for table, by in (({"ward": ["A"]}, ["ill"]), (TABLE, ["height"])):
        with pytest.raises(ValueError, match="no column"):
            count(table, SCHEMA, by, epsilon=0.5, ledger=ledger, dataset="patients")
    with pytest.raises(ValueError, match="give dataset"):
        count(TABLE, SCHEMA, "ward", epsilon=0.5, ledger=ledger)
    assert ledger.status("patients").reservations == 0


def test_noise_without_a_price_is_charged_as_epsilon_and_delta(ledger):
    ledger.register("columns", Budget(epsilon=2.0, delta=1e-5), currency="pure")
    ledger.register("squares", Budget(epsilon=2.0, delta=1e-5))
    many = [where(age=(0, stop)) for stop in range(1, 91)]
    asked = {"epsilon": 1.0, "delta": 1e-6, "max_per_record": 90, "noise": "generalized_gaussian"}
    count(TABLE, SCHEMA, many, **asked, ledger=ledger, dataset="columns")
    spent = ledger.status("columns").spent
    assert (float(spent.amount), float(spent.delta)) == pytest.approx((1.0, 1e-6), rel=2e-4)
    with pytest.raises(BudgetExceeded, match="no delta column"):
        count(TABLE, SCHEMA, many, **asked, ledger=ledger, dataset="squares")
    count(TABLE, SCHEMA, many, **asked | {"noise": "gaussian"}, ledger=ledger, dataset="squares")
    assert ledger.status("squares").releases == 1

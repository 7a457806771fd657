"""Workloads over tables: sensitivities over all records, answers, labels, errors."""

import itertools
import json

import numpy as np
import pytest

from dpfit.data.schema import Category, Number, Schema
from dpfit.privacy.spec import Spec, from_json
from dpfit.queries import Bins, Categories, Histogram, Marginals, Predicates, Ranges, where
from dpfit.queries.axes import axis

RELATIONS = ("replace", "add_remove")
WARD = Category("ward", ("A", "B"))
AGE = Number("age", 0, 90)
SCORE = Number("score", 0.0, 1.0, nullable=True)
SCHEMA = Schema((WARD, AGE), target=SCORE)

WARDS = Categories(WARD)
AGES = Bins(AGE, (0.0, 30.0, 60.0, 90.0))
SCORES = Bins(SCORE, (0.0, 0.25, 0.5, 0.75, 1.0))

WORKLOADS = {
    "histogram": Histogram((WARDS, AGES)),
    "nullable histogram": Histogram((SCORES,)),
    "one cell": Histogram((Bins(AGE, (0.0, 90.0)),)),
    "marginals": Marginals((Histogram((WARDS,)), Histogram((AGES, SCORES)), Histogram((AGES,)))),
    "prefixes": Ranges.prefixes(AGES),
    "all ranges": Ranges.all(AGES),
    "nullable ranges": Ranges.all(SCORES),
    "some ranges": Ranges(SCORES, ((0, 2), (1, 3), (3, 4))),
    "disjoint predicates": Predicates((WARD, AGE), (where(ward="A"), where(ward="B", age=(0, 30)))),
    "overlapping predicates": Predicates(
        (WARD, AGE, SCORE),
        (where(ward="A"), where(age=(0, 60)), where(score=(0.25, 1.0))),
        max_per_record=2,
    ),
    "everybody": Predicates((WARD, AGE), (where(), where(ward="A")), max_per_record=2),
}

CELLS = {
    "ward": ["A", "B", "Z", None],
    "age": [-5, 0, 29.9, 30, 59, 60, 90, 1000, None, "old"],
    "score": [0.0, 0.2, 0.25, 0.5, 0.8, 1.0, None, float("nan")],
}
RECORDS = [dict(zip(CELLS, cells, strict=True)) for cells in itertools.product(*CELLS.values())]


def one_row(record):
    return {name: [cell] for name, cell in record.items()}


def all_answers(workload):
    """The distinct contributions of single records."""
    return np.unique([workload.sums(one_row(record)) for record in RECORDS], axis=0)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_sensitivities_by_brute_force(name, relation):
    """Never below any change, and equal where records reach every cell and subset."""
    workload = WORKLOADS[name]
    single = all_answers(workload)
    assert set(np.unique(single)) <= {0, 1}
    changes = (
        single
        if relation == "add_remove"
        else (single[:, None] - single[None]).reshape(-1, workload.number)
    )
    moved = int(np.max(np.abs(changes).sum(axis=1)))
    # One cell cannot change under replace-one, and two predicates of which one always holds move
    # only one.
    loose = {("one cell", "replace"): 1, ("everybody", "replace"): 2}
    assert workload.max_changed_answers(relation) == loose.get((name, relation), moved)
    assert workload.max_changed_answers(relation) >= moved
    for norm, order in {"l1": 1, "l2": 2, "linf": np.inf}.items():
        assert workload.sensitivity(norm, relation) >= np.max(
            np.linalg.norm(changes, order, axis=1)
        )


@pytest.mark.parametrize("name", WORKLOADS)
def test_answers_are_sums_over_records(name):
    """Adding tables adds answers: each record counts by itself."""
    workload = WORKLOADS[name]
    rng = np.random.default_rng(1)
    chosen = [RECORDS[i] for i in rng.integers(len(RECORDS), size=60)]
    table = {column: [record[column] for record in chosen] for column in CELLS}
    single = sum(workload.sums(one_row(record)) for record in chosen)
    assert np.array_equal(workload.sums(table), single)
    assert workload.sums(table).dtype == np.int64
    empty = {column: [] for column in CELLS}
    assert workload.sums(empty).tolist() == [0] * workload.number
    assert len(workload.labels) == workload.number


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_records(name):
    workload = WORKLOADS[name]
    assert from_json(json.loads(json.dumps(workload.to_json())), Spec) == workload


def test_partitions_have_the_sensitivities_of_one_cell():
    for cells in (2, 100):
        histogram = Histogram((Bins(AGE, tuple(np.linspace(0, 90, cells + 1))),))
        assert [histogram.sensitivity(n, "add_remove") for n in ("l1", "l2", "linf")] == [1, 1, 1]
        assert [histogram.sensitivity(n, "replace") for n in ("l1", "l2", "linf")] == pytest.approx(
            [2, 2**0.5, 1]
        )


def test_the_histogram_counts_what_it_says():
    table = {"ward": ["A", "B", "B", "C"], "age": [10, 40, 61, 200]}
    found = dict(
        zip(WORKLOADS["histogram"].labels, WORKLOADS["histogram"].sums(table).tolist(), strict=True)
    )
    assert {label: n for label, n in found.items() if n} == {
        "ward = A, age = [0, 30)": 1,
        "ward = B, age = [30, 60)": 1,
        "ward = B, age = [60, 90]": 1,
        "ward = other, age = [60, 90]": 1,
    }


def test_a_record_in_too_many_predicates_counts_in_the_first():
    workload = WORKLOADS["overlapping predicates"]
    assert workload.sums({"ward": ["A"], "age": [10], "score": [0.5]}).tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Predicates((WARD, AGE), (where(ward="A"), where(age=(0, 30)))),
            "may hold for one record",
        ),
        (
            lambda: Predicates((WARD, AGE), (where(age=(0, 31)), where(age=(30, 90)))),
            "may hold for one record",
        ),
        (lambda: Predicates((WARD,), ()), "between 1 and"),
        (lambda: Predicates((WARD,), (where(ward="C"),)), "no category 'C' in the schema"),
        (lambda: Predicates((WARD,), (where(ward=("A", "C")),)), "no category 'C' in the schema"),
        (lambda: Predicates((WARD,), (where(ward=()),)), "no category"),
        (lambda: Predicates((WARD,), (where(height=(0, 1)),)), "no column 'height'"),
        (lambda: Predicates((AGE,), (where(age=5),)), "give a pair"),
        (lambda: Predicates((AGE,), (where(age=(0, 91)),)), "within \\[0, 90\\]"),
        (lambda: Predicates((AGE,), (where(age=(30, 30)),)), "within"),
        (lambda: Predicates((WARD,), (where(ward="A"),), max_per_record=2), "must be at most"),
        (lambda: Histogram(()), "one or more columns"),
        (lambda: Histogram((WARDS, WARDS)), "each of them once"),
        (lambda: Marginals(()), "one or more tables"),
        (
            lambda: Marginals((Histogram((WARDS, AGES)), Histogram((AGES, WARDS)))),
            "another set of columns",
        ),
        (
            lambda: Marginals((Histogram((AGES,)), Histogram((WARDS, Bins(AGE, (0.0, 90.0)))))),
            "cut in the same way",
        ),
        (lambda: Ranges(AGES, ()), "between 1 and"),
        (lambda: Ranges(AGES, ((0, 4),)), "number of bins"),
        (lambda: Ranges(AGES, ((1, 1),)), "number of bins"),
        (lambda: Ranges(AGES, ((0, 1), (0, 1))), "asked once"),
        (lambda: Bins(AGE, (0.0, 30.0)), "must rise from 0 to 90"),
        (lambda: Bins(AGE, (0.0, 50.0, 30.0, 90.0)), "must rise"),
        (lambda: axis(SCHEMA, "age", {}), "say how to cut it"),
        (lambda: axis(SCHEMA, "ward", {"ward": 3}), "has categories"),
        (lambda: axis(SCHEMA, "height", {}), "no column 'height'"),
        (lambda: axis(SCHEMA, "age", {"age": 0}), "at least 1"),
        (
            lambda: Histogram(
                tuple(Bins(Number(c, 0, 1), tuple(np.linspace(0, 1, 2001))) for c in "abc")
            ),
            "fewer columns",
        ),
    ],
)
def test_bad_workloads_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_touching_ranges_are_disjoint_and_cover_the_end():
    workload = Predicates((AGE,), (where(age=(0, 30)), where(age=(30, 90))))
    assert workload.sums({"age": [30, 29.99, 90, 1e9, -1]}).tolist() == [2, 3]


def least_squares(workload, answers):
    """By a dense matrix: columns are the contributions of single records."""
    matrix = all_answers(workload).T.astype(float)
    return matrix @ np.linalg.lstsq(matrix, answers, rcond=None)[0]


@pytest.mark.parametrize("name", ["marginals", "all ranges", "prefixes", "some ranges"])
def test_consistent_answers_are_the_least_squares_ones(name):
    workload = WORKLOADS[name]
    noisy = np.random.default_rng(4).normal(20, 10, workload.number)
    found = workload.consistent(noisy)
    assert found == pytest.approx(least_squares(workload, noisy), abs=1e-9)
    assert workload.consistent(found) == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("name", WORKLOADS)
def test_repaired_answers_add_up_and_are_not_negative(name):
    """Repaired answers are closer to the truth, which adds up and is non-negative."""
    workload = WORKLOADS[name]
    rng = np.random.default_rng(5)
    chosen = [RECORDS[i] for i in rng.integers(len(RECORDS), size=30)]
    truth = workload.sums({column: [record[column] for record in chosen] for column in CELLS})
    noisy = truth + rng.normal(0, 15, workload.number)
    repaired = workload.repaired(noisy, consistent=True, nonnegative=True)
    assert np.all(repaired >= 0)
    assert workload.consistent(repaired) == pytest.approx(repaired, abs=1e-4)
    assert np.linalg.norm(repaired - truth) <= np.linalg.norm(noisy - truth) + 1e-4
    assert np.array_equal(workload.repaired(noisy, consistent=False, nonnegative=False), noisy)
    assert workload.repaired(noisy, consistent=False, nonnegative=True) == pytest.approx(
        np.maximum(noisy, 0)
    )


def test_least_squares_is_invariant_to_the_order_of_columns():
    one = Marginals((Histogram((WARDS, AGES)), Histogram((AGES,))))
    two = Marginals((Histogram((AGES, WARDS)), Histogram((AGES,))))
    noisy = np.random.default_rng(6).normal(size=one.number)
    turned = np.concatenate([noisy[:9].reshape(3, 3).T.ravel(), noisy[9:]])
    found = one.consistent(noisy)
    assert two.consistent(turned) == pytest.approx(
        np.concatenate([found[:9].reshape(3, 3).T.ravel(), found[9:]])
    )

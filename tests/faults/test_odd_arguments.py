"""Odd arguments, names, budgets and files: each works or is refused with the way out."""

import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from dpfit import Budget, Ledger
from dpfit.core import plan_from_json
from dpfit.data.schema import Number, Schema
from dpfit.ledger import LedgerError
from dpfit.models import (
    BoundedMean,
    LinearRegression,
    LogisticRegression,
    ModelFileDamaged,
    load,
    save,
)
from dpfit.models.scaling import Scaling
from dpfit.privacy import Basis, BudgetUnreachable, Guarantee, calibrate, gaussian
from dpfit.privacy.event import (
    Composed,
    Gaussian,
    GaussianPrivate,
    Laplace,
    Pure,
    Repeated,
    Sampled,
)
from dpfit.privacy.plain_text import visible
from dpfit.privacy.spec import digest

X = np.random.default_rng(2).uniform(-1, 1, size=(300, 2))
YES = X[:, 0] > 0
TWICE = pd.DataFrame(X, columns=["a", "a"])
BINARY = LogisticRegression(bounds=(-1, 1))


def guaranteed(event):
    return Guarantee(event, Basis("a theorem"))


HOSTILE = {
    "two columns of one name": (lambda: BINARY.fit(TWICE, YES), "two columns of one name"),
    "the same of a mean": (lambda: BoundedMean(bounds=(-1, 1)).fit(TWICE), "two columns of one"),
    "the same of a schema": (lambda: Schema((Number("a", 0, 1),)).matrix(TWICE), "two columns"),
    "a range beyond doubles": (
        lambda: LogisticRegression(bounds=(0, 10**400)).fit(X, YES),
        "must be a pair",
    ),
    "labels beyond doubles": (
        lambda: LinearRegression(bounds=(0, 1), y_bounds=(0, 10**400)).fit(X, X[:, 0]),
        "must be a pair",
    ),
    "a range without an inverse": (
        lambda: LogisticRegression(bounds=(0, 5e-324)).fit(np.zeros((300, 2)), YES),
        "at least 1e-307 wide",
    ),
    "nested lists": (lambda: Schema.from_toml("a = " + "[" * 5000 + "]" * 5000), "too deeply"),
    "nested tables": (
        lambda: Schema.from_toml("[columns.a]\nlower=" + "{a=" * 5000 + "1" + "}" * 5000),
        "too deeply",
    ),
    "an infinite epsilon, nearly": (lambda: Budget(epsilon=1.7e308), "between 1e-100 and 1e100"),
    "no epsilon, nearly": (lambda: Budget(mu=1e-300), "between 1e-100 and 1e100"),
    "no noise needed": (
        lambda: BoundedMean(1e100, bounds=(-1, 1)).fit(X),
        "without noise, or with hardly any",
    ),
    "a delta below doubles": (
        lambda: BoundedMean(1.0, 5e-324, bounds=(-1, 1)).fit(X),
        "no noise meets this budget",
    ),
    "a delta below doubles, shared": (
        lambda: BoundedMean(1.0, 5e-324).fit(X),
        "no Gaussian noise meets delta",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_a_value_error_that_says_so(name):
    act, words = HOSTILE[name]
    with pytest.raises(ValueError, match=words):
        act()


def test_weights_in_the_third_place_are_no_user_ids():
    for weights in (np.ones(300), [1] * 300):
        with pytest.raises(TypeError, match=r"user_ids by name.*takes no sample_weight"):
            BINARY.fit(X, YES, weights)
    assert BINARY.fit(X, YES, None).private_


def test_a_list_of_rows_with_one_label_is_a_list_of_labels():
    model = LogisticRegression(50.0, bounds=(-1, 1), classes=[0, 1])
    for listed in ([[one] for one in YES * 1], [np.array([one]) for one in YES]):
        assert (model.fit(X, listed).predict(X) == YES).mean() > 0.95


def test_a_fraction_is_a_budget_that_can_be_kept(tmp_path):
    third = Budget(epsilon=Fraction(1, 3), delta=Fraction(1, 10**6))
    assert type(third.epsilon) is type(third.delta) is float
    assert Fraction(third.epsilon) <= Fraction(1, 3)
    ledger = Ledger.create(tmp_path / "x.ledger")
    ledger.register("d", third)
    assert ledger.status("d").budget == third
    assert type(Budget(mu=np.float32(0.5)).mu) is float


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.3, 1.0, 2.0, 1e4])
@pytest.mark.parametrize("stages", [1, 2, 7])
def test_pure_budgets_are_used_to_the_last_digits(epsilon, stages):
    """They were used up to a trillionth, so that totals in a ledger were not what was asked."""
    template = Composed((Repeated(Laplace(1.0), stages), Laplace(3.0)))
    used = guaranteed(calibrate(template, Budget(epsilon=epsilon))).pure
    assert epsilon * (1 - 4e-15) <= used <= epsilon


@pytest.mark.parametrize("epsilon", [0.05, 0.1, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("solver", ["auto", "objective_perturbation", "output_perturbation"])
def test_ten_fits_fit_into_ten_times_the_budget(epsilon, solver, tmp_path):
    """The double 0.1 is more than a tenth: the tenth fit was refused."""
    ledger = Ledger.create(tmp_path / "x.ledger")
    ledger.register("d", Budget(epsilon=round(10 * epsilon, 6)))
    model = LogisticRegression(epsilon, bounds=(-1, 1), solver=solver, ledger=ledger, dataset="d")
    for _ in range(10):
        model.fit(X, YES)
    spent = ledger.status("d").spent.amount
    assert spent == pytest.approx(10 * epsilon, rel=1e-14)
    assert spent <= Fraction(repr(epsilon)) * 10


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1e100, 1 - 2.0**-53), (1e15, 0.5), (1e-100, 1e-9), (1.0, 1 - 2.0**-53), (1e100, 1e-300)],
)
def test_nonsense_budgets_have_a_mu_that_keeps_them(epsilon, delta):
    """The search for it ended in an error of SciPy."""
    mu = gaussian.mu(epsilon, delta)
    assert mu > 0
    assert gaussian.delta(mu, epsilon) <= delta


def test_trifles_of_accounting():
    assert guaranteed(Sampled(Gaussian(1.0), 0.0)).epsilon(0.0) == 0.0
    assert guaranteed(GaussianPrivate(1e-16)).delta(0.0) >= 3.98e-17
    assert guaranteed(GaussianPrivate(1e-16)).epsilon(1e-200) > 0
    assert guaranteed(Repeated(Laplace(1e17), 100)).delta(0.0) > 0
    assert float(str(guaranteed(Pure(1.00004))).split()[2].rstrip(",")) >= 1.00004


def test_two_rows_in_fortran_order_are_scaled_like_one():
    scaling = Scaling(0.5, 1.0, (0.0,) * 7, (1.0,) * 7)
    rows = np.asfortranarray(np.random.default_rng(0).uniform(0, 1, (2, 7)))
    assert_array_equal(scaling.rows(rows)[:1], scaling.rows(np.asfortranarray(rows[:1])))


NAMES = {
    "composed otherwise": ("caf\u00e9", "cafe\u0301"),
    "a space at the end": ("pat", "pat "),
    "another case": ("pat", "Pat"),
    "another width": ("pat", "\uff50at"),
    "a ligature": ("first", "\ufb01rst"),
    "a Cyrillic letter": ("pat", "p\u0430t"),
    "a space": ("pat", " "),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_look_alike_have_one_budget(name, tmp_path):
    first, other = NAMES[name]
    ledger = Ledger.create(tmp_path / "x.ledger")
    ledger.register(first, Budget(epsilon=1.0))
    ledger.register(first, Budget(epsilon=1.0))  # the same again changes nothing
    with pytest.raises(ValueError, match="name"):
        ledger.register(other, Budget(epsilon=1.0))
    with pytest.raises(LedgerError, match="not registered"):
        ledger.status(other)
    ledger.register("another", Budget(epsilon=1.0))
    assert ledger.datasets() == [first, "another"]


def test_notes_cannot_steer_a_terminal(tmp_path):
    note = "red \x1b[31m \u202e turned \x9b7m\r\nline"
    ledger = Ledger.create(tmp_path / "x.ledger")
    ledger.register("d", Budget(epsilon=1.0), note=note)
    shown = subprocess.run(
        [sys.executable, "-m", "dpfit", "ledger", "entries", str(ledger.path), "d"],
        capture_output=True,
        check=True,
        text=True,
        env={"COLUMNS": "200", "PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"},
    ).stdout
    assert "turned" in shown
    assert not {"\x1b", "\u202e", "\x9b", "\r"} & set(shown)
    assert visible(note).isprintable()


FORGED = {
    "coefficients": lambda c: c["fitted"]["coef_"].update(values=[[9.0, 9.0]]),
    "an intercept": lambda c: c["fitted"]["intercept_"].update(values=[9.0]),
    "classes in another order": lambda c: c["fitted"]["classes_"].update(values=[True, False]),
    "one class twice": lambda c: c["fitted"]["classes_"].update(values=[True, True]),
    "weights that are not numbers": lambda c: c["fitted"]["weights_"].update(
        values=[[float("nan")] * 3]
    ),
    "an epsilon": lambda c: c["parameters"].update(epsilon=-4),
    "a relation": lambda c: c["parameters"].update(relation="x"),
    "bounds": lambda c: c["parameters"].update(bounds="x"),
    "a ridge": lambda c: c["parameters"].update(ridge=-1.0),
    "an intercept that is a word": lambda c: c["parameters"].update(fit_intercept="no"),
    "a solver that is a number": lambda c: c["parameters"].update(solver=7),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.json"
    save(LogisticRegression(50.0, bounds=(-1, 1), solver="output_perturbation").fit(X, YES), path)
    return path


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_model_is_refused_though_its_digest_is_right(name, saved, tmp_path):
    content = json.loads(saved.read_text())
    del content["sha256"]
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**content, "sha256": digest(content)}))
    assert_array_equal(load(path).predict(X), load(saved).predict(X))
    FORGED[name](content)
    path.write_text(json.dumps({**content, "sha256": digest(content)}))
    with pytest.raises(ModelFileDamaged):
        load(path)


def test_a_plan_or_model_file_cannot_ask_for_all_memory(tmp_path):
    """A plan of 1e9 steps allocated arrays of 7.5 GiB when it was read."""
    model = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), solver="noisy_gd", max_passes=5)
    path = tmp_path / "model.json"
    save(model.fit(X, YES), path)
    content = json.loads(path.read_text())
    del content["sha256"]
    steps = json.dumps(content).replace('"steps": 5', '"steps": 1000000000')
    assert steps != json.dumps(content)
    with pytest.raises(ValueError, match="steps must be at most"):
        plan_from_json(json.loads(steps)["plan"])
    huge = json.loads(steps)
    path.write_text(json.dumps({**huge, "sha256": digest(huge)}))
    with pytest.raises(ModelFileDamaged):
        load(path)


def test_unreachable_budgets_name_the_budget():
    with pytest.raises(BudgetUnreachable, match="lower the budget"):
        calibrate(Pure(0.5), Budget(epsilon=1.0))

"""Which classes a fit to undeclared numbers assumes is always said, in the same words."""

import warnings

import numpy as np
import pandas as pd
import pytest

from dpfit.models import ClassesAssumed, LinearSVC, LogisticRegression

X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
YES = X[:, 0] > 0
NUMBERS = {
    "0 and 1": YES * 1,
    "1 and 2": YES + 1,
    "-1 and 1": YES * 2.0 - 1,
    "one of them": np.ones(300, dtype=np.int8),
    "missing": np.where(YES, np.nan, 1.0),
    "pandas": pd.Series(YES * 1),
    "nullable": pd.Series(YES * 1, dtype="Int64"),
}
DECLARED = {
    "truth values": {},
    "categories": {"y": pd.Series(YES).astype("category")},
    "classes": {"y": YES + 1, "classes": [1, 2]},
    "texts": {"y": np.where(YES, "a", "b"), "classes": ["a", "b"]},
}


def said(kind, y, **options):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = kind(50.0, bounds=(-1, 1), **options).fit(X, y)
    return model, [(warning.category, str(warning.message)) for warning in seen]


@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_the_same_is_said_whatever_the_numbers_are(kind):
    found = [said(kind, labels) for labels in NUMBERS.values()]
    texts = {text for _, warned in found for text in warned}
    (category, text), *others = texts
    assert (category, others) == (ClassesAssumed, [])
    assert "\n" not in text
    assert "0 and 1 are assumed" in text
    assert "classes=[" in text
    assert all(len(warned) == 1 for _, warned in found)
    assert all(model.classes_.tolist() == [0, 1] for model, _ in found)


@pytest.mark.parametrize("way", DECLARED)
def test_nothing_is_said_of_declared_classes(way):
    options = dict(DECLARED[way])
    model, warned = said(LogisticRegression, options.pop("y", YES), **options)
    assert warned == []
    assert len(set(model.predict(X))) == 2


def test_it_is_said_before_anything_is_charged(tmp_path):
    """A caller who makes errors of warnings pays nothing."""
    from dpfit import Budget, Ledger

    ledger = Ledger.create(tmp_path / "x.ledger")
    ledger.register("d", Budget(epsilon=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClassesAssumed)
        with pytest.raises(ClassesAssumed):
            LogisticRegression(1.0, bounds=(-1, 1), ledger=ledger, dataset="d").fit(X, YES * 1)
    assert ledger.status("d").reservations == 0

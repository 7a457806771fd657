"""What must stay true: interrupts, pickles, hostile files, progress and memory of charged fits."""

import copy
import gc
import io
import json
import pickle
import random
import sys
import tracemalloc
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone

from dpfit import Budget, Ledger
from dpfit.core import plan_from_json
from dpfit.data.schema import Schema
from dpfit.ledger import BudgetExceeded
from dpfit.models import (
    BoundedMean,
    LinearRegression,
    LogisticRegression,
    ModelFileDamaged,
    load,
    save,
)
from dpfit.privacy.spec import digest

RNG = np.random.default_rng(4)
X = RNG.uniform(-1, 1, size=(400, 2))
YES = X[:, 0] > 0
MARK = 0.62831853071795865
"""A number that only the records hold."""

MODELS = {
    "objective perturbation": LogisticRegression(1.0, bounds=(-1, 1)),
    "private ranges": LogisticRegression(1.0),
    "descent": LogisticRegression(1.0, 1e-6, bounds=(-1, 1), solver="noisy_gd", max_passes=5),
    "samples": LogisticRegression(1.0, 1e-4, bounds=(-1, 1), solver="dp_sgd"),
    "line": LinearRegression(1.0, bounds=(-1, 1), y_bounds=(0, 1)),
    "mean": BoundedMean(1.0, bounds=(-1, 1)),
}


def marked():
    """Records with a number that could be found in what leaves the process."""
    rows = X.copy()
    rows[::3, 1] = MARK
    return rows


class Interrupted:
    """Raises KeyboardInterrupt at one call of a function of dpfit, as a signal may."""

    def __init__(self, at):
        self.calls, self.at = 0, at

    def __call__(self, frame, event, argument):
        if event == "call" and "/dpfit/" in frame.f_code.co_filename:
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt
        return


@pytest.mark.parametrize("name", ["objective perturbation", "private ranges", "descent"])
def test_an_interrupt_at_any_call_overspends_nothing(name, tmp_path):
    delta = MODELS[name].delta or None
    ledger = Ledger.create(tmp_path / "x.ledger")
    ledger.register("d", Budget(epsilon=5.5, delta=delta and 10 * delta))
    model = clone(MODELS[name]).set_params(ledger=ledger, dataset="d")
    counter = Interrupted(0)
    sys.setprofile(counter)
    try:
        model.fit(X, YES)
    finally:
        sys.setprofile(None)
    finished, hit, draw = 1, 0, random.Random(name)
    for _ in range(8):
        model = clone(model)
        sys.setprofile(Interrupted(draw.randrange(1, counter.calls)))
        try:
            model.fit(X, YES)
            finished += 1
        except KeyboardInterrupt:
            hit += 1
            assert not hasattr(model, "coef_")
        except BudgetExceeded:
            break
        finally:
            sys.setprofile(None)
    status = ledger.status("d")
    ledger.verify()
    assert hit > 2
    assert status.spent.amount <= status.cap.amount
    # An interrupt after the release was written loses the release, never the charge.
    assert finished <= status.releases <= finished + hit
    charged = status.reservations - status.abandoned
    assert charged >= status.releases


@pytest.mark.parametrize("name", MODELS)
def test_nothing_that_leaves_a_model_holds_a_record(name, tmp_path):
    model = clone(MODELS[name])
    rows = marked()
    model.fit(rows, YES * 1.0 if name == "line" else YES)
    leaving = io.BytesIO()
    for dump in (pickle.dump, joblib.dump):
        dump(model, leaving)
        dump(copy.deepcopy(model), leaving)
    save(model, tmp_path / "model.json")
    texts = [model.plan_.explain(), repr(model), str(model.guarantee_), model._repr_html_()]
    texts += [(tmp_path / "model.json").read_text(), json.dumps(model.plan_.to_json())]
    data = leaving.getvalue() + "".join(texts).encode()
    for kind in (np.float64, np.float32):
        assert kind(MARK).tobytes() not in data
    assert str(MARK)[:12].encode() not in data
    assert (
        len(leaving.getvalue()) < 4 * rows.nbytes
    )  # four copies of the model, none of the records
    # The search finds what is there.
    assert np.float64(MARK).tobytes() in pickle.dumps(rows)


class Bomb:
    """Leaves a mark if a reader runs code of a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def hostile_texts(mark):
    call = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    return [
        pickle.dumps(Bomb(mark)).decode("latin-1"),
        call,
        json.dumps({"kind": "os.system", "command": f"touch {mark}"}),
        json.dumps({"py/object": "pathlib.Path", "args": [str(mark)]}),
        json.dumps({"kind": "step", "mechanism": {"kind": call}, "why": {}}),
        json.dumps({"format": "dpfit model 2", "model": call, "parameters": {}, "fitted": {}}),
        json.dumps({"format": "dpfit model 2", "model": "os.system"}),
        "{" * 5000,
        "[" * 200_000,
        '{"format": "dpfit model 2", "fitted": ' + "9" * 5000 + "}",
        "\x00\xff",
        "",
        "null",
        "a = " + "[" * 5000,
        "[columns.x]\nlower = " + "9" * 5000,
        "[columns.x]\nlower = nan\nupper = 1",
        '[columns.x]\ncategories = [["a"]]',
    ]


@pytest.mark.parametrize("number", range(17))
def test_hostile_files_run_no_code_and_are_refused_in_words(number, tmp_path):
    mark, path = tmp_path / "ran", tmp_path / "file"
    text = hostile_texts(mark)[number]
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelFileDamaged) as model_error:
        load(path)
    errors = [str(model_error.value)]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    for read in (lambda: plan_from_json(value), lambda: Schema.read(path)):
        try:
            read()
        except (ValueError, TypeError) as error:
            errors.append(str(error))
    assert len(errors) >= 2
    assert all(0 < len(error) < 600 for error in errors)
    assert not mark.exists()


PARTS = ["plan", "guarantee", "scaling", "fitted", "parameters"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("value", [None, [], {"kind": "os"}, 10**400, "x", [[[]]]], ids=repr)
def test_a_model_file_with_a_hostile_part_is_refused(part, value, tmp_path):
    path = tmp_path / "model.json"
    save(_fitted(), path)
    content = json.loads(path.read_text())
    del content["sha256"]
    content[part] = value
    path.write_text(json.dumps({**content, "sha256": digest(content)}))
    with pytest.raises(ModelFileDamaged):
        load(path)


_MODEL: list[LogisticRegression] = []


def _fitted():
    if not _MODEL:
        _MODEL.append(clone(MODELS["objective perturbation"]).fit(X, YES))
    return _MODEL[0]


@pytest.mark.parametrize("name", ["descent", "samples", "private ranges"])
def test_progress_is_the_same_on_other_records(name):
    other = np.full_like(X, 1e300)
    other[::2] = np.nan
    told = []
    for rows, labels in ((X, YES), (other, ~YES), (np.zeros_like(X), np.ones(len(X), dtype=bool))):
        model = clone(MODELS[name])
        shares = []
        model.report_progress = shares.append
        model.fit(rows, labels)
        told.append(shares)
    assert told[0] == told[1] == told[2]


def test_memory_does_not_grow_over_many_fits(tmp_path):
    ledger = Ledger.create(tmp_path / "x.ledger")
    ledger.register("d", Budget(epsilon=1e4))
    model = clone(MODELS["objective perturbation"]).set_params(ledger=ledger, dataset="d")
    for _ in range(3):
        model.fit(X, YES)
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(12):
            model.fit(X, YES)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # A fit that kept its scaled records would add 10 kB each time.
    assert grown < 60_000


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_a_fit_to_mapped_rows_holds_a_part_of_them(delta, tmp_path):
    """It copied all rows to doubles, twice: four times the size of the file."""
    rows = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(1_500_000, 16))
    rows[:] = RNG.random((len(rows), 16), dtype=np.float32)
    labels = np.arange(len(rows)) % 2 == 0
    model = LogisticRegression(1.0, delta, bounds=(0, 1)).fit(rows[:1000], labels[:1000])
    tracemalloc.start()
    try:
        clone(model).fit(rows, labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.7 * rows.nbytes

"""Version 0.1.0's files load as they were written, and are saved in today's format."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from dpfit.cli.stored import restore
from dpfit.data.schema import Number, Schema
from dpfit.models import ModelFileDamaged, load, save
from dpfit.models.files import FORMAT, OLD_FORMAT, model_from_json, model_to_json
from dpfit.privacy import Guarantee
from dpfit.privacy.spec import digest

FOLDER = Path(__file__).parents[1] / "fixtures" / "v0_1"
MODELS = sorted(
    path.name.removesuffix(".model.json") for path in (FOLDER / "models").glob("*.model.json")
)


def file_of(name):
    return FOLDER / "models" / f"{name}.model.json"


def sealed(content):
    content = {key: value for key, value in content.items() if key != "sha256"}
    return {**content, "sha256": digest(content)}


@pytest.mark.parametrize("name", MODELS)
def test_old_models_load_with_their_guarantee_and_predictions(name, tmp_path):
    content = json.loads(file_of(name).read_text(encoding="utf-8"))
    assert content["format"] == OLD_FORMAT
    model = load(file_of(name))
    assert model.guarantee_ == Guarantee.from_json(content["guarantee"])
    expected = json.loads((FOLDER / "models" / f"{name}.json").read_text(encoding="utf-8"))[
        "released"
    ]
    rows = np.array(
        json.loads((FOLDER / "models" / "data.json").read_text(encoding="utf-8"))["new_rows"]
    )
    if "predictions" in expected:
        np.testing.assert_allclose(model.predict(rows), expected["predictions"], rtol=1e-12)
    # Written again it is a file of today, and says the same.
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))["format"] == FORMAT
    assert again.plan_ == model.plan_
    assert {*again.guarantee_.basis.assumptions} == {*model.guarantee_.basis.assumptions}
    assert again.guarantee_.event == model.guarantee_.event


def test_there_are_old_models():
    assert len(MODELS) >= 8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda content: content["guarantee"]["basis"].update(relation="add_remove"),
            "another promise",
        ),
        (
            lambda content: content["guarantee"]["basis"].update(arithmetic="idealised"),
            "another promise",
        ),
        (
            lambda content: content["guarantee"]["basis"].update(assumptions=[]),
            "another promise",
        ),
        (lambda content: content["plan"].update(kind="os"), "whole model"),
        (lambda content: content["fitted"].clear(), "whole model"),
        (lambda content: content.update(format="dpfit model 3"), "format"),
    ],
)
def test_old_files_that_contradict_themselves_are_refused(change, words):
    content = json.loads(file_of("logistic_dp_sgd").read_text(encoding="utf-8"))
    change(content)
    with pytest.raises(ModelFileDamaged, match=f"mine.json .*{words}"):
        model_from_json(sealed(content), "mine.json")


def test_an_old_file_that_was_changed_is_refused():
    content = json.loads(file_of("mean").read_text(encoding="utf-8"))
    content["fitted"]["location_"]["values"][0] += 1.0
    with pytest.raises(ModelFileDamaged, match=r"mine\.json was changed"):
        model_from_json(content, "mine.json")


@pytest.mark.parametrize("name", ["linear_users", "logistic"])
def test_the_order_of_assumptions_does_not_matter(name):
    content = model_to_json(load(file_of(name)))
    assumptions = content["guarantee"]["basis"]["assumptions"]
    assert len(assumptions) > 1
    assumptions.reverse()
    model_from_json(sealed(content))
    assumptions.pop()
    with pytest.raises(ModelFileDamaged, match="another promise"):
        model_from_json(sealed(content))


def test_a_field_that_a_later_version_adds_does_not_make_a_file_unreadable():
    content = model_to_json(load(file_of("mean")))
    assert content["plan"]["why"].pop("unit") == "record"
    model_from_json(sealed(content))
    content["plan"]["why"]["certainty"] = 1.0
    with pytest.raises(ModelFileDamaged, match="whole model"):
        model_from_json(sealed(content))


def test_a_table_model_of_format_1_is_read_and_errors_name_the_file(tmp_path):
    """Its digest was that of JSON with spaces."""
    path, schema = tmp_path / "table.json", Schema((Number("x", -2.0, 2.0), Number("z", -2.0, 2.0)))
    inner = json.loads(file_of("mean").read_text(encoding="utf-8"))

    def written(model):
        content = {"format": "dpfit table model 1", "schema": schema.to_json(), "model": model}
        text = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps({**content, "sha256": text}), encoding="utf-8")
        return path

    model, read = restore(written(inner))
    assert read == schema
    assert model.location_.shape == (2,)
    for damaged in (inner | {"n_iter": 7}, sealed({**inner, "plan": {}}), {}, 3):
        with pytest.raises(ModelFileDamaged, match=rf"^{path} "):
            restore(written(damaged))
    path.write_text(path.read_text(encoding="utf-8").replace("-2.0", "-3.0", 1), encoding="utf-8")
    with pytest.raises(ModelFileDamaged, match="was changed"):
        restore(path)

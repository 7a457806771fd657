"""Fitted models as JSON: parameters, values, plan, guarantee. Loading runs no stored code.

There is no pickle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpfit.core import plan_from_json
from dpfit.data.schema import Schema
from dpfit.models.base import FORMER, PrivateEstimator
from dpfit.models.classifiers import PrivateClassifier, sorted_classes
from dpfit.models.inputs import Floats
from dpfit.models.linear import PrivateModel
from dpfit.models.location import PrivateLocation
from dpfit.models.network import NetworkModel
from dpfit.models.scaling import Scaling
from dpfit.models.table import ESTIMATORS
from dpfit.privacy import Budget, Guarantee
from dpfit.privacy.event import Composed, Event
from dpfit.privacy.spec import Json, digest, from_json
from dpfit.privacy.validate import integer, non_negative
from dpfit.solvers.gradient.sparse_descent import number_of_candidates

FORMAT = "dpfit model 2"
OLD_FORMAT = "dpfit model 1"
_NOT_SAVED = ("ledger", "public", "random_state", *FORMER)
_ARRAYS = (
    "weights_",
    "coef_",
    "intercept_",
    "classes_",
    "feature_names_in_",
    "location_",
    "chosen_indices_",
)


class ModelFileDamaged(ValueError):
    """A file that is cut, changed, or not a model file."""


def save(model: PrivateEstimator, path: str | Path) -> None:
    """Write a fitted model; a ledger handle is not part of it.

    >>> import tempfile
    >>> from dpfit.models import LogisticRegression
    >>> X = np.linspace(-1, 1, 1000)[:, None]
    >>> model = LogisticRegression(epsilon=1.0, bounds=(-1, 1)).fit(X, X[:, 0] > 0)
    >>> file = tempfile.mkdtemp() + "/model.json"
    >>> save(model, file)
    >>> bool(np.array_equal(load(file).predict(X), model.predict(X)))
    True
    """
    Path(path).write_text(json.dumps(model_to_json(model), indent=1) + "\n", encoding="utf-8")


def load(path: str | Path) -> PrivateEstimator:
    """Read a model that `save` wrote; raise `ModelFileDamaged` if the file was changed or cut.

    The digest in the file detects damage, not a forger, who can write a new one: keep files where
    only those who may change models can write. Whoever wrote it, loading runs no code of the file.
    """
    return model_from_json(read_json(path, (FORMAT, OLD_FORMAT)), path)


def model_to_json(model: PrivateEstimator) -> dict[str, Json]:
    """Return a fitted model as a dictionary of plain values, with a digest."""
    row = ESTIMATORS.get(type(model).__name__)
    if row is None or row.load() is not type(model) or not hasattr(model, "plan_"):
        raise ValueError(
            f"only fitted models of dpfit can be saved: {', '.join(sorted(ESTIMATORS))}"
        )
    return sealed(_content(model))


def model_from_json(content: dict[str, Json], source: str | Path = "the model") -> PrivateEstimator:
    """Return the model that `model_to_json` wrote; errors name ``source``, the user's file.

    A file of format 1 is checked as it was written: against its digest and its stored guarantee. A
    file of format 2 is also compared with what the model writes again, so that nothing in it goes
    unread.
    """
    content = unsealed(content, source)
    if content.get("format") not in (FORMAT, OLD_FORMAT):
        raise ModelFileDamaged(
            f"{source} does not hold a model of format {FORMAT!r}; fit or save the model again"
        )
    try:
        model, stored = _model(content), Guarantee.from_json(content["guarantee"])
        same = _says_the_same(stored, model.guarantee_)
        if content["format"] == OLD_FORMAT:
            model.guarantee_ = replace(stored, shown_at=model.guarantee_.shown_at)
            whole = True
        else:
            same &= stored.basis.theorem == model.guarantee_.basis.theorem
            whole = _is_written_again(content, {**_content(model), "guarantee": stored.to_json()})
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise ModelFileDamaged(
            f"{source} does not hold a whole model ({type(error).__name__})"
        ) from None
    if not same:
        raise ModelFileDamaged(
            f"{source} states another promise than its plan; fit or save the model again"
        )
    if not whole:
        raise ModelFileDamaged(
            f"{source} has fields that a model does not have; fit or save the model again"
        )
    return model


def read_json(path: str | Path, formats: tuple[str, ...]) -> dict[str, Json]:
    """Return the dictionary in a file of one of these formats."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileDamaged(f"cannot open {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelFileDamaged(f"{path} is not a model file, or it was cut") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found not in formats:
        raise ModelFileDamaged(
            f"{path} is not a model file: format must be {formats[0]!r}, got {str(found)[:40]!r}"
        )
    return dict(content)


def as_object(value: Json) -> dict[str, Json]:
    """Return a JSON object; TypeError for any other value."""
    if not isinstance(value, dict):
        raise TypeError(f"a JSON object is needed, got {type(value).__name__}")
    return value


def sealed(content: dict[str, Json]) -> dict[str, Json]:
    """Return the content with its digest."""
    return {**content, "sha256": digest(content)}


def unsealed(content: dict[str, Json], source: str | Path) -> dict[str, Json]:
    """Return the content without its digest, which must be right."""
    inner = {key: value for key, value in content.items() if key != "sha256"}
    if content.get("sha256") != digest(inner):
        raise ModelFileDamaged(
            f"{source} was changed after it was written; fit or save the model again"
        )
    return inner


def _content(model: PrivateEstimator) -> dict[str, Json]:
    given = model.get_params(deep=False)
    given |= {new: given[old] for old, new in FORMER.items() if given[old] is not None}
    params = {key: _plain(key, value) for key, value in given.items() if key not in _NOT_SAVED}
    return {
        "format": FORMAT,
        "model": type(model).__name__,
        "parameters": params,
        "fitted": {
            key: _array(getattr(model, key))
            for key in _ARRAYS
            if getattr(model, key, None) is not None
        },
        "n_features": int(model.n_features_in_),
        "n_iter": int(model.n_iter_),
        "private": bool(model.private_),
        "scaling": model.scaling_.to_json(),
        "plan": model.plan_.to_json(),
        "guarantee": model.guarantee_.to_json(),
    }


def _model(content: dict[str, Json]) -> PrivateEstimator:
    stored, fitted = as_object(content["parameters"]), as_object(content["fitted"])
    parameters: dict[str, Json | Schema] = {
        FORMER.get(name, name): value for name, value in stored.items()
    }
    if schema := stored.get("schema"):
        parameters["schema"] = from_json(schema, Schema)
    make: Callable[..., PrivateEstimator] = ESTIMATORS[str(content["model"])].load()
    model = make(**parameters)
    for key in _ARRAYS:
        if key in fitted:
            setattr(model, key, _from_array(as_object(fitted[key])))
    model.n_features_in_ = integer("n_features", content["n_features"], least=0)
    model.n_iter_ = integer("n_iter", content["n_iter"])
    model.private_, model.plan_ = content["private"] is True, plan_from_json(content["plan"])
    model.guarantee_ = model._shown(model.plan_)
    model.scaling_ = from_json(content["scaling"], Scaling)
    _check_shapes(model)
    if isinstance(model, PrivateModel):
        _check_choice(model, fitted.keys())
    _check_parameters(model)
    return model


def _check_shapes(model: PrivateEstimator) -> None:
    """Refuse missing or mismatched values, which otherwise show in a prediction at the earliest."""
    columns = model.n_features_in_
    if isinstance(model, PrivateLocation):
        fits = model.location_.shape == np.array(model.scaling_.lower).shape == (columns,)
    else:
        columns = columns if model.schema is None else len(model.schema.names)
        lines = len(model.classes_) if isinstance(model, PrivateClassifier) else 1
        if isinstance(model, NetworkModel):
            fits = model.weights_.shape == (model.network_loss.size(columns),)
        else:
            coef, intercept = model.scaling_.unscaled(model.weights_)
            fits = coef.shape == (lines if lines > 2 else 1, columns)
            fits &= (np.size(model.coef_), np.size(model.intercept_)) == (coef.size, intercept.size)
            fits = fits and _is_read_off(coef, intercept, model)
        fits = fits and bool(np.isfinite(model.weights_).all())
        if isinstance(model, PrivateClassifier):
            fits &= np.array_equal(sorted_classes(model.classes_), model.classes_)
    if not fits:
        raise ValueError("parts of the model do not fit each other")


def _check_choice(model: PrivateModel, stored: Container[str]) -> None:
    """Refuse chosen columns that the plan cannot have chosen.

    Files of earlier versions have none: columns with a coefficient take their place.
    """
    candidates = number_of_candidates(model.plan_)
    fitted = np.flatnonzero(model.weights_.ravel()[: candidates or 0])
    if "chosen_indices_" not in stored:
        model.chosen_indices_ = None if candidates is None else fitted
        return
    chosen = model.chosen_indices_
    if candidates is None or chosen is None or chosen.dtype != np.int64 or chosen.ndim != 1:
        raise ValueError("parts of the model do not fit each other")
    known = bool(np.isin(fitted, chosen).all()) and np.array_equal(np.unique(chosen), chosen)
    if not known or (len(chosen) and not 0 <= chosen[0] <= chosen[-1] < candidates):
        raise ValueError("parts of the model do not fit each other")


def _is_read_off(coef: Floats, intercept: Floats, model: PrivateModel) -> bool:
    """Whether coefficients and intercepts are those of the weights."""
    pairs = ((coef, model.coef_), (intercept, model.intercept_))
    return all(
        np.allclose(np.ravel(ours), np.ravel(theirs), rtol=1e-9, atol=0.0) for ours, theirs in pairs
    )


def _check_parameters(model: PrivateEstimator) -> None:
    """Refuse parameters with which no model could be fitted again."""
    budget = Budget(epsilon=model.epsilon, delta=model.delta or None, relation=model._relation)
    columns = model.n_features_in_
    if isinstance(model, PrivateModel):
        columns = columns if model.schema is None else len(model.schema.names)
        model._losses(budget, 1, max(1, columns))
        non_negative("ridge", model.ridge)
        if not isinstance(model.fit_intercept, bool) or not isinstance(model.solver, str):
            raise ValueError("fit_intercept must be true or false, and solver a name")
    if isinstance(model, PrivateModel | PrivateLocation):
        model._public_scaling(columns)


def _says_the_same(one: Guarantee, other: Guarantee) -> bool:
    """Whether guarantees agree, whatever the order of assumptions or nesting of compositions."""
    first, second = (
        (
            _composed(each.event),
            each.basis.relation,
            each.basis.unit,
            each.basis.arithmetic,
            {*each.basis.assumptions},
        )
        for each in (one, other)
    )
    return first == second


def _composed(event: Event) -> tuple[Event, ...]:
    """The events of nested compositions, in one tuple."""
    return (
        tuple(one for part in event.events for one in _composed(part))
        if isinstance(event, Composed)
        else (event,)
    )


def _is_written_again(content: Json, again: Json) -> bool:
    """Whether ``again`` has all of ``content``, and perhaps fields added by later versions."""
    if isinstance(content, dict) and isinstance(again, dict):
        return all(
            key in again and _is_written_again(part, again[key]) for key, part in content.items()
        )
    if isinstance(content, list) and isinstance(again, list):
        return len(content) == len(again) and all(map(_is_written_again, content, again))
    return json.dumps(content) == json.dumps(again)


def _plain(name: str, value: object) -> Json:
    """A parameter as JSON; arrays become lists, and a solver that is an object its name."""
    if isinstance(value, Schema):
        return value.to_json()
    if isinstance(value, range) or hasattr(value, "__array__"):
        plain: Json = np.asarray(value).tolist()
        return plain
    if isinstance(value, tuple | list):
        return [_plain(name, one) for one in value]
    if name == "solver" and isinstance(named := getattr(value, "name", None), str):
        return named
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"{name} must be numbers or strings in a saved model, got {type(value).__name__}; "
        "set_params it"
    )


def _array(value: object) -> dict[str, Json]:
    array = np.asarray(value)
    if not all(isinstance(one, bool | int | float | str) for one in array.ravel().tolist()):
        raise ValueError("classes must be numbers or strings in a saved model; fit to such labels")
    return {
        "dtype": "object" if array.dtype.kind == "O" else array.dtype.str,
        "values": array.tolist(),
    }


def _from_array(value: dict[str, Json]) -> object:
    dtype = str(value["dtype"])
    array = np.array(value["values"], dtype=object if dtype == "object" else np.dtype(dtype))
    return array if array.ndim else array.item()

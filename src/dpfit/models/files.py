"""Fitted models as one JSON file: parameters, fitted values, plan and guarantee. No pickle: loading runs no code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from dpfit.core import plan_from_json
from dpfit.data.schema import Schema
from dpfit.models import classifiers, location, regressors
from dpfit.models.base import PrivateEstimator
from dpfit.models.scaling import Scaling
from dpfit.privacy.spec import from_json

FORMAT = "dpfit model 1"
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        classifiers.LogisticRegression,
        classifiers.LinearSVC,
        regressors.LinearRegression,
        regressors.Ridge,
        regressors.HuberRegressor,
        regressors.QuantileRegressor,
        location.BoundedMean,
        location.GeometricMedian,
    )
}
_NOT_SAVED = ("ledger", "public", "random_state")
_ARRAYS = ("weights_", "coef_", "intercept_", "classes_", "feature_names_in_", "location_")


class ModelFileDamaged(ValueError):
    """A model file that is cut, changed, or not a model file."""


def save(model: PrivateEstimator, path: str | Path) -> None:
    """Write a fitted model; a ledger handle is not part of it.

    >>> import tempfile
    >>> X = np.linspace(-1, 1, 1000)[:, None]
    >>> model = classifiers.LogisticRegression(epsilon=1.0, bounds=(-1, 1)).fit(X, X[:, 0] > 0)
    >>> file = tempfile.mkdtemp() + "/model.json"
    >>> save(model, file)
    >>> bool(np.array_equal(load(file).predict(X), model.predict(X)))
    True
    """
    if KINDS.get(type(model).__name__) is not type(model) or not hasattr(model, "plan_"):
        raise ValueError(f"only fitted models of dpfit can be saved: {', '.join(sorted(KINDS))}")
    content = _content(model)
    text = json.dumps({**content, "sha256": _digest(content)}, indent=1)
    Path(path).write_text(text + "\n", encoding="utf-8")


def load(path: str | Path) -> Any:
    """Read a model that `save` wrote; refuses a file that was cut or changed by accident.

    The digest in the file detects damage, not a forger, who can write a new one: keep files where only those who may
    change models can write. Whoever wrote it, loading runs no code of the file.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ModelFileDamaged(f"{path} is not a model file of this version of dpfit")
        if content.pop("sha256", None) != _digest(content):
            raise ModelFileDamaged(f"{path} was changed after it was written; fit or save the model again")
    except OSError as error:
        raise ModelFileDamaged(f"cannot open {path}: {error.strerror}") from None
    except ModelFileDamaged:
        raise
    except (ValueError, RecursionError):
        raise ModelFileDamaged(f"{path} is not a model file, or it was cut") from None
    try:
        model = _model(content)
        whole = _digest(_content(model)) == _digest(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelFileDamaged(f"{path} does not hold a whole model ({type(error).__name__})") from None
    if content["guarantee"] != model.guarantee_.to_json():
        raise ModelFileDamaged(f"{path} promises something else than its plan does; fit or save the model again")
    if not whole:
        raise ModelFileDamaged(f"{path} holds more or other things than a model; fit or save the model again")
    return model


def _content(model: Any) -> dict[str, Any]:
    params = {key: _plain(value) for key, value in model.get_params(deep=False).items() if key not in _NOT_SAVED}
    return {
        "format": FORMAT,
        "model": type(model).__name__,
        "parameters": params,
        "fitted": {key: _array(getattr(model, key)) for key in _ARRAYS if hasattr(model, key)},
        "n_features": int(model.n_features_in_),
        "n_iter": int(model.n_iter_),
        "private": bool(model.private_),
        "scaling": model.scaling_.to_json(),
        "plan": model.plan_.to_json(),
        "guarantee": model.guarantee_.to_json(),
    }


def _model(content: dict[str, Any]) -> Any:
    parameters = dict(content["parameters"])
    if parameters.get("schema"):
        parameters["schema"] = from_json(parameters["schema"], Schema)
    model = KINDS[content["model"]](**parameters)
    for key in _ARRAYS:
        if key in content["fitted"]:
            setattr(model, key, _from_array(content["fitted"][key]))
    model.n_features_in_, model.n_iter_ = content["n_features"], content["n_iter"]
    model.private_, model.plan_ = content["private"], plan_from_json(content["plan"])
    model.guarantee_ = model._shown(model.plan_)
    model.scaling_ = from_json(content["scaling"], Scaling)
    _check_shapes(model)
    return model


def _check_shapes(model: Any) -> None:
    """Refuse values that are missing or do not fit each other, which would show in a prediction at the earliest."""
    columns = model.n_features_in_
    if isinstance(model, location.PrivateLocation):
        fits = model.location_.shape == np.array(model.scaling_.lower).shape == (columns,)
    else:
        columns = columns if model.schema is None else len(model.schema.names)
        lines = len(model.classes_) if isinstance(model, classifiers.PrivateClassifier) else 1
        coef, intercept = model.scaling_.unscaled(model.weights_)
        fits = coef.shape == (lines if lines > 2 else 1, columns)
        fits &= (np.size(model.coef_), np.size(model.intercept_)) == (coef.size, intercept.size)
    if not fits:
        raise ValueError("parts of the model do not fit each other")


def _digest(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A parameter as JSON; arrays become lists."""
    if isinstance(value, Schema):
        return value.to_json()
    if isinstance(value, range) or hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a parameter of type {type(value).__name__} cannot be saved: set_params it to numbers or texts")


def _array(value: Any) -> dict[str, Any]:
    array = np.asarray(value)
    if not all(isinstance(one, bool | int | float | str) for one in array.ravel().tolist()):
        raise ValueError("only classes that are numbers or texts can be saved: fit to labels of those")
    return {"dtype": "object" if array.dtype.kind == "O" else array.dtype.str, "values": array.tolist()}


def _from_array(value: dict[str, Any]) -> Any:
    array = np.array(value["values"], dtype=object if value["dtype"] == "object" else np.dtype(value["dtype"]))
    return array if array.ndim else array.item()

"""A fitted model together with the schema that turns tables into its rows: one JSON file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from dpfit.data.schema import Schema
from dpfit.privacy.spec import Json, from_json

if TYPE_CHECKING:
    from dpfit.models.base import PrivateEstimator

FORMAT = "dpfit table model 2"
OLD_FORMAT = "dpfit table model 1"


def to_json(model: PrivateEstimator, schema: Schema) -> dict[str, Json]:
    """Return the content of a model file, with a digest."""
    from dpfit.models.files import model_to_json, sealed

    return sealed({"format": FORMAT, "schema": schema.to_json(), "model": model_to_json(model)})


def to_text(model: PrivateEstimator, schema: Schema) -> str:
    """Return a model file as text."""
    return json.dumps(to_json(model, schema), indent=1) + "\n"


def restore(path: Path) -> tuple[PrivateEstimator, Schema]:
    """Read the file of `to_text`; raise `ModelFileDamaged` if it was cut or changed."""
    from dpfit.models.files import ModelFileDamaged, as_object, model_from_json, read_json, unsealed

    if not path.is_file():
        raise ValueError(f"there is no model {str(path)!r}; dpfit fit ... --out {path} writes one")
    content = read_json(path, (FORMAT, OLD_FORMAT))
    if content["format"] == OLD_FORMAT:
        content["sha256"] = _new_digest(content)
    content = unsealed(content, path)
    try:
        return model_from_json(as_object(content["model"]), path), from_json(
            content["schema"], Schema
        )
    except ModelFileDamaged:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileDamaged(
            f"{path} does not hold a model and its schema ({type(error).__name__})"
        ) from None


def _new_digest(content: dict[str, Json]) -> str | None:
    """The digest of today, if that of format 1, with spaces after separators, is right."""
    from dpfit.privacy.spec import digest

    inner = {key: value for key, value in content.items() if key != "sha256"}
    right = hashlib.sha256(json.dumps(inner, sort_keys=True).encode()).hexdigest() == content.get(
        "sha256"
    )
    return digest(inner) if right else None

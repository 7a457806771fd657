"""A fitted model together with the schema that turns tables into its rows: one JSON file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dpfit.data.schema import Schema
from dpfit.privacy.spec import from_json

FORMAT = "dpfit table model 2"
OLD_FORMAT = "dpfit table model 1"


def store(model: Any, schema: Schema, path: Path) -> None:
    """Write a new file."""
    from dpfit.models.files import model_to_json, sealed

    content = sealed({"format": FORMAT, "schema": schema.to_json(), "model": model_to_json(model)})
    with path.open("x", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=1) + "\n")


def restore(path: Path) -> tuple[Any, Schema]:
    """Read what `store` wrote; raise `ModelFileDamaged` if the file was cut or changed."""
    from dpfit.models.files import ModelFileDamaged, model_from_json, read_json, unsealed

    if not path.is_file():
        raise ValueError(f"there is no model {str(path)!r}; dpfit fit ... --out {path} writes one")
    content = read_json(path, (FORMAT, OLD_FORMAT))
    if content["format"] == OLD_FORMAT:
        content["sha256"] = _new_digest(content)
    content = unsealed(content, path)
    try:
        return model_from_json(content["model"], path), from_json(content["schema"], Schema)
    except ModelFileDamaged:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileDamaged(f"{path} does not hold a model and its schema ({type(error).__name__})") from None


def _new_digest(content: dict[str, Any]) -> str | None:
    """The digest of today, if that of format 1, with spaces after separators, is right."""
    from dpfit.privacy.spec import digest

    inner = {key: value for key, value in content.items() if key != "sha256"}
    right = hashlib.sha256(json.dumps(inner, sort_keys=True).encode()).hexdigest() == content.get("sha256")
    return digest(inner) if right else None

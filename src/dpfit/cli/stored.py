"""A fitted model together with the schema that turns tables into its rows: one JSON file."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from dpfit.data.schema import Schema
from dpfit.privacy.spec import from_json

FORMAT = "dpfit table model 1"


def store(model: Any, schema: Schema, path: Path) -> None:
    """Write a new file."""
    from dpfit.models import save

    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "model.json")
        save(model, inner)
        content = {
            "format": FORMAT,
            "schema": schema.to_json(),
            "model": json.loads(inner.read_text(encoding="utf-8")),
        }
    text = json.dumps({**content, "sha256": _digest(content)}, indent=1) + "\n"
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def restore(path: Path) -> tuple[Any, Schema]:
    """Read what `store` wrote; a file that was cut or changed is refused."""
    from dpfit.models import load

    if not path.is_file():
        raise ValueError(f"there is no model {str(path)!r}; dpfit fit ... --out {path} writes one")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is not a model that dpfit fit wrote, or it was cut; fit it again")
    if content.pop("sha256", None) != _digest(content):
        raise ValueError(f"{path} was changed after it was written; fit it again")
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "model.json")
        inner.write_text(json.dumps(content["model"]), encoding="utf-8")
        return load(inner), from_json(content["schema"], Schema)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

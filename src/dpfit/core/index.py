from typing import Any

ROWS: list[dict[str, Any]] = []

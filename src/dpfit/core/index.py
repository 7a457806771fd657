ROWS: list[dict[str, object]] = []

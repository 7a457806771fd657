"""The building blocks of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpfit.report.markup import Markup, join, tag


def tile(value: object, meaning: object, mood: str = "") -> Markup:
    """One figure of the summary at the top of the page."""
    parts = tag("p", value, class_="value"), tag("p", meaning, class_="meaning")
    return tag("div", *parts, class_=f"tile {mood}".strip())


def section(title: str, *parts: object) -> Markup:
    """A titled section."""
    return tag("section", tag("h2", tag("bdi", title)), join(parts))


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], numeric: Iterable[int] = ()
) -> Markup:
    """A table; rows start with a heading, columns in ``numeric`` are right-aligned."""
    right, others = set(numeric), len(head) - 1

    def cell(kind: str, place: int, content: object, scope: str | None = None) -> Markup:
        return tag(kind, content, scope=scope, class_="number" if place in right else None)

    def line(row: Sequence[object]) -> Markup:
        return tag(
            "tr",
            cell("th", 0, row[0], "row"),
            *(cell("td", at, each) for at, each in enumerate(row[1:], 1)),
        )

    header = tag("thead", tag("tr", *(cell("th", at, each, "col") for at, each in enumerate(head))))
    body = tag("tbody", *map(line, rows))
    wide = {"class_": "wide", "style": f"--columns: {others}"} if others > 2 else {}
    return tag("div", tag("table", header, body, **wide), class_="scroll")


def item(term: str, meaning: object) -> tuple[Markup, Markup]:
    """A term and what it means, for a list of such."""
    return tag("dt", term), tag("dd", meaning)

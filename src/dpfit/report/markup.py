"""HTML escaped by construction: what is not markup is text and cannot become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

from dpfit.privacy.plain_text import visible

_VOID = frozenset(("meta", "link", "br"))


class Markup(str):
    """HTML that is finished."""

    __slots__ = ()


def text(value: object) -> Markup:
    """A value as text; control characters, which could hide or reverse text, are shown.

    >>> text("age <b> & 'sex'")
    'age &lt;b&gt; &amp; &#x27;sex&#x27;'
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(visible(str(value))))


def tag(name: str, /, *children: object, **attributes: str | bool | None) -> Markup:
    """An element; ``class_`` is class, ``aria_label`` aria-label; False and None are omitted.

    >>> tag("p", "1 < 2", class_="note")
    '<p class="note">1 &lt; 2</p>'
    """
    shown = "".join(
        _attribute(key, value) for key, value in attributes.items() if value not in (None, False)
    )
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{''.join(map(text, children))}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """Parts one after the other, on lines of their own."""
    return Markup("\n".join(map(text, parts)))


def name_of(value: str) -> Markup:
    """A name that others chose, kept apart from the direction of the text around it."""
    return tag("bdi", value, class_="name")


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(value)}"'

"""Names and notes of others on a screen or a page."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return a text with spaces or U+FFFD in place of control characters.

    Those could steer a terminal, or turn the text round.

    >>> visible("a\\tb\\x1b[31m")
    'a b\N{REPLACEMENT CHARACTER}[31m'
    """
    return "".join(c if c.isprintable() else _shown(c) for c in text)


def _shown(character: str) -> str:
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"

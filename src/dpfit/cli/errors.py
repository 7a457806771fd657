"""Command-line errors: a sentence with a hint, an exit status, never a cell's content.

Exit status: 0 done; 1 refused (over budget, a ledger that is damaged or cannot be used, a broken
promise in an audit); 2 the command, an option, a schema or a file is wrong; 3 something unexpected
inside dpfit.
"""

from __future__ import annotations

import re
import traceback
from contextvars import ContextVar
from typing import Any

import typer
from typer.core import TyperGroup

REFUSED, WRONG, UNEXPECTED = 1, 2, 3

_DEBUG = ContextVar("debug", default=False)


class Commands(TyperGroup):
    """The root command. ``--debug`` may stand anywhere and shows tracebacks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = [_current_name(word) for word in args]
        if "--debug" in args:
            args = ["--debug", *(word for word in args if word != "--debug")]
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        _DEBUG.set(bool(ctx.params.get("debug")))
        try:
            return super().invoke(ctx)
        except typer.Abort:
            raise
        except Exception as error:
            # Errors of the command line itself, such as a wrong option, know their exit status. A
            # reader that stops early, as head does, is no error to tell of: the caller of this
            # group ends the command.
            _suggest_choice(error)
            if debugging() or hasattr(error, "exit_code") or isinstance(error, BrokenPipeError):
                raise
            status, sentence = described(error)
            typer.echo(f"error: {sentence}", err=True)
            raise typer.Exit(status) from None


def _suggest_choice(error: Any) -> None:
    """Add the nearest choice to the message of an option with a misspelt choice."""
    found = re.search(r"'([^']*)' is not one of (.*)\.", str(getattr(error, "message", "")))
    if found:
        from dpfit.privacy.validate import did_you_mean  # help starts without numpy

        close = did_you_mean(found[1], re.findall(r"'([^']*)'", found[2])).rstrip()
        error.message = found[0].removesuffix(".") + (f"; {close}" if close else ".")


_FORMER = {
    "--neighbours": "--relation",
    "--n-public": "--n-declared",
    "--reach": "--target-risk",
}
"""Former names of options, which work in this version."""


def _current_name(word: str) -> str:
    name, *value = word.split("=", 1)
    if name not in _FORMER:
        return word
    typer.echo(
        f"warning: {name} is now {_FORMER[name]}; the old name works in this version only", err=True
    )
    return "=".join([_FORMER[name], *value])


def debugging() -> bool:
    """Whether ``--debug`` was given."""
    return _DEBUG.get()


def described(error: Exception) -> tuple[int, str]:
    """The exit status of an error, and a sentence that may be shown to anybody.

    >>> described(ValueError("could not convert string to float: 'Mrs Smith'"))
    (3, 'something unexpected happened inside dpfit (ValueError); run again with --debug where only
    you can read it')
    """
    # Imported here, so that help and version start without numpy.
    from dpfit.ledger import LedgerError

    sentence = " ".join(str(error).split())
    if isinstance(error, LedgerError):
        return REFUSED, sentence
    if isinstance(error, OSError):
        return WRONG, f"{error.filename or 'a file'}: {error.strerror or 'cannot be used'}"
    if isinstance(error, ValueError) and _ours(error):
        return WRONG, sentence
    return UNEXPECTED, (
        f"something unexpected happened inside dpfit ({type(error).__name__}); run again with "
        "--debug where only you "
        "can read it"
    )


def _ours(error: Exception) -> bool:
    """Whether dpfit itself raised it. Messages of other libraries may quote cells."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__", "")).startswith("dpfit.")

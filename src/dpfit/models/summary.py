"""Summaries of fitted models: coefficients by column, chosen columns, guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfit.privacy import Guarantee
from dpfit.privacy.spec import Json

if TYPE_CHECKING:
    from dpfit.models.linear import PrivateModel

_MOST_SHOWN = 30
"""Largest number of rows of the printed table."""


@dataclass(frozen=True)
class Summary:
    """What a fitted model released, by name; ``str`` makes a table of it.

    Parameters
    ----------
    title : str
        Name of the model.
    outputs : tuple of str
        Names of the columns of the table: "coefficient", or one for each of several classes.
    coefficients : tuple of pair
        Name of a column and its coefficients, one for each output; the last row may be the
        intercept.
    chosen : tuple of str, optional
        Names of the columns that were chosen privately; None if the solver chooses none.
    guarantee : Guarantee
        What is guaranteed.
    private : bool
        False if the fit had an RNG seed, or something leaked.
    """

    title: str
    outputs: tuple[str, ...]
    coefficients: tuple[tuple[str, tuple[float, ...]], ...]
    chosen: tuple[str, ...] | None
    guarantee: Guarantee
    private: bool

    def to_json(self) -> dict[str, Json]:
        """Return plain values with stable names."""
        return {
            "title": self.title,
            "outputs": [*self.outputs],
            "coefficients": [
                {"name": name, "values": [*values]} for name, values in self.coefficients
            ],
            "chosen_columns": None if self.chosen is None else [*self.chosen],
            "guarantee": self.guarantee.to_json(),
            "private": self.private,
        }

    def __str__(self) -> str:
        rows = [
            (name, *(f"{value:.4g}" for value in values))
            for name, values in self.coefficients
            if self.chosen is None or name in self.chosen or any(values)
        ]
        shown = [("column", *self.outputs), *rows[:_MOST_SHOWN]]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        lines = [self.title]
        for name, *values in shown:
            cells = (f"{value:>{width}}" for value, width in zip(values, widths[1:], strict=True))
            lines.append("  ".join([f"{name:<{widths[0]}}", *cells]))
        if len(rows) > _MOST_SHOWN:
            lines.append(f"and {len(rows) - _MOST_SHOWN} more; see coefficients")
        if self.chosen is not None:
            lines.append(f"chosen privately: {', '.join(self.chosen)}")
        lines.append(f"guarantee: {self.guarantee}")
        lines += (
            [] if self.private else ["not private: seeded, or something was read without noise"]
        )
        return "\n".join(lines)


def summarize(model: PrivateModel) -> Summary:
    """Return the summary of a fitted model; networks have no coefficients by column."""
    coefficients = np.atleast_2d(np.asarray(getattr(model, "coef_", np.zeros((1, 0)))))
    outputs: tuple[str, ...] = ("coefficient",)
    if len(coefficients) > 1:
        outputs = tuple(map(str, model.classes_))
    rows = [
        (_named(model._column_name(column)), tuple(values))
        for column, values in enumerate(coefficients.T.tolist())
    ]
    if rows:
        rows += _constants(model)
    chosen = model.chosen_columns_
    return Summary(
        type(model).__name__,
        outputs,
        tuple(rows),
        None if chosen is None else tuple(map(_named, chosen)),
        model.guarantee_,
        bool(model.private_),
    )


def _constants(model: PrivateModel) -> list[tuple[str, tuple[float, ...]]]:
    """Return what the model adds to each prediction."""
    values = tuple(np.ravel(model.intercept_).tolist())
    if model._rows_have_constant:
        # The coefficient of that column is the intercept; labels that are centred have an offset.
        return [("offset", values)] if any(values) else []
    return [("intercept", values)] if model.fit_intercept or any(values) else []


def _named(column: str | int) -> str:
    return column if isinstance(column, str) else f"column {column}"

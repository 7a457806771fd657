"""Data as mechanisms see them."""

from dpfit.data.view import view_of
from dpfit.noise import Source


def viewed(data, relation="replace", unit="record"):
    """Return the view of data that a run makes."""
    return view_of(data, relation, unit, Source(0))

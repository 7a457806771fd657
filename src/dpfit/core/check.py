"""Is this the data that the plan was made for? Asked by the runner, before anything is charged.

Under replace-one the number of records is public, so a wrong number is an error that says it. Under
add/remove, and for users, it is private: nothing compares or prints it.
"""

from __future__ import annotations

import numpy as np

from dpfit.core.problem import DataFacts
from dpfit.data.dataset import Dataset
from dpfit.data.view import View, require_records
from dpfit.privacy import Basis


def check_facts(data: View, facts: DataFacts, basis: Basis) -> None:
    """Compare the public facts of data with those of a plan."""
    if facts.width is not None:
        require_records(data)
        if data.width != facts.width:
            raise ValueError(
                f"data must have rows of {facts.width} entries, got {data.width}; plan for that "
                "width"
            )
    if basis.unit == "user":
        if not data.has_users:
            raise ValueError("the records do not say whose they are: give user ids")
        if basis.relation == "replace" and facts.n is not None and data.n_units != facts.n:
            raise ValueError(
                f"the plan is for n = {facts.n} users, the data have {data.n_units}; plan for "
                "that n"
            )
        return
    if basis.relation == "replace" and facts.n is not None:
        n = (
            len(data.given)
            if isinstance(data.given, Dataset | np.ndarray | list | tuple)
            else facts.n
        )
        if n != facts.n:
            raise ValueError(
                f"the plan is for n = {facts.n} records, the data have {n}; plan for that n"
            )

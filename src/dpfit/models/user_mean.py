"""`user_mean`: the mean of columns over people, each with all of its rows, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Answer, Release
from dpfit.data.dataset import InMemory
from dpfit.data.table import Table
from dpfit.data.users import count_users
from dpfit.ledger import Ledger, account_for
from dpfit.mechanisms.aggregates.user_vectors import UserVectors
from dpfit.mechanisms.staged_user_mean import staged_user_mean
from dpfit.mechanisms.user_mean import user_mean as one_release
from dpfit.privacy import Budget
from dpfit.privacy.validate import integer, positive


@dataclass(frozen=True)
class UserMeanResult:
    """The mean of each column, and the release they come from."""

    means: dict[str, float]
    release: Release


def user_mean(
    table: object,
    columns: str | Sequence[str],
    *,
    user: str,
    bounds: tuple[float | Sequence[float], float | Sequence[float]],
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    relation: str = "replace",
    n_users: int | None = None,
    spread: float | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    random_state: int | None = None,
) -> UserMeanResult:
    """Return the mean, over users, of the mean of each user's rows, with differential privacy.

    A user counts once, however many rows it has, and is protected with all of them. A row with a
    cell that is not a number is not used.

    Parameters
    ----------
    table, columns
        A pandas, polars or Arrow table, or a mapping from names to columns; and the columns wanted.
    user
        The column that says whose record a row is.
    bounds
        Public ranges (lower, upper) of the columns: numbers, or one for each. Values outside are
        moved to the nearest end.
    epsilon, delta, mu, rho, relation
        The budget, as in `dpfit.Budget`, for one user with all of its rows; not pure epsilon.
    n_users
        A public number near that of the users; needed with relation="add_remove" only.
    spread
        Public distance of most users' means from the mean of all, over half of the ranges (in the
        Euclidean norm of all columns). The mean is then found in three stages, with less noise.
    ledger, dataset, random_state
        Where the release is charged, and an RNG seed for tests.

    Examples
    --------
    >>> table = {"who": [1, 1, 1, 2, 3] * 400, "stay": [2.0, 4.0, 3.0, 5.0, 7.0] * 400}
    >>> table["who"] = [f"{one} {i // 5}" for i, one in enumerate(table["who"])]
    >>> found = user_mean(table, "stay", user="who", bounds=(0, 10), mu=1.0, random_state=1)
    >>> round(found.means["stay"], 1), found.release.guarantee.basis.unit
    (5.0, 'user')
    """
    source, names = Table(table), [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValueError("columns must name at least one column")
    low, high = (np.broadcast_to(np.asarray(end, dtype=float), len(names)) for end in bounds)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ValueError("bounds must be finite, lower below upper in each column")
    ids = source.texts(user)
    if relation == "replace":
        found = count_users(ids)
        if n_users not in (None, found):
            raise ValueError(
                f"with relation='replace' the number of users is public, and there are {found}: "
                f"leave out n_users, which is {n_users}"
            )
        n_users = found
    if n_users is None:
        raise ValueError(
            "with relation='add_remove' the number of users is private: give n_users, a number "
            "near it that was not read off the data"
        )
    budget = Budget(epsilon=epsilon, delta=delta, mu=mu, rho=rho, relation=relation, unit="user")
    workload = UserVectors(
        len(names),
        float(np.sqrt(len(names))),
        None if spread is None else positive("spread", spread),
    )
    algorithm = one_release if spread is None else staged_user_mean
    plan = algorithm.plan(Answer(n=integer("n_users", n_users), workload=workload), budget)
    account = account_for(plan, ledger, dataset, delta=budget.delta, why="user_mean")
    rows = np.stack([source.numbers(name) for name in names], axis=1)
    data = InMemory(_scaled(rows, low, high), np.zeros(len(rows)), ids)
    release = plan.run(data, account=account, random_state=random_state)
    value = np.clip(release.value, -1.0, 1.0)
    means = (1 - value) / 2 * low + (1 + value) / 2 * high
    return UserMeanResult(dict(zip(names, means.tolist(), strict=True)), release)


def _scaled(
    rows: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return rows moved into their ranges and scaled to [-1, 1]; NaN stays."""
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    with np.errstate(all="ignore"):  # a warning would depend on the rows
        return np.asarray((np.clip(rows, low, high) - middle) / half)

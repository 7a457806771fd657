"""Turn a ledger, or its path, and a dataset's name into the account that is charged."""

from __future__ import annotations

from pathlib import Path

from dpfit.ledger.account import Chargeable, DatasetAccount
from dpfit.ledger.ledger import Ledger
from dpfit.privacy.cost import CostUndefined


def currency_of(ledger: Ledger | str | Path | None, dataset: str | None) -> str | None:
    """Return a ledger's currency for a dataset's plans; None without ledger or dataset."""
    if ledger is None or not dataset:
        return None
    return (ledger if isinstance(ledger, Ledger) else Ledger(ledger)).currency(dataset)


def account_for(
    plan: Chargeable,
    ledger: Ledger | str | Path | None,
    dataset: str | None,
    *,
    delta: float | None = None,
    who: str = "",
    why: str = "",
) -> DatasetAccount | None:
    """The account to run a plan with; None without a ledger.

    A plan that has no price in the currency of the dataset is charged as the (epsilon, delta) that
    it promises at this ``delta``; without one it will be refused.

    >>> import tempfile
    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.mean import BoundedMean, gaussian_mean
    >>> from dpfit.privacy import Budget
    >>> ledger = Ledger.create(tempfile.mkdtemp() + "/budgets.ledger")
    >>> ledger.register("patients", Budget(epsilon=2.0, delta=1e-5), currency="pure")
    >>> plan = gaussian_mean.plan(
    ...     Answer(n=9, workload=BoundedMean(0.0, 1.0)), Budget(epsilon=1.0, delta=1e-6)
    ... )
    >>> account_for(plan, ledger, "patients", delta=1e-6).as_approximate
    1e-06
    """
    if ledger is None:
        if dataset:
            raise ValueError(
                "dataset= names a budget in a ledger, and there is none: give ledger=, or leave "
                "out both"
            )
        return None
    if not dataset:
        raise ValueError(
            "with a ledger, give dataset=: the name under which the data's budget is registered"
        )
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    try:
        plan.guarantee.charge(book.currency(dataset))
    except CostUndefined:
        return book.account(dataset, who, why, as_approximate=delta or None)
    return book.account(dataset, who, why)

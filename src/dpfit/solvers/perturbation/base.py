"""Shared by perturbation algorithms: declared facts, assumptions, and their examples."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dpfit.core import Algorithm, Example, Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses.custom import declared_basis
from dpfit.privacy import Assumption, Basis, Budget


class Perturbation(Algorithm[Minimize]):
    """Base of algorithms that add noise to the minimizer, to the objective or to its statistics."""

    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    supports: ClassVar[frozenset[str]] = frozenset({"ridge", "domain"})
    """A domain is met by projecting the released parameter."""

    def _basis(self, theorem: str, problem: Minimize, budget: Budget) -> Basis:
        """Return why a mechanism of this kind is private."""
        assumptions = [
            Assumption(
                "rows and labels are scaled and clamped into the declared bounds", "enforced"
            ),
            Assumption("the constants of the loss hold within these bounds", problem.loss.status),
        ]
        if budget.relation == "add_remove":
            most = problem.max_records(budget.relation)
            assumptions += [
                Assumption(
                    "the number n that scales the ridge was not read off the data", "declared"
                ),
                Assumption(f"there are at most {most} records", "declared"),
            ]
        return declared_basis(
            Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "bounded"),
            problem.loss,
        )

    def _equal_records(self, problem: Minimize, relation: str, label: float) -> Example:
        """Return six equal records, one of which gets the opposite label or is removed."""
        rows, labels = np.tile([1.0, 0.0], (6, 1)), np.full(6, label)
        data = InMemory(rows, labels)
        if relation == "add_remove":
            return Example(problem, data, InMemory(rows[:-1], labels[:-1]))
        return Example(problem, data, InMemory(rows, np.append(labels[:-1], -label)))

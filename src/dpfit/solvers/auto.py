"""Auto: the solver with the least predicted risk, chosen from public facts only.

Each candidate forecasts its excess risk on the reference designs (`dpfit.core.reference_designs`);
the least one is planned. The choice depends on the problem, the budget, the allowed passes and the
currency of a ledger, all public, so it costs no privacy. `explain` lists all candidates. Accuracy
of the choice: docs/explanation/choosing.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from dpfit.core import Algorithm, Chosen, Considered, Forecast, LeftOut, Minimize, Plan, Tuning
from dpfit.core.algorithm import Requirement
from dpfit.core.notes import Advice
from dpfit.core.reference_designs import start_risk
from dpfit.core.registry import entries
from dpfit.ledger.cost import cost_in_currency
from dpfit.ledger.errors import NotChargeable
from dpfit.privacy import Budget
from dpfit.privacy.cost import CURRENCIES
from dpfit.privacy.validate import option

LINEAR_PARAMETERS = Requirement(
    "parameters that are coefficients of columns: it compares predicted risks, which networks lack",
    "pass solver='noisy_gd', which takes any loss",
    lambda problem, budget, options: not problem.loss.has_own_parameters,
)


@dataclass(frozen=True)
class AutoTuning(Tuning):
    """Cost tolerance of the choice."""

    kind = "auto_tuning"
    set_by: str = "benchmarks/auto.py"
    cost_tolerance: float = 1.01
    """Costs of equal guarantees differ in the last digits, so costs up to this factor of the least
    count as equal.
    """
    guessing: float = 0.9
    """Risks above this share of the risk of the zero parameter are hardly better than guessing."""


TUNING = AutoTuning()


def candidates(problem: Minimize, max_passes: int = 300) -> tuple[Algorithm[Minimize], ...]:
    """Return the candidates for a problem and so many passes, by name."""
    rows = sorted(entries(problem=Minimize.kind), key=lambda row: row.name)
    found = (row.load() for row in rows if row.auto_candidate)
    return tuple(
        each for each in found if max_passes <= each.auto_passes and each.is_candidate(problem)
    )


class Candidate(NamedTuple):
    """An algorithm with its forecast; candidates sort by predicted risk, then by name."""

    risk: float
    name: str
    algorithm: Algorithm[Minimize]
    forecast: Forecast

    @property
    def note(self) -> Considered:
        """The line in `explain`."""
        return Considered(self.name, self.risk, self.forecast.work)

    def plan(self, problem: Minimize, budget: Budget) -> Plan:
        """Return the plan that was forecast, with the forecast as its predicted risk."""
        plan = self.forecast.plan
        if plan is None:
            plan = self.algorithm.using(**self.forecast.options).plan(problem, budget)
        return replace(plan, predicted=self.forecast.risk)


class Auto(Algorithm[Minimize]):
    """The solver with the least predicted risk.

    Guarantee: that of the solver, which the plan names.
    Work: at most ``max_passes`` passes over the data.

    Parameters
    ----------
    max_passes : int, default=300
        Largest number of passes over the data.
    currency : {"pure", "gdp", "zcdp"}, optional
        Currency of the ledger that the plan is charged to. Only the candidates with the least
        privacy cost in it are compared: pure epsilon-DP is expensive in mu^2, and Gaussian noise
        has no cost in pure epsilon.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=30_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=100)
    >>> auto.plan(problem, Budget(epsilon=0.5, delta=1e-6)).considered[0].name
    'preconditioned_gd'
    >>> auto.plan(problem, Budget(epsilon=0.5)).considered[0].name
    'objective_perturbation'
    """

    name = "auto"
    summary = "the solver with the least predicted risk"
    reference = "docs/explanation/choosing.md"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    units = ("record", "user")
    supports: ClassVar[frozenset[str]] = frozenset(
        {"ridge", "domain", "centre", "trust_ball", "ridge_map", "population"}
    )
    requires = (LINEAR_PARAMETERS,)
    tier = "recommended"
    tunings = (TUNING,)
    listed = False

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        max_passes: int = 300,
        currency: str | None = None,
    ) -> Plan:
        """Return the plan of the best candidate, with notes that list all of them."""
        left_out: list[str] = []
        ranked = sorted(
            _forecasts(problem, budget, max_passes, left_out), key=lambda found: found[:2]
        )
        if currency is not None:
            ranked = _least_cost_first(
                ranked, problem, budget, option("currency", currency, CURRENCIES)
            )
        for rank, best in enumerate(ranked):
            try:
                plan = best.plan(problem, budget)
            except ValueError as error:
                left_out.append(_refusal(best.name, error))
                continue
            considered = [found.note for found in ranked[rank:]]
            chosen = Chosen(_reason(considered, currency))
            advice = _advice(problem, best.risk)
            return plan.with_notes(chosen, *advice, *considered, *map(LeftOut, left_out))
        raise ValueError("no solver can do this: " + "; ".join(left_out))


def _forecasts(
    problem: Minimize, budget: Budget, max_passes: int, left_out: list[str]
) -> Iterator[Candidate]:
    """Yield candidates that meet the budget in ``max_passes``; others join ``left_out``."""
    for algorithm in candidates(problem, max_passes):
        options: dict[str, Any] = (
            {"max_passes": max_passes} if "max_passes" in algorithm.options else {}
        )
        try:
            forecast = algorithm.forecast(problem, budget, **options)
        except ValueError as error:
            left_out.append(_refusal(algorithm.name, error))
            continue
        if forecast.work.passes > max_passes:
            left_out.append(
                f"{algorithm.name}: takes {forecast.work.passes:g} passes, {max_passes} are allowed"
            )
        else:
            yield Candidate(forecast.risk.expected, algorithm.name, algorithm, forecast)


def _least_cost_first(
    ranked: list[Candidate], problem: Minimize, budget: Budget, currency: str
) -> list[Candidate]:  # fmt: skip
    """Return candidates of least privacy cost first, each group by predicted risk."""
    costs: dict[str, float] = {}
    planned = []
    for found in ranked:
        try:
            plan = found.plan(problem, budget)
            costs[found.name] = float(cost_in_currency(plan.guarantee, currency).amount)
        except NotChargeable:
            pass
        except ValueError:
            planned.append(found)
            continue
        planned.append(found._replace(forecast=found.forecast._replace(plan=plan)))
    most = TUNING.cost_tolerance * min(costs.values(), default=math.inf)
    return sorted(planned, key=lambda found: costs.get(found.name, math.inf) > most)


def _advice(problem: Minimize, risk: float) -> tuple[Advice, ...]:
    """Return a note if the predicted risk is about that of a model that ignores the columns."""
    guess = start_risk(problem)
    if not risk > TUNING.guessing * guess:
        return ()
    return (
        Advice(
            "this model is predicted to be hardly better than guessing: a model that ignores the "
            f"columns has a predicted risk of {guess:.3g}; raise epsilon, or use more records or "
            "fewer columns"
        ),
    )


def _reason(considered: Sequence[Considered], currency: str | None) -> str:
    best, *others = considered
    if not others:
        return f"{best.name}, the only one that can do this"
    least = min(others, key=lambda other: other.risk)
    if best.risk > least.risk:
        return f"{best.name}, for its predicted risk at the lowest cost in {currency} currency"
    times = f"{least.risk / best.risk:.2f}" if best.risk else "inf"
    other = "the same" if times == "1.00" else f"{times} times as high"
    return f"{best.name}, for its predicted risk ({least.name}: {other})"


def _refusal(name: str, error: Exception) -> str:
    return str(error) if str(error).startswith(name) else f"{name}: {error}"


auto = Auto()

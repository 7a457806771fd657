"""Is the promise kept? Run on neighbours, attack, bound, compare."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np

from dpfit.audit.attacks import DEFAULT, Attack
from dpfit.audit.currency import Currency, Epsilon, currency_of
from dpfit.audit.neighbours import Pair, require_neighbours, worst_pair
from dpfit.audit.outcomes import Outcomes, Raised
from dpfit.audit.result import BROKEN, KEPT, TOO_FEW, Audit, Finding
from dpfit.audit.runs import CallableRuns, PlanRuns, Sampler, collect, imported
from dpfit.audit.search import search_pair
from dpfit.audit.thresholds import HeldOut, Scores, Strategy, empirical
from dpfit.audit.tradeoff import TradeOff
from dpfit.catalogue import entry
from dpfit.core import Algorithm, Plan
from dpfit.noise import Source
from dpfit.privacy import Budget, Guarantee
from dpfit.privacy.validate import probability

RUNS = 10_000
CONFIDENCE = 1 - 1e-6
AUDIT_DELTA = 0.12
"""The delta of an audit where neither pure epsilon nor mu is promised: about that of mu = 1 at
epsilon = 1.
"""

_COMPARED = 1000
"""Runs by which the pair that a search found is compared with that of the example."""


class AuditOptions(TypedDict, total=False):
    """Options of `audit_runs`."""

    runs: int
    currency: str | Currency | None
    delta: float
    confidence: float
    attacks: Sequence[Attack]
    strategy: Strategy | None
    n_jobs: int
    random_state: int | None
    progress: Callable[[float], None] | None


class EntryOptions(AuditOptions, total=False):
    """Options of `audit_algorithm`."""

    search: bool
    subject: str
    queries: Sequence[object] | None


def audit_plan(
    plan: Plan,
    data: object,
    neighbour: object,
    *,
    queries: Sequence[object] | None = None,
    subject: str = "",
    **options: Unpack[AuditOptions],
) -> Audit:
    """Audit a planned release on a pair of neighbours; see `audit_runs` for the options.

    ``queries`` drive an interactive plan; None takes the adversarial sequence of its kind.

    >>> from dpfit.audit import audit_entry
    >>> audit_entry("gaussian_mean", runs=400, random_state=1).verdict
    'kept'
    """
    require_neighbours(data, neighbour, plan.basis.relation, plan.basis.unit)
    if queries is None:
        queries = () if plan.interactive is None else plan.interactive.adversarial(data, neighbour)
    name = subject or plan.algorithm or plan.kind
    return audit_runs(
        PlanRuns(plan, tuple(queries)), data, neighbour, plan.guarantee, subject=name, **options
    )


def audit_callable(
    mechanism: str | Callable[[Any, Source], object],
    data: object,
    neighbour: object,
    guarantee: Guarantee,
    *,
    subject: str = "",
    **options: Unpack[AuditOptions],
) -> Audit:
    """Audit a function of data and noise source, given itself or as "module:function".

    >>> from dpfit.privacy import Basis, event
    >>> promise = Guarantee(event.Laplace(1.0), Basis("Laplace mechanism"))
    >>> half = lambda data, source: data.sum() + 0.3 * source.laplace(1)
    >>> data, neighbour = np.zeros(3), np.eye(3)[0]
    >>> audit = audit_callable(half, data, neighbour, promise, runs=2000, random_state=1)
    >>> print(audit.verdict)
    broken
    """
    require_neighbours(data, neighbour, guarantee.basis.relation, guarantee.basis.unit)
    function = imported(mechanism) if isinstance(mechanism, str) else mechanism
    if not callable(function):
        raise TypeError(
            f"a mechanism is a function of data and a noise source, got {type(function).__name__}"
        )
    name = subject or (
        mechanism if isinstance(mechanism, str) else getattr(function, "__name__", "mechanism")
    )
    return audit_runs(CallableRuns(function), data, neighbour, guarantee, subject=name, **options)


def audit_entry(
    name: str,
    *,
    mu: float | None = None,
    epsilon: float | None = None,
    relation: str = "replace",
    **options: Unpack[EntryOptions],
) -> Audit:
    """Audit a catalogue entry on its own example at its audit budget.

    The budget is epsilon = 1 for pure entries, else mu = 1.
    """
    row = entry(name)
    return audit_algorithm(
        row.load(), row.guarantees, mu=mu, epsilon=epsilon, relation=relation, **options
    )


def audit_algorithm(
    algorithm: Algorithm[Any],
    guarantees: Sequence[str] = ("pure", "gdp"),
    *,
    mu: float | None = None,
    epsilon: float | None = None,
    relation: str = "replace",
    search: bool = False,
    subject: str = "",
    queries: Sequence[object] | None = None,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Audit an algorithm on its own example; ``guarantees`` are the kinds that it gives.

    With ``search`` the pair of neighbours is the one that `search_pair` finds for the problem of
    the example, unless the example itself is told apart better.
    """
    problem, data, neighbour = algorithm.example(relation)
    budget = _audit_budget(algorithm.name, guarantees, mu, epsilon, relation)
    if budget.unit not in algorithm.units:
        budget = replace(budget, unit=algorithm.units[0])
    plan = algorithm.plan(problem, budget)
    if budget.delta and "delta" not in options:
        # Neither mu nor a pure epsilon is promised: the curve itself is what is compared.
        options.setdefault("currency", "balanced")
    subject = subject or algorithm.name
    if search:
        seed = options.get("random_state")
        # Noise of its own: a pair chosen on the runs that judge it would look worse than it is.
        apart = None if seed is None else seed + 10**6
        found = search_pair(PlanRuns(plan), problem, relation, random_state=apart)
        candidates = [Pair("the example, worst also in a search", data, neighbour), found]
        pair = worst_pair(PlanRuns(plan), candidates, runs=_COMPARED, random_state=apart)
        data, neighbour, subject = pair.data, pair.neighbour, f"{subject} ({pair.name})"
    return audit_plan(plan, data, neighbour, queries=queries, subject=subject, **options)


def audit_runs(
    sampler: Sampler,
    data: object,
    neighbour: object,
    guarantee: Guarantee,
    *,
    subject: str = "mechanism",
    runs: int = RUNS,
    currency: str | Currency | None = None,
    delta: float = 0.0,
    confidence: float = CONFIDENCE,
    attacks: Sequence[Attack] = DEFAULT,
    strategy: Strategy | None = None,
    n_jobs: int = 1,
    random_state: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Audit:
    """Run on both datasets, attack, and compare with the promise.

    Guarantee: if the promise is true, the verdict is "broken", or ``lower`` exceeds the true value,
    with probability at most ``1 - confidence``, over all attacks together (each gets an equal
    share).

    The promise is a whole curve, and its number in the currency asked for is one point of it. If
    another point is contradicted and this one is not, the audit is told in epsilon at the delta of
    the contradicted point.
    """
    money = currency_of(guarantee, currency, delta)
    if not 0.5 <= probability("confidence", confidence) < 1:
        raise ValueError(f"confidence must lie between 0.5 and 1, got {confidence!r}")
    if not attacks:
        raise ValueError("an audit needs at least one attack")
    rule, promise = strategy or HeldOut(), TradeOff(guarantee)
    start = time.perf_counter()
    first, second = collect(
        sampler, data, neighbour, runs, n_jobs=n_jobs, random_state=random_state, progress=progress
    )
    _require_outputs(first, second)
    share = (1 - confidence) / len(attacks)
    found = [_attack(attack, first, second, rule, share, money, promise) for attack in attacks]
    best, scores = max(found, key=lambda pair: (pair[0].broken, pair[0].lower))
    findings = [finding for finding, _ in found]
    if best.broken and max(finding.lower for finding in findings) <= money.promised(guarantee):
        money, findings = _contradicted_level(promise, best, findings)
    needed = _needed(promise, share, attacks, rule)
    return Audit(
        subject=subject,
        promise=guarantee,
        currency=money,
        promised=money.promised(guarantee),
        lower=max(finding.lower for finding in findings),
        confidence=confidence,
        attack=best.attack,
        runs=runs,
        verdict=BROKEN if best.broken else KEPT if runs >= needed else TOO_FEW,
        findings=tuple(findings),
        needed=needed,
        seconds=time.perf_counter() - start,
        curve=_curve(scores),
    )


def _attack(
    attack: Attack,
    first: Outcomes,
    second: Outcomes,
    strategy: Strategy,
    failure: float,
    currency: Currency,
    promise: TradeOff,
) -> tuple[Finding, Scores | None]:
    start = time.perf_counter()
    scores = attack.scores(first, second)
    if scores is None or min(len(scores.first), len(scores.second)) < 2:
        return Finding(attack.name, 0.0, False, note="does not apply to these outputs"), None
    measured = strategy.measure(scores, failure, currency)
    bounds = currency.lower(measured.alpha_upper, measured.beta_upper)
    gaps = promise.miss(measured.alpha_upper) - measured.beta_upper
    broken = bool(promise.contradicted(measured.alpha_upper, measured.beta_upper))
    at = int(np.argmax(gaps if broken else bounds))
    finding = Finding(
        attack.name,
        float(np.max(bounds)),
        broken,
        threshold=float(measured.thresholds[at]),
        alpha=float(measured.alpha[at]),
        beta=float(measured.beta[at]),
        alpha_upper=float(measured.alpha_upper[at]),
        beta_upper=float(measured.beta_upper[at]),
        seconds=time.perf_counter() - start,
        note=_difference(first, second) if attack.name == "shape or exception" and broken else "",
    )
    return finding, scores


def _contradicted_level(
    promise: TradeOff, best: Finding, findings: Sequence[Finding]
) -> tuple[Currency, list[Finding]]:
    """Return the currency of the best contradicting finding, and all findings in it."""
    money = Epsilon(promise.contradicted_delta(*_upper_rates(best)))
    return money, [
        replace(finding, lower=float(money.lower(*_upper_rates(finding)))) for finding in findings
    ]


def _upper_rates(finding: Finding) -> tuple[float, float]:
    alpha, beta = finding.alpha_upper, finding.beta_upper
    return (1.0 if alpha is None else alpha), (1.0 if beta is None else beta)


def _needed(
    promise: TradeOff, failure: float, attacks: Sequence[Attack], strategy: Strategy
) -> int:
    """Runs a side, of which learning and choosing a threshold leave enough to evaluate."""
    share = strategy.kept * max(1 - attack.learns for attack in attacks)
    return math.ceil(promise.runs_needed(failure) / share)


def _require_outputs(first: Outcomes, second: Outcomes) -> None:
    """Raise if a mechanism always fails in one way: that is the caller's error, not a leak."""
    kinds = set(first.structures) | set(second.structures)
    if len(kinds) == 1 and isinstance(first.values[0], Raised):
        error = first.values[0]
        raise ValueError(f"every run raised {error.error}: {error.message}")


def _difference(first: Outcomes, second: Outcomes) -> str:
    """Which shapes or exceptions tell the datasets apart, the most telling first."""
    counts = Counter(first.structures), Counter(second.structures)
    shares = {
        kind: (counts[0][kind] / len(first), counts[1][kind] / len(second))
        for kind in counts[0] | counts[1]
    }
    telling = sorted(shares.items(), key=lambda item: -abs(item[1][0] - item[1][1]))[:2]
    return "; ".join(
        f"{kind} in {one:.1%} of the first runs, {two:.1%} of the second"
        for kind, (one, two) in telling
    )


def _curve(scores: Scores | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if scores is None:
        return (), ()
    alarms, misses = empirical(scores)
    return tuple(alarms.tolist()), tuple(misses.tolist())


def _audit_budget(
    name: str, guarantees: Sequence[str], mu: float | None, epsilon: float | None, relation: str
) -> Budget:
    """A budget at which audits have power: of order one, whatever the release's budget."""
    if mu is not None and epsilon is not None:
        raise ValueError("give mu or epsilon, not both")
    if mu is not None:
        if "gdp" not in guarantees:
            raise ValueError(f"{name} makes no Gaussian-DP promise; give epsilon")
        return Budget(mu=mu, relation=relation)
    if "pure" in guarantees:
        return Budget(epsilon=1.0 if epsilon is None else epsilon, relation=relation)
    if "gdp" not in guarantees and "zcdp" not in guarantees:
        return Budget(
            epsilon=1.0 if epsilon is None else epsilon, delta=AUDIT_DELTA, relation=relation
        )
    if epsilon is not None:
        raise ValueError(
            f"{name} makes no pure promise, so an attack on epsilon would need a delta; give mu"
        )
    return Budget(mu=1.0, relation=relation)

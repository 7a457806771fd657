"""An audit from one run with many canaries.

Each of m canaries is put into the data by a fair coin of its own. From the output the auditor
guesses r of the coins and abstains from the rest; v guesses are right. Two bounds on the
probability of v or more right guesses:

- under (epsilon, delta)-DP (a canary left out or put in), ``P[right >= v] <= P[B >= v] + 2 m delta
  max_i P[v > B >= v - i] / i`` with B binomial(r, e^epsilon / (1 + e^epsilon)). Reference: Steinke,
  Nasr and Jagielski (2023), Theorem 5.2 and appendix D.
- under a convex trade-off curve f, the recursion of `curve_refutes`. Reference: Mahloujifar, Melis
  and Chaudhuri (2024); the proof is in docs/explanation/auditing.md, section 5.

Both bound the same probability, so the smaller one holds without a correction; so does the smallest
over all points (epsilon, delta) of one curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import binom

from dpfit.audit.bounds import Floats
from dpfit.audit.currency import Currency, Epsilon, currency_of
from dpfit.audit.result import BROKEN, KEPT, TOO_FEW, Audit, Finding
from dpfit.audit.tradeoff import TradeOff, profile
from dpfit.privacy import Guarantee, gaussian
from dpfit.privacy.validate import integer, probability

_LARGEST = 100.0

Curve = Callable[[float], float]


def guess_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float = 0.0
) -> float:
    """The largest probability of so many correct guesses under (epsilon, delta)-DP.

    >>> round(guess_p_value(10, 10, 10, 0.0), 6)  # ten fair coins
    0.000977
    """
    _check(canaries, guesses, correct)
    return float(_p_values(canaries, guesses, correct, np.array([epsilon]), np.array([delta]))[0])


def _p_values(
    canaries: int, guesses: int, correct: int, epsilons: Floats, deltas: Floats
) -> Floats:
    """The same at many levels of one curve."""
    rates = expit(epsilons)
    tails = binom.sf(correct - 1, guesses, rates)
    if correct == 0 or not deltas.any():
        return np.asarray(np.minimum(tails, 1.0))
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, rates[:, None]), axis=1)
    worst = np.max(below / np.arange(1, correct + 1), axis=1)
    return np.asarray(np.minimum(tails + 2 * canaries * deltas * worst, 1.0))


def curve_refutes(miss: Curve, canaries: int, guesses: int, correct: int, failure: float) -> bool:
    """Whether so many correct guesses have a probability below ``failure`` under a trade-off curve.

    ``miss`` is convex: the smallest miss rate at a false-alarm rate, in both directions. The
    recursion goes down from ``correct``; it holds the least that right and wrong guesses of runs
    with at least a right ones can add up to.

    Ten fair coins, all guessed right:

    >>> curve_refutes(lambda alpha: 1 - alpha, 10, 10, 10, 0.01)
    True
    """
    _check(canaries, guesses, correct)
    right, wrong = failure * correct / canaries, failure * (guesses - correct) / canaries
    for a in range(correct - 1, -1, -1):
        # Rounded away from a contradiction: the curve decreases.
        least = miss(min(1.0, 1 - right + 2.0**-52))
        if least <= wrong:
            break
        right += a / (guesses - a) * (least - wrong)
        wrong = least
        if right + wrong > guesses / canaries * (1 + 1e-9):
            return True
    return False


def one_run_epsilon(
    canaries: int, guesses: int, correct: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """A lower bound on epsilon at ``delta``.

    Randomized response with epsilon = 1 is right 731 times:

    >>> round(one_run_epsilon(1000, 1000, 731), 2)
    0.88
    """
    failure = _failure(confidence)

    return _largest_refuted(
        lambda epsilon: _level_refuted(canaries, guesses, correct, epsilon, delta, failure)
    )


def _level_refuted(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float, failure: float
) -> bool:
    """Whether so many correct guesses contradict (epsilon, delta)-DP."""
    slope = math.exp(epsilon)

    def miss(alpha: float) -> float:
        return max(0.0, 1 - delta - slope * alpha, (1 - delta - alpha) / slope)

    if guess_p_value(canaries, guesses, correct, epsilon, delta) <= failure:
        return True
    # Without a delta the first bound is attained, by randomized response.
    return delta > 0 and curve_refutes(miss, canaries, guesses, correct, failure)


def one_run_mu(canaries: int, guesses: int, correct: int, *, confidence: float = 0.95) -> float:
    """A lower bound on mu, the Gaussian-DP parameter.

    >>> one_run_mu(1000, 100, 95) > 0.5
    True
    """

    failure = _failure(confidence)

    def refuted(mu: float) -> bool:
        if curve_refutes(
            lambda alpha: float(gaussian.tradeoff(mu, alpha)), canaries, guesses, correct, failure
        ):
            return True
        epsilons = np.linspace(0.0, mu * (mu / 2 + 7), 60)
        return (
            _curve_p_value(canaries, guesses, correct, epsilons, gaussian.delta(mu, epsilons))
            <= failure
        )

    return _largest_refuted(refuted)


def audit_one_run(
    included: ArrayLike,
    scores: ArrayLike,
    guarantee: Guarantee,
    *,
    guesses: int,
    currency: str | Currency | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    subject: str = "one run",
) -> Audit:
    """Audit one run from its canaries' coins and scores, high where a canary seems in.

    The ``guesses`` most extreme scores are guessed, half of them in, half of them out; that number
    is chosen before the coins are looked at.
    """
    coins, values = (
        np.asarray(included, dtype=bool).reshape(-1),
        np.asarray(scores, dtype=np.float64).reshape(-1),
    )
    if len(coins) != len(values):
        raise ValueError(f"one score a canary is needed, got {len(values)} for {len(coins)}")
    money = currency_of(guarantee, currency, delta)
    asked, failure = integer("guesses", guesses), _failure(confidence)
    order = np.argsort(values, kind="stable")
    outs, ins = order[: asked // 2], order[len(order) - (asked - asked // 2) :]
    correct = int(np.sum(~coins[outs]) + np.sum(coins[ins]))
    m = len(coins)
    _check(m, asked, correct)
    if isinstance(money, Epsilon):
        lower = one_run_epsilon(m, asked, correct, delta=money.delta, confidence=confidence)
    else:
        lower = one_run_mu(m, asked, correct, confidence=confidence)
    levels, curve = _levels(guarantee), TradeOff(guarantee)

    def refuted(canaries: int, guesses: int, right: int) -> bool:
        return _curve_p_value(canaries, guesses, right, *levels) <= failure or curve_refutes(
            lambda alpha: float(curve.miss(alpha)), canaries, guesses, right, failure
        )

    broken, possible = refuted(m, asked, correct), refuted(m, asked, asked)
    needed = 0 if possible else _guesses_needed(refuted)
    note = f"{correct} of {asked} guesses right"
    if broken and lower <= money.promised(guarantee):
        # Another point of the curve is contradicted, or only the curve as a whole.
        points = [
            d
            for e, d in zip(*levels, strict=True)
            if _level_refuted(m, asked, correct, e, d, failure)
        ]
        if points:
            there = points[len(points) // 2]
            money, lower = (
                Epsilon(there),
                one_run_epsilon(m, asked, correct, delta=there, confidence=confidence),
            )
        else:
            note += "; the promised curve is contradicted as a whole, none of its points"
    return Audit(
        subject=subject,
        promise=guarantee,
        currency=money,
        promised=money.promised(guarantee),
        lower=lower,
        confidence=confidence,
        attack="one run with canaries",
        runs=1,
        verdict=BROKEN if broken else KEPT if possible else TOO_FEW,
        findings=(Finding("one run with canaries", lower, broken, note=note),),
        needed=needed,
    )


def _levels(guarantee: Guarantee) -> tuple[Floats, Floats]:
    """Return a few points (epsilon, delta) of the promised curve."""
    epsilons, deltas = (values[::25] for values in profile(guarantee))
    levels = [
        (e, d)
        for e, d in [*zip(epsilons, deltas, strict=True), (guarantee.pure, 0.0)]
        if e < _LARGEST
    ]
    return np.array([e for e, _ in levels]), np.array([d for _, d in levels])


def _guesses_needed(refuted: Callable[[int, int, int], bool]) -> int:
    """How many guesses, all of them right, would contradict the promise."""
    guesses = 1
    while not refuted(guesses, guesses, guesses) and guesses < 2**20:
        guesses *= 2
    return guesses


def _curve_p_value(
    canaries: int, guesses: int, correct: int, epsilons: Floats, deltas: Floats
) -> float:
    # Each level gives a valid bound on one and the same probability, so their minimum is valid
    # without a correction.
    return float(np.min(_p_values(canaries, guesses, correct, epsilons, deltas)))


def _largest_refuted(refuted: Callable[[float], bool]) -> float:
    """Largest refuted parameter (all smaller are refuted); returns the bracket's low end."""
    low, high = 0.0, 1.0
    if not refuted(1e-9):
        return 0.0
    while refuted(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return low
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _failure(confidence: float) -> float:
    if not 0.5 <= probability("confidence", confidence) < 1:
        raise ValueError(f"confidence must lie between 0.5 and 1, got {confidence!r}")
    return 1 - confidence


def _check(canaries: int, guesses: int, correct: int) -> None:
    integer("canaries", canaries)
    integer("guesses", guesses)
    integer("correct", correct, least=0)
    if not correct <= guesses <= canaries:
        raise ValueError(
            f"correct <= guesses <= canaries must hold, got {correct}, {guesses} and {canaries}"
        )

"""An audit from one run with many canaries.

Each of m canaries is put into the data by a fair coin of its own. From the output the auditor guesses r of the coins
and abstains from the rest; v guesses are right. Guarantee: under (epsilon, delta)-DP (a canary left out or put in),
``P[right >= v] <= P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i`` with B binomial(r, e^epsilon / (1 + e^epsilon)).
Reference: Steinke, Nasr and Jagielski (2023), Theorem 5.2 and appendix D.

A mu-GDP mechanism is (epsilon, delta_mu(epsilon))-DP for every epsilon, so the smallest of these bounds over epsilon
holds too; that is the Gaussian version.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import binom

from dpfit.audit.bounds import Floats
from dpfit.audit.currency import Currency, Epsilon, currency_of
from dpfit.audit.record import BROKEN, KEPT, TOO_FEW, Audit, Finding
from dpfit.audit.tradeoff import profile
from dpfit.privacy import Guarantee, gaussian
from dpfit.privacy.check import count, probability

_LARGEST = 100.0


def guess_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float = 0.0) -> float:
    """The largest probability of so many correct guesses under (epsilon, delta)-DP.

    >>> round(guess_p_value(10, 10, 10, 0.0), 6)  # ten fair coins
    0.000977
    """
    _check(canaries, guesses, correct)
    return float(_p_values(canaries, guesses, correct, np.array([epsilon]), np.array([delta]))[0])


def _p_values(canaries: int, guesses: int, correct: int, epsilons: Floats, deltas: Floats) -> Floats:
    """The same at many levels of one curve."""
    rates = expit(epsilons)
    tails = binom.sf(correct - 1, guesses, rates)
    if correct == 0 or not deltas.any():
        return np.asarray(np.minimum(tails, 1.0))
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, rates[:, None]), axis=1)
    worst = np.max(below / np.arange(1, correct + 1), axis=1)
    return np.asarray(np.minimum(tails + 2 * canaries * deltas * worst, 1.0))


def one_run_epsilon(
    canaries: int, guesses: int, correct: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """A lower bound on epsilon at ``delta``.

    >>> round(one_run_epsilon(1000, 1000, 731), 2)  # randomized response with epsilon = 1 is right 731 times
    0.88
    """
    return _largest_refuted(
        lambda epsilon: guess_p_value(canaries, guesses, correct, epsilon, delta), _failure(confidence)
    )


def one_run_mu(canaries: int, guesses: int, correct: int, *, confidence: float = 0.95) -> float:
    """A lower bound on mu, the Gaussian-DP parameter.

    >>> one_run_mu(1000, 100, 95) > 0.5
    True
    """

    def p_value(mu: float) -> float:
        epsilons = np.linspace(0.0, mu * (mu / 2 + 7), 60)
        return _curve_p_value(canaries, guesses, correct, epsilons, gaussian.delta(mu, epsilons))

    return _largest_refuted(p_value, _failure(confidence))


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
    """Audit one run from the coins of its canaries and a score for each, high where the canary seems to be in.

    The ``guesses`` most extreme scores are guessed, half of them in, half of them out; that number is chosen before the
    coins are looked at.
    """
    coins, values = np.asarray(included, dtype=bool).reshape(-1), np.asarray(scores, dtype=np.float64).reshape(-1)
    if len(coins) != len(values):
        raise ValueError(f"one score a canary is needed, got {len(values)} for {len(coins)}")
    money = currency_of(guarantee, currency, delta)
    asked, failure = count("guesses", guesses), _failure(confidence)
    order = np.argsort(values, kind="stable")
    outs, ins = order[: asked // 2], order[len(order) - (asked - asked // 2) :]
    correct = int(np.sum(~coins[outs]) + np.sum(coins[ins]))
    m = len(coins)
    _check(m, asked, correct)
    if isinstance(money, Epsilon):
        lower = one_run_epsilon(m, asked, correct, delta=money.delta, confidence=confidence)
    else:
        lower = one_run_mu(m, asked, correct, confidence=confidence)
    # The promise itself is tested on its whole curve, at a few levels.
    points = slice(None, None, 25)
    epsilons, deltas = (values[points] for values in profile(guarantee))
    promised = [(e, d) for e, d in [*zip(epsilons, deltas, strict=True), (guarantee.pure, 0.0)] if e < _LARGEST]
    levels = np.array([e for e, _ in promised]), np.array([d for _, d in promised])
    broken = _curve_p_value(m, asked, correct, *levels) <= failure
    possible = _curve_p_value(m, asked, asked, *levels) <= failure
    needed = 0 if possible else _guesses_needed(levels, failure)
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
        findings=(Finding("one run with canaries", lower, broken, note=f"{correct} of {asked} guesses right"),),
        needed=needed,
    )


def _guesses_needed(levels: tuple[Floats, Floats], failure: float) -> int:
    """How many guesses, all of them right, would contradict the promise."""
    guesses = 1
    while _curve_p_value(guesses, guesses, guesses, *levels) > failure and guesses < 2**20:
        guesses *= 2
    return guesses


def _curve_p_value(canaries: int, guesses: int, correct: int, epsilons: Floats, deltas: Floats) -> float:
    # Each level gives a valid bound on one and the same probability, so their minimum is valid without a correction.
    return float(np.min(_p_values(canaries, guesses, correct, epsilons, deltas)))


def _largest_refuted(p_value: Callable[[float], float], failure: float) -> float:
    """The largest parameter that is refuted: p-values grow with it; the low end of the bracket is returned."""
    low, high = 0.0, 1.0
    if p_value(1e-9) > failure:
        return 0.0
    while p_value(high) <= failure:
        low, high = high, 2 * high
        if high > _LARGEST:
            return low
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= failure else (low, middle)
    return low


def _failure(confidence: float) -> float:
    if not 0.5 <= probability("confidence", confidence) < 1:
        raise ValueError(f"confidence must lie between 0.5 and 1, got {confidence!r}")
    return 1 - confidence


def _check(canaries: int, guesses: int, correct: int) -> None:
    count("canaries", canaries)
    count("guesses", guesses)
    count("correct", correct, least=0)
    if not correct <= guesses <= canaries:
        raise ValueError(f"correct <= guesses <= canaries must hold, got {correct}, {guesses} and {canaries}")

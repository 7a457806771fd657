"""The guarantee: in words, as a curve, as an attacker's gain, and its assumptions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from dpfit.core import Plan
from dpfit.core.explain import in_words
from dpfit.privacy import Basis, Guarantee
from dpfit.report import words
from dpfit.report.blocks import item, section, table, tile
from dpfit.report.figures import profile_figure, trade_off_figure
from dpfit.report.markup import Markup, join, tag
from dpfit.report.risk import best_guess, odds_tail, recognised
from dpfit.theory.bibliography import resolve

_FALSE_ALARMS = ((0.001, 1000), (0.01, 100), (0.1, 100))
_FACTORS = (1.5, 2.0, 3.0, 5.0, 10.0, 100.0)


def promise_tiles(guarantee: Guarantee, delta: float) -> Iterable[Markup]:
    """The promise in two figures."""
    guess = words.out_of(best_guess(guarantee))
    yield tile(
        guess,
        "right guesses, at most, of the best possible attacker; a coin is right 50 in 100 times",
    )
    epsilon, at = words.quoted(guarantee, delta)
    where = f" at delta = {words.power(at)}" if at else ", and nothing beyond"
    yield tile(
        f"ε = {words.bound(epsilon)}", f"the same promise as experts quote it: epsilon{where}"
    )


def promise_section(guarantee: Guarantee, delta: float) -> Markup:
    """The promise in words and as a curve."""
    basis = guarantee.basis
    epsilon, at = words.quoted(guarantee, delta)
    guess = words.out_of(best_guess(guarantee)).removesuffix(" in 100")
    return section(
        "What is promised",
        tag(
            "p",
            "Random noise is mixed into these results, and just enough of it that they would "
            "come out almost the "
            f"same way if {words.change(basis)}. So they say little about any one "
            f"{'record' if basis.unit == 'record' else 'person'}, whatever else a reader knows.",
        ),
        tag(
            "p",
            "How little? Imagine an attacker who knows every other record, and exactly how the "
            "results were made, and "
            f"who wants to find out {words.question(basis)}. Both are equally likely to her "
            "beforehand, so a guess is "
            "right 50 times in 100. With these results in hand, no method, however clever, is "
            f"right more than {guess} "
            "times in 100.",
            class_="lead",
        ),
        _single_record(basis),
        tag("h3", "What is not promised"),
        tag("ul", *(tag("li", each) for each in words.NOT_PROMISED)),
        tag("h3", "The promise as a curve"),
        tag(
            "figure",
            profile_figure(guarantee, (epsilon, at), "profile"),
            tag("figcaption", *_curve_caption(guarantee, epsilon, at)),
        ),
    )


def risk_section(guarantee: Guarantee) -> Markup:
    """The promise as attack risk."""
    rates = [
        (words.out_of(rate, many), words.out_of(recognised(guarantee, rate), many))
        for rate, many in _FALSE_ALARMS
    ]
    return section(
        "What an attacker can gain",
        tag(
            "p",
            "An attacker who accuses people of being in the data makes two kinds of mistakes: "
            "she accuses wrongly, or "
            "she fails to recognise someone. She can trade one for the other, but no attacker "
            "can get below the curve.",
        ),
        tag(
            "figure",
            trade_off_figure(guarantee, "tradeoff"),
            tag(
                "figcaption",
                "The straight line is blind guessing. The closer the curve is to it, the better "
                "the protection. "
                "No attacker reaches the shaded region.",
            ),
        ),
        table(
            ("If she wrongly accuses no more than", "she recognises at most"), rates, numeric=(1,)
        ),
        tag(
            "p",
            "Another view: the release can make a suspicion stronger or weaker. This is the "
            "chance, at most, that it "
            "multiplies the odds of a suspicion that is true.",
        ),
        table(("The odds grow", "with a chance of at most"), _odds(guarantee), numeric=(1,)),
    )


def basis_section(basis: Basis) -> Markup:
    """What is assumed, what is enforced, and the arithmetic."""
    rows = [(_badge(a.status), a.text) for a in sorted(basis.assumptions, key=lambda a: a.status)]
    declared = any(a.status == "declared" for a in basis.assumptions)
    return section(
        "What the promise rests on",
        tag(
            "p",
            "A mathematical theorem",
            ", which needs the following to be true." if rows else ", which needs nothing else.",
            " Only the analyst can check what is declared: please do." if declared else "",
        ),
        table(("Who makes sure", "What must be true"), rows) if rows else Markup(),
        tag(
            "dl",
            *item("Theorem", basis.theorem),
            *item(
                "Rounding",
                f"{basis.arithmetic.capitalize()}. {words.ARITHMETIC[basis.arithmetic]}",
            ),
            *item("Who is protected", words.protected(basis)),
        ),
    )


def references_section(basis: Basis) -> Markup | None:
    """The works that the theorem cites; None if it cites none."""
    works = resolve(basis.theorem)
    return (
        section("References", tag("ul", *(tag("li", f"{work}.") for work in works)))
        if works
        else None
    )


def technical_section(plan: Plan) -> Markup:
    """For experts: what ran, and the promise in a form that can be accounted again."""
    promise = json.dumps(plan.guarantee.to_json(), indent=1)
    return section(
        "For experts",
        tag(
            "dl",
            *item("What runs", in_words(plan.event)),
            *item("Work", str(plan.work)),
            *_measures(plan.guarantee),
        ),
        tag(
            "details",
            tag("summary", "The promise as JSON, from which it can be computed again"),
            tag("pre", join(promise.splitlines())),
        ),
    )


def _single_record(basis: Basis) -> Markup:
    if basis.unit == "user":
        return Markup()
    return tag(
        "p",
        "The promise is made to each single record. Someone with several records in the data is "
        "protected less: the "
        "more records, the less.",
    )


def _curve_caption(guarantee: Guarantee, epsilon: float, delta: float) -> Iterable[object]:
    yield (
        "Every point of the curve is a promise of the form that experts use, epsilon with "
        "delta; all hold at once. "
    )
    if math.isinf(epsilon):
        yield f"At delta = {words.power(delta)} there is no finite epsilon."
    elif delta:
        yield "The dot is the one that is usually quoted: "
        yield f"epsilon = {words.bound(epsilon)} at delta = {words.power(delta)}."
    else:
        odds = words.bound(math.exp(min(epsilon, 700.0)))
        yield f"The curve ends at epsilon = {words.bound(epsilon)}: "
        yield f"no result can ever change the odds of a suspicion by more than a factor of {odds}."


def _odds(guarantee: Guarantee) -> Iterable[tuple[str, str]]:
    """The chance of larger and larger factors, until it is negligible."""
    for factor in _FACTORS:
        tail = odds_tail(guarantee, factor)
        yield f"more than {factor:g} times", words.chance(tail)
        if tail <= 1e-9:
            return


def _badge(status: str) -> Markup:
    return tag("span", tag("b", status), f" {words.STATUS[status]}", class_=f"badge {status}")


def _measures(guarantee: Guarantee) -> Iterable[Markup]:
    """The one-number promises that exist."""
    known = (
        ("Pure epsilon", guarantee.pure),
        ("Gaussian DP, mu", guarantee.mu),
        ("Zero-concentrated DP, rho", guarantee.rho),
    )
    for name, value in known:
        if math.isfinite(value):
            yield from item(name, words.bound(value))
    if guarantee.total_variation:
        yield from item("Distance from the ideal sampler", words.bound(guarantee.total_variation))

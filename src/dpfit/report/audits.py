"""What attacks on the program found."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpfit.audit import Audit, Finding
from dpfit.audit.result import BROKEN, KEPT, TOO_FEW
from dpfit.audit.tradeoff import TradeOff
from dpfit.report import words
from dpfit.report.blocks import section, table, tile
from dpfit.report.figures import audit_figure
from dpfit.report.markup import Markup, name_of, tag

_VERDICTS = {
    KEPT: "No attack contradicted the promise.",
    BROKEN: "The promise is broken.",
    TOO_FEW: "There were too few runs to say anything.",
}
_MOODS = {KEPT: "good", BROKEN: "bad", TOO_FEW: ""}
_WORST_FIRST = (BROKEN, TOO_FEW, KEPT)
_ATTACKS = {
    "projection": "how far the result lies towards what the other dataset gives",
    "likelihood ratio": "how much likelier the result is on the one dataset than on the other",
    "learned (logistic)": "a classifier, trained on other runs",
    "learned (boosted)": "a classifier, trained on other runs",
    "shape or exception": "type and length of the result, and error messages",
    "transcript": "how often exactly this result was seen on the one dataset and on the other",
    "low bits": "the last binary digits of the numbers",
    "exact": "the law of the result, computed",
    "one run with canaries": "which of many planted records were used",
}
"""What attacks look at, in words."""


def verdict_tile(audits: Sequence[Audit]) -> Markup:
    """The worst verdict."""
    worst = min((audit.verdict for audit in audits), key=_WORST_FIRST.index)
    many = sum(audit.verdict == worst for audit in audits)
    of = f"{many} of {len(audits)} audits: " if len(audits) > 1 else "audit: "
    meaning = {
        KEPT: "attacks on the program did not contradict its promise",
        BROKEN: "attacks on the program contradict its promise",
        TOO_FEW: "attacks could not have seen a broken promise",
    }[worst]
    return tile(worst, f"{of}{meaning}", _MOODS[worst])


def audit_section(audit: Audit, place: int) -> Markup:
    """Verdict, figure, attacks and circumstances of one audit."""
    return section(
        f"Audit of {audit.subject}",
        tag("p", _verdict(audit), " ", _meaning(audit), class_="lead"),
        tag("p", *_method(audit)),
        tag("p", _scale(audit)),
        _figure(audit, place),
        _attacks(audit),
    )


def _verdict(audit: Audit) -> Markup:
    return tag("strong", _VERDICTS[audit.verdict], class_=_MOODS[audit.verdict] or None)


def _meaning(audit: Audit) -> str:
    if audit.verdict == KEPT:
        return (
            "That is evidence, not a proof: these attacks, on this pair of datasets, found "
            "nothing, although a leak of "
            "twice the promised size would have been expected to show."
        )
    if audit.verdict == TOO_FEW:
        return f"At least {audit.needed:,} runs on each of the two datasets are needed."
    if not audit.runs:
        return (
            "Its output was computed exactly, and tells neighbouring datasets apart better "
            "than promised."
        )
    return (
        f"The attack “{audit.attack}” tells neighbouring datasets apart better than promised. If "
        "the promise were "
        f"true, this would happen with a chance of at most {words.chance(1 - audit.confidence)}."
    )


def _method(audit: Audit) -> Sequence[object]:
    name, promised, lower = (
        audit.currency.name,
        words.bound(audit.promised),
        words.figure(audit.lower),
    )
    if not audit.runs:
        return (
            f"No sampling was needed: the output law is known. {name} is {lower} exactly, "
            f"promised is {promised}.",
        )
    return (
        f"The program ran {audit.runs:,} times on each of two datasets that differ as little as "
        "the promise allows, "
        "and attacks tried to tell from the results which of the two it was. What they achieved "
        "proves that ",
        tag("b", f"{name} is at least {lower}"),
        f"; promised is at most {promised}. That bound is wrong with a chance of at most "
        f"{words.chance(1 - audit.confidence)}. The audit took {_time(audit.seconds)}. It runs "
        "at a promise of a size "
        "at which attacks can be seen, not at that of a particular release.",
    )


def _scale(audit: Audit) -> str:
    """What the promise means for whoever attacks."""
    least = math.floor(1000 * TradeOff(audit.promise).balanced) / 10
    return (
        "To read the numbers: who guesses blindly is wrong in 50 % of the cases. The promise "
        "says that nobody can be "
        f"wrong in fewer than {least:g} % of the cases on both datasets; the smaller that "
        "number, the larger "
        f"{audit.currency.name}, and the weaker the promise."
    )


def _figure(audit: Audit, place: int) -> Markup:
    if not audit.runs:
        return Markup()
    return tag(
        "figure",
        audit_figure(audit, f"audit{place}"),
        tag(
            "figcaption",
            "Mistakes of the best attack, for every level of caution. The promise rules out the "
            "shaded region. The "
            "cross allows for chance: only a cross inside the shaded region breaks the promise.",
        ),
    )


def _attacks(audit: Audit) -> Markup:
    if not audit.findings:
        return Markup()
    head = (
        "Attack",
        f"{audit.currency.name} at least",
        "Wrongly accused",
        "Not recognised",
        "Time",
    )
    return table(head, map(_row, audit.findings), numeric=(1, 2, 3, 4))


def _row(finding: Finding) -> Sequence[object]:
    note = tag("small", finding.note or _ATTACKS.get(finding.attack, ""))
    rates = [
        "–" if rate is None else f"≤ {words.up(100 * rate, 1):g} %"
        for rate in (finding.alpha_upper, finding.beta_upper)
    ]
    broken = tag("b", "contradicts the promise", class_="bad") if finding.broken else ""
    return (
        tag("span", name_of(finding.attack), broken, note),
        words.figure(finding.lower) if finding.alpha_upper is not None else "–",
        *rates,
        _time(finding.seconds),
    )


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min"

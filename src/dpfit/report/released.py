"""What was released, and how good it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpfit.core.notes import Advice, MissingOutcomes
from dpfit.report import words
from dpfit.report.blocks import section, table
from dpfit.report.facts import Estimate, Facts, Quality
from dpfit.report.markup import Markup, name_of, tag

_WHERE = {
    "predicted": "predicted from public facts, before the data were read",
    "public data": "measured on public data",
    "private score": "measured on private data by a private method, paid from the budget",
}


def released_section(facts: Facts, ran: bool) -> Markup:
    """The release itself."""
    title = "What was released" if ran else "What will be released"
    parts: list[Markup] = [tag("p", facts.summary)] if facts.summary else []
    if facts.estimates:
        parts.append(_estimates(facts.estimates, facts.called))
        parts.append(tag("p", _about_intervals(facts), class_="note"))
    elif ran and not facts.summary:
        parts.append(
            tag("p", "A result that is kept in a file of its own; this page is about its promise.")
        )
    elif not ran:
        parts.append(
            tag(
                "p",
                "Nothing yet: this is a plan, made from public facts. The data have not been read.",
            )
        )
    missing = (note.row.text for note in facts.plan.notes if isinstance(note, MissingOutcomes))
    parts += [tag("p", f"Missing outcomes: {each}.", class_="note") for each in missing]
    return section(title, *parts)


_MEANINGS = {
    "excess empirical risk": "how far the mean loss will be above that of the best model without "
    "noise",
}
"""Predicted risks in plain words."""


def quality_section(facts: Facts) -> Markup | None:
    """Predicted and measured quality; None if nothing is known."""
    risk = facts.plan.risk
    figures = (
        [Quality(risk.meaning, risk.expected, "predicted", _MEANINGS.get(risk.meaning, ""))]
        if risk is not None
        else []
    )
    figures += facts.quality
    if not figures:
        return None
    rows = [(_explained(each), words.figure(each.value), _WHERE[each.source]) for each in figures]
    return section(
        "How good it is",
        tag("p", "Noise costs accuracy. What was expected beforehand, and what was measured:")
        if len({each.source for each in figures}) > 1
        else tag("p", "Noise costs accuracy. This is what is known about how much:"),
        table(("Figure", "Value", "Where it comes from"), rows, numeric=(1,)),
        *(
            tag("p", f"Advice: {note.text}.", class_="note")
            for note in facts.plan.notes
            if isinstance(note, Advice)
        ),
    )


def _explained(each: Quality) -> Markup:
    return tag("span", name_of(each.name), tag("small", each.meaning) if each.meaning else "")


def _estimates(estimates: Sequence[Estimate], called: str) -> Markup:
    head: tuple[object, ...] = (called[:1].upper() + called[1:], "Released")
    spans = [each.interval for each in estimates]
    if not any(spans):
        return table(
            head, ((name_of(each.name), _with_unit(each)) for each in estimates), numeric=(1,)
        )
    ends = [end for each in estimates for end in (*(each.interval or ()), each.value)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    rows = (
        (name_of(each.name), _with_unit(each), _interval(each), _whisker(each, low, high or 1.0))
        for each in estimates
    )
    return table((*head, "Interval", ""), rows, numeric=(1, 2))


def _with_unit(each: Estimate) -> Markup:
    return tag("span", words.figure(each.value), f" {each.unit}" if each.unit else "")


def _interval(each: Estimate) -> str:
    return " to ".join(map(words.figure, each.interval)) if each.interval else "–"


def _whisker(each: Estimate, low: float, high: float) -> Markup:
    """The interval as a line with a dot, on the common scale of the table, and a mark at zero."""

    def at(value: float) -> str:
        return f"{2 + 96 * (value - low) / (high - low):.2f}"

    def marks() -> Iterable[Markup]:
        yield tag("line", x1=at(0.0), x2=at(0.0), y1="0", y2="16", class_="zero")
        if each.interval is not None:
            yield tag(
                "line",
                x1=at(each.interval[0]),
                x2=at(each.interval[1]),
                y1="8",
                y2="8",
                class_="span",
            )
        yield tag("circle", cx=at(each.value), cy="8", r="3")

    drawn = "".join(marks())
    return Markup(f'<svg class="whisker" viewBox="0 0 100 16" aria-hidden="true">{drawn}</svg>')


def _about_intervals(facts: Facts) -> str:
    if facts.intervals:
        return facts.intervals
    if any(each.interval for each in facts.estimates):
        return "Nothing is said about what the intervals cover."
    return (
        "These numbers contain random noise; running the same procedure again would give "
        "other ones."
    )

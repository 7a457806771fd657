"""The page: sections in the order in which a reader asks.

The reader is an analyst and her ethics board. The page needs no network and no script, and its
policy forbids both.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from dpfit import __version__
from dpfit.audit import Audit
from dpfit.core import Plan, Release
from dpfit.ledger import Ledger
from dpfit.report.audits import audit_section, verdict_tile
from dpfit.report.budget import LedgerView, budget_section, budget_tile
from dpfit.report.facts import Facts
from dpfit.report.markup import Markup, join, tag
from dpfit.report.promise import (
    basis_section,
    promise_section,
    promise_tiles,
    references_section,
    risk_section,
    technical_section,
)
from dpfit.report.released import quality_section, released_section

if TYPE_CHECKING:
    from dpfit.models.linear import PrivateModel

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def report(
    subject: Release | Plan | Facts | PrivateModel,
    *,
    title: str = "",
    ledger: Ledger | None = None,
    dataset: str | None = None,
    audit: Audit | Sequence[Audit] = (),
    figures: Sequence[Markup] = (),
) -> str:
    """A self-contained HTML page about a release, a plan before its run, a fitted model, or facts.

    ``ledger`` and ``dataset`` add what is spent and left, ``audit`` what attacks found;
    ``figures``, made by `series_figure` for example, are shown with the release. Nothing on the
    page depends on records except released values: diagnostics are never shown.

    >>> from dpfit import Answer, Budget
    >>> from dpfit.mechanisms.mean import BoundedMean, gaussian_mean
    >>> plan = gaussian_mean.plan(
    ...     Answer(n=800, workload=BoundedMean(0, 120)), Budget(epsilon=1, delta=1e-6)
    ... )
    >>> page = report(plan.run([34.0, 51.0, 29.0, 62.0] * 200), title="Mean age of patients")
    >>> "is right more than 54.8 times in 100" in page
    True
    """
    facts = _facts(subject, title)
    if (ledger is None) != (dataset is None):
        raise ValueError("a ledger and the name of a dataset in it go together")
    book = LedgerView.read(ledger, dataset) if ledger is not None and dataset is not None else None
    audits = _several(audit)
    guarantee = facts.plan.guarantee
    ran = subject is not facts.plan
    tiles = [*promise_tiles(guarantee, facts.delta)]
    tiles += [budget_tile(book)] if book else []
    tiles += [verdict_tile(audits)] if audits else []
    sections = [
        _warning(facts),
        tag("div", *tiles, class_="tiles"),
        released_section(facts, ran),
        *(tag("figure", each) for each in figures),
        promise_section(guarantee, facts.delta),
        risk_section(guarantee),
        basis_section(guarantee.basis),
        quality_section(facts),
        budget_section(book, facts.plan if ran else None) if book else None,
        *(audit_section(each, place) for place, each in enumerate(audits, 1)),
        technical_section(facts.plan),
        references_section(guarantee.basis),
    ]
    kind = "Privacy report" if ran else "Privacy plan"
    return _page(facts.title, kind, (facts.author, facts.date), sections)


def audit_report(audits: Audit | Sequence[Audit], *, title: str = "") -> str:
    """A self-contained HTML page about audits alone.

    >>> from dpfit.audit import audit_entry
    >>> page = audit_report(audit_entry("laplace_mean", runs=400, random_state=1))
    >>> "No attack contradicted the promise" in page
    True
    """
    found = _several(audits)
    if not found:
        raise ValueError("a report on audits needs at least one")
    heading = title or (
        f"Audit of {found[0].subject}" if len(found) == 1 else f"Audit of {len(found)} algorithms"
    )
    sections = [
        tag("div", verdict_tile(found), class_="tiles"),
        *(audit_section(audit, place) for place, audit in enumerate(found, 1)),
    ]
    return _page(heading, "Privacy audit", (), sections)


def _facts(subject: Release | Plan | Facts | PrivateModel, title: str) -> Facts:
    match subject:
        case Release():
            return Facts.of(subject, title or "A private release")
        case Plan():
            return Facts(title or "A planned release", subject)
        case Facts() if not title:
            return subject
        case Facts():
            raise ValueError("facts have a title of their own")
    if hasattr(subject, "plan_") and hasattr(subject, "summary"):
        return Facts.of_model(subject, title)
    raise TypeError(
        "a report is about a Release, a Plan, Facts or a fitted model, not "
        f"{type(subject).__name__}"
    )


def _several(audits: Audit | Sequence[Audit]) -> tuple[Audit, ...]:
    return (audits,) if isinstance(audits, Audit) else tuple(audits)


def _warning(facts: Facts) -> Markup | None:
    if facts.private:
        return None
    return tag(
        "p",
        tag("strong", "This release is not private. "),
        "Its random numbers were started from a chosen number (an RNG seed), as one does in "
        "tests. Whoever knows or "
        "guesses that number can take the noise away. Do not publish these results; run again "
        "without a seed.",
        class_="warning",
        role="note",
    )


def _page(title: str, kind: str, signed: Sequence[str], sections: Sequence[Markup | None]) -> str:
    style = files("dpfit.report").joinpath("page.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    byline = " · ".join(part for part in signed if part)
    header = tag(
        "header",
        tag("p", kind, class_="kind"),
        tag("h1", tag("bdi", title)),
        tag("p", byline, class_="byline") if byline else Markup(),
    )
    footer = tag(
        "footer",
        f"Written by dpfit {__version__}. This page loads nothing from elsewhere and runs no "
        "program. ",
        "Figures that bound a risk are rounded up.",
    )
    body = tag(
        "body", tag("main", header, join(part for part in sections if part is not None), footer)
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"

"""The page in a real browser: silent, without network, and within the width of a phone."""

import re

import numpy as np
import pytest

from dpfit.audit import audit_entry
from dpfit.core import Answer
from dpfit.ledger import Ledger
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean
from dpfit.privacy import Budget
from dpfit.report import Estimate, Facts, Quality, audit_report, report

WIDTHS = {"phone": 375, "tablet": 768, "desktop": 1280}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    ledger = Ledger.create(folder / "budgets.ledger")
    ledger.register("patients" * 20, Budget(epsilon=2.0, delta=1e-6))
    plan = gaussian_mean.plan(
        Answer(n=50, workload=BoundedMean(0, 1)), Budget(epsilon=1, delta=1e-6)
    )
    plan.run(np.zeros(50), account=ledger.account("patients" * 20, who="w" * 90, why="y" * 200))
    names = (
        "age",
        "ward = <script>document.title = 'owned'</script>",
        "n" * 250,
        "several words " * 20,
    )
    facts = Facts(
        "T" * 120,
        plan,
        summary="s" * 300,
        estimates=tuple(Estimate(name, -12345.678, -23456.7, 12345.6, "mmol") for name in names),
        called="coefficient",
        quality=(Quality("q" * 90, 0.123456, "private score", "m" * 200),),
        author="a" * 200,
    )
    audits = [
        audit_entry("gaussian_mean", runs=400, random_state=1),
        audit_entry("laplace_mean", runs=400, random_state=1),
    ]
    made = {
        "full": report(facts, ledger=ledger, dataset="patients" * 20, audit=audits[0]),
        "plan": report(plan),
        "audits": audit_report(audits),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", ["full", "plan", "audits"])
def test_silent_offline_and_within_the_width(browser, pages, name, width, scheme):
    browser.open(pages / f"{name}.html", width, scheme)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    # Nothing inside a table has to be scrolled to either.
    assert browser.evaluate(
        "[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)"
    )
    assert browser.console() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [
        f"file://{pages / name}.html"
    ]
    assert browser.evaluate("document.title") != "owned"


def test_dark_is_dark_and_figures_follow(browser, pages):
    found = {}
    for scheme in ("light", "dark"):
        browser.open(pages / "plan.html", 1280, scheme)
        found[scheme] = browser.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('figure svg text')).fill]"
        )
    brightness = {
        scheme: [sum(map(int, re.findall(r"\d+", c)[:3])) for c in pair]
        for scheme, pair in found.items()
    }
    assert brightness["light"][0] > 600 > 200 > brightness["light"][1]
    assert brightness["dark"][0] < 200 < 600 < brightness["dark"][1]


def test_figures_are_legible_on_a_phone(browser, pages):
    browser.open(pages / "full.html", 375)
    heights = browser.evaluate(
        "[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width"
        " / s.viewBox.baseVal.width * "
        "parseFloat(getComputedStyle(s.querySelector('text')).fontSize))"
    )
    assert len(heights) == 3
    assert min(heights) >= 10


def test_labels_stay_inside_their_figures(browser, pages):
    """The browser's letters are not those that the figure was laid out with."""
    for name in ("full", "audits"):
        browser.open(pages / f"{name}.html", 375)
        assert browser.evaluate(
            "[...document.querySelectorAll('figure svg')].every(s => { const box = "
            "s.getBoundingClientRect();"
            " return [...s.querySelectorAll('text')].every(t => { const b = "
            "t.getBoundingClientRect();"
            " return b.left >= box.left - 1 && b.right <= box.right + 1 }) })"
        )


def test_it_prints_in_a_few_light_pages(browser, pages):
    browser.open(pages / "plan.html", 1280, "dark")
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4
    browser.command("Emulation.setEmulatedMedia", media="print")
    ink = browser.evaluate("getComputedStyle(document.body).color")
    browser.command("Emulation.setEmulatedMedia", media="")
    assert sum(map(int, re.findall(r"\d+", ink)[:3])) < 200


def test_scripts_do_not_run_even_if_one_got_in(browser, tmp_path, pages):
    page = (pages / "plan.html").read_text(encoding="utf-8")
    tampered = tmp_path / "tampered.html"
    tampered.write_text(
        page.replace("<main>", "<main><script>document.title = 'owned'</script>"), encoding="utf-8"
    )
    browser.open(tampered)
    assert browser.evaluate("document.title") == "A planned release"
    assert any("Content Security Policy" in message for message in browser.console())

"""The page: what it says, what it must never say, and that nothing in it can run or load."""

import json
import math
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from dpfit.audit import Audit, Finding, Mu, audit_entry
from dpfit.audit.result import BROKEN, TOO_FEW
from dpfit.core import Answer, Mechanism, Risk, Step, plan_from_json
from dpfit.ledger import Ledger
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean, laplace_mean
from dpfit.models import LinearRegression, LogisticRegression
from dpfit.privacy import Assumption, Basis, Budget, Guarantee, event
from dpfit.privacy.spec import from_json
from dpfit.report import Estimate, Facts, Quality, audit_report, report

HOSTILE = "<script>alert(1)</script>\"' onload=x & $\\frac{1}{0}$ \u202e</style></title>-->"
VOID = {"meta", "link", "br"}


@dataclass(frozen=True)
class Fake(Mechanism):
    kind = "report_test_fake"
    done: event.Event

    @property
    def event(self):
        return self.done

    @property
    def risk(self):
        return Risk(0.125, "mean error")

    def run(self, data, run):
        return 0.0


class Page(HTMLParser):
    """The elements of a page, checked for balance on the way."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.words, self.open = [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.attributes += [(name, *pair) for pair in attributes]
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.tags.append(name)
        self.attributes += [(name, *pair) for pair in attributes]

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def step(of: event.Event, **basis) -> Step:
    return Step(Fake(of), Basis("a theorem", **basis))


def mean_plan(epsilon=1.0, n=100):
    return gaussian_mean.plan(
        Answer(n=n, workload=BoundedMean(0, 1)), Budget(epsilon=epsilon, delta=1e-6)
    )


@pytest.fixture(scope="module")
def audit():
    return audit_entry("gaussian_mean", runs=400, random_state=1)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(tmp_path / "budgets.ledger")
    made.register("patients", Budget(epsilon=2.0, delta=1e-6))
    return made


EVENTS = [
    event.Gaussian(1.0),
    event.Laplace(2.0),
    event.Pure(0.0),
    event.Pure(60.0),
    event.Approximate(1.0, 1e-5),
    event.ZeroConcentrated(0.1),
    event.Repeated(event.Sampled(event.Gaussian(1.0), 0.01), 20),
    event.Composed((event.Laplace(1.0), event.Gaussian(2.0))),
    event.WithinTotalVariation(event.Gaussian(1.0), 1e-3),
]


@pytest.mark.parametrize("of", EVENTS, ids=lambda of: of.kind)
def test_every_kind_of_promise_makes_a_sound_page(of):
    page = Page(report(step(of)))
    assert "nan" not in page.text.lower().split()
    assert "None" not in page.text
    for name, key, value in page.attributes:
        if key in ("src", "href") and name != "link":
            assert value.startswith("#")
        assert not key.startswith("on")
    assert not {"script", "iframe", "object", "form", "base", "img"} & set(page.tags)


def test_the_headline_is_the_closed_form():
    """Gaussian noise of multiplier 1: the best test succeeds with Phi(1/2) = 0.69146."""
    assert "right more than 69.2 times in 100" in Page(report(step(event.Gaussian(1.0)))).text
    assert "right more than 73.2 times in 100" in Page(report(step(event.Pure(1.0)))).text


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        ({}, "one record were replaced by any other"),
        ({"relation": "add_remove"}, "whether a certain record is in the data at all"),
        ({"unit": "user"}, "all records of one person were replaced"),
        (
            {"unit": "user", "relation": "add_remove"},
            "certain person’s records are in the data at all",
        ),
    ],
)
def test_neighbours_and_units_in_words(basis, words):
    text = Page(report(step(event.Pure(1.0), **basis))).text
    assert words in text
    by_user = basis.get("unit") == "user"
    assert ("each single record" in text) == (not by_user)
    assert ("a person with all of its rows" in text) == by_user


def test_what_is_assumed_and_what_is_enforced():
    assumptions = (
        Assumption("rows were scaled", "enforced"),
        Assumption("n is public", "declared"),
    )
    plan = step(event.Pure(1.0), assumptions=assumptions, arithmetic="idealised")
    text = Page(report(plan)).text
    assert "enforced made true by the program, for any data rows were scaled" in text
    assert "declared stated by the analyst n is public" in text
    assert "does not include these errors" in text
    assert "please do" in text
    assert "please do" not in Page(report(step(event.Pure(1.0)))).text


def test_references_list_each_cited_work_once():
    text = Page(report(mean_plan())).text
    assert (
        text.count("Improved Algorithms and Upper Bounds in Differential Privacy. PhD thesis") == 1
    )
    assert "References" in text
    assert "References" not in Page(report(step(event.Pure(1.0)))).text


def test_an_infinite_epsilon_is_said():
    text = Page(report(step(event.WithinTotalVariation(event.Gaussian(1.0), 1e-3)))).text
    assert "ε = unlimited" in text
    assert "there is no finite epsilon" in text


def test_a_release_shows_its_value_and_no_diagnostics():
    plan = mean_plan()
    release = plan.run(np.full(100, 0.25), diagnostics=True)
    release.diagnostics["secret_of_row_7"] = 123.456
    text = Page(report(release, title="Mean")).text
    assert f"{float(release.value[0]):.4g}".replace("-", "−") in text
    assert "secret" not in text
    assert "123.456" not in text
    assert "not private" not in text


def test_a_seeded_release_is_called_not_private():
    assert (
        "This release is not private."
        in Page(report(mean_plan().run(np.zeros(100), random_state=1))).text
    )


def test_a_plan_says_that_nothing_was_read():
    text = Page(report(mean_plan())).text
    assert "The data have not been read." in text
    assert "What will be released" in text


def test_estimates_intervals_and_quality():
    facts = Facts(
        "Model",
        step(event.Pure(1.0)),
        estimates=(Estimate("age", 0.5, 0.25, 0.75), Estimate("ward", -2.0)),
        called="coefficient",
        intervals="90 % intervals",
        quality=(
            Quality("accuracy", 0.875, "public data"),
            Quality("loss", 0.3, "private score", "log loss"),
        ),
    )
    text = Page(report(facts)).text
    for words in (
        "Coefficient",
        "age 0.5 0.25 to 0.75",
        "ward −2 –",
        "90 % intervals",
        "mean error 0.125 predicted",
    ):
        assert words in text
    assert "accuracy 0.875 measured on public data" in text
    assert "measured on private data by a private method" in text
    bare = Facts("Model", step(event.Pure(1.0)), estimates=(Estimate("age", 0.5, 0.25, 0.75),))
    assert "Nothing is said about what the intervals cover" in Page(report(bare)).text


def test_whiskers_are_drawn_to_scale():
    rows = (Estimate("a", 0.0, -1.0, 1.0), Estimate("b", 1.0, 0.5, 3.0))
    page = report(Facts("Model", step(event.Pure(1.0)), estimates=rows))
    spans = re.findall(r'<line x1="([\d.]+)" x2="([\d.]+)" y1="8" y2="8"', page)
    # The scale is [-1, 3] on [2, 98]: 24 units for each one.
    assert [tuple(map(float, span)) for span in spans] == [(2.0, 50.0), (38.0, 98.0)]


def test_facts_refuse_what_cannot_be_shown():
    with pytest.raises(ValueError, match="source must be one of"):
        Quality("accuracy", 0.9, "training data")
    with pytest.raises(ValueError, match="both ends"):
        Estimate("age", 1.0, lower=0.0)
    with pytest.raises(ValueError, match="in order"):
        Estimate("age", 1.0, 2.0, 0.0)
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="value must be"):
            Estimate("age", value)
    with pytest.raises(ValueError, match="plan must be a Plan"):
        Facts("Model", None)
    with pytest.raises(ValueError, match="tuple of Estimate"):
        Facts("Model", step(event.Pure(1.0)), estimates=[Estimate("age", 1.0)])
    with pytest.raises(ValueError, match="delta must lie"):
        Facts("Model", step(event.Pure(1.0)), delta=0.0)
    with pytest.raises(TypeError, match="not int"):
        report(3)
    with pytest.raises(ValueError, match="title of their own"):
        report(Facts("Model", step(event.Pure(1.0))), title="Other")


def test_facts_survive_json():
    facts = Facts(
        "Model",
        step(event.Pure(1.0)),
        estimates=(Estimate("age", 1.0),),
        quality=(Quality("a", 1.0, "predicted"),),
    )
    assert from_json(json.loads(json.dumps(facts.to_json())), Facts) == facts


def test_the_budget_is_that_of_the_ledger(ledger):
    plan = mean_plan()
    release = plan.run(np.zeros(100), account=ledger.account("patients", who="ann", why="table 1"))
    page = Page(report(release, ledger=ledger, dataset="patients"))
    status = ledger.status("patients")
    used = math.ceil(100 * float(status.spent.amount / status.cap.amount))
    assert f"{used} % is spent." in page.text
    assert f"{100 - used} % of the dataset’s budget is left" in page.text
    assert "The newest row of the ledger for this plan is number 2 (released)." in page.text
    assert "table 1" in page.text
    assert ledger.entries("patients")[-1].hash in page.text
    assert ("div", "style", f"width:{used}%") in page.attributes


def test_the_newest_of_several_rows_is_named(ledger):
    plan = mean_plan(0.1)
    plan.run(np.zeros(100), account=ledger.account("patients"))
    release = plan.run(np.zeros(100), account=ledger.account("patients"))
    assert (
        "for this plan is number 4 (released)"
        in Page(report(release, ledger=ledger, dataset="patients")).text
    )


def test_a_release_of_an_earlier_version_finds_its_row(ledger, monkeypatch):
    """The row and the file were written before the JSON form of plans changed."""
    plan = mean_plan(0.1)
    stored = json.loads(json.dumps(plan.to_json()))
    plan.run(np.zeros(100), account=ledger.account("patients"))
    written = Step.to_json
    monkeypatch.setattr(Step, "to_json", lambda self: written(self) | {"notes": []})
    read = plan_from_json(stored)

    def shown(plan) -> str:
        return Page(report(Facts("a mean", plan), ledger=ledger, dataset="patients")).text

    assert "for this plan is number 2 (released)" in shown(read)
    assert "was not paid from this budget" in shown(mean_plan(0.2))
    read.run(np.zeros(100), account=ledger.account("patients"))
    assert "for this plan is number 4 (released)" in shown(read)


def test_rows_are_named_by_the_algorithm_of_the_plan(ledger):
    named = mean_plan(0.1)
    object.__setattr__(named, "algorithm", "noisy_average")
    for plan in (named, mean_plan(0.1)):
        ledger.account("patients").reserve(plan)
    text = Page(report(mean_plan(), ledger=ledger, dataset="patients")).text
    assert text.count("noisy average") == 2  # what for, and what with
    assert [entry.algorithm for entry in ledger.entries("patients")[1:]] == [
        "noisy_average",
        "gaussian_mean",
    ]
    ledger.verify()


def test_a_release_outside_the_ledger_is_said(ledger):
    text = Page(report(mean_plan().run(np.zeros(100)), ledger=ledger, dataset="patients")).text
    assert "this release was not paid from this budget" in text
    assert "Nothing has been spent yet" in text
    with pytest.raises(ValueError, match="go together"):
        report(mean_plan(), ledger=ledger)


def test_the_ledger_shows_reservations_and_abandoned_plans(ledger):
    account = ledger.account("patients")
    account.reserve(mean_plan(0.1))
    account.abandon(account.reserve(mean_plan(0.2)), why="power cut")
    account.abandon(account.reserve(mean_plan(0.2)), touched=False)
    mean_plan(0.3).run(np.zeros(100), account=account, random_state=1)
    text = Page(report(mean_plan(), ledger=ledger, dataset="patients")).text
    for words in (
        "reserved, no release recorded",
        "given up; the budget stays spent",
        "given up; the budget was given back",
        "RNG seed: not private",
    ):
        assert words in text


def test_long_histories_are_cut_with_a_note(ledger):
    account = ledger.account("patients")
    for _ in range(15):
        account.reserve(mean_plan(0.05))
    text = Page(report(mean_plan(), ledger=ledger, dataset="patients")).text
    assert text.count("reserved, no release recorded") == 12
    assert "3 earlier rows" in text


def test_a_delta_column_counts_where_it_is_scarcer(tmp_path):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("visits", Budget(epsilon=100.0, delta=1e-5), currency="pure")
    account = ledger.account("visits", as_approximate=5e-6)
    mean_plan().run(np.zeros(100), account=account)
    assert "50 % is spent." in Page(report(mean_plan(), ledger=ledger, dataset="visits")).text


def test_an_audit_is_reported(audit):
    text = Page(report(mean_plan(), audit=audit)).text
    assert "No attack contradicted the promise." in text
    assert "That is evidence, not a proof" in text
    assert f"mu is at least {audit.lower:.4g}" in text
    for finding in audit.findings:
        assert finding.attack in text


def findings(verdict, **more):
    promise = Guarantee(event.Gaussian(1.0), Basis("a theorem"))
    found = (
        Finding("projection", 1.5, verdict == BROKEN, 0.0, 0.1, 0.1, 0.2, 0.2, 0.5, "a note"),
        Finding("other", 0.0, False),
    )
    facts = {
        "runs": 1000,
        "needed": 5000,
        "findings": found,
        "curve": ((0.0, 0.1, 1.0), (1.0, 0.1, 0.0)),
        **more,
    }
    return Audit("thing", promise, Mu(), 1.0, 1.5, 1 - 1e-6, "projection", verdict=verdict, **facts)


def test_broken_promises_and_too_few_runs_are_said():
    text = Page(audit_report(findings(BROKEN))).text
    assert "The promise is broken." in text
    assert "with a chance of at most 1 in 1,000,000" in text
    assert "contradicts the promise" in text
    assert "a note" in text
    assert "At least 5,000 runs" in Page(audit_report(findings(TOO_FEW))).text
    exact = Page(audit_report(findings(BROKEN, runs=0, findings=(), curve=((), ())))).text
    assert "mu is 1.5 exactly, promised is 1" in exact


def test_the_worst_of_several_verdicts_leads(audit):
    text = Page(audit_report([audit, findings(BROKEN), findings(TOO_FEW)])).text
    assert "broken 1 of 3 audits" in text
    with pytest.raises(ValueError, match="at least one"):
        audit_report([])


def hostile_page(folder):
    ledger = Ledger.create(folder / "budgets.ledger")
    ledger.register("patients <b>", Budget(epsilon=2.0, delta=1e-6))
    plan = step(event.Gaussian(4.0), assumptions=(Assumption(HOSTILE, "declared"),))
    plan.run(None, account=ledger.account("patients <b>", who=HOSTILE, why=HOSTILE))
    facts = Facts(
        HOSTILE,
        plan,
        summary=HOSTILE,
        estimates=(Estimate(HOSTILE, 1.0, 0.0, 2.0, HOSTILE), Estimate("x" * 300, 1.0)),
        called=HOSTILE,
        intervals=HOSTILE,
        quality=(Quality(HOSTILE, 1.0, "public data", HOSTILE),),
        date=HOSTILE,
        author=HOSTILE,
    )
    found = (Finding(HOSTILE, 0.5, False, 0.0, 0.1, 0.1, 0.2, 0.2, note=HOSTILE),)
    promise = Guarantee(event.Gaussian(1.0), Basis(HOSTILE))
    curve = ((0.0, 0.5, 1.0), (1.0, 0.3, 0.0))
    audit = Audit(
        HOSTILE, promise, Mu(), 1.0, 0.5, 0.999999, HOSTILE, 10, "kept", found, 5, 1.0, curve
    )
    return report(facts, ledger=ledger, dataset="patients <b>", audit=audit)


def test_hostile_text_stays_text_everywhere(tmp_path):
    raw = hostile_page(tmp_path)
    page = Page(raw)
    assert "script" not in page.tags
    assert raw.count("</style>") == raw.count("</title>") == raw.count("<style>") == 1
    assert "\u202e" not in raw
    assert "-->" not in raw
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    # Title twice, assumption, summary, estimate with unit, ..., and the legend of the figure.
    assert page.text.count("<script>alert(1)</script>") >= 15
    assert re.search(r"observed \(&lt;script&gt;", raw)


def test_the_page_loads_nothing_and_says_so(tmp_path):
    page = Page(hostile_page(tmp_path))
    policy = next(v for name, key, v in page.attributes if key == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    urls = [
        value
        for _, key, value in page.attributes
        if key in ("src", "href", "xlink:href", "action", "srcset")
    ]
    assert all(url.startswith(("#", "data:,")) for url in urls)
    style = files("dpfit.report").joinpath("page.css").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style


def test_identifiers_are_unique_and_resolved(audit):
    raw = report(mean_plan(), audit=[audit, audit])
    named = re.findall(r'\bid="([^"]+)"', raw)
    assert len(named) == len(set(named))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', raw))
    assert used
    assert used <= set(named)


def test_figures_use_the_colours_of_the_page_only(audit):
    raw = report(mean_plan(), audit=audit)
    drawn = "".join(re.findall(r"<svg.*?</svg>", raw, re.DOTALL))
    assert set(re.findall(r"(?:fill|stroke): ([^;\"]+)", drawn)) <= {
        "none", "var(--ink)", "var(--muted)", "var(--accent)", "var(--observed)",
    }  # fmt: skip
    # Text without a fill would be black by night.
    assert all("fill: var(--ink)" in style for style in re.findall(r'<text style="([^"]*)"', drawn))


def test_the_page_is_reproducible_and_ignores_matplotlib_settings():
    import matplotlib

    first = report(mean_plan())
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red"}):
        assert report(mean_plan()) == first
        assert matplotlib.rcParams["font.size"] == 30


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_meets_wcag_aa(scheme):
    style = files("dpfit.report").joinpath("page.css").read_text(encoding="utf-8")
    colours = dict(
        re.findall(r"--(\w+): (#\w{6});", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme])
    )
    for ground in ("paper", "card"):
        for ink in ("ink", "muted", "accent", "observed", "good", "bad"):
            light, dark = sorted(
                (luminance(colours[ground]), luminance(colours[ink])), reverse=True
            )
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ground, ink)


def test_laplace_has_no_delta_in_its_quote():
    plan = laplace_mean.plan(Answer(n=10, workload=BoundedMean(0, 1)), Budget(epsilon=0.5))
    text = Page(report(plan)).text
    assert "ε = 0.5" in text
    assert "by more than a factor of 1.65" in text


ROWS = np.random.default_rng(0).uniform(0, 1, (2000, 3))


@pytest.mark.filterwarnings("ignore")
def test_a_fitted_model_has_a_page_with_its_coefficients():
    model = LogisticRegression(2.0, bounds=(0, 1), classes=[False, True], random_state=1)
    page = report(model.fit(ROWS, ROWS[:, 0] > 0.5), title="Who is ill?")
    assert "Who is ill?" in page
    for name, (value,) in model.summary().coefficients:
        assert name in page
        assert f"{value:.4g}"[:4].removeprefix("-") in page
    assert "Each interval holds" not in page
    assert "RNG seed" in page
    assert "A fitted LogisticRegression" in report(model)


@pytest.mark.filterwarnings("ignore")
def test_intervals_of_a_model_are_shown_where_they_are_exact():
    model = LinearRegression(
        1.0, bounds=(0, 1), y_bounds=(0, 1), solver="output_perturbation", random_state=1
    ).fit(ROWS, ROWS[:, 0])
    facts, interval = Facts.of_model(model), model.noise_interval()
    assert [each.interval for each in facts.estimates] == [
        *zip(*(end.tolist() for end in interval.coef), strict=True), tuple(interval.intercept),
    ]  # fmt: skip
    assert "Each interval holds" in report(model)


@pytest.mark.filterwarnings("ignore")
def test_coefficients_of_several_classes_are_named_by_class():
    model = LogisticRegression(5.0, bounds=(0, 1), classes=["a", "b", "c"], random_state=1)
    labels = np.array(["a", "b", "c"])[(3 * ROWS[:, 0]).astype(int)]
    names = [each.name for each in Facts.of_model(model.fit(ROWS, labels)).estimates]
    assert names[:2] == ["a: column 0", "a: column 1"]
    assert len(names) == 12


def test_a_model_that_is_not_fitted_has_no_page():
    with pytest.raises(TypeError, match="or a fitted model, not LogisticRegression"):
        report(LogisticRegression(1.0))

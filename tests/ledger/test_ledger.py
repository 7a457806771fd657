"""What a ledger keeps, what it refuses, and that it is an address and nothing more."""

import copy
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from dpfit.core import Answer
from dpfit.ledger import (
    BudgetExceeded,
    Ledger,
    LedgerDamaged,
    LedgerError,
    NotChargeable,
    account_for,
    hash_chain,
)
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean, laplace_mean
from dpfit.privacy import Budget, accountant
from dpfit.privacy import event as events
from ledger.promises import Outcome, Promise, pure, spend


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budgets.ledger")


class Untouchable:
    """Data that must not be read; type and shape are public."""

    shape = (100,)

    def __getattribute__(self, name):
        if name not in ("__class__", "shape"):
            raise RuntimeError("the data was touched")
        return object.__getattribute__(self, name)

    __array__ = None


MEAN = Answer(n=100, workload=BoundedMean(0.0, 1.0))


class TestExactness:
    """Ten tenths of a budget fit, one unit in the last place more does not."""

    def test_ten_tenths_fit_and_nothing_more(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        for _ in range(10):
            spend(ledger.account("d"), pure(0.1))
        assert ledger.status("d").left.amount == 0
        with pytest.raises(BudgetExceeded):
            ledger.account("d").reserve(pure(5e-324))

    def test_one_unit_in_the_last_place_too_much_is_refused(self, ledger):
        ledger.register("d", Budget(epsilon=0.3))
        spend(ledger.account("d"), pure(0.1))
        with pytest.raises(BudgetExceeded):
            ledger.account("d").reserve(pure(math.nextafter(0.2, 1.0)))
        spend(ledger.account("d"), pure(0.2))

    @pytest.mark.parametrize("parts", [3, 7, 11, 97])
    def test_equal_parts_add_up(self, ledger, parts):
        """A peer refuses the last of three thirds, or lets a fourth through."""
        ledger.register("d", Budget(epsilon=1.0))
        plan = Promise(events.Laplace(noise_multiplier=float(parts)))
        for _ in range(parts):
            spend(ledger.account("d"), plan)
        assert ledger.status("d").left.amount == 0

    def test_many_unrelated_fractions_stay_short_and_round_up(self, ledger):
        ledger.register("d", Budget(mu=10.0))
        rng = np.random.default_rng(0)
        exact = Fraction(0)
        for multiplier in rng.uniform(5, 50, size=30):
            spend(ledger.account("d"), Promise(events.Gaussian(float(multiplier))))
            exact += 1 / Fraction(float(multiplier)) ** 2
        spent = ledger.status("d").spent.amount
        assert 0 < spent - exact < Fraction(1, 10**70)
        assert (
            max(
                len(entry.facts.get("price", {}).get("amount", "")) for entry in ledger.entries("d")
            )
            < 400
        )
        assert spent.denominator.bit_length() <= 512 + 2 * 106

    @pytest.mark.parametrize(
        ("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (1.0, 1e-6), (3.3, 1e-6), (8.0, 1e-9)]
    )
    def test_a_plan_for_the_whole_cap_fits_and_uses_it_up(self, ledger, epsilon, delta):
        budget = Budget(epsilon=epsilon, delta=delta)
        ledger.register("d", budget)
        plan = gaussian_mean.plan(MEAN, budget)
        plan.run(np.zeros(100), account=ledger.account("d"))
        status = ledger.status("d")
        assert 0 <= status.left.amount / status.cap.amount < Fraction(1, 10**9)
        with pytest.raises(BudgetExceeded):
            plan.run(Untouchable(), account=ledger.account("d"))

    @pytest.mark.parametrize(
        ("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (3.3, 1e-6), (8.0, 1e-9)]
    )
    def test_the_same_in_the_pure_currency(self, ledger, epsilon, delta):
        budget = Budget(epsilon=epsilon, delta=delta)
        ledger.register("d", budget, currency="pure")
        gaussian_mean.plan(MEAN, budget).run(
            np.zeros(100), account=ledger.account("d", as_approximate=delta)
        )
        assert ledger.status("d").left == ledger.status("d").cap * 0


class TestRefusal:
    def test_it_shows_cap_spent_asked_left_and_what_fits(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        spend(ledger.account("d"), pure(0.9))
        with pytest.raises(BudgetExceeded) as caught:
            ledger.account("d").reserve(pure(0.2))
        error = caught.value
        amounts = [getattr(error, name).amount for name in ("cap", "spent", "asked", "left")]
        assert amounts == [1, Fraction(9, 10), Fraction(1, 5), Fraction(1, 10)]
        assert error.share == Fraction(1, 2)
        assert error.fits == Budget(epsilon=0.1)
        assert "asked epsilon 0.2, left 0.1 (cap 1, spent 0.9); plan with epsilon 0.1" in str(error)
        spend(ledger.account("d"), pure(error.fits.epsilon))

    def test_it_comes_before_any_data_is_touched(self, ledger):
        ledger.register("d", Budget(epsilon=0.5))
        with pytest.raises(BudgetExceeded):
            laplace_mean.plan(MEAN, Budget(epsilon=1.0)).run(
                Untouchable(), account=ledger.account("d")
            )
        assert [entry.kind for entry in ledger.entries("d")] == ["register"]

    @pytest.mark.parametrize(
        "cap", [Budget(mu=0.53), Budget(rho=0.2), Budget(epsilon=2.0, delta=1e-6)]
    )
    def test_what_it_says_fits_does_fit(self, ledger, cap):
        ledger.register("d", cap)
        plan = Promise(events.Gaussian(7.0))
        while (
            ledger.status("d").left.amount
            >= plan.guarantee.charge(ledger.status("d").currency).amount
        ):
            ledger.account("d").reserve(plan)
        with pytest.raises(BudgetExceeded) as caught:
            ledger.account("d").reserve(plan)
        fits = caught.value.fits
        gaussian_mean.plan(MEAN, fits).run(np.zeros(100), account=ledger.account("d"))
        assert ledger.status("d").left.amount < caught.value.left.amount / 100

    def test_amounts_that_look_alike_are_shown_apart(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        with pytest.raises(BudgetExceeded, match=r"asked epsilon 1\.0000000000000002, left 1 "):
            ledger.account("d").reserve(pure(math.nextafter(1.0, 2.0)))

    def test_nothing_left(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        spend(ledger.account("d"), pure(1.0))
        with pytest.raises(BudgetExceeded, match="nothing is left"):
            ledger.account("d").reserve(pure(1.0))

    def test_a_huge_request_is_refused_too(self, ledger):
        ledger.register("d", Budget(mu=1.0))
        with pytest.raises(BudgetExceeded, match="asked mu"):
            ledger.account("d").reserve(Promise(events.GaussianPrivate(1e300)))

    def test_it_survives_the_way_back_from_a_worker(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        with pytest.raises(BudgetExceeded) as caught:
            ledger.account("d").reserve(pure(2.0))
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        assert again.left == caught.value.left


class TestNeverMixed:
    @pytest.mark.parametrize(
        ("plan", "way"),
        [
            (Promise(events.Pure(0.1), unit="record"), "to_user"),
            (Promise(events.Pure(0.1), "add_remove", "user"), "to_relation"),
        ],
    )
    def test_another_unit_or_relation_is_refused_with_the_way_out(self, ledger, plan, way):
        ledger.register("d", Budget(epsilon=1.0, unit="user"))
        with pytest.raises(NotChargeable, match=way):
            ledger.account("d").reserve(plan)
        assert ledger.status("d").spent.amount == 0

    def test_an_unknown_dataset_is_not_made_up(self, ledger):
        with pytest.raises(LedgerError, match="not registered"):
            ledger.account("d").reserve(pure(0.1))
        with pytest.raises(LedgerError, match="not registered"):
            ledger.status("d")

    def test_datasets_do_not_share_budgets(self, ledger):
        for name in ("a", "b"):
            ledger.register(name, Budget(epsilon=1.0))
        spend(ledger.account("a"), pure(1.0))
        assert ledger.status("b").left.amount == 1
        assert ledger.datasets() == ["a", "b"]


class TestRegistration:
    def test_the_same_facts_twice_are_fine(self, ledger):
        for _ in range(2):
            ledger.register("d", Budget(epsilon=1.0, delta=1e-6), note="survey")
        assert len(ledger.entries("d")) == 1

    @pytest.mark.parametrize(
        "change",
        [
            {"cap": Budget(epsilon=2.0, delta=1e-6)},
            {"cap": Budget(epsilon=1.0, delta=1e-6, unit="user")},
            {"cap": Budget(epsilon=1.0, delta=1e-6, relation="add_remove")},
            {"currency": "zcdp"},
            {"delta_share": 0.5},
            {"note": "another"},
        ],
    )
    def test_other_facts_are_refused(self, ledger, change):
        first = {"cap": Budget(epsilon=1.0, delta=1e-6), "note": "survey"}
        ledger.register("d", **first)
        with pytest.raises(LedgerError, match="cannot be changed"):
            ledger.register("d", **(first | change))

    @pytest.mark.parametrize("name", ["", "two\nlines", "\ud800", 7])
    def test_a_name_is_printable_text(self, ledger, name):
        with pytest.raises(ValueError, match="printable"):
            ledger.register(name, Budget(epsilon=1.0))


class TestPlansWithoutAPrice:
    SAMPLED = Promise(events.Repeated(events.Sampled(events.Gaussian(2.0), 0.01), 100))

    def test_are_refused_with_the_way_out(self, ledger):
        ledger.register("d", Budget(epsilon=1.0, delta=1e-5))
        with pytest.raises(NotChargeable, match="as_approximate"):
            ledger.account("d").reserve(Promise(events.DiscreteGaussian(0.5)))

    def test_that_the_currency_makes_dear_are_pointed_to_another_one(self, ledger):
        ledger.register("d", Budget(epsilon=2.0, delta=1e-5))
        with pytest.raises(BudgetExceeded, match="its cost in gdp currency exceeds the cap"):
            ledger.account("d").reserve(self.SAMPLED)

    def test_are_charged_as_epsilon_and_delta_on_request(self, ledger):
        ledger.register("d", Budget(epsilon=2.0, delta=1e-5), currency="pure")
        spend(ledger.account("d", as_approximate=1e-6), self.SAMPLED)
        spent = ledger.status("d").spent
        assert spent.delta == Fraction(1, 10**6)
        assert self.SAMPLED.guarantee.delta(float(spent.amount)) <= 1e-6
        assert float(spent.amount) == pytest.approx(self.SAMPLED.guarantee.epsilon(1e-6), rel=1e-8)
        ledger.verify()

    def test_need_a_delta_column(self, ledger):
        ledger.register("d", Budget(epsilon=1.0, delta=1e-5))
        with pytest.raises(BudgetExceeded, match="keeps no delta column"):
            ledger.account("d", as_approximate=1e-6).reserve(self.SAMPLED)

    def test_the_delta_column_is_a_cap_too(self, ledger):
        ledger.register("d", Budget(epsilon=1.0, delta=1e-6), currency="pure")
        plan = Promise(events.Approximate(0.01, 4e-7))
        spend(ledger.account("d"), plan)
        spend(ledger.account("d"), plan)
        with pytest.raises(BudgetExceeded, match="delta 4e-07, left 2e-07") as caught:
            ledger.account("d").reserve(plan)
        assert caught.value.share == Fraction(1, 2)


class TestRows:
    def test_a_run_leaves_a_reservation_and_a_release(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        plan = laplace_mean.plan(MEAN, Budget(epsilon=0.5))
        plan.run(
            np.zeros(100),
            account=ledger.account("d", who="ann", why="a first look"),
            random_state=1,
        )
        _, reserve, release = ledger.entries("d")
        assert (reserve.facts["who"], reserve.facts["why"]) == ("ann", "a first look")
        assert reserve.facts["plan"] == json.loads(json.dumps(plan.to_json()))
        assert reserve.facts["guarantee"]["basis"]["theorem"] == plan.guarantee.basis.theorem
        assert (release.kind, release.reservation, release.facts) == (
            "release",
            reserve.id,
            {"private": False},
        )

    def test_a_crash_keeps_the_reservation(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        with pytest.raises(RuntimeError, match="touched"):
            laplace_mean.plan(MEAN, Budget(epsilon=0.5)).run(
                Untouchable(), account=ledger.account("d")
            )
        assert ledger.status("d").spent.amount >= Fraction("0.49")
        assert [entry.kind for entry in ledger.entries("d")] == ["register", "reserve"]

    def test_an_abandoned_reservation_stays_spent(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        account = ledger.account("d")
        account.abandon(account.reserve(pure(0.25)), why="power cut")
        status = ledger.status("d")
        assert (status.spent.amount, status.abandoned) == (Fraction(1, 4), 1)
        assert ledger.entries("d")[-1].facts["budget"] == "stays spent"

    def test_a_plan_that_read_no_record_gives_its_budget_back(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        account = ledger.account("d")
        spend(account, pure(0.25))
        token = account.reserve(pure(0.75))
        with pytest.raises(BudgetExceeded):
            account.reserve(pure(0.1))
        account.abandon(token, why="too few public records", touched=False)
        status = ledger.status("d")
        assert (status.spent.amount, status.abandoned, status.reservations) == (
            Fraction(1, 4),
            1,
            2,
        )
        assert ledger.entries("d")[-1].facts == {
            "why": "too few public records",
            "budget": "given back",
        }
        spend(account, pure(0.75))
        assert ledger.status("d").left.amount == 0
        assert ledger.verify() == ledger.entries("d")[-1].hash

    def test_both_columns_are_given_back(self, ledger):
        ledger.register("d", Budget(epsilon=1.0, delta=1e-6), currency="pure")
        account = ledger.account("d", as_approximate=1e-6)
        account.abandon(account.reserve(Promise(events.Gaussian(6.0))), touched=False)
        assert ledger.status("d").left == ledger.status("d").cap
        ledger.verify()

    def test_giving_back_never_leaves_less_than_the_other_prices(self, ledger):
        """Totals are rounded up: refunds in another order must not undercut the exact sum."""
        ledger.register("d", Budget(mu=10.0))
        account, exact, kept = ledger.account("d"), [], []
        for multiplier in np.random.default_rng(0).uniform(5, 50, size=20):
            kept.append(account.reserve(Promise(events.Gaussian(float(multiplier)))))
            exact.append(1 / Fraction(float(multiplier)) ** 2)
        for gone in (3, 0, 19, 7, 11):
            account.abandon(kept[gone], touched=False)
            exact[gone] = Fraction(0)
            assert 0 <= ledger.status("d").spent.amount - sum(exact) < Fraction(1, 10**70)
        ledger.verify()

    @pytest.mark.parametrize("touched", [None, 0, "no"])
    def test_budget_is_given_back_to_an_explicit_claim_only(self, ledger, touched):
        ledger.register("d", Budget(epsilon=1.0))
        token = ledger.account("d").reserve(pure(0.25))
        with pytest.raises(ValueError, match="touched"):
            ledger.account("d").abandon(token, touched=touched)
        assert ledger.status("d").spent.amount == Fraction(1, 4)

    def test_nothing_is_given_back_twice_or_after_the_release(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        account = ledger.account("d")
        spent, released = (account.reserve(pure(0.25)) for _ in range(2))
        account.abandon(spent)
        account.commit(released, Outcome())
        returned = account.reserve(pure(0.25))
        account.abandon(returned, touched=False)
        for token in (spent, released, returned):
            with pytest.raises(LedgerError, match="closed already"):
                account.abandon(token, touched=False)
        assert ledger.status("d").spent.amount == Fraction(1, 2)

    def test_a_reservation_is_closed_once(self, ledger):
        ledger.register("d", Budget(epsilon=1.0))
        account = ledger.account("d")
        token = account.reserve(pure(0.25))
        account.commit(token, Outcome())
        for close in (lambda: account.commit(token, Outcome()), lambda: account.abandon(token)):
            with pytest.raises(LedgerError, match="closed already"):
                close()

    def test_a_reservation_of_another_ledger_is_not_closed(self, ledger, tmp_path):
        other = Ledger.create(tmp_path / "other.ledger")
        for each in (ledger, other):
            each.register("d", Budget(epsilon=1.0))
        token = ledger.account("d").reserve(pure(0.25))
        other.account("d").reserve(pure(0.5))
        with pytest.raises(LedgerDamaged, match="replaced"):
            other.account("d").commit(token, Outcome())

    def test_no_row_tells_how_long_a_run_took(self, ledger, monkeypatch):
        """Run time may depend on records."""
        ledger.register("d", Budget(epsilon=1.0))
        account = ledger.account("d")
        token = account.reserve(pure(0.25))
        monkeypatch.setattr(hash_chain, "_TIME", "2999-01-01T00:00:00Z")
        account.commit(token, Outcome())
        _, reserve, release = ledger.entries("d")
        assert release.time == reserve.time
        assert "2999" not in json.dumps(ledger.export())

    def test_the_export_is_json_with_a_stable_schema(self, ledger):
        ledger.register("d", Budget(epsilon=1.0), note="n")
        spend(ledger.account("d"), pure(0.1))
        export = json.loads(json.dumps(ledger.export()))
        assert set(export) == {"schema", "head", "datasets", "entries"}
        assert export["schema"] == 1
        assert export["head"] == export["entries"][-1]["hash"] == ledger.verify()
        row = {"id", "dataset", "kind", "reservation", "time", "facts", "spent", "previous", "hash"}
        assert {frozenset(entry) for entry in export["entries"]} == {frozenset(row)}
        assert set(export["entries"][1]["facts"]) == {
            "plan", "guarantee", "as_approximate", "price", "version", "who", "why",
        }  # fmt: skip
        assert export["datasets"][0]["left"] == {"amount": "9/10", "delta": "0/1"}

    def test_an_outsider_can_check_the_chain_from_the_export(self, ledger):
        ledger.register("d", Budget(epsilon=1.0), note="étude")
        spend(ledger.account("d"), pure(0.1))
        previous = hash_chain.GENESIS
        for entry in ledger.export()["entries"]:
            facts = json.dumps(entry["facts"], sort_keys=True, separators=(",", ":"))
            columns = [entry[name] for name in ("id", "dataset", "kind", "reservation", "time")]
            columns += [facts, entry["spent"]["amount"], entry["spent"]["delta"], previous]
            previous = entry["hash"]
            assert hash_chain.seal(tuple(columns)) == previous


class TestHandle:
    def test_copies_are_the_same_object(self, ledger):
        assert copy.copy(ledger) is ledger
        assert copy.deepcopy({"ledger": [ledger]})["ledger"][0] is ledger

    def test_a_pickle_is_an_address(self, ledger, tmp_path):
        assert pickle.loads(pickle.dumps(ledger)) == ledger
        assert len(pickle.dumps(ledger)) < 200 + len(str(tmp_path))

    def test_a_relative_path_means_the_directory_of_the_start(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        ledger = Ledger.create("here #1?.ledger")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ledger.register("d", Budget(epsilon=1.0))
        assert ledger.path == tmp_path / "here #1?.ledger"

    def test_the_price_of_a_spend_does_not_grow_with_the_past(self, ledger, monkeypatch):
        """A spend reads a fixed number of rows and accounts for its own plan only."""
        ledger.register("d", Budget(epsilon=1.0))
        rows, steps = [], []
        read = hash_chain.read
        monkeypatch.setattr(hash_chain, "read", lambda row: rows.append(row) or read(row))
        for _ in range(100):
            before = len(rows)
            spend(ledger.account("d"), pure(0.001))
            steps.append(len(rows) - before)
        assert max(steps[1:]) == min(steps[1:]) <= 12

    def test_asking_for_an_account_does_not_read_the_past(self, ledger, monkeypatch):
        ledger.register("d", Budget(epsilon=1.0))
        rows, counts = [], []
        read = hash_chain.read
        monkeypatch.setattr(hash_chain, "read", lambda row: rows.append(row) or read(row))
        for past in (1, 50):
            for _ in range(past):
                ledger.account("d").reserve(pure(0.001))
            rows.clear()
            assert account_for(pure(0.001), ledger, "d").dataset == "d"
            counts.append(len(rows))
        assert counts == [2, 2]

    def test_the_currency_is_that_of_the_registration(self, ledger):
        ledger.register("d", Budget(rho=1.0))
        ledger.register("e", Budget(epsilon=1.0, delta=1e-6), currency="pure")
        assert [ledger.currency(name) for name in "de"] == ["zcdp", "pure"]
        assert [ledger.status(name).currency for name in "de"] == ["zcdp", "pure"]
        with pytest.raises(LedgerError, match="not registered"):
            ledger.currency("f")

    def test_lookups_use_indices(self, ledger):
        from dpfit.ledger import store

        with store.reading(ledger.path) as db:
            for query, index in [
                ("entries WHERE dataset = 'd' ORDER BY id", "histories"),
                ("entries WHERE reservation = 3", "closings"),
                ("entries WHERE id = 3", "PRIMARY KEY"),
                ("datasets WHERE name = 'd'", "PRIMARY KEY"),
            ]:
                plan = " ".join(
                    str(row) for row in db.execute(f"EXPLAIN QUERY PLAN SELECT * FROM {query}")
                )
                assert index in plan
                assert "SCAN" not in plan
                assert "TEMP B-TREE" not in plan


def test_a_renyi_promise_is_kept_and_read_back(ledger):
    """Curves with infinite values go through JSON and back."""
    ledger.register("d", Budget(epsilon=5.0, delta=1e-5), currency="pure")
    plan = Promise(events.Renyi((2.0, 8.0), (0.1, 0.5)))
    assert math.isinf(accountant.privacy_curve(plan.event, "replace").rho)
    spend(ledger.account("d", as_approximate=1e-5), plan)
    ledger.verify()

"""Any change to a ledger is found: by chain, by accounting, or by a hash kept elsewhere."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from dpfit.ledger import Ledger, LedgerDamaged, hash_chain, store
from dpfit.privacy import Budget
from dpfit.privacy import event as events
from ledger.promises import Promise, pure, spend


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("d", Budget(epsilon=1.0), note="survey")
    for epsilon in (0.1, 0.2, 0.3):
        spend(ledger.account("d", who="ann"), pure(epsilon))
    return ledger


def tamper(ledger, *statements):
    """Change rows by SQL, and put the triggers back."""
    triggers = [sql for sql in store.SCHEMA if "TRIGGER" in sql]
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as db:
        for sql in triggers:
            db.execute(f"DROP TRIGGER {sql.split()[2]}")
        for statement, *arguments in statements:
            db.execute(statement, arguments)
        for sql in triggers:
            db.execute(sql)


def forge(ledger, change):
    """Change rows and seal the whole chain anew, as someone with the code would."""
    with closing(sqlite3.connect(ledger.path)) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(entries)")]
        rows = [
            dict(zip(names, row, strict=True))
            for row in db.execute("SELECT * FROM entries ORDER BY id")
        ]
    rows = change(rows) or rows
    statements, previous, pointers = (
        [("DELETE FROM entries",), ("DELETE FROM datasets",)],
        hash_chain.GENESIS,
        {},
    )
    for row in rows:
        columns = (*(row[name] for name in names[:-2]), previous)
        previous = hash_chain.seal(columns)
        statements.append(
            (f"INSERT INTO entries VALUES ({', '.join('?' * len(names))})", *columns, previous)
        )
        first = pointers.get(row["dataset"], (None, row["id"]))[1]
        pointers[row["dataset"]] = (row["dataset"], first, row["id"], previous)
    statements += [
        ("INSERT INTO datasets VALUES (?, ?, ?, ?)", *pointer) for pointer in pointers.values()
    ]
    tamper(ledger, *statements)


def edit(row, **facts):
    row["facts"] = hash_chain.canonical(json.loads(row["facts"]) | facts)


def test_a_sound_ledger_verifies_to_its_head(ledger):
    head = ledger.verify()
    assert head == ledger.entries("d")[-1].hash
    assert ledger.verify(expect=head) == head
    spend(ledger.account("d"), pure(0.1))
    assert ledger.verify(expect=head) != head


def test_an_empty_ledger_verifies(tmp_path):
    assert Ledger.create(tmp_path / "empty.ledger").verify() == hash_chain.GENESIS


def test_resealing_the_same_rows_is_the_identity(ledger):
    head = ledger.verify()
    forge(ledger, lambda rows: None)
    assert ledger.verify() == head


def test_rows_cannot_be_changed_or_deleted_by_sql(ledger):
    with closing(sqlite3.connect(ledger.path)) as db:
        for statement in (
            "UPDATE entries SET amount = '0/1'",
            "DELETE FROM entries",
            "DELETE FROM entries WHERE id = 7",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                db.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET amount = '1/10' WHERE id = 4",
        "UPDATE entries SET delta = '0/2' WHERE id = 4",
        "UPDATE entries SET time = '2001-01-01T00:00:00Z' WHERE id = 4",
        "UPDATE entries SET facts = replace(facts, 'ann', 'bob') WHERE id = 4",
        "UPDATE entries SET facts = facts || ' ' WHERE id = 4",
        "UPDATE entries SET facts = '' WHERE id = 1",
        "UPDATE entries SET facts = x'00ff' WHERE id = 4",
        "UPDATE entries SET kind = 'abandon' WHERE id = 3",
        "UPDATE entries SET reservation = 1 WHERE id = 3",
        "UPDATE entries SET dataset = 'e' WHERE id = 7",
        "UPDATE entries SET hash = lower(hex(randomblob(32))) WHERE id = 4",
        "UPDATE entries SET previous = lower(hex(randomblob(32))) WHERE id = 4",
        "UPDATE entries SET id = 99 WHERE id = 7",
        "DELETE FROM entries WHERE id = 4",
        "DELETE FROM entries WHERE id = 1",
        "UPDATE datasets SET newest = 5, hash = (SELECT hash FROM entries WHERE id = 5)",
        "UPDATE datasets SET name = 'e'",
        "DELETE FROM datasets",
    ],
)
def test_a_changed_row_is_found(ledger, statement):
    tamper(ledger, (statement,))
    with pytest.raises(LedgerDamaged):
        ledger.verify()


ALIEN = Promise(events.Pure(0.2), unit="user").guarantee.to_json()


def latest(rows):
    return max(row["time"] for row in rows if row["time"] is not None)


FORGERIES = {
    "a lower price": (
        lambda rows: edit(rows[3], price={"amount": "1/10", "delta": "0/1"}),
        "below what",
    ),
    "a negative price": (
        lambda rows: edit(rows[3], price={"amount": "-1/5", "delta": "0/1"}),
        "below what",
    ),
    "a weaker promise": (
        lambda rows: edit(rows[3], guarantee=pure(0.5).guarantee.to_json()),
        "below what",
    ),
    "another unit": (lambda rows: edit(rows[3], guarantee=ALIEN), "unit 'user'"),
    "a lower total": (lambda rows: rows[6].update(amount="1/10"), "not the sum"),
    "a larger limit": (
        lambda rows: edit(rows[0], limit={"amount": "2/1", "delta": "0/1"}),
        "its limit",
    ),
    "no limit": (lambda rows: edit(rows[0], limit=None), "accounted again"),
    "an unknown event": (lambda rows: edit(rows[3], guarantee={"kind": "x"}), "accounted again"),
    "a row left out": (lambda rows: rows[:3] + rows[4:], "chain breaks"),
    "a time before": (lambda rows: rows[5].update(time="2001-01-01T00:00:00Z"), "its time"),
    "a release of nothing": (lambda rows: rows[2].update(reservation=None), "not open"),
    "a second registration": (
        lambda rows: rows.append(rows[0] | {"id": 8, "dataset": "e", "time": latest(rows)}),
        None,
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_chain_is_found_by_accounting_again(ledger, name):
    change, message = FORGERIES[name]
    forge(ledger, change)
    if message is None:  # a forger may add what anyone may add
        ledger.verify()
        return
    with pytest.raises(LedgerDamaged, match=message):
        ledger.verify()


def returned(rows, **columns):
    """A row that gives the price of the last reservation back, put in place of its release."""
    rows[6].update(
        kind="abandon", facts=hash_chain.canonical({"why": "", "budget": "given back"}), **columns
    )


RETURNS = {
    "after a row that says so": (lambda rows: returned(rows, amount="3/10"), None),
    "more than the price": (lambda rows: returned(rows, amount="2/10"), "not the sum"),
    "of no reservation": (lambda rows: returned(rows, amount="3/10", reservation=None), "not open"),
    "of another dataset": (
        lambda rows: returned(rows, amount="3/10", dataset="e"),
        "accounted again|not open",
    ),
    "by a release": (
        lambda rows: (returned(rows, amount="3/10"), rows[6].update(kind="release")),
        "not the sum",
    ),
    "by a row that says nothing": (
        lambda rows: (returned(rows, amount="3/10"), edit(rows[6], budget="")),
        "not say",
    ),
    "by a row that keeps it": (
        lambda rows: (returned(rows, amount="3/10"), edit(rows[6], budget="stays spent")),
        "not the sum",
    ),
}


@pytest.mark.parametrize("name", RETURNS)
def test_budget_given_back_is_accounted_again(ledger, name):
    change, message = RETURNS[name]
    forge(ledger, lambda rows: change(rows) and None)
    if message is None:
        assert ledger.verify() == ledger.entries("d")[-1].hash
        return
    with pytest.raises(LedgerDamaged, match=message):
        ledger.verify()


def test_a_forged_spend_beyond_the_cap_is_found(ledger):
    def overspend(rows):
        for row in rows:
            if row["kind"] == "reserve":
                edit(
                    row,
                    guarantee=pure(0.4).guarantee.to_json(),
                    price={"amount": "2/5", "delta": "0/1"},
                )
        for row, total in zip(rows, ("0/1", "2/5", "2/5", "4/5", "4/5", "6/5", "6/5"), strict=True):
            row["amount"] = total

    forge(ledger, overspend)
    with pytest.raises(LedgerDamaged, match="passes the cap"):
        ledger.verify()


def test_a_cut_tail_is_found_by_a_hash_kept_elsewhere(ledger):
    head = ledger.verify()
    forge(ledger, lambda rows: rows[:5])
    assert ledger.verify() != head
    with pytest.raises(LedgerDamaged, match="tail was cut"):
        ledger.verify(expect=head)


def test_a_backup_put_back_is_found_by_a_hash_kept_elsewhere(ledger, tmp_path):
    shutil.copy(ledger.path, tmp_path / "backup")
    spend(ledger.account("d"), pure(0.1))
    head = ledger.verify()
    shutil.copy(tmp_path / "backup", ledger.path)
    ledger.verify()
    with pytest.raises(LedgerDamaged, match="backup"):
        ledger.verify(expect=head)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER no_update",
        "DROP INDEX histories",
        "CREATE TABLE more (x)",
        "ALTER TABLE entries ADD COLUMN x",
    ],
)
def test_a_changed_schema_is_found(ledger, statement):
    with closing(sqlite3.connect(ledger.path)) as db:
        db.execute(statement)
    with pytest.raises(LedgerDamaged, match="changed"):
        ledger.verify()


def test_a_dataset_lost_from_the_list_does_not_start_over(ledger):
    tamper(ledger, ("DELETE FROM datasets",))
    with pytest.raises(LedgerDamaged, match="has lost 'd'"):
        ledger.register("d", Budget(epsilon=1.0), note="survey")


def test_a_spend_does_not_build_on_a_changed_row(ledger):
    tamper(ledger, ("UPDATE entries SET amount = '0/1' WHERE id = 7",))
    with pytest.raises(LedgerDamaged, match="not as it was written"):
        ledger.account("d").reserve(pure(0.1))


def test_a_price_that_rounding_moved_is_no_alarm(ledger):
    """Prices from curves are doubles, which another mathematical library may round otherwise."""
    ledger.register("curve", Budget(epsilon=3.0, delta=1e-5), currency="zcdp", delta_share=0.25)
    spend(ledger.account("curve"), Promise(events.L2Laplace(5.0, 3)))

    def nudge(rows):
        price = json.loads(rows[8]["facts"])["price"]
        numerator, denominator = map(int, price["amount"].split("/"))
        price["amount"] = f"{numerator * (10**14 - 1)}/{denominator * 10**14}"
        edit(rows[8], price=price)
        for row in rows[8:]:
            row["amount"] = price["amount"]

    forge(ledger, nudge)
    ledger.verify()

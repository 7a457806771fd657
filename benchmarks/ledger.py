"""The ledger under load: eight processes, kill -9 during spends, ten thousand entries.

Run with ``python benchmarks/ledger.py [--quick] [--json]``; ``--race``, ``--kills`` and
``--entries`` set the sizes one by one (0 leaves a part out).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from bars import at_most, finish
from dpfit.ledger import BudgetExceeded, DatasetAccount, Ledger
from dpfit.privacy import Basis, Budget, Guarantee
from dpfit.privacy import event as events

PROCESSES = 8
CAP = Budget(epsilon=1.0)
# Shares that fill the cap exactly in many ways, so that its edge is reached all the time.
PRICES = (0.01, 0.02, 0.025, 0.05)
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Promise:
    """A plan that only promises."""

    event: events.Event

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.event, Basis("a promise"))

    def to_json(self) -> dict[str, Any]:
        return self.event.to_json()


@dataclass(frozen=True)
class Outcome:
    """A release that is private."""

    private: bool = True


def spend(account: DatasetAccount, event: events.Event, released: int | None = None) -> None:
    """Reserve, let something leave (a byte into a file that survives a kill), commit."""
    token = account.reserve(Promise(event))
    if released is not None:
        os.write(released, b".")
    account.commit(token, Outcome())


def racer(ledger: Ledger, number: int, until: float, granted: Any) -> None:
    """Spend from one dataset after the other until time is over; count grants in thousandths."""
    rng = random.Random(number)
    current, mine = 0, {}
    while time.monotonic() < until:
        name = f"dataset {current}"
        ledger.register(name, CAP)
        price = rng.choice(PRICES)
        try:
            spend(ledger.account(name, who=f"racer {number}"), events.Pure(price))
            mine[name] = mine.get(name, 0) + round(1000 * price)
        except BudgetExceeded as error:
            if error.left.amount < Fraction(1, 100):
                current += 1
    granted.put(mine)


def race(directory: Path, seconds: float) -> dict[str, Any]:
    """Eight processes against one file."""
    ledger = Ledger.create(directory / "race.ledger")
    granted = FORK.Queue()
    until = time.monotonic() + seconds
    workers = [
        FORK.Process(target=racer, args=(ledger, number, until, granted))
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    counts = []
    for _ in workers:
        with contextlib.suppress(Exception):
            counts.append(granted.get(timeout=seconds + 120))
    for worker in workers:
        worker.join(30)
    stuck = sum(worker.exitcode != 0 for worker in workers)
    for worker in workers:
        worker.kill()
    ledger.verify()
    overspent = lost = entries = 0
    for name in ledger.datasets():
        rows = ledger.entries(name)
        entries += len(rows)
        overspent += sum(row.spent.amount > 1 for row in rows)
        lost += rows[-1].spent.amount != Fraction(sum(count.get(name, 0) for count in counts), 1000)
    return {
        "seconds": seconds,
        "datasets": len(ledger.datasets()),
        "entries": entries,
        "entries per second": entries / seconds,
        "overspent": overspent,
        "miscounted": lost,
        "stuck": stuck,
    }


def victim(ledger: Ledger, log: Path) -> None:
    """Spend until killed."""
    released = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    account = ledger.account("victims")
    while True:
        spend(account, events.Pure(0.001), released)


def killings(directory: Path, kills: int) -> dict[str, Any]:
    """Kill a spending process again and again; the ledger must open, verify and cover what left."""
    ledger = Ledger.create(directory / "kills.ledger")
    ledger.register("victims", Budget(epsilon=1e6))
    log, rng = directory / "released", random.Random(1)
    failures, head = 0, None
    for _ in range(kills):
        process = FORK.Process(target=victim, args=(ledger, log))
        process.start()
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        process.join()
        released = log.stat().st_size if log.exists() else 0
        try:
            # Reading undoes a write that the kill left unfinished; verify refuses such a file.
            failures += ledger.status("victims").spent.amount < Fraction(released, 1000)
            head = ledger.verify(expect=head)
        except Exception:
            failures += 1
    status = ledger.status("victims")
    return {
        "kills": kills,
        "releases": log.stat().st_size if log.exists() else 0,
        "reserved": status.reservations,
        "recorded as released": status.releases,
        "failures": failures,
    }


def growth(directory: Path, entries: int) -> dict[str, Any]:
    """Time of reserve and commit on a new and a long ledger, in turns; costs never repeat."""
    rng = random.Random(2)

    def timed(ledger: Ledger) -> float:
        event = events.Gaussian(rng.uniform(20.0, 40.0))
        start = time.perf_counter()
        spend(ledger.account("data"), event)
        return time.perf_counter() - start

    new, long = (Ledger.create(directory / f"{name}.ledger") for name in ("new", "long"))
    for ledger in (new, long):
        ledger.register("data", Budget(mu=1e3))
    for _ in range(entries // 2):
        timed(long)
    pairs = [(timed(new), timed(long)) for _ in range(50)]
    first, last = (statistics.median(column) for column in zip(*pairs, strict=True))
    length = len(long.entries("data")) - 100
    start = time.perf_counter()
    long.verify()
    return {
        "entries": length,
        "spend, new ledger (ms)": 1e3 * first,
        "spend, long ledger (ms)": 1e3 * last,
        "ratio": last / first,
        "verify (s)": time.perf_counter() - start,
        "file (MB)": long.path.stat().st_size / 1e6,
    }


def measure(seconds: float, kills: int, entries: int) -> dict[str, Any]:
    """All parts that have a size."""
    result: dict[str, Any] = {"bars": []}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        if seconds:
            result["race"] = race(directory, seconds)
            for figure in ("overspent", "miscounted", "stuck"):
                name = f"{PROCESSES} processes for {seconds:g} s: {figure}"
                result["bars"].append(at_most(name, result["race"][figure], 0))
        if kills:
            result["kills"] = killings(directory, kills)
            result["bars"].append(
                at_most(f"{kills} kill -9: failures", result["kills"]["failures"], 0)
            )
        if entries:
            result["growth"] = growth(directory, entries)
            name = f"spend after {result['growth']['entries']} entries / first spend"
            result["bars"].append(at_most(name, result["growth"]["ratio"], 5))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--race", type=float, metavar="SECONDS")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--entries", type=int)
    options = parser.parse_args()
    defaults = (4.0, 25, 1_000) if options.quick else (60.0, 500, 10_000)
    given = (options.race, options.kills, options.entries)
    seconds, kills, entries = (
        default if value is None else value for value, default in zip(given, defaults, strict=True)
    )
    result = measure(seconds, kills, entries)
    if not options.json:
        for part in ("race", "kills", "growth"):
            for name, value in result.get(part, {}).items():
                print(f"{part:7} {name:24} {value:.4g}")
    return finish(result, options.json)


if __name__ == "__main__":
    sys.exit(main())

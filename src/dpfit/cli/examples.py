"""Examples at the end of each command's help; they run in the folder of ``dpfit demo``."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("dpfit demo --folder hospital",),
    "schema": ("dpfit schema patients.csv --target diagnosis --out facts.toml",),
    "plan": (
        "dpfit plan --rows 569 --schema schema.toml --model logistic --epsilon 1",
        "dpfit plan --rows 569 --schema schema.toml --model logistic --target-risk 0.05",
    ),
    "fit": (
        "dpfit fit patients.csv --schema schema.toml --model logistic --epsilon 0.5 "
        "--out diagnosis.json",
        "dpfit fit patients.csv --schema schema.toml --model logistic --epsilon 0.5 "
        "--ledger budgets.ledger --dataset patients --report diagnosis.html",
    ),
    "predict": ("dpfit predict diagnosis.json patients.csv --out predictions.csv",),
    "query": (
        "dpfit query patients.csv --schema schema.toml --by diagnosis --epsilon 0.5",
        "dpfit query patients.csv --schema schema.toml --by 'worst radius' "
        "--bins 'worst radius=5,15,20,40' --epsilon 0.5 --report counts.html",
    ),
    "audit": (
        "dpfit audit laplace_mean --runs 2000",
        "dpfit audit --all --runs 1000 --jobs -1",
    ),
    "algorithms": ("dpfit algorithms noisy_gd", "dpfit algorithms --all"),
    "ledger": (
        "dpfit ledger create lab.ledger",
        "dpfit ledger register lab.ledger patients --epsilon 2",
        "dpfit ledger show lab.ledger",
        "dpfit ledger verify lab.ledger",
    ),
    "stream": (
        "dpfit stream demo visits",
        "dpfit stream open visits.stream --schema visits/schema.toml --by ward --steps 365 "
        "--epsilon 1 --delta 1e-6",
        "dpfit stream add visits.stream visits/days/001.csv --step 1",
        "dpfit stream show visits.stream",
    ),
    "ledger create": ("dpfit ledger create clinic.ledger",),
    "ledger register": (
        "dpfit ledger register budgets.ledger survey --epsilon 2",
        "dpfit ledger register budgets.ledger visits --epsilon 1 --delta 1e-6 --unit user",
    ),
    "ledger show": ("dpfit ledger show budgets.ledger",),
    "ledger entries": ("dpfit ledger entries budgets.ledger patients",),
    "ledger verify": ("dpfit ledger verify budgets.ledger",),
    "ledger export": ("dpfit ledger export budgets.ledger",),
    "stream demo": ("dpfit stream demo ward-visits",),
    "stream open": (
        "dpfit stream open cost.stream --schema visits/schema.toml --by ward --sum cost "
        "--steps 365 --epsilon 1 --delta 1e-6",
    ),
    "stream add": (
        "dpfit stream add visits.stream visits/days/002.csv",
        "dpfit stream add visits.stream visits/days --step 1",
    ),
    "stream show": ("dpfit stream show visits.stream --window 7",),
}
"""Command lines by command, shortest first."""


def epilog(command: str) -> str:
    """Return the examples of a command as the last lines of its help.

    >>> epilog("demo")
    'Example:\\n\\ndpfit demo --folder hospital'
    """
    lines = EXAMPLES[command]
    return "\n\n".join(("Examples:" if len(lines) > 1 else "Example:", *lines))

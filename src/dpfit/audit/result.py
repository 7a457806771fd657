"""What an audit says."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from dpfit.audit.currency import Currency
from dpfit.privacy import Guarantee
from dpfit.privacy.rounding import up_to_digits
from dpfit.privacy.spec import Json

KEPT, BROKEN, TOO_FEW = "kept", "broken", "too few runs"


@dataclass(frozen=True)
class Finding:
    """An attack's lower bound, the test that gives it, and whether it contradicts the claim."""

    attack: str
    lower: float
    broken: bool
    threshold: float | None = None
    alpha: float | None = None
    beta: float | None = None
    alpha_upper: float | None = None
    beta_upper: float | None = None
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Audit:
    """A lower confidence bound on the true privacy loss next to the promise, and the verdict.

    ``broken`` says: the observed error rates contradict the promised trade-off curve at
    ``confidence``. ``kept`` says: no attack contradicted it, and a test twice as good as promised
    would have been expected to; it proves no privacy. ``curve`` holds points (false alarms, misses)
    of the best attack's empirical trade-off curve.
    """

    subject: str
    promise: Guarantee
    currency: Currency
    promised: float
    lower: float
    confidence: float
    attack: str
    runs: int
    verdict: str
    findings: tuple[Finding, ...] = ()
    needed: int = 0
    seconds: float = 0.0
    curve: tuple[tuple[float, ...], tuple[float, ...]] = field(default=((), ()), repr=False)

    @property
    def kept(self) -> bool:
        """Whether the promise stood."""
        return self.verdict == KEPT

    @property
    def broken(self) -> bool:
        """Whether the promise was contradicted."""
        return self.verdict == BROKEN

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        return {
            "subject": self.subject,
            "promise": self.promise.to_json(),
            "currency": self.currency.name,
            "promised": self.promised,
            "lower": self.lower,
            "confidence": self.confidence,
            "attack": self.attack,
            "runs": self.runs,
            "verdict": self.verdict,
            "needed": self.needed,
            "seconds": self.seconds,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "curve": {"false_alarms": list(self.curve[0]), "misses": list(self.curve[1])},
        }

    def __str__(self) -> str:
        name, promised = self.currency.name, f"{up_to_digits(self.promised, 4):.4g}"
        if not self.runs:
            return (
                f"{self.subject}: {self.verdict}; {name} is {self.lower:.4g} exactly, "
                f"promised {promised}"
            )
        how = f"{name} >= {self.lower:.4g} by {self.attack}, promised {promised}"
        where = f"{self.runs:,} runs a side, confidence 1 - {1 - self.confidence:.0e}"
        more = (
            f"; at least {self.needed:,} runs a side are needed to say anything"
            if self.verdict == TOO_FEW
            else ""
        )
        return f"{self.subject}: {self.verdict}; {how} ({where}){more}"

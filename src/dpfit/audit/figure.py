"""The empirical trade-off curve, drawn with the promised one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpfit.audit.result import Audit
from dpfit.audit.tradeoff import TradeOff
from dpfit.privacy import Guarantee

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Palette:
    """Colours by what they stand for."""

    chance: str = "0.75"
    promised: str = "C0"
    observed: str = "C1"
    bound: str = "C3"


PLAIN = Palette()
"""The colours of a figure in a file of its own."""


def draw(audits: Sequence[Audit], file: Path) -> None:
    """Write a figure, a panel for each audit: what is allowed, what attacks saw and prove."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("drawing needs the package matplotlib: pip install matplotlib") from None
    if not audits:
        raise ValueError("there is nothing to draw")
    figure = Figure(figsize=(4.6 * len(audits), 4.9), layout="constrained")
    for axes, audit in zip(np.atleast_1d(figure.subplots(1, len(audits))), audits, strict=True):
        draw_audit(axes, audit)
        # Subjects may be import paths of others: never mathematics.
        axes.set_title(f"{audit.subject}: {audit.verdict}", parse_math=False)
        axes.legend(fontsize="small", loc="upper right")
    figure.savefig(file, dpi=150)


def draw_promise(axes: Axes, guarantee: Guarantee, label: str, palette: Palette = PLAIN) -> None:
    """The promised trade-off curve, and in shade what it rules out."""
    alpha = np.concatenate([np.geomspace(1e-4, 0.02, 60), np.linspace(0.02, 1.0, 200)])
    miss = TradeOff(guarantee).miss(alpha)
    axes.plot([0, 1], [1, 0], color=palette.chance, linewidth=1, label="blind guessing")
    axes.plot(alpha, miss, color=palette.promised, label=label)
    axes.fill_between(alpha, 0, miss, color=palette.promised, alpha=0.08, linewidth=0)
    axes.set(xlabel="false alarms", ylabel="misses", xlim=(0, 1), ylim=(0, 1))


def draw_audit(axes: Axes, audit: Audit, palette: Palette = PLAIN) -> None:
    """The promise, what the best attack saw, and what that proves.

    Points below the promised curve are impossible if the promise is true, up to sampling error; the
    cross is the corner of the confidence region of the test that was chosen, and only a cross below
    the curve breaks the promise.
    """
    draw_promise(
        axes, audit.promise, f"promised ({audit.currency.name} = {audit.promised:.3g})", palette
    )
    if audit.curve[0]:
        axes.plot(
            *audit.curve,
            color=palette.observed,
            linewidth=1.2,
            label=f"observed ({audit.attack:.30})",
        )
    for finding in audit.findings:
        alpha, beta = finding.alpha_upper, finding.beta_upper
        if finding.attack == audit.attack and alpha is not None and beta is not None:
            label = f"proven (confidence 1 - {1 - audit.confidence:.0e})"
            axes.scatter([alpha], [beta], marker="x", color=palette.bound, zorder=3, label=label)

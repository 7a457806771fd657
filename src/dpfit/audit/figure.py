"""The empirical trade-off curve, drawn with the promised one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfit.audit.record import Audit
from dpfit.audit.tradeoff import TradeOff


def draw(audits: Sequence[Audit], file: Path) -> None:
    """Write a figure with one panel an audit: what the promise allows, what the best attack saw, what it proves.

    Points below the promised curve are impossible if the promise is true, up to sampling error; the cross is the corner
    of the confidence region of the test that was chosen, and only a cross below the curve breaks the promise.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("drawing needs the package matplotlib: pip install matplotlib") from None
    if not audits:
        raise ValueError("there is nothing to draw")
    figure = Figure(figsize=(4.6 * len(audits), 4.9), layout="constrained")
    for axes, audit in zip(np.atleast_1d(figure.subplots(1, len(audits))), audits, strict=True):
        _panel(axes, audit)
    figure.savefig(file, dpi=150)


def _panel(axes: Any, audit: Audit) -> None:
    alpha = np.concatenate([np.geomspace(1e-4, 0.02, 60), np.linspace(0.02, 1.0, 200)])
    plot, scatter = axes.plot, axes.scatter
    plot([0, 1], [1, 0], color="0.75", linewidth=1, label="no information")
    plot(alpha, TradeOff(audit.promise).miss(alpha), color="C0", label=f"promised ({_promised(audit)})")
    axes.fill_between(alpha, 0, TradeOff(audit.promise).miss(alpha), color="C0", alpha=0.08)
    if audit.curve[0]:
        plot(*audit.curve, color="C1", linewidth=1.2, label=f"observed ({audit.attack})")
    for finding in audit.findings:
        if finding.attack == audit.attack and finding.alpha_upper is not None:
            label = f"bound at confidence 1 - {1 - audit.confidence:.0e}"
            scatter([finding.alpha_upper], [finding.beta_upper], marker="x", color="C3", zorder=3, label=label)
    axes.set(
        xlabel="false alarms", ylabel="misses", xlim=(0, 1), ylim=(0, 1), title=f"{audit.subject}: {audit.verdict}"
    )
    axes.legend(fontsize="small", loc="upper right")


def _promised(audit: Audit) -> str:
    return f"{audit.currency.name} = {audit.promised:.3g}"

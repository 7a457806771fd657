"""Figures as inline SVG whose colours are those of the page, by day and by night."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpfit.audit import Audit
from dpfit.audit.figure import Palette, draw_audit, draw_promise
from dpfit.audit.tradeoff import profile
from dpfit.privacy import Guarantee
from dpfit.report.markup import Markup, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

Floats = NDArray[np.float64]

_ROLES = {"ink": "#010203", "muted": "#020304", "accent": "#030405", "observed": "#040506"}
"""Stand-ins that matplotlib draws with; each becomes the page's own colour of that role."""

_PALETTE = Palette(_ROLES["muted"], _ROLES["accent"], _ROLES["observed"], _ROLES["ink"])

_STYLE: dict[RcKeyType, str | float | bool] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 12.0,
    "text.color": _ROLES["ink"],
    "axes.edgecolor": _ROLES["muted"],
    "axes.labelcolor": _ROLES["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _ROLES["muted"],
    "ytick.color": _ROLES["muted"],
    "xtick.labelcolor": _ROLES["ink"],
    "ytick.labelcolor": _ROLES["ink"],
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}

_SMALLEST = 1e-10
_RARE = {1.0: "certain", 1e-3: "1 in a\nthousand", 1e-6: "1 in a\nmillion", 1e-9: "1 in a\nbillion"}


def profile_figure(guarantee: Guarantee, quoted: tuple[float, float], name: str) -> Markup:
    """The promise as delta against epsilon, with the point that is usually quoted."""
    epsilons, deltas = profile(guarantee)
    small = np.flatnonzero(deltas <= _SMALLEST)
    end = float(epsilons[small[0]] if len(small) else epsilons[-1])
    epsilons, deltas = profile(guarantee, reach=1.05 * end if end else 1.0)

    def draw(axes: Axes) -> None:
        shown = np.maximum(deltas[::6], _SMALLEST / 100)
        axes.plot(epsilons[::6], shown, color=_ROLES["accent"])
        axes.fill_between(
            epsilons[::6], _SMALLEST / 100, shown, color=_ROLES["accent"], alpha=0.08, linewidth=0
        )
        if quoted[0] <= epsilons[-1]:
            axes.plot(
                [quoted[0]], [max(quoted[1], _SMALLEST)], "o", color=_ROLES["accent"], clip_on=False
            )
        axes.set(
            xlabel="epsilon",
            ylabel="delta",
            yscale="log",
            xlim=(0, epsilons[-1]),
            ylim=(_SMALLEST, 1),
        )
        axes.set_yticks(list(_RARE), labels=list(_RARE.values()))
        axes.minorticks_off()

    return inline_svg(draw, "The promise as a curve: delta against epsilon", name)


def trade_off_figure(guarantee: Guarantee, name: str) -> Markup:
    """The promise as the two kinds of error that any attacker makes."""

    def draw(axes: Axes) -> None:
        draw_promise(axes, guarantee, "best possible attacker", _PALETTE)
        _errors(axes)

    return inline_svg(draw, "The promise as error rates of the best possible attacker", name)


def audit_figure(audit: Audit, name: str) -> Markup:
    """What the best attack of an audit achieved, above what the promise rules out."""

    def draw(axes: Axes) -> None:
        draw_audit(axes, audit, _PALETTE)
        _errors(axes)

    return inline_svg(
        draw, "Error rates that the best attack achieved, next to what the promise rules out", name
    )


def series_figure(values: Floats, widths: Floats, title: str, name: str) -> Markup:
    """Estimates over time, with their intervals in shade."""

    def draw(axes: Axes) -> None:
        steps = np.arange(1, len(values) + 1)
        axes.fill_between(
            steps, values - widths, values + widths, color=_ROLES["accent"], alpha=0.2, linewidth=0
        )
        axes.plot(steps, values, color=_ROLES["accent"])
        axes.set(xlabel="step", ylabel=title)

    return inline_svg(draw, f"{title}, at each step, with 95% intervals", name)


def inline_svg(draw: Callable[[Axes], None], label: str, name: str) -> Markup:
    """An SVG element drawn by ``draw``; ``name`` prefixes its identifiers."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        # a reader's page does not depend on the settings of whoever made it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE | {"svg.hashsalt": name})
        figure = Figure(figsize=(5.4, 4.0), layout="constrained")
        draw(figure.subplots())
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    return _embedded(drawn.getvalue(), label, name)


def _errors(axes: Axes) -> None:
    axes.set(xlabel="wrongly accused", ylabel="not recognised")
    ticks = np.linspace(0, 1, 5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, labels=[f"{tick:.0%}" for tick in ticks])
    axes.legend(loc="upper right", fontsize=10.5, handlelength=1.4, borderaxespad=0.0)


def _embedded(document: str, label: str, name: str) -> Markup:
    """The element without prologue, metadata and global style, in the page's colours."""
    body = document[document.index("<svg") :]
    view = re.search(r'viewBox="([^"]*)"', body)
    inner = body[body.index(">") + 1 :]
    inner = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", inner, flags=re.DOTALL
    )
    inner = re.sub(
        r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", inner.replace("xlink:href", "href")
    )
    for role, colour in _ROLES.items():
        inner = inner.replace(colour, f"var(--{role})")
    return Markup(
        f'<svg role="img" aria-label="{text(label)}" viewBox="{view and view[1]}">{inner.strip()}'
    )

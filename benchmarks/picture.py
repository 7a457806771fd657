"""Draw accuracy against epsilon on Adult: dpfit at its defaults beside peers, in one run.

    python benchmarks/picture.py --diffprivlib PY --opacus PY     docs/figures/adult.svg and .json
    python benchmarks/picture.py --quick --out FILE.svg           a synthetic table, no peers

PY is the interpreter of an environment that has the peer. The figures behind the picture are
written next to it, as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib

from learning import DIFFPRIVLIB, OPACUS, classify, peer

matplotlib.use("svg")
from matplotlib import pyplot

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "adult.svg"
NOT_PRIVATE = "without privacy"
LINES = {
    "dpfit, add/remove": ("dpfit, delta = 1e-6", "#0b5fa5", "o-"),
    "dpfit, pure, add/remove": ("dpfit, pure", "#0b5fa5", "o--"),
    "Opacus DP-SGD, batch 1024, 20 epochs, rate 4, clip 0.5": (
        "DP-SGD (Opacus), delta = 1e-6",
        "#b3541e",
        "s-",
    ),
    "diffprivlib, pure, default C": ("diffprivlib, pure", "#6a4c93", "^--"),
}


DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(0.93) hue-rotate(180deg) } }"
"""On dark pages the picture is dark; the hues of the lines stay."""


def draw(rows: list[dict[str, Any]], table: str, path: Path) -> None:
    """Write the picture: one line for each model, light or dark as the page is."""
    matplotlib.rcParams.update({"svg.hashsalt": "dpfit", "font.size": 11})
    figure, axes = pyplot.subplots(figsize=(7.2, 3.9), layout="constrained")
    for model, (label, colour, style) in LINES.items():
        points = sorted((row["epsilon"], row["accuracy"]) for row in rows if row["model"] == model)
        if points:
            axes.plot(*zip(*points, strict=True), style, color=colour, label=label)
    best = next(row["accuracy"] for row in rows if "epsilon" not in row)
    axes.axhline(best, color="#444444", linewidth=1, linestyle=":", label=NOT_PRIVATE)
    axes.set_xscale("log")
    ticks = sorted({row["epsilon"] for row in rows if "epsilon" in row})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("epsilon: smaller is more private")
    axes.set_ylabel("accuracy on the test set")
    axes.set_title(f"Logistic regression on {table}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e5e5")
    axes.legend(frameon=False, loc=(0.05, 0.09), fontsize=9.5)
    figure.savefig(path, facecolor="white", metadata={"Date": None})
    pyplot.close(figure)
    drawn = path.read_text(encoding="utf-8")
    path.write_text(drawn.replace("</style>", f"{DARK}</style>", 1), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--diffprivlib", metavar="PY")
    parser.add_argument("--opacus", metavar="PY")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table = "synthetic" if options.quick else "adult"
    rows, _ = classify(table, options.quick)
    for interpreter, script in ((options.diffprivlib, DIFFPRIVLIB), (options.opacus, OPACUS)):
        if interpreter:
            rows += peer(interpreter, script, table)
    if errors := [row for row in rows if "error" in row]:
        print(errors, file=sys.stderr)
        return 1
    title = "synthetic data" if options.quick else "Adult (32,561 records)"
    draw(rows, title, options.out)
    options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

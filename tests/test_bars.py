"""The bars of benchmarks: a bar that fails, or is not a number, gives the exit status 1."""

import ast
import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from bars import at_least, at_most, finish

SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))
WITHOUT_BARS = {"bars.py", "synthetic.py", "picture.py"}
"""Modules of other scripts, and a picture: its figures have their bars in learning.py."""


@pytest.mark.parametrize(
    ("bar", "status"),
    [
        (at_most("a", 2.0, 2.0), 0),
        (at_most("a", 2.001, 2.0), 1),
        (at_least("a", 2.0, 2.0), 0),
        (at_least("a", 1.999, 2.0), 1),
        (at_most("a", math.nan, 2.0), 1),
        (at_least("a", math.nan, 2.0), 1),
    ],
)
def test_the_exit_status_is_one_where_a_bar_fails(bar, status, capsys):
    good = at_most("b", 0, 1)
    assert finish({"bars": [good, bar]}, as_json=False) == status
    assert capsys.readouterr().out.count("FAILS") == status
    assert finish({"bars": [good, bar]}, as_json=True) == status
    shown = json.loads(capsys.readouterr().out)["bars"]
    assert [set(each) for each in shown] == [{"name", "value", "target", "holds"}] * 2
    assert shown[1]["holds"] is (status == 0)


@pytest.mark.parametrize(
    "path", [path for path in SCRIPTS if path.name not in WITHOUT_BARS], ids=lambda path: path.stem
)
def test_every_benchmark_exits_with_the_status_of_its_bars(path):
    """Each ``main`` ends with ``return finish(...)``, and its status is that of the process."""
    tree = ast.parse(path.read_text())
    main = next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"
    )
    last = main.body[-1]
    assert isinstance(last, ast.Return)
    assert ast.unparse(last.value).startswith("finish(")
    assert ast.unparse(tree.body[-1]).endswith("sys.exit(main())")
    assert "bars" in {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_no_benchmark_judges_its_own_bars(path):
    """What holds is decided in one place, where nan fails."""
    written = {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    }
    assert path.name == "bars.py" or "holds" not in written

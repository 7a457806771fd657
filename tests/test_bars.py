"""The bars of benchmarks: a bar that fails, or is not a number, gives the exit status 1."""

import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from bars import at_least, at_most, finish


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

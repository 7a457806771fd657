"""A plan file cannot ask for all memory: absurd sizes are refused before anything is allocated."""

import json
import re
import resource
import tracemalloc

import pytest

from dpfit.core import Minimize, plan_from_json
from dpfit.losses import Bounds, Logistic
from dpfit.mechanisms.declared_answers import DeclaredQueries
from dpfit.privacy import Budget
from dpfit.privacy.event import Event
from dpfit.privacy.spec import from_json
from dpfit.solvers.gradient.noisy_gd import noisy_gd

PROBLEM = Minimize(n=1000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=3)


@pytest.fixture
def content():
    return json.loads(json.dumps(noisy_gd.plan(PROBLEM, Budget(mu=1.0)).to_json()))


@pytest.fixture
def little_memory():
    """A read that allocates for the size that it was told fails here, not on the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, before[1]))
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    resource.setrlimit(resource.RLIMIT_AS, before)
    assert peak < 200e6


@pytest.mark.usefixtures("little_memory")
class TestSizes:
    @pytest.mark.parametrize("size", [10**9, 10**12, 10**15, 10**400, 1e12, "Infinity"])
    @pytest.mark.parametrize("name", ["steps", "n_features"])
    def test_an_absurd_size_is_refused(self, content, name, size):
        text = json.dumps(content)
        assert f'"{name}": ' in text
        changed = re.sub(rf'"{name}": \d+', f'"{name}": {size}', text)
        with pytest.raises(ValueError, match=name):
            plan_from_json(json.loads(changed))

    def test_absurd_numbers_of_queries_are_refused(self, content):
        queries = DeclaredQueries(queries=3, l1=1.0).to_json() | {"queries": 10**12}
        with pytest.raises(ValueError, match="queries"):
            plan_from_json(content | {"problem": {"kind": "answer", "workload": queries}})

    @pytest.mark.parametrize("depth", [1000, 10**5])
    @pytest.mark.parametrize(
        "nest", [lambda inner: [inner], lambda inner: {"kind": "select", "plan": inner}]
    )
    def test_deep_nesting_is_refused(self, content, depth, nest):
        value = content
        for _ in range(depth):
            value = nest(value)
        for read in (plan_from_json, lambda value: from_json(value, Event)):
            with pytest.raises(ValueError, match="nested"):
                read({"kind": "select", "plan": value, "stop": 0.5})

    def test_a_number_of_a_million_digits_is_refused(self, content):
        with pytest.raises(ValueError, match="stop must be a number of at most"):
            plan_from_json({"kind": "select", "plan": content, "stop": 10**1_000_000})
        text = '{"kind": "select", "stop": ' + "1" * 1_000_000 + "}"
        with pytest.raises(ValueError, match="digits"):
            plan_from_json(json.loads(text))


def test_a_sensible_plan_is_read(content):
    assert plan_from_json(content).to_json() == content

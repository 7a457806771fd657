"""Steps of version 0.1.0 that held plans of local samples: read with their guarantee, never run."""

import json
from pathlib import Path

import numpy as np
import pytest

from dpfit.core import plan_from_json
from dpfit.data.dataset import InMemory

FOLDER = Path(__file__).parents[1] / "fixtures/v0_1/plans"


def cases(name):
    return json.loads((FOLDER / f"{name}.json").read_text()).values()


def test_a_localized_step_has_the_guarantee_of_its_stages_and_does_not_run():
    for case in cases("localized_asap"):
        mechanism = {"kind": "localized_sample", "stages": case["plan"]}
        plan = plan_from_json(
            {"kind": "step", "mechanism": mechanism, "why": case["guarantee"]["basis"]}
        )
        assert plan.guarantee.epsilon(1e-6) == pytest.approx(case["epsilon"], rel=1e-9)
        assert plan.basis.to_json() == case["guarantee"]["basis"]
        assert plan.work.passes > 20
        with pytest.raises(ValueError, match="plan it anew"):
            plan.run(InMemory(np.ones((6, 2)), np.ones(6)), random_state=1)


def test_split_stages_have_their_guarantee_and_do_not_run():
    for case in cases("iterated_exponential_mechanism_sco"):
        plan = plan_from_json(case["plan"])
        assert plan.guarantee.epsilon(1e-6) == pytest.approx(case["epsilon"], rel=1e-9)
        with pytest.raises(ValueError, match="plan it anew"):
            plan.run(InMemory(np.ones((200, 1)), np.zeros(200)), random_state=1)


def test_parts_by_index_are_refused_where_a_row_may_be_removed():
    (case,) = (
        one
        for one in cases("iterated_exponential_mechanism_sco")
        if one["plan"]["mechanism"]["by"] == "coin"
    )
    stored = {**case["plan"], "mechanism": {**case["plan"]["mechanism"], "by": "index"}}
    with pytest.raises(ValueError, match="removing a row"):
        plan_from_json(stored)

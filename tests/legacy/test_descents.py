"""Descents stored by version 0.1.0: equal events, and equal numbers for equal seeds."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpfit.legacy.descents
from dpfit.core import Mechanism, plan_from_json
from dpfit.core.mechanism import Run
from dpfit.geometry.symmetric import pack
from dpfit.noise import Source
from dpfit.privacy.spec import from_json
from dpfit.solvers.gradient.langevin import langevin
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.preconditioned_gd import preconditioned_gd
from dpfit.solvers.public_data.pda_dpmd import pda_dpmd
from dpfit.solvers.public_data.warm_start import warm_start_gd

PLANS = Path(__file__).parents[1] / "fixtures" / "v0_1" / "plans"


def stored(name):
    return json.loads((PLANS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "algorithm", [noisy_gd, langevin, warm_start_gd, pda_dpmd], ids=lambda a: a.name
)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_stored_plan_runs_as_it_did(algorithm, relation):
    content = stored(algorithm.name)[f"gdp/{relation}"]
    plan = plan_from_json(content["plan"])
    assert plan.event.to_json() == content["event"]
    assert plan.guarantee.to_json() == content["guarantee"]
    assert plan.run(algorithm.example(relation).data, random_state=7).value == pytest.approx(
        content["run"], rel=1e-12
    )


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_stored_stage_behind_a_map_runs_as_it_did(relation):
    content = stored("preconditioned_gd")[f"gdp/{relation}"]
    first, second = (
        from_json(stage["mechanism"], Mechanism) for stage in content["plan"]["stages"]
    )
    data, run = preconditioned_gd.example(relation).data, Run(Source(7))
    moments = first.run(data, run)
    assert moments == pytest.approx(np.array(content["run"][0]), rel=1e-12)
    with pytest.raises(ValueError, match="not bound yet"):
        second.run(data, run)
    bound = dpfit.legacy.descents.FormerPreconditionedGD(
        second.problem,
        relation,
        second.noise_multiplier,
        second.steps,
        second.floor,
        tuple(pack(moments).tolist()),
    )
    assert bound.event == second.event
    assert bound.run(data, run) == pytest.approx(np.array(content["run"][1]), rel=1e-12)

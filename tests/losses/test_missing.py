"""Losses of the caller in files: what is written, what is charged, and how the code comes back."""

import functools
import json
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpfit.core import Composition, Minimize, Stage, Step, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.ledger import Ledger
from dpfit.losses import Bounds, CustomLoss, JaxLoss, Logistic
from dpfit.losses.custom import DeclaredLoss, MissingLoss
from dpfit.privacy import Budget
from dpfit.privacy.spec import from_json
from dpfit.samplers.certificate import WithinGaussian
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.solvers.gibbs.dp_from_sampler_closeness import dp_from_sampler_closeness
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

BUDGET = Budget(epsilon=1.0, delta=1e-6)


def value(theta, rows, labels):
    return Logistic().value(rows @ theta, labels)


def gradient(theta, rows, labels):
    return Logistic().slope(rows @ theta, labels)[:, None] * rows


def other_gradient(theta, rows, labels):
    return Logistic().slope(rows @ theta, labels)[:, None] * rows / 2


def squared(theta, example):
    return ((example[0] @ theta) - example[1]) ** 2 / 2


def custom(**changed):
    given = {
        "value_function": value,
        "gradient_function": gradient,
        "lipschitz_bound": 1.0,
        "is_convex": True,
    }
    return CustomLoss(**(given | {"smoothness_bound": 0.25} | changed))


LOSSES = {"custom": custom, "jax": lambda: JaxLoss(function=squared, lipschitz_bound=2.0)}


def planned(loss, algorithm=noisy_gd, **options):
    problem = Minimize(n=40, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=2, ridge=0.1)
    return algorithm.plan(problem, BUDGET, **options)


def data():
    rng = np.random.default_rng(0)
    return InMemory(rng.uniform(-0.5, 0.5, size=(40, 2)), rng.choice([-1.0, 1.0], 40))


READ = """
import json, sys
import dpfit

plan = dpfit.plan_from_json(json.load(sys.stdin))
try:
    plan.run([[0.0, 0.0]])
except ValueError as error:
    said = str(error)
stored = plan.guarantee.to_json(), plan.fingerprint, plan.to_json()
print(json.dumps([*stored, plan.explain(), said]))
"""


@pytest.mark.parametrize("kind", LOSSES)
def test_a_plan_with_a_loss_of_the_caller_is_charged_written_read_and_run(kind, tmp_path):
    if kind == "jax":
        pytest.importorskip("jax")
    loss = LOSSES[kind]()
    plan = planned(loss, clip_norm=0.5)
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("patients", BUDGET)
    released = plan.run(data(), account=ledger.account("patients"), random_state=1).value
    reserved = next(entry for entry in ledger.entries("patients") if entry.kind == "reserve").facts
    assert reserved["plan"] == plan.to_json()
    ledger.verify()

    text = json.dumps(reserved["plan"])
    done = subprocess.run(
        [sys.executable, "-c", READ], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    guarantee, fingerprint, written, explained, said = json.loads(done.stdout)
    assert (guarantee, fingerprint, written) == (
        plan.guarantee.to_json(),
        plan.fingerprint,
        plan.to_json(),
    )
    assert explained == plan.explain()
    assert any(a["status"] == "declared" for a in guarantee["basis"]["assumptions"])
    assert "plan.with_loss(loss)" in said
    assert loss.to_json()["name"] in said

    again = plan_from_json(json.loads(text))
    assert again != plan
    assert again.with_loss(LOSSES[kind]()) == plan
    assert np.array_equal(again.with_loss(loss).run(data(), random_state=1).value, released)


def test_a_plan_whose_loss_is_missing_is_refused_before_the_charge(tmp_path):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("patients", BUDGET)
    plan = plan_from_json(planned(custom(), clip_norm=0.5).to_json())
    before = ledger.status("patients").spent
    with pytest.raises(ValueError, match=r"with_loss"):
        plan.run(data(), account=ledger.account("patients"))
    assert ledger.status("patients").spent == before
    ledger.account("patients").reserve(plan)
    assert ledger.status("patients").spent != before
    with pytest.raises(ValueError, match="with_loss"):
        plan.mechanism.problem.loss.gradient([0.0], [[0.0]])


def test_the_loss_is_put_back_wherever_it_is():
    step, loss = planned(custom(), output_perturbation), custom()
    inner = Composition((Stage("only", step),))
    plan = Composition(
        (
            Stage("one", planned(Logistic(), clip_norm=0.5)),
            Stage("two", step),
            Stage("three", inner),
        )
    )
    again = plan_from_json(plan.to_json())
    filled = again.with_loss(loss)
    assert filled == plan
    # What holds no loss of the caller is not made anew.
    assert filled.stages[0] is again.stages[0]
    with pytest.raises(ValueError, match="complete"):
        filled.with_loss(loss)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"gradient_function": other_gradient}, "function_fingerprint"),
        ({"lipschitz_bound": 2.0}, "lipschitz_bound"),
        ({"smoothness_bound": None}, "smoothness_bound"),
        ({"is_convex": False}, "is_convex"),
        ({"name": "mine"}, "name"),
    ],
)
def test_another_loss_is_refused(changed, field):
    plan = plan_from_json(planned(custom(), clip_norm=0.5).to_json())
    with pytest.raises(ValueError, match=rf"got another .*{field}"):
        plan.with_loss(custom(**changed))


def test_a_version_of_the_caller_replaces_the_code():
    one = custom(name="mine", version="3")
    plan = plan_from_json(planned(one, clip_norm=0.5).to_json())
    edited = custom(name="mine", version="3", gradient_function=other_gradient)
    assert plan.with_loss(edited).mechanism.problem.loss is edited
    with pytest.raises(ValueError, match="another version"):
        plan.with_loss(custom(name="mine", version="4"))
    with pytest.raises(ValueError, match="must have a name"):
        custom(version="3")


def test_arrays_in_a_loss_are_not_read():
    def weighted(weights):
        return custom(gradient_function=functools.partial(np.multiply, weights))

    assert weighted(np.ones(3)).to_json() == weighted(np.zeros(3)).to_json()


@pytest.mark.parametrize("kind", LOSSES)
def test_what_is_read_has_the_declared_constants(kind):
    loss = LOSSES[kind]()
    again = from_json(json.loads(json.dumps(loss.to_json())), DeclaredLoss)
    assert isinstance(again, MissingLoss)
    assert again.to_json() == loss.to_json()
    assert again.fingerprint == loss.fingerprint
    for name in ("lipschitz", "lipschitz_diff", "smoothness", "self_concordance"):
        assert getattr(again, name)(Bounds(1.0), 1.0) == getattr(loss, name)(Bounds(1.0), 1.0)
    assert (again.convex, again.outputs, again.status) == (loss.convex, loss.outputs, "declared")


def test_a_class_of_the_caller_is_known_by_its_methods_and_keeps_its_constants_declared():
    def made(power):
        @dataclass(frozen=True, kw_only=True)
        class Powers(DeclaredLoss):
            def value(self, theta, rows, labels=None):
                return np.abs(rows @ theta) ** power

            def gradient(self, theta, rows, labels=None):
                return rows

        return Powers(lipschitz_bound=1.0)

    assert made(2).to_json() == made(2).to_json() != made(3).to_json()

    class Steeper(CustomLoss):
        def lipschitz(self, bounds, radius=None):
            return replace(super().lipschitz(bounds, radius), value=bounds.row_norm)

    steeper = Steeper(value_function=value, gradient_function=gradient, lipschitz_bound=1.0)
    with pytest.raises(TypeError, match="overrides lipschitz"):
        steeper.to_json()


class Brought:
    """A sampler of the caller that is no Spec."""

    certificate = WithinGaussian(0.01)
    steps = 7

    def draw(self, target, chains, source, progress=None):
        return GibbsRejection().draw(target, chains, source)


def test_a_sampler_of_the_caller_is_written_and_refuses_to_run_when_read():
    problem = Minimize(
        n=100, loss=Logistic(), bounds=Bounds(1.0), n_features=1, domain=L2Ball(1, 1.0), ridge=0.1
    )
    options = {"certificate": WithinGaussian(0.01), "sampler": lambda temperature: Brought()}
    plan = dp_from_sampler_closeness.plan(problem, Budget(mu=0.5), **options)
    records = InMemory(np.full((100, 1), 0.5), np.ones(100))
    assert plan.run(records, random_state=1).value.shape == (1,)
    again = plan_from_json(json.loads(json.dumps(plan.to_json())))
    assert isinstance(again, Step)
    assert (again.guarantee, again.work, again.to_json()) == (
        plan.guarantee,
        plan.work,
        plan.to_json(),
    )
    with pytest.raises(ValueError, match=r"sampler '.*Brought'.*plan again"):
        again.run(records)

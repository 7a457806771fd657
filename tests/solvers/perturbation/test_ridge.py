"""All ridges predicted at once: as one by one, and infinite without a certificate."""

import math

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.losses import Bounds, Huber, Logistic, SmoothedHinge, Softmax
from dpfit.privacy import Budget
from dpfit.solvers.perturbation import objective_perturbation as objective
from dpfit.solvers.perturbation import output_perturbation as output
from dpfit.solvers.perturbation.minimizer import Accuracy
from dpfit.solvers.perturbation.ridge import RidgeSearch

RIDGES = np.geomspace(1e-14, 1e12, 53)

PROBLEMS = {
    "logistic": Minimize(n=400, loss=Logistic(), bounds=Bounds(2.0), n_features=7),
    "hinge with a ridge": Minimize(
        n=10, loss=SmoothedHinge(0.5), bounds=Bounds(1.0), n_features=1, ridge=1e-3
    ),
    "huber": Minimize(n=10**9, loss=Huber(0.3), bounds=Bounds(0.1, -5.0, 1.0), n_features=200),
    "softmax": Minimize(n=5000, loss=Softmax(4), bounds=Bounds(1.0), n_features=5),
    "far too large": Minimize(n=10**15, loss=Logistic(), bounds=Bounds(1e60), n_features=3),
}


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("linear", [0.0, 1e4])
@pytest.mark.parametrize("name", PROBLEMS)
def test_distances_are_those_that_are_certified_one_by_one(name, linear, relation):
    problem = PROBLEMS[name]
    strengths = problem.n * RIDGES
    found = Accuracy.distances(problem, strengths, relation, linear)
    for strength, distance in zip(strengths.tolist(), found.tolist(), strict=True):
        if math.isinf(distance):
            with pytest.raises(
                ValueError,
                match=r"within the rounding errors|exceed the range|additions|passes over",
            ):
                Accuracy.of(problem, strength, relation, linear=linear)
        else:
            assert Accuracy.of(problem, strength, relation, linear=linear).distance == distance


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("noise", ["gaussian", "l2_laplace"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_noisy_minimizers_are_predicted_as_one_by_one(name, noise, relation):
    problem = PROBLEMS[name]
    ridges = RIDGES[problem.ridge <= RIDGES]
    found = output._predicted(problem, relation, ridges, noise, 3.0)
    for ridge, risk in zip(ridges.tolist(), found.tolist(), strict=True):
        try:
            mechanism = output.NoisyMinimizer(problem, relation, ridge, noise, 3.0)
        except ValueError:
            assert risk == math.inf
        else:
            assert risk == pytest.approx(
                RidgeSearch(problem).output_excess(ridge, noise, 3.0 * mechanism.sensitivity),
                rel=1e-12,
            )


BUDGETS = (
    Budget(epsilon=0.9),
    Budget(epsilon=1.0, delta=1e-6),
    Budget(mu=0.5),
    Budget(rho=0.1, relation="add_remove"),
)


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
@pytest.mark.parametrize("name", PROBLEMS)
def test_perturbed_objectives_are_predicted_as_one_by_one(name, budget):
    problem = PROBLEMS[name]
    noise = "gamma" if budget.kind == "pure" or isinstance(problem.loss, Softmax) else "gaussian"
    if noise == "gamma" and budget.epsilon is None:
        return
    target = Budget(epsilon=budget.epsilon) if noise == "gamma" else budget
    ridges = RIDGES[problem.ridge <= RIDGES]
    found = objective._predicted(problem, target, ridges, noise)
    certified = 0
    for ridge, risk in zip(ridges.tolist(), found.tolist(), strict=True):
        event = objective.perturbation_event(problem, ridge, noise)
        multiplier = float(
            objective._quick_multipliers(event.slopes, np.array([event.curvature]), target)[0]
        )
        output_multiplier = multiplier * objective._OUTPUT_MULTIPLE[noise]
        try:
            mechanism = objective.PerturbedMinimizer(
                problem, target.relation, ridge, noise, multiplier, output_multiplier
            )
        except ValueError:
            assert risk == math.inf
            continue
        certified += 1
        hiding = np.array(output_multiplier * 2 * mechanism.distance)
        law = "gaussian" if noise == "gaussian" else "l2_laplace"
        expected = RidgeSearch(problem).output_excess(np.array(ridge), law, hiding)
        expected += objective._linear_excess(
            problem, np.array(ridge), noise, np.array(mechanism.scale)
        )
        assert risk == pytest.approx(float(expected), rel=1e-7)
    assert (certified == 0) == (name == "far too large")

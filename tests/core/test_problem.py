"""Facts that privacy rests on: sensitivity of clipped sums, start of descents."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball
from dpfit.losses import Bounds, CustomLoss, Huber, Logistic, Softmax, Squared

BALL = L2Ball(2, 2.0)
BOUNDS = Bounds(1.0, -1.0, 1.0)


def contributions(problem, clip_norm, points):
    """Clipped gradients of records around the unit disc, with labels in and out of range."""
    angles = np.linspace(0, 2 * math.pi, 24, endpoint=False)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rows = np.concatenate([size * directions for size in (0.4, 1.0, 7.0)])
    labels = np.array(
        [0.0, 1.0, 2.0] if isinstance(problem.loss, Softmax) else [-9.0, -1.0, 0.3, 1.0]
    )
    for point in points:
        found = [
            InMemory(row[np.newaxis], [label]).gradient(
                problem.loss, point, clip=clip_norm, **problem.guards
            )[1]
            for row, label in itertools.product(rows, labels)
        ]
        yield np.array(found)


def extreme_points(problem):
    """The origin and points on the border of the ball, or far away where there is none."""
    far = np.zeros((3, problem.dimension))
    far[1, 0], far[2, :2] = 1.0, (-0.6, 0.8)
    return far * (2.0 if problem.domain is not None else 30.0)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("domain", [None, BALL], ids=["space", "ball"])
@pytest.mark.parametrize("clip_norm", [0.3, 1.0, 50.0])
@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(0.5)], ids=lambda loss: loss.kind)
def test_no_record_changes_a_clipped_sum_by_more_than_its_sensitivity(
    loss, clip_norm, domain, relation
):
    problem = Minimize(n=9, loss=loss, bounds=BOUNDS, n_features=2, domain=domain)
    sensitivity, largest = problem.clipped_sensitivity(clip_norm, relation), 0.0
    for found in contributions(problem, clip_norm, extreme_points(problem)):
        moves = found if relation == "add_remove" else found[:, np.newaxis] - found
        largest = max(largest, float(np.linalg.norm(moves, axis=-1).max()))
    assert largest <= sensitivity * (1 + 1e-12)
    if clip_norm < 1:
        assert largest >= 0.99 * sensitivity


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.kind)
def test_without_clipping_replacing_moves_less_than_twice_the_clip_norm_and_attains_it(loss):
    problem = Minimize(n=9, loss=loss, bounds=BOUNDS, n_features=2, domain=BALL)
    limit = problem.constants("replace").lipschitz
    sensitivity = problem.clipped_sensitivity(limit, "replace")
    assert sensitivity < 1.6 * limit
    assert sensitivity == pytest.approx(
        problem.constants("replace").gradient_sensitivity, rel=1e-11
    )
    assert sensitivity >= problem.constants("replace").gradient_sensitivity
    moves = [
        np.linalg.norm(f[:, None] - f, axis=-1).max()
        for f in contributions(problem, limit, extreme_points(problem))
    ]
    assert 0.99 * sensitivity <= max(moves) <= sensitivity
    # A clip norm below the Lipschitz constant clips: opposite gradients of that norm are possible.
    assert problem.clipped_sensitivity(0.999 * limit, "replace") == 2 * 0.999 * limit


def test_constants_that_the_caller_declares_do_not_reduce_the_sensitivity():
    def declared(bound):
        return CustomLoss(
            value_function=lambda theta, rows, labels: rows @ theta,
            gradient_function=lambda theta, rows, labels: rows,
            lipschitz_bound=bound,
            lipschitz_diff_bound=bound,
        )

    problem = Minimize(n=9, loss=declared(1.0), bounds=BOUNDS, n_features=2)
    assert problem.constants("replace").gradient_sensitivity < 2.0
    assert problem.clipped_sensitivity(1.0, "replace") == 2.0
    assert problem.clipped_sensitivity(1.0, "add_remove") == 1.0


def test_a_loss_without_a_lipschitz_constant_has_twice_the_clip_norm():
    problem = Minimize(n=9, loss=Squared(), bounds=BOUNDS, n_features=2)
    assert problem.clipped_sensitivity(1e6, "replace") == 2e6


@pytest.mark.parametrize("region", ["domain", "trust_ball"])
def test_a_start_outside_of_the_region_is_projected_since_constants_hold_inside_only(region):
    problem = Minimize(
        n=9, loss=Squared(), bounds=BOUNDS, n_features=2, start=(30.0, 40.0), **{region: BALL}
    )
    assert problem.origin.tolist() == pytest.approx([1.2, 1.6])
    inside = replace(problem, start=(0.5, -0.5))
    assert inside.origin.tolist() == [0.5, -0.5]
    assert replace(problem, **{region: None}).origin.tolist() == [30.0, 40.0]


def test_the_origin_without_a_start_is_the_centre_of_the_region():
    problem = Minimize(
        n=9, loss=Logistic(), bounds=BOUNDS, n_features=2, domain=Box((0.0, 1.0), (2.0, 3.0))
    )
    assert problem.origin.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Squared()], ids=repr)
def test_constants_in_the_l1_norm_bound_entries_of_gradients_and_are_attained(loss):
    """Rows at the corners of a cube of half the norm: largest entries of gradients, differences."""
    d, radius = 4, 2.0
    bounds = Bounds(1.0, -1.0, 1.0, row_max=0.5)
    problem = Minimize(n=10, loss=loss, bounds=bounds, n_features=d, domain=L2Ball(d, radius))
    one, two = (problem.constants(relation, "l1") for relation in ("add_remove", "replace"))
    rows = 0.5 * np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    points = radius * np.vstack([rows[0], rows[3], np.eye(d)[0], np.zeros(d)])
    records = [InMemory(row[None], [label]) for row in rows for label in (-1.0, 1.0)]
    gradients = np.array(
        [[each.gradient(loss, point, **problem.guards)[1] for each in records] for point in points]
    )
    largest = np.max(np.abs(gradients))
    changed = np.max(gradients.max(axis=1) - gradients.min(axis=1))
    assert 0.9 * one.gradient_sensitivity <= largest <= one.gradient_sensitivity
    assert changed <= two.gradient_sensitivity == 2 * one.gradient_sensitivity
    assert one.lipschitz == pytest.approx(problem.constants("add_remove").lipschitz / 2)
    assert one.smoothness == pytest.approx(problem.constants("add_remove").smoothness / 4)
    assert one.status == "enforced"


def test_constants_in_the_l1_norm_need_a_declared_largest_entry():
    problem = Minimize(n=10, loss=Logistic(), bounds=Bounds(1.0), n_features=2)
    with pytest.raises(ValueError, match="declare row_max"):
        problem.constants("replace", "l1").require_sensitivity()
    assert not problem.constants("replace", "l1").smooth
    with pytest.raises(ValueError, match="norm"):
        problem.constants("replace", "l3")
    with pytest.raises(ValueError, match="row_max"):
        Bounds(1.0, row_max=0.0)

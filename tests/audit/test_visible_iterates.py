"""A last iterate released with all iterates breaks its guarantee; the audit sees it.

The event of `LastIterateDescent` covers its output only. Declared interactive, the same steps
answer one by one, are charged the same mu, and tell neighbours apart by more than twice of it.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import expit

from dpfit.audit import Fixed, LikelihoodRatio, Projection, audit_plan
from dpfit.core import Interactive, Loop, Run, Step
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.gradient.last_iterate_gd import LastIterateDescent, last_iterate_gd


@dataclass(frozen=True)
class VisibleDescent(Interactive):
    """The fault: every iterate is an answer, the event is that of the last one."""

    kind = "test_visible_descent"
    self_driven = True
    descent: LastIterateDescent

    @property
    def event(self):
        return self.descent.event

    @property
    def rounds(self):
        return self.descent.steps

    def init(self, data, run):
        return {"theta": self.descent.init(data, run), "path": []}

    def step(self, state, given, data, run):
        theta = self.descent.step(state["theta"], len(state["path"]), data, run)
        return {"theta": theta, "path": [*state["path"], theta]}, theta

    def finish(self, state):
        return np.array(state["path"])

    def run_many(self, data, run, count):
        """All runs at once: one pass over the data for each step."""
        theta, path = np.tile(self.descent.init(data, run), (count, 1)), []
        for index in range(self.rounds):
            theta = self.descent.step(theta, index, data, run)
            path.append(theta)
        return list(np.stack(path, axis=1))


def planned():
    problem, data, neighbour = last_iterate_gd.example("replace")
    return last_iterate_gd.plan(problem, Budget(mu=1.0)), data, neighbour


def log_ratio(mechanism, data, neighbour):
    """Exact log likelihood ratio of transcripts: steps are normal around noiseless ones."""
    problem, noise = mechanism.problem, mechanism.noise

    def centres(before, side):
        # Logistic losses of rows with norm 1: nothing is clipped.
        margins = before @ side.matrix.T * side.labels
        total = -(expit(-margins) * side.labels) @ side.matrix
        return before - mechanism.step_size * (total / problem.n + problem.ridge * before)

    def score(rows):
        path = rows.reshape(len(rows), mechanism.steps, problem.dimension)
        before = np.concatenate([np.tile(problem.origin, (len(rows), 1, 1)), path[:, :-1]], axis=1)
        squares = [
            np.sum((path - centres(before, side)) ** 2, axis=(1, 2)) for side in (data, neighbour)
        ]
        return (squares[0] - squares[1]) / (2 * noise**2)

    return score


def test_visible_iterates_break_the_guarantee_of_the_last_one():
    plan, data, neighbour = planned()
    visible = Step(VisibleDescent(plan.mechanism), plan.why)
    assert visible.guarantee.mu == plan.guarantee.mu == pytest.approx(1.0, rel=1e-6)
    assert plan.mechanism.steps == 200
    attack = LikelihoodRatio(log_ratio(plan.mechanism, data, neighbour))
    audit = audit_plan(
        visible,
        data,
        neighbour,
        queries=(),
        attacks=(attack,),
        strategy=Fixed(0.0),
        runs=1000,
        random_state=1,
    )
    assert audit.verdict == "broken", str(audit)
    assert audit.lower >= 2.0


def test_the_last_iterate_alone_keeps_its_guarantee_on_the_same_pair():
    plan, data, neighbour = planned()
    audit = audit_plan(plan, data, neighbour, attacks=(Projection(),), runs=1000, random_state=1)
    assert audit.verdict == "kept", str(audit)


def test_the_answers_of_an_interaction_are_the_transcripts_that_the_audit_attacks():
    plan, data, _ = planned()
    visible = Step(VisibleDescent(plan.mechanism), plan.why)
    with visible.open(data, random_state=3) as interaction:
        answers = [interaction.step() for _ in range(200)]
    assert interaction.done
    assert np.array_equal(answers, visible.execute_many(data, Run(Source(3)), 1)[0])


def test_mechanisms_of_which_only_the_last_state_is_private_cannot_be_opened():
    plan, data, _ = planned()
    assert isinstance(plan.mechanism, Loop)
    assert plan.interactive is None
    with pytest.raises(ValueError, match="answers once"):
        plan.open(data)

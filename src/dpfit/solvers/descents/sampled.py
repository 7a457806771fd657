"""Descents on sampled users: every step sees each user with a probability, by a coin of its own."""

from __future__ import annotations

from dpfit.core import Minimize, Risk
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.sampling import Poisson
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import Momentum


def sampled_users(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    batch: float,
    clip_norm: float,
    learning_rate: float,
    schedule: Schedule,
    predicted: Risk | None,
) -> Descent:
    """Return a descent whose steps see ``batch`` users on average, each with all of its records.

    Guarantee: as many Gaussian mechanisms as steps, each on a Poisson sample of the users.
    Sensitivity: of the sum of a sample, ``clip_norm`` if a user leaves it, twice that if another
    one takes its place; both plus what rounding adds.
    """
    mean = ClippedMean(
        problem.n, noise_multiplier, schedule.steps, relation, Poisson(batch / problem.n), "user"
    )
    moves = Momentum(learning_rate, clip_norm, schedule)
    return Descent(problem, mean, moves, predicted)

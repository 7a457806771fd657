"""One pass over a table or a stream: follow the leader on private running sums of gradients.

Guarantee: mu-GDP for all points together, mu = 1 / noise_multiplier, for any loss, any data and
any order. Each record is in one batch; gradients are clipped; the running sums are private
(docs/explanation/streams.md); the rest is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Minimize, Plan, Risk, Step, Tuning
from dpfit.core.algorithm import BOUNDED, DECLARED_N
from dpfit.core.examples import opposite_records
from dpfit.core.reference_designs import Design, power_mean_risk, reference_designs
from dpfit.losses.custom import declared_basis
from dpfit.mechanisms.aggregates.encoders import encoder_for
from dpfit.mechanisms.aggregates.prefix_sums import PrefixSums
from dpfit.mechanisms.aggregates.sampling import Arriving, SinglePass
from dpfit.mechanisms.prefix_sums import ONCE
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.leader import Leader
from dpfit.solvers.descents.rule import TUNING as DESCENT
from dpfit.solvers.descents.rule import default_clip_norm
from dpfit.solvers.descents.scales import (
    gradient_bound,
    isotropic_curvature,
    natural_unit,
    parameter_scale,
    slope_bound,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OnePassTuning(Tuning):
    """Tuned numbers of `one_pass`.

    Parameters
    ----------
    collected_noise : float
        Noise that a flat direction may collect, in units of `parameter_scale`.
    forgetting_time : float
        How long a direction must be descended to forget its noise, in units of the inverse
        curvature.
    longest_step : float
        Largest step size, in units of the inverse smoothness.
    steps : pair of int
        Least and largest number of steps.
    least_batch : int
        Least number of records in a step.
    average : float
        Fraction of the points that the output averages.
    """

    kind = "one_pass_tuning"
    set_by: str = "benchmarks/streams.py --tune"
    collected_noise: float = 0.35
    forgetting_time: float = 1.0
    longest_step: float = 1.5
    steps: tuple[int, int] = (50, 400)
    least_batch: int = 20
    average: float = 0.7


TUNING = OnePassTuning()


def believed(problem: Minimize, clip_norm: float) -> Minimize:
    """Return the problem with rows no longer than clipping lets them act.

    A wide row bound guards arithmetic. A clip norm below the gradient bound is the caller's word
    that most gradients are shorter: lengths and curvatures are judged by it.
    """
    bound = gradient_bound(problem)
    if not (problem.loss.is_glm and math.isfinite(bound) and clip_norm < bound):
        return problem
    row_norm = problem.bounds.row_norm * clip_norm / bound
    return replace(problem, bounds=replace(problem.bounds, row_norm=row_norm))


def one_pass(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    clip_norm: float,
    rounds: int | None = None,
    tuning: OnePassTuning = TUNING,
) -> tuple[int, float]:
    """Return the number of steps and the step size, from public facts.

    After a total step size S a flat direction has collected noise of deviation
    S * sensitivity * noise_multiplier * f / n, f being the factor of the running sums, which grows
    with the logarithm of the number of steps only. S makes this ``collected_noise`` times the
    parameter scale, or less where no direction forgets its noise. There are as many steps as
    keep each below ``longest_step``.
    """
    assumed = believed(problem, clip_norm)
    scale, constants = parameter_scale(assumed), assumed.constants(relation)
    fewest, most = tuning.steps
    factor = _factor(rounds or most)
    change = clip_norm * (2 if relation == "replace" else 1)
    time = tuning.collected_noise * scale * problem.n / (noise_multiplier * change * factor)
    curvature = isotropic_curvature(assumed, clip_norm) + problem.ridge
    time *= min(1.0, time * curvature / tuning.forgetting_time)
    if constants.smooth:
        longest = tuning.longest_step / (constants.smoothness + problem.ridge)
    else:
        longest = scale / clip_norm
    if problem.ridge:
        longest = min(longest, 1 / problem.ridge)
    if rounds is None:
        needed = math.ceil(min(time / longest, float(most)))
        rounds = max(1, min(max(fewest, needed), problem.n // tuning.least_batch))
    return rounds, min(longest, time / rounds)


def _factor(rounds: int) -> float:
    """The deviation of the last running sum, for sensitivity and mu of 1."""
    encoder = encoder_for(rounds, 1, 1, 1)
    return encoder.norm(1, 1) * float(encoder.window_deviations(None)[-1])


class FTRL(Algorithm[Minimize]):
    """One pass that follows the leader on private running sums of gradients.

    Use it for streams, for data that can be read once, and where the order may be adversarial.
    With many passes over a table `noisy_gd` has less error.
    Guarantee: mu-GDP for all points together, mu = 1 / noise_multiplier, for any loss and data.
    Reference: [LD] Lemma C.1; [Liu24] Theorem 7.2.2 with its tree replaced;
    docs/explanation/streams.md.
    Work: one pass.

    Parameters
    ----------
    rounds : int, optional
        Number of batches; by default set from public facts. A stream has n / rounds records a
        batch.
    step_size : float, optional
        By default set from public facts, see `one_pass`.
    stream : bool
        Whether batches arrive: open the plan without data and call ``observe(batch)``.
    clip_norm : float, optional
        By default as in `noisy_gd`.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=20_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20)
    >>> plan = ftrl.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> plan.work.passes
    1.0
    """

    name = "ftrl"
    summary = "one pass over a table or a stream, each record read once, in any order"
    use_for = "streams, and records in adversarial order"
    reference = "[LD] Lemma C.1; [Liu24] Theorem 7.2.2"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (BOUNDED,)
    supports = frozenset({"ridge", "domain", "centre", "trust_ball", "ridge_map", "population"})
    tier = "recommended"
    tunings = (TUNING, DESCENT)
    auto_candidate = True
    auto_passes = 1

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        rounds: int | None = None,
        step_size: float | None = None,
        stream: bool = False,
        clip_norm: float | None = None,
        max_passes: int = 1,
    ) -> Plan:
        """Return one pass within the budget, over the table or over batches that arrive."""
        integer("max_passes", max_passes)
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        if clip_norm is None:
            # A running sum has the noise of one full-batch gradient times a factor.
            clip_norm = default_clip_norm(problem, budget.relation, multiplier * _factor(100))
        if not math.isfinite(clip_norm):
            raise ValueError(
                "clip_norm must be given for a loss whose gradients have no bound; or bound labels "
                "or slopes"
            )
        if rounds is not None and integer("rounds", rounds) > problem.n:
            raise ValueError(f"rounds must be at most n = {problem.n}, got {rounds}")
        rounds, rule = one_pass(problem, budget.relation, multiplier, clip_norm, rounds)
        sums = PrefixSums(
            problem.n, multiplier, rounds, budget.relation, Arriving() if stream else SinglePass(),
            encoder=encoder_for(rounds, problem.dimension, 1, 1), bound=clip_norm,
        )  # fmt: skip
        moves = Leader(step_size or rule, clip_norm, TUNING.average)
        descent = Descent(problem, sums, moves)
        return Step(
            replace(descent, predicted=predicted_risk(descent)), self._why(problem, budget, stream)
        )

    def _why(self, problem: Minimize, budget: Budget, stream: bool) -> Basis:
        in_one = Assumption("each record is in one batch, by its position", "enforced")
        assumptions = [
            Assumption("the gradient of each record is clipped", "enforced"),
            ONCE if stream else in_one,
        ]
        if budget.relation == "add_remove":
            assumptions.append(DECLARED_N)
        theorem = "adaptive Gaussian steps [LD, Lemma C.1]"
        basis = Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "exact")
        return declared_basis(basis, problem.loss)

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        return opposite_records(relation)


def predicted_risk(descent: Descent) -> Risk:
    """Return the power mean of the excess over the reference designs: start, noise and sampling."""
    moves = descent.optimizer
    if not isinstance(moves, Leader):
        raise ValueError(f"risks of one pass are predicted for leaders, got {moves.kind!r}")
    problem = believed(descent.problem, moves.clip_norm)
    design = reference_designs(
        problem, slope_bound(problem, moves.clip_norm), natural_unit(problem)
    )
    expected = power_mean_risk(design, lambda each: _risk_on(each, descent, moves))
    return Risk(expected, "excess empirical risk")


def _risk_on(design: Design, descent: Descent, moves: Leader) -> float:
    """What the start leaves, and what noise and fresh batches add, on a quadratic.

    A point moves by x <- (1 - r) x - step_size * (noise + sampling), r = step_size * curvature.
    """
    problem, sums = descent.problem, descent.aggregate
    if not isinstance(sums, PrefixSums):
        raise ValueError("risks of one pass are predicted for running sums")
    rounds = sums.rounds
    curvatures = design.curvatures + problem.ridge
    few = np.geomspace(max(curvatures.min(), 1e-300), max(curvatures.max(), 1e-300), 30)
    kept = 1 - np.minimum(moves.step_size * few, 1.9)
    left = np.power(kept[:, np.newaxis], np.arange(1, rounds + 1))
    weights = np.zeros(rounds)
    weights[min(rounds - 1, rounds - math.floor(moves.average * rounds)) :] = 1.0
    weights /= weights.sum()
    remaining = left @ weights
    # How much of a unit that enters the sum at each step is in the output, for each direction.
    entered = np.stack([np.convolve(weights, row[::-1] / row[0])[rounds - 1 :] for row in left])
    each = moves.step_size * rounds / problem.n
    noise = each * sums.deviation(problem.dimension) * sums.encoder.deviations(entered)
    # A batch of n / rounds records: the gradient's second moment is at most clip_norm**2.
    spread = (
        np.sum(entered**2, axis=1) * (moves.step_size * moves.clip_norm) ** 2 * rounds / problem.n
    )
    share = few / max(float(np.sum(curvatures)), 1e-300)
    variance = np.interp(curvatures, few, noise**2 + spread * share)
    kept_start = np.interp(curvatures, few, remaining)
    return design.excess(design.squares * kept_start**2 + variance, problem.ridge)


ftrl = FTRL()

"""Public-data descent: exact laws, mirror steps, predictions, limits of public records."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize, plan_from_json
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball
from dpfit.losses import Bounds, Hinge, Huber, Logistic, SmoothedHinge, Softmax, Squared
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable
from dpfit.privacy.gaussian import delta as gaussian_delta
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.rule import tune_descent
from dpfit.solvers.public_data.descent import TUNING, Geometry, predicted_risks
from dpfit.solvers.public_data.pda_dpmd import MIRRORS, PublicMirror, pda_dpmd
from dpfit.solvers.public_data.survey import Clipping, Survey
from dpfit.solvers.public_data.warm_start import WarmStart, warm_start_gd

ALGORITHMS = (warm_start_gd, pda_dpmd)
SPREAD = np.array([0.5, 0.3, 0.1])
THETA = np.array([1.0, -1.0, 2.0])


def regression(n, rng, spread=SPREAD, theta=THETA, noise=0.1):
    rows = rng.standard_normal((n, len(spread))) * spread
    return rows, rows @ theta + noise * rng.standard_normal(n)


def squared(n=1000, d=3, **more):
    return Minimize(n=n, loss=Squared(), bounds=Bounds(10.0), n_features=d, **more)


def logistic(n=500, d=3, **more):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, **more)


def binary(n, rng):
    rows, margins = regression(n, rng)
    return rows, np.where(margins + rng.logistic(size=n) / 4 > 0, 1.0, -1.0)


def descent(kind, problem, relation, noise_multiplier, steps, *options):
    schedule = Schedule(steps, average=TUNING.averaged)
    aggregate = ClippedMean(problem.n, noise_multiplier, steps, relation, schedule=schedule)
    return Descent(problem, aggregate, kind(schedule, *options))


def setting_of(mechanism, public):
    return mechanism.optimizer.setting(mechanism.problem, mechanism.aggregate, public)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("kind", [WarmStart, PublicMirror])
def test_on_a_quadratic_the_output_has_the_predicted_law(kind, relation, ridge):
    """Mean and covariance by a matrix recursion; noise off by 10% is 20% in variance."""
    rng = np.random.default_rng(3)
    n, steps, multiplier, clip = 400, 4, 0.5, 30.0
    rows, labels = regression(n, rng)
    public = InMemory(*regression(60, rng))
    mechanism = descent(kind, squared(n, ridge=ridge), relation, multiplier, steps, clip)
    setting = setting_of(mechanism, public)
    # The step is linear in the gradient: read off its matrix.
    matrix = setting.move(np.zeros((3, 3)), -np.eye(3))
    hessian, moment = rows.T @ rows / n + ridge * np.eye(3), rows.T @ labels / n
    deviation = multiplier * math.sqrt(steps) * clip * (2 if relation == "replace" else 1) / n
    shares = [0.0, 0.0, 0.5, 0.5]  # the last 40% of four steps
    mean, point = np.zeros(3), setting.start
    covariance, gain = np.zeros((3, 3)), np.zeros((3, 3))
    for share in shares:
        point = point - matrix @ (hessian @ point - moment)
        mean = mean + share * point
    for share in shares[::-1]:
        gain = share * np.eye(3) + gain @ (np.eye(3) - matrix @ hessian)
        covariance += deviation**2 * gain @ matrix @ matrix.T @ gain.T
    outputs = np.array(
        mechanism.run_many(InMemory(rows, labels, public=public), Run(Source(5)), 6000)
    )
    scales = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(outputs.mean(axis=0) - mean) < 6 * scales / math.sqrt(len(outputs)))
    # Six standard errors of a variance are 11%.
    assert outputs.var(axis=0) == pytest.approx(scales**2, rel=0.11)


def test_the_quadratic_mirror_step_is_a_damped_newton_step():
    """point - size (H + ridge)^-1 gradient: both matrix parts fit one (size, ridge)."""
    rows, labels = regression(200, np.random.default_rng(0))
    setting = setting_of(pda_dpmd.plan(squared(), Budget(mu=1.0)).mechanism, InMemory(rows, labels))
    matrix = setting.move(np.zeros((3, 3)), -np.eye(3))
    hessian = rows.T @ rows / 200
    # size * matrix^-1 = H + ridge, so matrix^-1 is a combination of H and the identity.
    design = np.stack([hessian.ravel(), np.eye(3).ravel()], axis=1)
    found, *_ = np.linalg.lstsq(design, np.linalg.inv(matrix).ravel(), rcond=None)
    assert design @ found == pytest.approx(np.linalg.inv(matrix).ravel(), rel=1e-8, abs=1e-10)
    assert found[0] > 0
    assert found[1] > 0


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.3)], ids=lambda loss: loss.kind)
def test_the_mirror_step_solves_its_equation(loss):
    """grad Psi(next) - grad Psi(point) is a multiple of the gradient, near and far."""
    rng = np.random.default_rng(1)
    rows, labels = binary(80, rng)
    mechanism = descent(PublicMirror, replace(logistic(), loss=loss), "replace", 1.0, 10)
    psi = Survey.of(mechanism.problem, InMemory(rows, labels)).psi
    setting = setting_of(mechanism, InMemory(rows, labels))
    points = setting.start + np.array([[0.0, 0.0, 0.0], [3.0, -2.0, 5.0], [-20.0, 10.0, 7.0]])
    gradients = rng.standard_normal((3, 3)) * 0.1
    moved = setting.move(points, gradients)
    slopes = [loss.slope(psi.rows @ p, psi.labels) @ psi.rows / 80 for p in points]
    ahead = [loss.slope(psi.rows @ p, psi.labels) @ psi.rows / 80 for p in moved]
    # d Psi + ridge * d theta = -size * gradient, with two unknowns and nine equations.
    change = (np.array(ahead) - np.array(slopes)).ravel()
    design = np.stack([-(moved - points).ravel(), -gradients.ravel()], axis=1)
    (ridge, size), *_ = np.linalg.lstsq(design, change, rcond=None)
    assert ridge > 0
    assert size > 0
    assert design @ [ridge, size] == pytest.approx(change, abs=1e-7 * np.abs(change).max())


def test_short_steps_of_the_fixed_preconditioner_agree_with_the_loss():
    rows, labels = binary(80, np.random.default_rng(1))
    public, gradients = InMemory(rows, labels), 1e-5 * np.eye(3)
    exact, fixed = (
        setting_of(descent(PublicMirror, logistic(), "replace", 1.0, 10, None, mirror), public)
        for mirror in ("loss", "curvature")
    )
    one, two = (s.move(np.tile(s.start, (3, 1)), gradients) - s.start for s in (exact, fixed))
    assert one == pytest.approx(two, rel=1e-2)
    assert np.abs(one).max() > 1e-6


def test_predicted_risks_by_brute_force():
    rng = np.random.default_rng(0)
    curvatures, variances = rng.uniform(0.1, 1.0, 4), rng.uniform(0.1, 1.0, 4)
    rates, gains, pulls, shifts = (rng.uniform(0.1, 0.5, 4) for _ in range(4))
    shares, noise = np.array([0.0, 0.2, 0.3, 0.5]), 0.3
    geometry = Geometry(rates, gains, pulls, lambda size: lambda points, gradients: points)
    sizes = np.array([1.0, 0.4])
    clipping = Clipping(np.ones(4), shifts)
    predicted = predicted_risks(curvatures, variances, clipping, geometry, sizes, noise, shares)

    def average(size, i, start, push):
        """The averaged distance along one eigenvector, with a push at each step."""
        left, total = start, 0.0
        for k, share in enumerate(shares):
            left = (
                (1 - size * rates[i]) * left + size * pulls[i] * start + size * gains[i] * push[k]
            )
            total += share * left
        return total

    for size, risk in zip(sizes, predicted, strict=True):
        exact = 0.0
        for i in range(4):
            bias = average(size, i, 0.0, np.full(4, shifts[i]))
            noisy = sum(average(size, i, 0.0, noise * unit) ** 2 for unit in np.eye(4))
            exact += (
                curvatures[i]
                / 2
                * (variances[i] * average(size, i, 1.0, np.zeros(4)) ** 2 + noisy + bias**2)
            )
        assert risk == pytest.approx(exact, rel=1e-12)


def test_leaving_out_is_exact_for_least_squares():
    rows, labels = regression(30, np.random.default_rng(2))
    found = Survey.of(squared(), InMemory(rows, labels))
    ridge = found.psi.ridge
    for i in (0, 7, 29):
        kept = np.delete(np.arange(30), i)
        refit = np.linalg.solve(
            rows[kept].T @ rows[kept] + 30 * ridge * np.eye(3), rows[kept].T @ labels[kept]
        )
        assert found.slopes[i] == pytest.approx(rows[i] @ refit - labels[i], rel=1e-8)


@pytest.mark.parametrize("n", [150, 80])
def test_expected_curvatures_are_those_of_fresh_records(n):
    """At d = 100 sample eigenvalues are off by a large factor; expectations are not."""
    rng = np.random.default_rng(4)
    spread = np.repeat([1.0, 0.5], 50)
    rows = rng.standard_normal((n, 100)) * spread
    found = Survey.of(squared(d=100, n=5000), InMemory(rows, rng.standard_normal(n)))
    fresh = ((spread[:, None] * found.vectors) ** 2).sum(axis=0)
    # RowBall bounds rows at norm 10, which hardly any reaches.
    seen = found.values > 1e-8
    assert np.abs(np.log(found.values[seen] / fresh[seen])).max() > 1.2
    assert np.abs(np.log(found.curvatures / fresh)).mean() < 0.2


@pytest.mark.parametrize(("records", "most"), [(120, 1.25), (60, 1.5)])
def test_the_public_risk_is_predicted(records, most):
    """Average over draws, against the true excess risk.

    In-sample residuals and curvatures would predict 0.44 of it for three records per dimension, and
    0.11 for 1.5.
    """
    spread, predicted, true = np.geomspace(1.0, 0.2, 40), [], []
    theta = np.ones(40)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        public = InMemory(*regression(records, rng, spread, theta, noise=0.3))
        setting = setting_of(descent(WarmStart, squared(n=10**6, d=40), "replace", 1.0, 1), public)
        predicted.append(setting.public_risk)
        true.append(0.5 * float(((setting.start - theta) ** 2 * spread**2).sum()))
    assert 0.9 <= np.mean(true) / np.mean(predicted) <= most


def asked_first(mechanism, public):
    """The first contribution after this public data set was seen."""
    problem, moves = mechanism.problem, mechanism.optimizer
    return moves.ask(problem, moves.init(problem, mechanism.aggregate, public))


def test_public_records_touch_neither_promise_nor_noise():
    rng = np.random.default_rng(0)
    few, many = InMemory(*binary(30, rng)), InMemory(*binary(31, rng))
    for algorithm in ALGORITHMS:
        plan = algorithm.plan(logistic(), Budget(epsilon=1.0, delta=1e-6), clip_norm=0.4)
        mean = plan.mechanism.aggregate
        one, two = (mean.scale(asked_first(plan.mechanism, public)) for public in (few, many))
        assert one == two
        assert math.fsum(1 / mean.multipliers**2) <= 1 / plan.event.noise_multiplier**2
        assert one[1] == pytest.approx(0.8, rel=1e-3)
        assert one[1] >= 0.8
        declared = [a for a in plan.basis.assumptions if a.status == "declared"]
        assert any("not protected" in a.text for a in declared)
        assert "not protected" in plan.explain()


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_clips_come_from_public_records_and_are_charged(algorithm):
    """The clip moves with the public records, and the sensitivity with the clip."""
    rng = np.random.default_rng(0)
    plan = algorithm.plan(squared(), Budget(mu=1.0))
    loud, quiet = (
        asked_first(plan.mechanism, InMemory(*regression(100, rng, noise=noise)))
        for noise in (1.0, 0.01)
    )
    assert loud.bound > 20 * quiet.bound
    for asked in (loud, quiet):
        assert 2 * asked.bound <= plan.mechanism.aggregate.scale(asked)[1] <= 2.001 * asked.bound


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_without_public_records_it_is_noisy_descent(algorithm):
    private = InMemory(*binary(500, np.random.default_rng(0)))
    mechanism = algorithm.plan(logistic(), Budget(mu=1.0), steps=12).mechanism
    plain = tune_descent(logistic(), "replace", mechanism.event.noise_multiplier, max_passes=12)
    empty = replace(private, public=InMemory(np.zeros((0, 3)), np.zeros(0)))
    for data in (private, empty):
        assert np.array_equal(
            mechanism.run(data, Run(Source(1))), plain.run(private, Run(Source(1)))
        )


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_too_few_public_records_are_not_looked_at(algorithm):
    """Four records for three parameters could be fitted by anything; five are used."""
    rng = np.random.default_rng(0)
    private, public = InMemory(*binary(500, rng)), binary(5, rng)
    mechanism = algorithm.plan(logistic(), Budget(mu=1.0), steps=12).mechanism
    alone = mechanism.run(private, Run(Source(1)))
    few, enough = (
        mechanism.run(
            replace(private, public=InMemory(public[0][:n], public[1][:n])), Run(Source(1))
        )
        for n in (4, 5)
    )
    assert np.array_equal(few, alone)
    assert not np.array_equal(enough, alone)


class Spent:
    """An account that counts what it was asked to reserve."""

    def __init__(self):
        self.reserved = 0

    def reserve(self, plan):
        self.reserved += 1

    def commit(self, token, release):
        pass


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
@pytest.mark.parametrize("public", [None, 0, 4], ids=str)
def test_data_without_a_fallback_are_refused_before_the_charge(algorithm, public):
    """The squared loss has no gradient bound: without public records nothing could run."""
    rng, account = np.random.default_rng(0), Spent()
    beside = None if public is None else InMemory(np.ones((public, 3)), np.ones(public))
    data = InMemory(*regression(1000, rng), public=beside)
    plan = algorithm.plan(squared(), Budget(mu=1.0), steps=3)
    with pytest.raises(ValueError, match="at least 5 public records"):
        plan.run(data, account=account, random_state=1)
    assert account.reserved == 0
    enough = replace(data, public=InMemory(*regression(5, rng)))
    assert np.isfinite(plan.run(enough, account=account, random_state=1).value).all()
    assert account.reserved == 1
    clipped = algorithm.plan(squared(), Budget(mu=1.0), steps=3, clip_norm=1.0)
    assert np.isfinite(clipped.run(data, account=account, random_state=1).value).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_a_declared_number_of_public_records_decides_when_planned(algorithm):
    private = InMemory(*binary(500, np.random.default_rng(0)))
    budget = Budget(mu=1.0)
    few = algorithm.plan(logistic(public=4), budget, steps=12)
    plain = tune_descent(logistic(public=4), "replace", few.event.noise_multiplier, max_passes=12)
    assert few.mechanism == plain
    assert "4 public records" in few.explain()
    assert "not protected" not in few.explain()
    enough = algorithm.plan(logistic(public=5), budget, steps=12)
    assert enough.mechanism.fallback is None
    with pytest.raises(ValueError, match="at least 5 public records"):
        enough.run(private, random_state=1)
    with pytest.raises(ValueError, match="at least 5 public records"):
        algorithm.plan(squared(public=4), budget)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_plans_are_written_down_and_their_states_are_not(algorithm, tmp_path):
    plan = algorithm.plan(logistic(ridge=0.1), Budget(mu=1.0), steps=4)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    _, data, _ = algorithm.example("replace")
    small = algorithm.plan(algorithm.example("replace").problem, Budget(mu=1.0), steps=4)
    with pytest.raises(ValueError, match="cannot be stored"):
        small.open(data, store=tmp_path / "state")


def excess_risks(loss, d, records, draw):
    """Excess risks on fresh records: cold, warm, mirror descent, public fit alone, zero."""
    rng = np.random.default_rng([draw, d, records])
    theta = 1.5 * rng.standard_normal(d)

    def drawn(n):
        rows = rng.standard_normal((n, d)) / math.sqrt(d)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        margins = rows @ theta
        if loss.binary_labels:
            return rows, np.where(margins + rng.logistic(size=n) > 0, 1.0, -1.0)
        return rows, np.clip(margins + 0.3 * rng.standard_normal(n), -3.0, 3.0)

    public, private, (fresh, answers) = InMemory(*drawn(records)), drawn(4000), drawn(20_000)
    bounds = Bounds(1.0) if loss.binary_labels else Bounds(1.0, -3.0, 3.0)
    problem = Minimize(n=4000, loss=loss, bounds=bounds, n_features=d)
    budget, data = Budget(epsilon=1.0, delta=1e-6), InMemory(*private, public=public)
    plans = [algorithm.plan(problem, budget) for algorithm in ALGORITHMS]
    fits = [
        plans[0].run(replace(data, public=None), random_state=draw).value,
        *(plan.run(data, random_state=draw).value for plan in plans),
        Survey.of(problem, public).point,
        np.zeros(d),
        theta,
    ]
    risks = np.array([loss.value(fresh @ fit, answers).mean() for fit in fits])
    return risks[:-1] - risks[-1]


@pytest.mark.slow
@pytest.mark.parametrize("loss", [Logistic(), Huber(1.0)], ids=lambda loss: loss.kind)
def test_few_public_records_do_not_hurt(loss):
    """The fewest public records considered, and twice as many, in isotropic rows.

    A cold start errs for a fourteenth of zero on the logistic loss; there is little left to gain,
    and little is lost.
    """
    for records in (45, 90):
        cold, warm, mirror, _, zero = np.mean(
            [excess_risks(loss, 30, records, draw) for draw in range(4)], axis=0
        )
        assert max(warm, mirror) < (cold + 0.03 * zero if loss.binary_labels else 0.9 * cold)


def test_public_records_that_are_nearly_separable_are_not_overfitted():
    """100 records, 40 features: the fit beats zero and is far from the largest margin."""
    for draw in range(3):
        *_, public, zero = excess_risks(Logistic(), 40, 100, draw)
        assert public < zero


@pytest.mark.parametrize("mirror", MIRRORS)
def test_hostile_records_are_harmless(mirror):
    rng = np.random.default_rng(0)
    rows, labels = binary(500, rng)
    rows[:4] = [[np.nan] * 3, [np.inf] * 3, [1e308] * 3, [0.0] * 3]
    labels[4:6] = [np.nan, np.inf]
    public_rows, public_labels = binary(40, rng)
    public_rows[0], public_labels[1] = np.nan, np.inf
    data = InMemory(rows, labels, public=InMemory(public_rows, public_labels))
    plan = pda_dpmd.plan(logistic(), Budget(mu=1.0), mirror=mirror, steps=5)
    assert np.isfinite(plan.run(data, random_state=1).value).all()


def test_a_separable_public_set_gives_a_finite_start():
    rows = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]] * 10)
    setting = setting_of(
        pda_dpmd.plan(logistic(), Budget(mu=1.0)).mechanism, InMemory(rows, rows[:, 0])
    )
    assert np.isfinite(setting.start).all()
    assert setting.start[0] > 0


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_public_records_without_curvature_are_harmless(algorithm):
    rng = np.random.default_rng(0)
    far = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]] * 10)
    for public, loss in (
        (InMemory(np.zeros((5, 3)), np.ones(5)), Logistic()),
        (InMemory(np.zeros((5, 3)), np.ones(5)), Squared()),
        (InMemory(far, far[:, 0]), SmoothedHinge(0.1)),
        (InMemory(far[:1], far[:1, 0]), Huber(0.1)),
    ):
        plan = algorithm.plan(replace(logistic(), loss=loss), Budget(mu=1.0), steps=4)
        data = InMemory(*binary(500, rng), public=public)
        assert np.isfinite(plan.run(data, random_state=1).value).all()


def test_a_domain_is_kept():
    rng = np.random.default_rng(0)
    problem = squared(500, domain=L2Ball(3, 0.5))
    data = InMemory(*regression(500, rng), public=InMemory(*regression(50, rng)))
    plan = warm_start_gd.plan(problem, Budget(mu=1.0), clip_norm=1.0)
    assert np.linalg.norm(plan.run(data, random_state=1).value) <= 0.5 + 1e-12
    for mirror in MIRRORS:
        plan = pda_dpmd.plan(problem, Budget(mu=1.0), clip_norm=1.0, mirror=mirror)
        assert np.linalg.norm(plan.run(data, random_state=1).value) <= 0.5 + 1e-12
    with pytest.raises(ValueError, match="warm_start_gd, which takes any"):
        pda_dpmd.plan(squared(500, domain=Box((-1.0,) * 3, (1.0,) * 3)), Budget(mu=1.0))


def test_the_noise_profile_is_the_spread_of_a_step():
    """200,000 noisy steps from one point; the tolerance is nine standard errors."""
    public = InMemory(*regression(80, np.random.default_rng(0)))
    mechanism = pda_dpmd.plan(squared(), Budget(mu=1.0), clip_norm=2.0).mechanism
    setting = setting_of(mechanism, public)
    _, sensitivity = mechanism.aggregate.scale(asked_first(mechanism, public))
    deviation = sensitivity * mechanism.aggregate.multipliers[0] / 1000
    noise = deviation * np.random.default_rng(1).standard_normal((200_000, 3))
    moved = setting.move(np.zeros((200_000, 3)), noise)
    directions = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])
    for profile, along in (
        (setting.noise_profile(), setting.vectors.T),
        (setting.noise_profile(directions), directions),
    ):
        found = np.abs(moved @ along.T).mean(axis=0)
        assert profile == pytest.approx(found, rel=0.015)
    # Flat directions get more of it.
    assert setting.noise_profile()[0] > 3 * setting.noise_profile()[-1]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_what_cannot_be_planned_is_said(algorithm):
    budget = Budget(mu=1.0)
    with pytest.raises(BudgetUnreachable, match="pure"):
        algorithm.plan(logistic(), Budget(epsilon=1.0))
    for loss in (Hinge(), Softmax(3)):
        with pytest.raises(ValueError, match="smooth generalized linear"):
            algorithm.plan(replace(logistic(), loss=loss), budget)
    for wrong in ({"steps": 0}, {"clip_norm": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            algorithm.plan(logistic(), budget, **wrong)
    nothing = InMemory(np.full((2, 3), np.nan), np.zeros(2))
    with pytest.raises(ValueError, match="no public record"):
        setting_of(algorithm.plan(logistic(), budget).mechanism, nothing)


def test_unknown_mirrors_are_refused():
    with pytest.raises(ValueError, match="mirror"):
        pda_dpmd.plan(logistic(), Budget(mu=1.0), mirror="glass")


def test_the_printed_variance_breaks_its_promise_at_large_epsilon():
    """[Gan22] Theorem 74: sigma^2 = 8 L^2 T ln(1/delta) / (eps n)^2.

    So mu = eps / sqrt(2 ln(1/delta)) if one record moves.
    """

    def printed(epsilon, target):
        return epsilon / math.sqrt(2 * math.log(1 / target))

    assert gaussian_delta(printed(7.9, 1e-5), 7.9) < 1e-5
    assert gaussian_delta(printed(8.1, 1e-5), 8.1) > 1e-5
    assert gaussian_delta(printed(10.0, 1e-5), 10.0) == pytest.approx(2.9e-5, rel=0.02)


def test_mirror_descent_helps_where_features_are_unequal():
    """Excess risks, averaged over draws, at settings that only public records decide."""
    spread, n, d = np.geomspace(0.3, 0.01, 60), 5000, 60
    theta = 0.3 / spread
    problem = squared(n, d)
    excess = {"public": [], "warm": [], "mirror": []}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        public = InMemory(*regression(120, rng, spread, theta))
        data = InMemory(*regression(n, rng, spread, theta), public=public)
        warm, mirror = (
            algorithm.plan(problem, Budget(epsilon=1.0, delta=1e-5)) for algorithm in ALGORITHMS
        )
        outputs = {
            "public": setting_of(warm.mechanism, public).start,
            "warm": warm.run(data, random_state=seed).value,
            "mirror": mirror.run(data, random_state=seed).value,
        }
        for name, value in outputs.items():
            excess[name].append(0.5 * float(((value - theta) ** 2 * spread**2).sum()))
    public, warm, mirror = (np.mean(values) for values in excess.values())
    assert mirror < 0.95 * warm
    assert warm < 0.95 * public

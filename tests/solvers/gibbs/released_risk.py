"""What the noise of a release adds to the predicted risk on a ball, in closed form."""

import math


def of_sample(plan, slope=1.0, curvature=0.0):
    """The predicted risk of the release, less what noise of deviation tau adds.

    That is S (tau / 2 + d tau**2 / (2 R) + Delta) + (curvature + ridge) d tau**2 / 2; the slope S
    of the objective is that of one loss and ridge times the radius, for a ball around zero.
    """
    m = plan.final
    ball = m.problem.region
    d, radius, ridge = m.problem.dimension, ball.norm_bound, m.problem.ridge
    tau = m.noise_multiplier * m.sensitivity * (1 if m.noise == "gaussian" else math.sqrt(d + 1))
    outwards = tau / 2 + d * tau**2 / (2 * radius) + m.sensitivity / 2
    steepest = slope + ridge * radius
    return plan.risk.expected - steepest * outwards - (curvature + ridge) * d * tau**2 / 2

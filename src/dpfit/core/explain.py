"""Plans in words: events and methods."""

from __future__ import annotations

from dpfit.privacy import event as events
from dpfit.privacy.event import Event

ROUNDING = {
    "exact": "no rounding error weakens the promise",
    "bounded": "rounding errors have a proven bound, which the promise includes",
    "idealised": "the proof assumes real numbers; the promise does not include rounding errors",
}
"""What each kind of arithmetic means for the promise."""

_SLOPES = {
    "two_sided": "any convex loss",
    "one_sided": "a loss whose slope keeps its sign",
    "logistic": "logistic loss",
    "softmax": "logistic loss of several classes",
}


def in_words(event: Event) -> str:
    """Return an event in one line.

    >>> in_words(events.Composed((events.Gaussian(2.0), events.Laplace(4.0))))
    'Gaussian noise (noise multiplier 2), then Laplace noise (noise multiplier 4)'
    """
    return event.fold(_words)


def method(name: str) -> str:
    """Return the name of an algorithm and what it does, as far as the registry knows it."""
    from dpfit.core.registry import entry  # which imports plans

    try:
        return f"{name}: {entry(name).summary}"
    except ValueError:
        return name


def _words(event: Event, parts: tuple[str, ...]) -> str:
    """Return one event, given its parts in words."""
    inside = ", ".join(parts)
    match event:
        case events.Composed():
            return ", then ".join(parts)
        case events.Repeated(times=times):
            return f"{times} times {inside}"
        case events.Parallel():
            return f"on disjoint parts of the data: {inside}"
        case events.Sampled(rate=rate, method=how):
            return f"on a {how.replace('_', ' ')} sample of {rate:.4g} of the data: {inside}"
        case events.Selected(stop=stop):
            return f"best of about {1 / stop:g} runs of {inside}"
        case events.Filtered():
            return f"steps chosen one by one, up to {inside}"
        case events.WithinTotalVariation(distance=distance):
            return f"{inside}, drawn within total variation distance {distance:.4g}"
        case events.CloseInRenyi(order=order):
            return f"{inside}, drawn by a sampler close in Renyi divergence of order {order:.4g}"
        case events.Group(size=size):
            return f"{inside}, seen by groups of {size}"
        case events.Replaced():
            return inside
    return _mechanism(event)


def _mechanism(event: Event) -> str:
    """Return an event without parts in words."""
    match event:
        case events.Gaussian(noise_multiplier=level):
            return f"Gaussian noise (noise multiplier {level:.4g})"
        case events.Laplace(noise_multiplier=level):
            return f"Laplace noise (noise multiplier {level:.4g})"
        case events.L2Laplace(noise_multiplier=level, dimension=d):
            return f"l2-Laplace noise in {d} dimensions (noise multiplier {level:.4g})"
        case events.GeneralizedGaussian(noise_multiplier=level, shape=p, dimension=d):
            return (
                f"generalized Gaussian noise with p = {p:.4g} in {d} dimensions "
                f"(noise multiplier {level:.4g})"
            )
        case events.DiscreteLaplace(noise_multiplier=level):
            return f"discrete Laplace noise (noise multiplier {level:.4g})"
        case events.DiscreteGaussian(noise_multiplier=level):
            return f"discrete Gaussian noise (noise multiplier {level:.4g})"
        case events.RandomizedResponse(epsilon=epsilon, categories=categories):
            return f"randomized response among {categories} answers (epsilon {epsilon:.4g})"
        case events.ObjectivePerturbation(
            noise_multiplier=level, curvature=curvature, slopes=slopes, noise=noise
        ):
            law = "a Gaussian" if noise == "gaussian" else "an l2-Laplace"
            return (
                f"{law} linear term in the objective of {_SLOPES[slopes]} "
                f"(noise multiplier {level:.4g}, curvature {curvature:.4g})"
            )
    return _bound(event)


def _bound(event: Event) -> str:
    """Return an event that is known by its guarantee only."""
    match event:
        case events.Pure(epsilon=epsilon):
            return f"a pure DP mechanism (epsilon {epsilon:.4g})"
        case events.BoundedRange(epsilon=epsilon):
            return f"an exponential mechanism (bounded range {epsilon:.4g})"
        case events.Approximate(epsilon=epsilon, delta=delta):
            return f"an approximate DP mechanism (epsilon {epsilon:.4g}, delta {delta:.4g})"
        case events.GaussianPrivate(mu=mu):
            return f"a Gaussian DP mechanism (mu {mu:.4g})"
        case events.ZeroConcentrated(rho=rho):
            return f"a zero-concentrated DP mechanism (rho {rho:.4g})"
        case events.Renyi(orders=orders):
            return f"a Renyi DP mechanism (known at {len(orders)} orders)"
    shown = ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in event.to_json().items()
        if name != "kind"
    )
    return f"{event.kind.replace('_', ' ')} ({shown})"

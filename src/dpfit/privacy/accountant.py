"""From what is done to what it costs: the curve of an event under a neighbour relation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpfit.privacy import curve as curves
from dpfit.privacy import event as events
from dpfit.privacy import gaussian, laws, objective_perturbation, renyi, subsampling
from dpfit.privacy.closeness import CloseInRenyi
from dpfit.privacy.curve import Composition, Curve, Group, Known, Symmetrized, Worst, half_square
from dpfit.privacy.event import Event
from dpfit.privacy.rounding import up
from dpfit.privacy.validate import option

RELATIONS = ("replace", "add_remove")


@lru_cache(maxsize=512)
def privacy_curve(event: Event, relation: str) -> Curve:
    """Upper bounds on the privacy loss of ``event`` under ``relation``, total variation apart.

    >>> round(privacy_curve(events.Gaussian(4.0), "replace").mu, 6)
    0.25
    """
    option("relation", relation, RELATIONS)
    match event:
        case events.Gaussian(noise_multiplier=multiplier):
            return Known(mu=_inverse(multiplier))
        case events.Laplace(noise_multiplier=multiplier):
            return laws.Laplace(_inverse(multiplier))
        case events.L2Laplace(noise_multiplier=multiplier, dimension=dimension):
            return laws.L2Laplace(_inverse(multiplier), dimension)
        case events.GeneralizedGaussian(
            noise_multiplier=multiplier, shape=shape, dimension=dimension
        ):
            return Composition([(_coordinate(_inverse(multiplier), shape), dimension)])
        case events.DiscreteLaplace(noise_multiplier=multiplier):
            return laws.DiscreteLaplace(_inverse(multiplier), 1)
        case events.DiscreteGaussian(noise_multiplier=multiplier):
            return _discrete_gaussian(multiplier, 1)
        case events.ObjectivePerturbation():
            return _objective_perturbation(event, relation)
        case events.RandomizedResponse(epsilon=epsilon, categories=categories):
            return curves.RandomizedResponse(epsilon, categories)
        case events.Pure(epsilon=epsilon):
            return Known(pure=epsilon)
        case events.BoundedRange(epsilon=epsilon):
            return curves.BoundedRange(epsilon)
        case events.Approximate(epsilon=epsilon, delta=delta):
            return curves.Approximate(epsilon, delta)
        case events.GaussianPrivate(mu=mu):
            return Known(mu=mu)
        case events.ZeroConcentrated(rho=rho):
            return Known(rho=rho)
        case events.Renyi(orders=orders, values=values):
            return Known(orders=np.array(orders), values=np.array(values))
        case events.Composed() | events.Repeated():
            return _in_turn(event, lambda part: privacy_curve(part, relation))
        case events.Parallel(events=parts, by=by):
            return _parallel(parts, by, relation)
        case events.Sampled():
            return _sampled(event, relation)
        case events.Selected(event=inner, stop=stop, eta=eta):
            return curves.Selected(privacy_curve(inner, relation), stop, eta)
        case events.Filtered(cap=cap):
            return privacy_curve(cap, relation)
        case events.WithinTotalVariation(event=inner):
            return privacy_curve(inner, relation)
        case events.CloseInRenyi(event=inner):
            return _close(event, privacy_curve(inner, relation))
        case events.Group(event=inner, size=size):
            return _group(inner, size, relation)
        case events.Replaced(event=inner):
            if relation != "replace":
                raise ValueError(
                    "a Replaced event is a promise under replace-one; account it with "
                    "relation='replace'"
                )
            return _replaced(inner)
    raise ValueError(f"no accounting for events of kind {event.kind!r}")


def total_variation(event: Event, changes: int = 1) -> float:
    """Total variation between implementation and `privacy_curve`'s event, for ``changes`` records.

    Parts on disjoint data add nothing for the parts that no change touches; a change touches one
    part, or two if it moves a record. Elsewhere a group changes the two ends of one comparison
    only.
    """
    if isinstance(event, events.Sampled | events.Replaced):
        changes = 2 * changes
    elif isinstance(event, events.Group):
        changes = changes * event.size
    inside = [total_variation(part, changes) for part in event.parts]
    match event:
        case events.WithinTotalVariation(distance=distance):
            return distance + inside[0]
        case events.Repeated(times=times):
            return times * inside[0]
        case events.Selected(stop=stop, eta=eta):
            return renyi.mean_runs(stop, eta) * inside[0]
        case events.Parallel(by=by):
            touched = changes if by == "index" else 2 * changes
            return sum(sorted(inside, reverse=True)[:touched], 0.0)
    return sum(inside, 0.0)


def _in_turn(
    event: events.Composed | events.Repeated, part_curve: Callable[[Event], Curve]
) -> Composition:
    """The parts of ``event`` in order, each with the curve that ``part_curve`` gives it."""
    times = event.times if isinstance(event, events.Repeated) else 1
    return Composition([(part_curve(part), times) for part in event.parts])


def _inverse(multiplier: float) -> float:
    """The shift in units of the noise, rounded up; exact where possible, so equal parts add up."""
    shift = 1 / multiplier
    return shift if Fraction(shift) * Fraction(multiplier) >= 1 else math.nextafter(shift, math.inf)


def _close(event: events.CloseInRenyi, ideal: Curve) -> Curve:
    return CloseInRenyi(ideal, event.order, event.forward, event.backward)


def _discrete_gaussian(multiplier: float, size: int) -> Curve:
    """Discrete Gaussian noise against ``size`` changes: zCDP, and GDP slightly above normal's."""
    shift = up(Fraction(_inverse(multiplier)) * size)
    return Known(
        mu=gaussian.discrete_mu(multiplier) * size * (1 + 2.0**-52), rho=half_square(shift)
    )


def _coordinate(shift: float, shape: float) -> Curve:
    return laws.Laplace(shift) if shape == 1 else laws.GeneralizedGaussian(shift, shape)


def _objective_perturbation(event: events.ObjectivePerturbation, relation: str) -> Curve:
    shift = _inverse(event.noise_multiplier)
    if event.noise == "gamma":
        return Known(
            pure=objective_perturbation.pure(shift, event.curvature, event.slopes, relation)
        )
    single = objective_perturbation.ObjectivePerturbation(shift, event.curvature, event.slopes)
    # Two gradients that change together have no direction of their own: one record leaves, one
    # enters.
    return single if relation == "add_remove" else Group(single, 2)


def _parallel(parts: tuple[Event, ...], by: str, relation: str) -> Curve:
    own = [privacy_curve(part, relation) for part in parts]
    if by == "index" or relation == "add_remove":
        return Worst(own)
    # A replaced record leaves one part and enters another, or is replaced inside a part.
    moved = Worst([Symmetrized(privacy_curve(part, "add_remove")) for part in parts])
    return Worst([*own, Composition([(moved, 2)])])


def _sampled(event: events.Sampled, relation: str) -> Curve:
    if event.rate == 1:
        return privacy_curve(event.event, relation)
    if relation == "add_remove":
        if event.method != "poisson":
            raise ValueError(
                "sampling without replacement needs relation='replace': under add/remove the "
                "number of records is "
                "private, so a fixed share of it is not a public number; use method='poisson'"
            )
        return subsampling.PoissonAddRemove(privacy_curve(event.event, relation), event.rate)
    # In a sample, the record that takes another's place may belong to another part.
    moving = _parts_by_value(event.event)
    replaced = privacy_curve(moving, relation)
    left = _leaving(moving, event.zero_out) if event.method == "poisson" else replaced
    return subsampling.SampledReplace(replaced, left, event.rate)


def _leaving(event: Event, zero_out: float) -> Curve:
    """A record leaves, where noise multipliers refer to the sensitivity of replacing it."""
    match event:
        case events.Composed() | events.Repeated():
            return _in_turn(event, lambda part: _leaving(part, zero_out))
        case events.Sampled(event=inner, rate=rate, method="poisson", zero_out=inside):
            sampled = subsampling.PoissonAddRemove(_leaving(inner, max(inside, zero_out)), rate)
            return Symmetrized(sampled)
    # A promise that is not noise must cover a record that leaves by itself (see `Sampled`).
    return privacy_curve(
        event.scaled(1 / zero_out) if isinstance(event, _NOISE) else event, "replace"
    )


def _parts_by_value(event: Event) -> Event:
    """The event with disjoint parts taken as chosen by value; `Replaced` covers that itself."""
    if isinstance(event, events.Replaced):
        return event
    moved = event.rebuilt(map(_parts_by_value, event.parts))
    return dataclasses.replace(moved, by="value") if isinstance(moved, events.Parallel) else moved


_NOISE = (
    events.Gaussian,
    events.Laplace,
    events.L2Laplace,
    events.GeneralizedGaussian,
    events.DiscreteLaplace,
    events.DiscreteGaussian,
)


_EXPONENT = 700.0
"""Beyond this exponentials overflow; up to it the error of the exponent moves them by less than
1e-13 of their size.
"""


def _group(event: Event, size: int, relation: str) -> Curve:
    """A group of changes: noise sees the sum of shifts, the rest composes single changes."""
    match event:
        case events.Composed() | events.Repeated():
            together = _in_turn(event, lambda part: _group(part, size, relation))
            if not any(isinstance(part, Group) for part, _ in together.parts):
                return together
            # Parts that are no noise lose in the chain one by one; the chain of the whole may lose
            # less.
            return Composition(together.parts, also=Group(privacy_curve(event, relation), size))
        case events.DiscreteGaussian(noise_multiplier=multiplier):
            return _discrete_gaussian(multiplier, size)
        case events.DiscreteLaplace(noise_multiplier=multiplier):
            return laws.DiscreteLaplace(_inverse(multiplier), size)
        case events.WithinTotalVariation(event=inner):
            return _group(inner, size, relation)
        case events.CloseInRenyi(event=inner):
            # Only the two ends of the comparison are implementations.
            return _close(event, _group(inner, size, relation))
        case events.Group(event=inner, size=inside):
            return _group(inner, size * inside, relation)
        case events.Approximate(epsilon=epsilon, delta=delta) if size * epsilon < _EXPONENT:
            # Each change multiplies by exp(epsilon) what the ones before it have lost: a geometric
            # sum.
            growth = math.expm1(size * epsilon) / math.expm1(epsilon) if epsilon else size
            return curves.Approximate(
                up(Fraction(epsilon) * size), min(1.0, delta * growth * (1 + 1e-12))
            )
    if isinstance(event, _NOISE):
        return privacy_curve(event.scaled(1 / size * (1 - 1e-15)), relation)
    return Group(privacy_curve(event, relation), size)


def _replaced(event: Event) -> Curve:
    """One record leaves and one enters, each an add/remove change."""
    match event:
        case events.Composed() | events.Repeated():
            return _in_turn(event, _replaced)
        case events.Sampled(event=inner, rate=rate, method="poisson"):
            return subsampling.SampledReplace(
                _replaced(inner), Symmetrized(privacy_curve(inner, "add_remove")), rate
            )
        case events.WithinTotalVariation(event=inner):
            return _replaced(inner)
        case events.CloseInRenyi(event=inner):
            return _close(event, _replaced(inner))
    return _group(event, 2, "add_remove")

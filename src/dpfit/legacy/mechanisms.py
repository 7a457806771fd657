"""Mechanisms of version 0.1.0 that a class of today replaces."""

from __future__ import annotations

from dpfit.mechanisms.mean import NoisyMean
from dpfit.privacy.spec import Json, from_json, reads


@reads("ranged_mean")
def read_ranged_mean(value: dict[str, Json]) -> NoisyMean:
    """Return a mean in a range that another stage released; the range is not in the file."""
    return from_json(value | {"kind": NoisyMean.kind}, NoisyMean)

"""Former name, until dp_sgd has moved."""

from dpfit.mechanisms.aggregates.contribution import clipped_sums

__all__ = ["clipped_sums"]

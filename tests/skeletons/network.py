"""A network in one file: a loss with its own parameters; `unravel` returns the layers.

Guarantee. That of `noisy_gd`: the gradient of each record is clipped, so nothing else about the
network matters. That a record's gradient depends on this record alone is declared, as for every
loss of the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.core import Example
from dpfit.core.examples import opposite_records
from dpfit.losses.base import Parameters
from dpfit.losses.custom import DeclaredLoss
from dpfit.privacy.spec import Spec
from dpfit.solvers.gradient.noisy_gd import NoisyGD

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TwoLayers(DeclaredLoss):
    """Logistic loss of out . tanh(row @ hidden), with ``units`` hidden units."""

    kind = "skeleton_two_layers"
    units: int

    def parameters(self, n_features: int) -> Parameters:
        size = (n_features + 1) * self.units

        def unravel(flat: Floats) -> dict[str, Floats]:
            return {
                "hidden": flat[: -self.units].reshape(n_features, self.units),
                "out": flat[-self.units :],
            }

        return Parameters(size, np.sin(1.0 + np.arange(size)) / np.sqrt(n_features), unravel)

    def value(self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None) -> Floats:
        return np.logaddexp(0.0, -self._forward(theta, rows, labels)[0])

    def gradient(
        self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None = None
    ) -> Floats:
        margins, signs, active, out = self._forward(theta, rows, labels)
        slopes = (-signs / (1 + np.exp(margins)))[:, np.newaxis]
        inner = slopes * out * (1 - active**2)
        layers = np.asarray(rows)[:, :, np.newaxis] * inner[:, np.newaxis, :]
        return np.hstack([layers.reshape(len(margins), -1), slopes * active])

    def _forward(
        self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike | None
    ) -> tuple[Floats, ...]:
        matrix = np.asarray(rows, dtype=np.float64)
        layers: dict[str, Any] = self.parameters(matrix.shape[1]).unravel(
            np.asarray(theta, dtype=np.float64)
        )
        signs, active = (
            np.where(np.asarray(labels) > 0, 1.0, -1.0),
            np.tanh(matrix @ layers["hidden"]),
        )
        return signs * (active @ layers["out"]), signs, active, layers["out"]

    def to_json(self) -> dict[str, Any]:
        # Fields say all about it, so a file can hold the loss itself.
        return Spec.to_json(self)


class NetworkGD(NoisyGD):
    """`noisy_gd`, with a network as its example."""

    name = "network"
    summary = "a small network by noisy gradient descent"
    tier = "reference"
    auto_candidate = False

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        problem, data, neighbour = opposite_records(relation)
        loss = TwoLayers(units=3, lipschitz_bound=10.0)
        return Example(replace(problem, loss=loss), data, neighbour)


network = NetworkGD().using(clip_norm=1.0, max_passes=20)

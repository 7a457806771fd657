"""Losses of small networks of dense layers, in NumPy; `dpfit.kernels.dense` sums their gradients.

A record's gradient in the weights of a layer is the product of two vectors: what enters the layer,
and how the loss changes with what the layer sums up. So its norm needs no matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.losses.base import Bounds, Constant, Loss, Parameters
from dpfit.noise.public_start import public_normals
from dpfit.privacy.validate import in_safe_range, integer, option

Floats = NDArray[np.float64]


class Buffers(NamedTuple):
    """Memory for a chunk of records, with one array for each layer but the input.

    Arrays that are made anew for each chunk cost more than the products in them: the memory of
    each goes back to the system.
    """

    outputs: list[Floats]
    slopes: list[Floats]
    scratch: list[Floats]

    @classmethod
    def of(cls, sizes: Sequence[int], rows: int) -> Buffers:
        """Return buffers for so many rows of layers of these sizes."""
        return cls(*([np.empty((rows, units)) for units in sizes[1:]] for _ in range(3)))

    def part(self, rows: int) -> Buffers:
        """Return the first rows of each buffer."""
        return Buffers(*([each[:rows] for each in arrays] for arrays in self))


class Layer(NamedTuple):
    """Weights of shape (inputs, outputs), and one bias for each output."""

    weights: Floats
    biases: Floats


@dataclass(frozen=True)
class DenseLayers(Loss):
    """Loss of a network of dense layers with tanh between them.

    The output layer has one number for "squared" (half the squared residual), one for "logistic"
    (labels are positive or not), and one for each class for "softmax" (labels are class numbers).
    Gradients have no bound of their own: algorithms clip them. Sums of gradients are made by
    products of matrices, whose last bits may depend on the batch: arithmetic is *idealised*.

    Parameters
    ----------
    hidden : tuple of int
        Number of units of each hidden layer.
    head : {"squared", "logistic", "softmax"}
    classes : int
        Number of classes for "softmax".
    label_scale : float
        For "squared": the output is compared with ``label_scale`` times the label. Labels of size 1
        then have the scale on which the clip norms and step sizes of networks are tuned.
    start : int
        Number of the public start: each gives other weights, see
        `dpfit.noise.public_start.public_normals`. Biases and the output layer start at zero.

    Examples
    --------
    >>> loss = DenseLayers((4,), "squared")
    >>> loss.parameters(2).size, loss.value(loss.parameters(2).start, [[0.5, 0.5]], [3.0]).tolist()
    (17, [4.5])
    """

    kind = "loss_dense_layers"
    omitted: ClassVar = ("label_scale", "start")
    arithmetic: ClassVar[str] = "idealised"
    hidden: tuple[int, ...] = (32,)
    head: str = "squared"
    classes: int = 1
    label_scale: float = 1.0
    start: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple) or not self.hidden:
            raise ValueError("hidden must be a tuple with one number of units for each layer")
        for units in self.hidden:
            integer("hidden", units)
        option("head", self.head, ("squared", "logistic", "softmax"))
        integer("classes", self.classes, least=2 if self.head == "softmax" else 1)
        if self.head != "softmax" and self.classes != 1:
            raise ValueError("classes is for head='softmax'; leave it out")
        in_safe_range("label_scale", self.label_scale)
        integer("start", self.start, least=0)

    @property
    def convex(self) -> bool:
        return False

    @property
    def has_own_parameters(self) -> bool:
        return True

    @property
    def is_regression(self) -> bool:
        return self.head == "squared"

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        raise ValueError("gradients of a network have no bound; pass clip_norm")

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> None:
        return None

    def sizes(self, n_features: int) -> tuple[int, ...]:
        """Return the number of units of each layer, input and output included."""
        return (n_features, *self.hidden, self.classes)

    def size(self, n_features: int) -> int:
        """Return the number of weights and biases."""
        return sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.sizes(n_features)))

    def parameters(self, n_features: int) -> Parameters:
        """Return the form of the weights; `unravel` gives one `Layer` after the other."""
        sizes, size = self.sizes(n_features), self.size(n_features)
        start, normals = np.zeros(size), public_normals(self.start, size)
        for layer, drawn in zip(
            self._layers(start, sizes)[:-1], self._layers(normals, sizes), strict=False
        ):
            layer.weights[...] = drawn.weights / math.sqrt(len(drawn.weights))
        return Parameters(size, start, lambda flat: self._layers(flat, sizes))

    def layers(self, theta: ArrayLike, n_features: int) -> list[Layer]:
        """Return the layers of a flat vector, as views of it."""
        return self._layers(np.asarray(theta, dtype=np.float64), self.sizes(n_features))

    @staticmethod
    def _layers(flat: Floats, sizes: Sequence[int]) -> list[Layer]:
        found, low = [], 0
        for inputs, outputs in pairwise(sizes):
            middle, high = low + inputs * outputs, low + (inputs + 1) * outputs
            found.append(Layer(flat[low:middle].reshape(inputs, outputs), flat[middle:high]))
            low = high
        return found

    def forward(
        self, layers: Sequence[Layer], rows: Floats, buffers: Buffers | None = None
    ) -> list[Floats]:
        """Return what enters each layer, and the output of the last one."""
        outputs = self._buffers(rows, buffers).outputs
        entered = [rows, *outputs[:-1]]
        with np.errstate(all="ignore"):
            for (weights, biases), before, output in zip(layers, entered, outputs, strict=True):
                np.matmul(before, weights, out=output)
                output += biases
                if output is not outputs[-1]:
                    np.tanh(output, out=output)
        return [rows, *outputs]

    def backward(
        self,
        layers: Sequence[Layer],
        values: Sequence[Floats],
        labels: Floats,
        buffers: Buffers | None = None,
    ) -> list[Floats]:
        """Return the derivatives of each record's loss in what each layer sums up."""
        _, slopes, scratch = self._buffers(values[0], buffers)
        with np.errstate(all="ignore"):
            slopes[-1][...] = self._slopes(values[-1], labels)
            for k in range(len(layers) - 1, 0, -1):
                np.matmul(slopes[k], layers[k].weights.T, out=slopes[k - 1])
                # The derivative of tanh is 1 minus the square of its value.
                np.multiply(values[k], values[k], out=scratch[k - 1])
                np.subtract(1.0, scratch[k - 1], out=scratch[k - 1])
                slopes[k - 1] *= scratch[k - 1]
        return slopes

    def _buffers(self, rows: Floats, given: Buffers | None) -> Buffers:
        return Buffers.of(self.sizes(rows.shape[1]), len(rows)) if given is None else given

    def value(self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike) -> Floats:
        """The losses, of shape (n,)."""
        matrix, targets = np.asarray(rows, dtype=np.float64), np.asarray(labels, dtype=np.float64)
        output = self.forward(self.layers(theta, matrix.shape[1]), matrix)[-1]
        with np.errstate(all="ignore"):
            if self.head == "squared":
                return np.asarray(0.5 * (output[:, 0] - self.label_scale * targets) ** 2)
            if self.head == "logistic":
                return np.logaddexp(0.0, -np.where(targets > 0, 1.0, -1.0) * output[:, 0])
            shifted = output - output.max(axis=1, keepdims=True)
            chosen = shifted[np.arange(len(shifted)), self._places(targets)]
            return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - chosen)

    def record_values(self, theta: Floats, rows: Floats, labels: Floats) -> Floats:
        return self.value(theta, rows, labels)

    def gradient(self, theta: ArrayLike, rows: ArrayLike, labels: ArrayLike) -> Floats:
        """The gradients in the flat parameter, of shape (n, size)."""
        matrix, targets = np.asarray(rows, dtype=np.float64), np.asarray(labels, dtype=np.float64)
        layers = self.layers(theta, matrix.shape[1])
        values = self.forward(layers, matrix)
        parts = []
        for entered, slopes in zip(values, self.backward(layers, values, targets), strict=False):
            with np.errstate(all="ignore"):
                products = entered[:, :, np.newaxis] * slopes[:, np.newaxis, :]
            parts += [products.reshape(len(matrix), -1), slopes]
        return np.hstack(parts)

    def _slopes(self, output: Floats, labels: Floats) -> Floats:
        """Return the derivative of each record's loss in the output."""
        if self.head == "squared":
            return np.asarray(output - self.label_scale * labels[:, np.newaxis])
        if self.head == "logistic":
            signs = np.where(labels > 0, 1.0, -1.0)[:, np.newaxis]
            return np.asarray(-signs / (1 + np.exp(signs * output)))
        weights: Floats = np.exp(output - output.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        weights[np.arange(len(weights)), self._places(labels)] -= 1.0
        return weights

    def _places(self, labels: Floats) -> NDArray[np.int64]:
        """Return class numbers; others are read as the nearest, and NaN, which adds zero, as 0."""
        return np.fmin(np.fmax(labels, 0.0), self.classes - 1.0).astype(np.int64)

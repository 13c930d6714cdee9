# SPDX-License-Identifier: Apache-2.0
"""A multilayer perceptron on scikit-learn's handwritten digits, in numpy, all gradients in one flat buffer.

The activation is tanh, which is smooth. A small change of the gradients therefore stays a small change of the
parameters. This makes a run over a network comparable with a run in one process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from railweave.errors import explain

Array = NDArray[np.float32]
Labels = NDArray[np.int64]

LAYERS = (64, 960, 960, 10)  # 994,570 parameters


@dataclass(frozen=True)
class TrainingOptions:
    """The options of a training. The same value on every rank gives the same training."""

    steps: int = 100
    seed: int = 0
    batch: int = 256  # images per step, over all ranks
    learning_rate: float = 0.1  # at the start; it falls to 0 along a cosine
    momentum: float = 0.9


@dataclass(frozen=True)
class Digits:
    """Images as rows of 64 numbers from 0 to 1, and the digits that they show."""

    images: Array
    labels: Labels


def load_digits() -> tuple[Digits, Digits]:
    """Return (training, held-out) digits. The division is the same for every seed."""
    table = np.loadtxt(_digits_file(), delimiter=",", dtype=np.float32)
    images, labels = table[:, :-1] / 16, table[:, -1].astype(np.int64)
    held_out = np.arange(len(images)) % 5 == 4
    return (
        Digits(images[~held_out], labels[~held_out]),
        Digits(images[held_out], labels[held_out]),
    )


def _digits_file() -> Path:
    """Return the file that sklearn.datasets.load_digits reads. Importing scikit-learn would take a second."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            explain("no digits", "scikit-learn, which has them", "install it: pip install scikit-learn")
        )
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


class Perceptron:
    """A perceptron whose weights and biases are views into a flat vector. The gradient has the same form."""

    def __init__(self, seed: int, layers: tuple[int, ...] = LAYERS) -> None:
        """Draw weights from N(0, 1/fan-in); biases start at 0."""
        sizes = [(before + 1) * after for before, after in pairwise(layers)]
        self.layers = layers
        self.parameters: Array = np.zeros(sum(sizes), np.float32)
        self._ends = np.cumsum(sizes)
        random = np.random.default_rng(seed)
        for weights, _ in self._views(self.parameters):
            weights[:] = random.normal(0, weights.shape[0] ** -0.5, weights.shape)

    def _views(self, flat: Array) -> list[tuple[Array, Array]]:
        views = []
        for place, end in enumerate(self._ends):
            before, after = self.layers[place], self.layers[place + 1]
            block = flat[end - (before + 1) * after : end].reshape(before + 1, after)
            views.append((block[:before], block[before]))
        return views

    def gradient(self, digits: Digits, out: Array) -> float:
        """Write the gradient of the mean cross-entropy into `out`, and return the loss."""
        layers, slopes = self._views(self.parameters), self._views(out)
        activations = [digits.images]
        for weights, bias in layers[:-1]:
            activations.append(np.tanh(activations[-1] @ weights + bias))
        probabilities = _softmax(activations[-1] @ layers[-1][0] + layers[-1][1])
        rows = np.arange(len(digits.labels))
        loss = float(-np.log(probabilities[rows, digits.labels] + 1e-12).mean())
        probabilities[rows, digits.labels] -= 1
        error = probabilities / np.float32(len(rows))
        for place in range(len(layers) - 1, -1, -1):
            weight_slope, bias_slope = slopes[place]
            np.matmul(activations[place].T, error, out=weight_slope)
            error.sum(axis=0, out=bias_slope)
            if place:
                error = (error @ layers[place][0].T) * (1 - activations[place] ** 2)
        return loss

    def accuracy(self, digits: Digits) -> float:
        """Return the share of digits that are recognised."""
        values = digits.images
        layers = self._views(self.parameters)
        for weights, bias in layers[:-1]:
            values = np.tanh(values @ weights + bias)
        found = (values @ layers[-1][0] + layers[-1][1]).argmax(axis=1)
        return float((found == digits.labels).mean())


def _softmax(logits: Array) -> Array:
    powers: Array = np.exp(logits - logits.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


class Training:
    """The state of one training: model, momentum, and the order of the images."""

    def __init__(self, options: TrainingOptions, digits: Digits) -> None:
        """Begin a training. Every rank draws the same batches, and takes its part of each batch."""
        self.model = Perceptron(options.seed)
        self._options = options
        self._digits = digits
        self._random = np.random.default_rng([options.seed, 1])
        self._velocity = np.zeros_like(self.model.parameters)
        self._step = 0

    def next_batch(self, ranks: int) -> list[Digits]:
        """Draw the next batch, and return each rank's part. All parts have the same size."""
        part = self._options.batch // ranks
        drawn = self._random.choice(len(self._digits.labels), part * ranks, replace=False)
        return [
            Digits(self._digits.images[rows], self._digits.labels[rows])
            for rows in drawn.reshape(ranks, part)
        ]

    def update(self, gradient: Array) -> None:
        """Take one step of stochastic gradient descent with momentum along the averaged gradient."""
        self._velocity *= np.float32(self._options.momentum)
        self._velocity += gradient
        rate = self._options.learning_rate * (1 + math.cos(math.pi * self._step / self._options.steps)) / 2
        self.model.parameters -= np.float32(rate) * self._velocity
        self._step += 1

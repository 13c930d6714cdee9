# SPDX-License-Identifier: Apache-2.0
"""The demo's model, its data, and the reference for runs over a network."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from railweave.experiments.training import reference as reference_module
from railweave.experiments.training.model import (
    Digits,
    Perceptron,
    Training,
    TrainingOptions,
    load_digits,
)
from railweave.experiments.training.reference import Stopped, reference

SHORT = TrainingOptions(steps=3, batch=32)


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits as load  # noqa: PLC0415 - slow, and only needed here

    training, held_out = load_digits()
    assert len(held_out.labels) == 359
    whole = load()
    assert len(training.labels) + len(held_out.labels) == len(whole.target)
    assert np.array_equal(held_out.images * 16, whole.data[4::5])
    assert np.array_equal(held_out.labels, whole.target[4::5])


def test_about_a_million_parameters_in_one_flat_buffer() -> None:
    model = Perceptron(seed=0)
    assert 0.9e6 < model.parameters.size < 1.1e6
    assert model.parameters.flags.c_contiguous
    assert model.parameters.dtype == np.float32


def test_gradient_is_the_slope_of_the_loss() -> None:
    model = Perceptron(seed=1, layers=(5, 7, 6, 3))
    random = np.random.default_rng(2)
    digits = Digits(random.random((9, 5), np.float32), random.integers(0, 3, 9))
    gradient, ignored = np.zeros_like(model.parameters), np.zeros_like(model.parameters)
    model.gradient(digits, gradient)
    for place in range(model.parameters.size):
        kept, step = model.parameters[place], np.float32(1e-2)
        model.parameters[place] = kept + step
        above = model.gradient(digits, ignored)
        model.parameters[place] = kept - step
        below = model.gradient(digits, ignored)
        model.parameters[place] = kept
        assert gradient[place] == pytest.approx((above - below) / (2 * step), rel=0.02, abs=2e-4)


def test_ranks_share_a_batch_without_overlap() -> None:
    digits = Digits(np.arange(100, dtype=np.float32).reshape(100, 1), np.zeros(100, np.int64))
    parts = Training(TrainingOptions(batch=64), digits).next_batch(4)
    seen = np.concatenate([part.images for part in parts]).ravel()
    assert [len(part.labels) for part in parts] == [16] * 4
    assert len(set(seen)) == 64


def test_training_learns() -> None:
    digits, held_out = load_digits()
    training = Training(TrainingOptions(steps=15, seed=3), digits)
    gradient = np.zeros_like(training.model.parameters)
    losses = []
    for _ in range(15):
        (part,) = training.next_batch(1)
        losses.append(training.model.gradient(part, gradient))
        training.update(gradient)
    assert losses[-1] < losses[0] / 4
    assert training.model.accuracy(held_out) > 0.85


def test_the_reference_repeats_and_its_bound_is_no_open_door() -> None:
    first = reference(SHORT, 4, 256, threading.Event())
    second = reference(SHORT, 4, 256, threading.Event())
    assert np.array_equal(first.parameters, second.parameters)
    assert 0 < first.largest_operation_bound < 1e-6
    assert 0 < first.bound < 1e-5
    assert first.bound == reference_module.SAFETY * first.moved


def test_the_reference_is_plain_training_over_the_whole_batch() -> None:
    alone = reference(SHORT, 1, 256, threading.Event())
    training = Training(SHORT, load_digits()[0])
    gradient = np.zeros_like(training.model.parameters)
    for _ in range(SHORT.steps):
        (part,) = training.next_batch(1)
        training.model.gradient(part, gradient)
        training.update(gradient)
    assert np.abs(training.model.parameters - alone.parameters).max() < 1e-6


def test_the_reference_stops_when_asked() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        reference(TrainingOptions(steps=10**9), 4, 256, stop)

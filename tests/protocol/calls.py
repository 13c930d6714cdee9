# SPDX-License-Identifier: Apache-2.0
"""One collective of all ranks: inputs, outputs, and the results that are expected at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from railweave._native.collectives import Collective

Array = NDArray[Any]
Reduce = Callable[[Sequence[Array]], Array]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
UNTOUCHED, SPOILT = 0xA5, 0x5A  # bytes of an output before the call, and after the caller got it back


def kind_of(name: str) -> np.dtype[Any]:
    """Return a type by its name."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def native(values: Array) -> Array:
    """Return an array in the form for native code: flat, and bfloat16 as its bits in uint16."""
    flat = values.reshape(-1)
    return flat.view(np.uint16) if flat.dtype == BFLOAT16 else flat


def bits(values: Array) -> Array:
    """Return the bits of all elements."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def assert_bits(outputs: Sequence[Array], wanted: Array, about: object = "") -> None:
    """Raise AssertionError unless all bits of all outputs equal the wanted output."""
    for output in outputs:
        assert output.dtype == wanted.dtype
        np.testing.assert_array_equal(bits(output), bits(wanted), err_msg=str(about))


def draw_values(
    numbers: np.random.Generator, dtype: np.dtype[Any], count: int, nonfinite: float = 0.0
) -> Array:
    """Draw values of very different sizes. `nonfinite` is the share of NaN and Inf among floats."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return numbers.integers(limits.min, limits.max, count, dtype, endpoint=True)
    # Some values have a small range, so that wide lanes can hold them.
    reach = int(numbers.choice([4, 12 if dtype == np.float16 else 60]))
    scales = np.exp2(numbers.integers(-reach, reach, count)).astype(np.float32)
    with np.errstate(over="ignore"):
        values: Array = (numbers.standard_normal(count) * scales).astype(dtype)
    chosen = numbers.random(count) < nonfinite
    values[chosen] = numbers.choice(np.array([np.nan, np.inf, -np.inf], np.float32), chosen.sum())
    return values


@dataclass
class Call:
    """A collective whose rail carries `count` elements of the tensor or of each shard, from `offset` on.

    `inputs` are by rank. An input of a reduce-scatter, like an output of an allgather, has a row per rank.
    """

    inputs: list[Array]
    collective: Collective = Collective.ALL_REDUCE
    op: str = "sum"
    root: int = 0
    offset: int = 0
    count: int | None = None  # None: all from the offset on
    in_place: bool = False

    def __post_init__(self) -> None:
        """Make the arrays of the ranks. In in-place calls, `given` and `outputs` share memory."""
        self.whole = self.inputs[0].shape[-1]
        self.count = self.whole - self.offset if self.count is None else self.count
        self.part = slice(self.offset, self.offset + self.count)
        self.given = [values.copy() for values in self.inputs]
        self.outputs = [self._output(rank) for rank in range(len(self.inputs))]
        self.before = [output.copy() for output in self.outputs]
        self.spoilt: set[int] = set()

    def _output(self, rank: int) -> Array:
        given, gathers = self.given[rank], self.collective is Collective.ALL_GATHER
        if self.in_place and not gathers:
            return given[rank] if self.collective is Collective.REDUCE_SCATTER else given
        shape = (len(self.inputs), self.whole) if gathers else (self.whole,)
        output = np.full((*shape, given.dtype.itemsize), UNTOUCHED, np.uint8).view(given.dtype)[..., 0]
        if self.in_place:
            output[rank] = given
            self.given[rank] = output[rank]
        return output

    def expected(self, reduce: Reduce | None = None) -> list[Array]:
        """Return the contents of the part at the end, by rank."""
        ranks, parts = range(len(self.inputs)), [values[..., self.part] for values in self.inputs]
        match self.collective:
            case Collective.ALL_GATHER:
                return [np.stack(parts)] * len(ranks)
            case Collective.BROADCAST:
                return [parts[self.root]] * len(ranks)
        assert reduce is not None
        match self.collective:
            case Collective.REDUCE_SCATTER:
                return [reduce([part[rank] for part in parts]) for rank in ranks]
        return [reduce(parts)] * len(ranks)

    def check(self, rank: int, wanted: Array, about: object = "") -> None:
        """Compare every bit of a rank's output, also outside the rail's part."""
        output = self.outputs[rank].copy()
        assert_bits([output[..., self.part]], wanted, about)
        output[..., self.part] = self.before[rank][..., self.part]
        assert_bits([output], self.before[rank], about)

    def check_all(self, reduce: Reduce, about: object = "") -> None:
        """Compare the outputs of all ranks."""
        for rank, wanted in enumerate(self.expected(reduce)):
            self.check(rank, wanted, about)

    def spoil(self, rank: int) -> None:
        """Overwrite a rank's memory, as its caller may do after the call."""
        self.given[rank].view(np.uint8)[...] = SPOILT
        self.outputs[rank].view(np.uint8)[...] = SPOILT
        self.spoilt.add(rank)

    def check_spoilt(self, about: object = "") -> None:
        """Raise AssertionError if memory was written after the caller got it back."""
        for rank in self.spoilt:
            assert (self.outputs[rank].view(np.uint8) == SPOILT).all(), f"{about}: rank {rank}"


def total(parts: Sequence[Array]) -> Array:
    """Return the sum of int32 parts, which may wrap."""
    result: Array = np.sum(parts, axis=0, dtype=np.int32)
    return result


def integer_call(
    seed: int, ranks: int, collective: Collective, count: int, root: int = 0, in_place: bool = False
) -> Call:
    """Return a call with random int32 values. Sums of int32 have one result."""
    numbers = np.random.default_rng(seed)
    shape = (ranks, count) if collective == Collective.REDUCE_SCATTER else (count,)
    inputs = [numbers.integers(-(1 << 20), 1 << 20, shape, np.int32) for _ in range(ranks)]
    root = root if collective == Collective.BROADCAST else 0
    return Call(inputs, collective, root=root, in_place=in_place)

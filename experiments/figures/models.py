# SPDX-License-Identifier: Apache-2.0
"""The messages of data-parallel training of well-known models, from the shapes of their parameters."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MIB = 1 << 20
FIRST_BUCKET_BYTES, BUCKET_BYTES = MIB, 25 * MIB  # torch.nn.parallel.DistributedDataParallel's
FLOPS = 30e12  # of a worker's accelerator, sustained: a middle-class GPU in mixed precision


@dataclass(frozen=True)
class Model:
    """A model in training."""

    name: str
    tensors: tuple[int, ...]  # elements of each parameter, in the order of definition
    compute_s: float  # of a step on one worker

    def buckets(self, scale: int = 1) -> tuple[int, ...]:
        """Return the bytes of each message of a step, as DDP packs gradients; divided by `scale`.

        Gradients come in reverse order; a bucket is sent once it holds 25 MiB, the first one 1 MiB.
        """
        found, filled, limit = [], 0, FIRST_BUCKET_BYTES
        for elements in reversed(self.tensors):
            filled += 4 * elements
            if filled >= limit:
                found.append(filled)
                filled, limit = 0, BUCKET_BYTES
        return tuple(max(4, size // scale // 4 * 4) for size in (*found, *([filled] if filled else [])))


@cache
def load() -> dict[str, Model]:
    """Read models.toml; ValueError if the shapes do not give the number of parameters."""
    entries = tomllib.loads(Path(__file__).with_name("models.toml").read_text())["models"]
    return {entry["name"]: _model(entry) for entry in entries}


def _model(entry: dict[str, Any]) -> Model:
    tensors = tuple(_elements(entry["tensors"]))
    if sum(tensors) != entry["parameters"]:
        raise ValueError(
            f"{entry['name']}: {sum(tensors)} elements, {entry['parameters']} parameters expected"
        )
    return Model(entry["name"], tensors, entry["flop_per_step"] / FLOPS)


def _elements(blocks: Sequence[str]) -> Iterator[int]:
    for block in blocks:
        times, _, shapes = block.rpartition("*")
        for _ in range(int(times or 1)):
            yield from (math.prod(map(int, shape.split("x"))) for shape in shapes.split())

# SPDX-License-Identifier: Apache-2.0
"""Faulty pipeline configurations that a hostile controller might push."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    7,
    1 << 31,
    1 << 40,
    1 << 64,
    1e308,
    "",
    "0x",
    "0x1",
    "-0x5",
    "0xffffffffffffffffff",
    "standard_metadata",
    ["scalars", "x"],
    [],
    {},
    [[]],
)


def mutilated(rng: random.Random, text: bytes) -> bytes:
    """Return a program with JSON values changed, removed, doubled or swapped, or with damaged bytes."""
    if rng.random() < 0.1:
        data = bytearray(text)
        data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data[: rng.randrange(len(data))])
    root = json.loads(text)
    for _ in range(rng.randint(1, 4)):
        _mutilate(rng, root)
    return json.dumps(root).encode()


def _mutilate(rng: random.Random, root: Any) -> None:
    """Walk down to a random place and change it."""
    node = root
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.85:
            node = node[key]
            continue
        break
    kind = rng.random()
    if kind < 0.25:
        del node[key]
    elif kind < 0.6:
        node[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind < 0.8:
        other = rng.choice(keys)
        node[key], node[other] = node[other], node[key]
    elif isinstance(node[key], bool) or not isinstance(node[key], int):
        node[key] = [node[key], copy.deepcopy(node[key])]
    else:
        node[key] += rng.choice((-1, 1, 1 << 20))

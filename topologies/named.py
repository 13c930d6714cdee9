# SPDX-License-Identifier: Apache-2.0
"""Topologies by name: `planes`, `leaf-spine:racks=2,hosts=4`, `racks:ina=2`, `fat-tree:k=4`, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from railweave.topologies.clos import fat_tree, leaf_spine, mixed_racks
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import DEFAULT_MTU, Topology
from railweave.topologies.planes import planes
from railweave.topologies.serialize import load, validate

COUNTS = {
    "planes": ("hosts",),
    "leaf-spine": ("racks", "hosts", "spines"),
    "racks": ("racks", "hosts", "ina"),
    "fat-tree": ("k", "pods", "edges", "aggs", "cores", "hosts"),
}


def named(
    text: str,
    *,
    hosts: int | None = None,
    rails: Sequence[str],
    rates: Sequence[int],
    uplink_bps: int | None = None,
    mtu: int = DEFAULT_MTU,
) -> Topology:
    """Return the topology of a name with its counts, or of a file. TopologyError names the unknown part.

    `hosts` applies to `planes` without a count in the name. A file defines its rails, rates and MTUs.

    >>> named("leaf-spine:racks=2,hosts=1", rails=["ina"], rates=[0]).hosts
    ('h1', 'h2')
    """
    name, _, rest = text.partition(":")
    if name in COUNTS:
        made = _made(name, rest, hosts, rails, rates, uplink_bps).with_mtu(mtu)
        validate(made)
        return made
    if Path(text).exists():
        return load(text)
    raise TopologyError(f"topology {text!r}", f"{', '.join(COUNTS)} or a topology file", "correct the name")


def _made(
    name: str,
    rest: str,
    hosts: int | None,
    rails: Sequence[str],
    rates: Sequence[int],
    uplink_bps: int | None,
) -> Topology:
    if name == "racks":
        rest, spine = _spine(rest)
        counts = _counts(name, rest)
        return mixed_racks(**counts, spine=spine, rails=rails, rates=rates, uplink_bps=uplink_bps)
    counts = _counts(name, rest)
    if name == "leaf-spine":
        return leaf_spine(**counts, rails=rails, rates=rates, uplink_bps=uplink_bps)
    if name == "fat-tree":
        return fat_tree(**counts, rails=rails, rates=rates, uplink_bps=uplink_bps)
    if hosts is not None:
        counts.setdefault("hosts", hosts)
    return planes(**counts, rails=rails, rates=rates)


def _spine(text: str) -> tuple[str, str]:
    """Split the kind of the spine of mixed racks from the counts."""
    parts = text.split(",")
    kinds = [part.removeprefix("spine=") for part in parts if part.startswith("spine=")]
    counts = ",".join(part for part in parts if not part.startswith("spine="))
    return counts, kinds[-1] if kinds else "plain"


def _counts(name: str, text: str) -> dict[str, int]:
    counts = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in COUNTS[name] or not value.isdecimal():
            raise TopologyError(
                f"topology {name}: {part!r}",
                f"NAME=NUMBER, with a name of {', '.join(COUNTS[name])}",
                f"write it as in {name}:{COUNTS[name][0]}=4",
            )
        counts[key] = int(value)
    return counts

# SPDX-License-Identifier: Apache-2.0
"""Options of a lab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class LabOptions:
    """Options of a lab."""

    out: Path  # logs, topology file and results go here
    switch_target: str = "embedded"
    loss: Mapping[str, float] = field(default_factory=dict)  # by plane: probability that a frame is lost
    controller: Sequence[str] = ()  # further options of `railweave controller`
    impair: str = ""  # impairment of P4 planes' links, per direction: as for `railweave switch --impair`
    seed: int = 1  # of impairments; every switch derives its own
    flows: bool = False  # whether nft counts the bytes that hosts send, by ports

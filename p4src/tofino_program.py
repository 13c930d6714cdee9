# SPDX-License-Identifier: Apache-2.0
"""A program for Tofino as its compiler leaves it in a folder, and as a switch that runs Stratum takes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from railweave.errors import explain

P4INFO: Final = "p4info.txtpb"
BFRT: Final = "bfrt.json"
CONTEXT: Final = "pipe/context.json"
LANE_REGISTER: Final = re.compile(r'name: "lane((?:_[0-9A-F]{2})+)"')
"""In a P4Info: its name says which lanes it holds."""
PIPES: Final = range(4)
"""All that a chip can have: every pipe runs the program, with registers of its own."""


@dataclass(frozen=True)
class TofinoProgram:
    """What the controller reads, and what it sends to the switch."""

    lanes: int
    p4info_path: Path
    device_config: bytes


def binary(chip: str) -> str:
    """Where the assembler writes the chip's configuration."""
    return f"pipe/{chip}.bin"


def load(folder: Path) -> TofinoProgram:
    """Read a compiled program; ValueError names the file that is missing, and how to make it."""
    images = sorted(path.relative_to(folder).as_posix() for path in folder.glob(binary("*")))
    if len(images) > 1:
        raise ValueError(
            explain(
                f"{folder}: {' and '.join(images)}", "one image, for the switch's chip", "remove the others"
            )
        )
    image = images[0] if images else binary("tofino")
    for name in (P4INFO, BFRT, CONTEXT, image):
        if not (folder / name).is_file():
            raise ValueError(
                explain(
                    f"{folder}: no {name}",
                    "a compiled program",
                    "make it: `python -m railweave.p4src.tofino FOLDER`, with p4c-barefoot and bfas on PATH",
                )
            )
    lanes = sum(name.count("_") for name in LANE_REGISTER.findall((folder / P4INFO).read_text("utf-8")))
    return TofinoProgram(
        lanes, folder / P4INFO, _device_config(*((folder / n).read_bytes() for n in (BFRT, CONTEXT, image)))
    )


def _device_config(bfrt: bytes, context: bytes, image: bytes) -> bytes:
    """Write Stratum's message BfPipelineConfig (stratum/hal/lib/barefoot/bf.proto), with one profile."""
    profile = {1: b"pipe", 2: context, 3: image, 4: bytes(PIPES)}
    return _message({1: b"railweave", 2: bfrt, 3: _message(profile)})


def _message(fields: dict[int, bytes]) -> bytes:
    """Write a protobuf message of strings, bytes, messages and packed numbers, by field number."""
    parts = (bytes([number << 3 | 2, *_varint(len(value))]) + value for number, value in fields.items())
    return b"".join(parts)


def _varint(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number

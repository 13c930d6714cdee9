# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/howto/cluster.md, and the machines on which they run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest
from system.machines import REPOSITORY, Machine, cable, machines

DOCUMENT = REPOSITORY / "docs" / "howto" / "cluster.md"
TRAIN = "Train"
ONE_CLUSTER = pytest.mark.xdist_group("cluster")  # the tests with the machines share one worker
TOGETHER = ", at the same time"
_PART = re.compile(
    r"^#+ (?P<title>.*)$"
    r'|^```(?:sh|yaml) title="on (?P<where>[^":]*)(?:: (?P<file>[^"]*))?"\n(?P<text>(?:.*\n)*?)```$',
    re.MULTILINE,
)
MANAGEMENT = {"box": "10.0.0.9", "node0": "10.0.0.10", "node1": "10.0.0.11"}


Prepared: TypeAlias = tuple[Mapping[str, Machine], dict[str, dict[str, str]]]  # and the output, by section


@dataclass(frozen=True)
class Block:
    """Commands or the text of a file, and the machines on which they belong."""

    title: str  # title of the section
    file: str
    machines: tuple[str, ...]
    together: bool  # run at the same time on all machines
    text: str


def blocks() -> list[Block]:
    """Return the blocks of the document whose titles name machines."""
    found, title = [], ""
    for part in _PART.finditer(DOCUMENT.read_text()):
        title = part["title"] or title
        if part["where"]:
            where = part["where"].removesuffix(TOGETHER)
            names = tuple(re.split(", | and ", where))
            found.append(Block(title, part["file"] or "", names, where != part["where"], part["text"]))
    return found


def carry_out(block: Block, on: Mapping[str, Machine]) -> dict[str, str]:
    """Run the commands of a block or write its file, and return the output of each machine."""
    text = block.text
    if block.file:
        folder = block.file.rpartition("/")[0]
        text = f"mkdir -p {folder}; cat > {block.file} <<'END_OF_FILE'\n{text}END_OF_FILE\n"
    if not block.together:
        return {name: on[name].run(text) for name in block.machines}
    started = {name: on[name].start(text) for name in block.machines}
    said = {name: process.communicate()[0] for name, process in started.items()}
    assert [process.returncode for process in started.values()] == [0] * len(started), said
    return said


@contextmanager
def cabled(folder: Path) -> Iterator[Mapping[str, Machine]]:
    """Start the machines in the document's figure, with addresses on the management network only.

    A stranger is on the management network too. It is also at a port of the box that the file does not list.
    """
    with machines(folder, *MANAGEMENT, "stranger") as made:
        box, node0, node1, stranger = made.values()
        cable(node0, "enp1s0", box, "p1", "52:54:00:01:00:10")
        cable(node1, "enp1s0", box, "p2", "52:54:00:01:00:11")
        cable(stranger, "enp1s0", box, "p3")
        cable(node0, "enp2s0", node1, "enp2s0")
        cable(node0, "enp3s0", node1, "enp3s0")
        box.run("ip link add eno1 type bridge; ip link set eno1 up")
        for number, (name, address) in enumerate({**MANAGEMENT, "stranger": "10.0.0.66"}.items()):
            if name != "box":
                cable(made[name], "eno1", box, f"m{number}")
                box.run(f"ip link set m{number} master eno1 up")
            made[name].run(f"ip address add {address}/24 dev eno1; ip link set eno1 up")
        yield made

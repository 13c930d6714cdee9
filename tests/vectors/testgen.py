# SPDX-License-Identifier: Apache-2.0
"""Tests that P4Testgen made for both aggregation programs on v1model. A test has entries and one packet.

`python -m vectors.testgen` in tests/ makes the tests again and needs p4testgen on PATH. P4Testgen does not
copy packets. So the program that it reads sends a packet for multicast group g to port g mod 512. In the
tests, each group that an entry or the program names has only this copy. Registers hold 0, as after the load
of a program.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import finsy as fy
from compressed import pack, unpacked
from dataplane.harness import Program
from dataplane.programs import FOLDER, TNA, aggregation
from finsy.p4entity import decode_entity
from finsy.proto import p4testgen
from google.protobuf import text_format
from vectors.steps import Call, Frames, Packet, Step, decode, encode

from railweave.controller.tables import FLOOD_GROUP, NOWHERE
from railweave.p4src.config import SOURCE_ROOT

GENERATOR: Final = "p4testgen"
RECORDS: Final = Path(__file__).parent / "testgen"
GROUPS: Final = ("mcast_group", "spread_group")
SEARCHES: Final = ("GREEDY_STATEMENT_SEARCH", "RANDOM_BACKTRACK")
TESTS: Final = 100  # per search
SEED: Final = "1"
PACKET_BITS: Final = "336:2400"  # a full packet has 1,488
RANDOM: Final = "injector_ingress,injector_egress"  # tables whose entries lose packets at random


@dataclass(frozen=True)
class Source:
    """A program with the source that P4Testgen reads."""

    name: str
    path: Path
    program: Program

    @property
    def record(self) -> Path:
        """The file that keeps the tests. It is compressed."""
        return RECORDS / f"{self.name}.vectors.json"


SOURCES: Final = (
    Source("tna", FOLDER / "tna.p4", TNA[0]),
    Source("v1model", Path(__file__).with_suffix(".p4"), aggregation(32)),
)


@dataclass(frozen=True)
class Generated:
    """A test: the writes, the input packet, and the expected output."""

    writes: tuple[Step, ...]
    packet: Packet
    expected: Frames


def load(source: Source) -> list[Generated]:
    """Return the kept tests of a program."""
    return [_read(item) for item in json.loads(unpacked(source.record).read_text(encoding="utf-8"))]


def _read(item: dict[str, Any]) -> Generated:
    writes = tuple(decode(step) for step in item["writes"])
    expected = [(port, data) for port, data in item["expected"]]
    return Generated(writes, Packet(item["port"], item["data"]), expected)


def _line(test: Generated) -> str:
    values = {"port": test.packet.port, "data": test.packet.data, "writes": [*map(encode, test.writes)]}
    return json.dumps({**values, "expected": test.expected}, separators=(",", ":"))


def generate(source: Source, search: str, folder: Path) -> str:
    """Let P4Testgen write tests into a folder. Return its last line about coverage."""
    options = ["--target", "bmv2", "--arch", "v1model", "--std", "p4-16", "--Wdisable", "-I."]
    options += [f"-DLANES={source.program.lanes}", "-DONE_COPY"]
    options += ["--test-backend", "PROTOBUF", "--out-dir", str(folder)]
    options += ["--track-coverage", "STATEMENTS", "--path-selection", search]
    options += ["--skip-control-plane-entities", RANDOM]
    options += ["--packet-size-range", PACKET_BITS, "--max-tests", str(TESTS), "--seed", SEED]
    command = [GENERATOR, *options, str(source.path)]
    done = subprocess.run(command, cwd=SOURCE_ROOT, capture_output=True, text=True, check=False)
    covered = [line for line in (done.stdout + done.stderr).splitlines() if "Nodes covered" in line]
    if done.returncode or not covered:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return covered[-1]


def convert(program: Program, folder: Path) -> Iterator[Generated]:
    """Read the tests that P4Testgen has written."""
    for path in sorted(folder.rglob("*.txtpb")):
        # P4Testgen's traces quote the program without escapes for apostrophes in comments.
        text = re.sub("(?m)^traces: .*", "", path.read_text(encoding="utf-8"))
        case = text_format.Parse(text, p4testgen.TestCase())
        inserts = [_insert(decode_entity(entity, program.schema)) for entity in case.entities]
        named = {insert.params[name] for insert in inserts for name in GROUPS if name in insert.params}
        copies = {group: group & NOWHERE for group in sorted({*named, FLOOD_GROUP} - {0})}
        groups = [
            Call("multicast", {"group": g, "replicas": [(port, 0)]})
            for g, port in copies.items()
            if port != NOWHERE
        ]
        (left,) = case.expected_output_packet or [None]
        expected = [(left.port, left.packet.hex())] if left else []
        if left and left.packet_mask.strip(b"\xff"):
            raise SystemExit(f"{path}: not all bits that leave are determined")
        packet = Packet(case.input_packet.port, case.input_packet.packet.hex())
        yield Generated((*inserts, *groups), packet, expected)


def _insert(entry: fy.P4TableEntry) -> Call:
    match = {name: int(value) for name, value in (entry.match or {}).items()}
    action = entry.action
    params = {name: int(value) for name, value in action.args.items()}
    groups = {name: _group(params[name]) for name in GROUPS if name in params}
    chosen = {"action": action.name, "params": params | groups}
    return Call("insert", {"table": entry.table_id, "match": match, **chosen})


def _group(group: int) -> int:
    """Return a group with the same port and a number below 4,096, as BMv2 requires."""
    return group and (group & NOWHERE or NOWHERE + 1)


def main() -> None:
    """Make tests with every search, and keep all different tests."""
    for source in SOURCES:
        lines: dict[str, None] = {}
        for search in SEARCHES:
            with tempfile.TemporaryDirectory() as folder:
                print(f"{source.name}, {search}: {generate(source, search, Path(folder))}", flush=True)
                lines |= dict.fromkeys(map(_line, convert(source.program, Path(folder))))
        source.record.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
        pack(source.record)
        print(f"{len(lines)} tests")


if __name__ == "__main__":
    main()

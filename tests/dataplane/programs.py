# SPDX-License-Identifier: Apache-2.0
"""The programs that targets run in the tests, with the sentinels of each program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from compressed import unpacked
from dataplane.harness import Program, Switch

from railweave import sdk
from railweave.p4src.artifacts import AGGREGATION, NETREDUCE, artifact

FOLDER = Path(__file__).parent / "programs"
SENTINEL_MAC = 0x02FE00000000  # plus the number of the output port
SENTINEL_SOURCE = 0x02FE000000FF
SENTINEL_TYPE = 0x88B5  # IEEE 802 local experimental


def sentinel(port: int, token: bytes) -> bytes:
    """Return a frame to the sentinel station behind a port."""
    addresses = (SENTINEL_MAC + port).to_bytes(6, "big") + SENTINEL_SOURCE.to_bytes(6, "big")
    return (addresses + SENTINEL_TYPE.to_bytes(2, "big") + token).ljust(60, b"\0")


def _learn(table: str, action: str) -> Callable[[Switch], None]:
    def prepare(switch: Switch) -> None:
        for port in switch.ports:
            switch.insert(table, {"destination": SENTINEL_MAC + port}, action, {"port": port})

    return prepare


def _trusting(switch: Switch) -> None:
    """Trust every port as if it led to another switch. Tests of the source guard revoke the trust."""
    _learn("mac_table", "forward")(switch)
    if any(table.alias == "trunk_ports" for table in switch.schema.tables):
        for port in switch.ports:
            switch.insert("trunk_ports", {"ingress_port": port}, "trusted")


def aggregation(lanes: int, program: str = AGGREGATION) -> Program:
    """Return a program of railweave with this number of lanes."""
    built = artifact(lanes, program=program)
    return Program(f"{program}-{lanes}", built.json_path, built.p4info_path, lanes, _trusting, sentinel)


def algorithm(name: str, lanes: int) -> Program:
    """Return the program of an in-network algorithm."""
    built = sdk.find(name).artifact(lanes)
    return Program(f"{name}-{lanes}", built.json_path, built.p4info_path, lanes, _trusting, sentinel)


def netreduce(lanes: int) -> Program:
    """Return the program that sums RDMA connections."""
    return aggregation(lanes, NETREDUCE)


def _of_the_tests(name: str, *more: Any) -> Program:
    return Program(name, unpacked(FOLDER / f"{name}.json"), unpacked(FOLDER / f"{name}.p4info.txtpb"), *more)


TNA = tuple(_of_the_tests(f"tna-{lanes}", lanes, _trusting, sentinel) for lanes in (32, 64))
"""The program for Tofino, on v1model: with a lane per register, and with a pair."""

ROUTER = _of_the_tests("router", 0, _learn("bridge", "to_port"), sentinel)
PATCH = _of_the_tests("patch")

PROGRAMS = (aggregation(64), *TNA)
PLACES = [
    *(("inprocess", program) for program in PROGRAMS),
    ("compiled", PROGRAMS[0]),
    *(("bmv2", program) for program in PROGRAMS),
]
"""The targets with programs that differ in more than their lanes.

test_model.py has wide programs, too, and the switch's own process. test_forwarding.py and test_gso.py compare
this process with the engine alone.
"""


def everywhere(program: Callable[[int], Program]) -> list[tuple[str, Program]]:
    """Return all targets with a program of 64 lanes, and the engine also with 256 lanes."""
    places = [(target, program(64)) for target in ("inprocess", "compiled", "bmv2")]
    return [*places, ("inprocess", program(256))]


def place_name(place: tuple[str, Program]) -> str:
    return f"{place[1].name}-{place[0]}"

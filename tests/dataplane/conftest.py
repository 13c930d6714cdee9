# SPDX-License-Identifier: Apache-2.0
"""Targets for the data-plane tests. The same tests run on every target that this machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from dataplane import wire
from dataplane.harness import Switch, WireSwitch, running
from dataplane.inprocess import CompiledSwitch, InProcessSwitch
from dataplane.programs import PLACES, place_name

from railweave.switch.targets import TARGETS

IN_PROCESS = {"inprocess": InProcessSwitch, "compiled": CompiledSwitch}


@pytest.fixture(scope="session")
def _processes() -> Iterator[dict[str, WireSwitch]]:
    """Switch processes that have started. Successive tests share them."""
    with ExitStack() as stack:
        started = _Processes(stack)
        yield started


class _Processes(dict[str, WireSwitch]):
    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, name: str) -> WireSwitch:
        if os.geteuid() != 0:
            pytest.skip("network namespaces and raw sockets need root")
        if reason := TARGETS[name].missing():
            pytest.skip(reason)
        wire.delete_leftovers()
        self[name] = self._stack.enter_context(running(TARGETS[name]))
        return self[name]


def _target(name: str, processes: dict[str, WireSwitch]) -> Switch:
    return IN_PROCESS[name]() if name in IN_PROCESS else processes[name]


@pytest.fixture(params=["inprocess", "bmv2"])
def target(request: pytest.FixtureRequest, _processes: dict[str, WireSwitch]) -> Switch:
    """A target without a program. `target.load(…)` loads a program and clears all earlier state.

    Compiled programs are compared with interpreted ones in tests/unit.
    """
    return _target(request.param, _processes)


@pytest.fixture(params=PLACES, ids=place_name)
def switch(request: pytest.FixtureRequest, _processes: dict[str, WireSwitch]) -> Switch:
    """A target that runs the aggregation program."""
    name, program = request.param
    return _target(name, _processes).load(program)


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A namespace for a switch process, with a link for port 1 and one for port 2."""
    with wire.namespace("switch") as name:
        for port in (1, 2):
            wire.ip("-n", name, "link", "add", f"s{port}", "type", "veth", "peer", "name", f"h{port}")
            for end in ("s", "h"):
                wire.ip("-n", name, "link", "set", f"{end}{port}", "up")
        yield name


@pytest.fixture
def grows(switch: Switch) -> bool:
    """Whether the target can answer a packet without lanes with a packet that has lanes."""
    most = TARGETS[switch.name].lanes if switch.name in TARGETS else None
    return not most or switch.lanes <= most

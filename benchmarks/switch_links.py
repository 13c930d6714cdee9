# SPDX-License-Identifier: Apache-2.0
"""Networks for switches under load, and switch processes in them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import finsy as fy
from finsy.proto import p4r

from railweave.switch.p4runtime.device import Device
from railweave.switch.pipeline import Pipeline
from railweave.switch.targets import TARGETS
from railweave.topologies.lab.namespaces import Namespaces, interface_of_port
from railweave.topologies.lab.processes import Child, Event
from railweave.topologies.lab.record import RunRecord, sweep
from railweave.topologies.model import Topology

READY_S = 30.0


Update = fy.P4TableEntry | fy.P4MulticastGroupEntry | fy.P4MeterEntry
Files = tuple[Path, Path]  # of a compiled program: P4Info and JSON


def loaded(files: Files, updates: Sequence[Update]) -> Pipeline:
    """Return an engine with a program and its entries, as a controller leaves a switch."""
    schema = fy.P4Schema(*files)
    config = schema.get_pipeline_config()
    pipeline = Pipeline.load(config.p4_device_config)
    device = Device.of(config, pipeline)
    for entity in updates:
        update = p4r.Update()
        update.CopyFrom(entity.encode_update(schema))
        device.write(update)
    return pipeline


@dataclass(frozen=True)
class Network:
    """Hosts on veth links to one switch, which is not running yet."""

    topology: Topology
    namespaces: Namespaces
    record: RunRecord
    out: Path  # for logs

    @property
    def interfaces(self) -> dict[int, str]:
        """The switch's interfaces, by port."""
        plane = self.topology.planes[0]
        return {nic.port: interface_of_port(nic.switch, nic.port) for nic in plane.nics}

    @contextlib.asynccontextmanager
    async def switch(
        self,
        target: str,
        files: Files,
        updates: Sequence[Update],
        arguments: Sequence[str] = (),
        interfaces: Mapping[int, str] | None = None,
    ) -> AsyncIterator[int]:
        """Run a switch with a program and its entries. Yield its process ID.

        `interfaces` replaces those of the network. Raises LabError if the switch does not start.
        """
        [switch] = self.topology.planes[0].switches
        p4info, p4blob = files
        with tempfile.TemporaryDirectory(prefix="railweave-") as folder:
            address = f"unix:{folder}/p4runtime"
            interfaces = interfaces or self.interfaces
            command = TARGETS[target].command(interfaces, address, switch.device_id, arguments)
            events: asyncio.Queue[Event] = asyncio.Queue()
            log = self.out / f"switch-{target}.log"
            child = await Child.start(target, self.namespaces.enter(switch.name, command), log, events)
            try:
                self.record.add(child.name, child.pid)
                await child.ready(READY_S)
                options = fy.SwitchOptions(p4info=p4info, p4blob=p4blob, device_id=switch.device_id)
                async with asyncio.timeout(READY_S), fy.Switch("bench", address, options) as controller:
                    await controller.write(updates)
                yield child.pid
            finally:
                await child.stop()


@contextlib.contextmanager
def network(topology: Topology, out: Path, *, plain_frames: bool) -> Iterator[Network]:
    """Make a network of one switch. `plain_frames`: without offloads."""
    sweep()
    with contextlib.ExitStack() as stack:
        record = RunRecord(out)
        stack.callback(record.remove)
        namespaces = Namespaces(topology, {}, plain_frames=plain_frames)
        stack.callback(namespaces.close)
        for node in namespaces.nodes():
            record.add(f"namespace {node}", namespaces.pid(node))
        yield Network(topology, namespaces, record, out)

# SPDX-License-Identifier: Apache-2.0
"""Machines with rdma_rxe in a ring, on a switch that sums what they WRITE to each other.

    unshare --net python -m system.rxe.ring MEMBERS MESSAGES WINDOW BYTES LOSS…

in a network namespace of its own, so that gRPC's threads are in it as well. Prints a JSON object per loss:
what each member says, and what the switch has counted; at the end, what they say if it sums nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from system.namespaces import ip
from system.rxe.guest import HOST, PREFIX, Guest, Place, boot, build_initramfs
from system.rxe.kernel import find_kernel

from railweave.controller.desired import Loss, Ring
from railweave.controller.ring_trees import alone
from railweave.controller.rings import RingSwitch
from railweave.controller.slots import MIN_SLOTS
from railweave.controller.tables import Connection, Endpoint, ip_number, mac_number
from railweave.p4src.artifacts import NETREDUCE, artifact
from railweave.topologies.model import Nic, Plane, Switch

LANES = 256
PATH_MTU = 4 * LANES
GRPC = "127.0.0.1:9559"
OUR_PORT, OUR_MAC = 9, "52:54:00:09:00:01"
HIDDEN_QP = 0x800000  # rxe's own numbers stay below
DEADLINE_S = 30.0
PATIENCE_S = 140
FIRST_PSNS = (0xFFFFF0, 5, 0x7FFFF0, 0x123456)  # they wrap, or change sign


def places(members: int) -> list[Place]:
    return [Place(f"tap{n}", f"52:54:00:09:01:0{n}", f"10.9.0.{10 + n}") for n in range(1, members + 1)]


def lay_links(members: Sequence[Place]) -> None:
    """Taps of the machines and our own link, all of them ports of the switch."""
    ip("link", "set", "lo", "up")
    for place in members:
        ip("tuntap", "add", place.tap, "mode", "tap")
        ip("link", "set", place.tap, "arp", "off", "up")  # it would answer for our side's address
    ip("link", "add", "nic0", "address", OUR_MAC, "type", "veth", "peer", "name", "port0")
    ip("address", "add", f"{HOST}/{PREFIX}", "dev", "nic0")
    for device in ("port0", "nic0"):
        ip("link", "set", device, "up")


def plane(members: Sequence[Place]) -> Plane:
    nics = [Nic(p.tap, p.tap, p.address, p.mac, "s", n) for n, p in enumerate(members, 1)]
    nics.append(Nic("we", "nic0", HOST, OUR_MAC, "s", OUR_PORT))
    return Plane("rdma", "rdma", f"10.9.0.0/{PREFIX}", 0, (Switch("s", GRPC),), tuple(nics))


@asynccontextmanager
async def switch(members: Sequence[Place]) -> AsyncIterator[RingSwitch]:
    """The switch's process, under a controller."""
    ports = [f"{n}@{place.tap}" for n, place in enumerate(members, 1)] + [f"{OUR_PORT}@port0"]
    command = [sys.executable, "-m", "railweave.switch", "--grpc", GRPC, "--super-packet-bytes", "0"]
    command += [word for port in ports for word in ("-i", port)]
    process = await asyncio.create_subprocess_exec(
        "setpriv", "--pdeathsig", "KILL", *command, stdout=asyncio.subprocess.PIPE
    )
    there = plane(members)
    managed = RingSwitch(there, there.switches[0], artifact(LANES, program=NETREDUCE))
    session = None
    try:
        assert process.stdout
        assert (await process.stdout.readline()).startswith(b"ready")
        session = asyncio.create_task(managed.link.run())
        async with asyncio.timeout(DEADLINE_S):
            await managed.ready.wait()
        yield managed
    finally:
        if session:
            session.cancel()
            await asyncio.wait([session])
        process.terminate()
        await process.wait()


class Members:
    """The machines, joined to a ring."""

    def __init__(self, guests: Sequence[Guest], members: Sequence[Place], managed: RingSwitch) -> None:
        self._guests = guests
        self._places = members
        self._switch = managed

    async def join(self, window_packets: int) -> Ring:
        """Make fresh connections, and have the switch sum them."""
        pairs = [tuple(map(int, guest.order("open").split()[1:])) for guest in self._guests]
        count = len(pairs)
        ends = [Endpoint(mac_number(p.mac), ip_number(p.address), 0xC000) for p in self._places]
        connections = []
        for n in range(count):
            to = (n + 1) % count
            qp = pairs[to][1]
            way = (ends[n], n + 1, ends[to], to + 1)
            connections.append(Connection(*way, qp ^ HIDDEN_QP, qp, FIRST_PSNS[n]))
        ring = await self._switch.add(alone(connections), window_packets)
        for n, guest in enumerate(self._guests):
            following, before = (n + 1) % count, (n - 1) % count
            to = (connections[n].sent_qp, FIRST_PSNS[n], self._places[following].address)
            since = (pairs[before][0], FIRST_PSNS[before], self._places[before].address)
            assert guest.order("connect", *to, *since) == "ok"
        return ring

    def run(self, messages: int, window: int, size: int, seconds: int) -> list[str]:
        """All members send their messages; what each says when it is done, or has waited so long."""
        count = len(self._guests)
        for n, guest in enumerate(self._guests):
            to = self._guests[(n + 1) % count]
            guest.start("run", n, count, messages, window, size, to.address, to.rkey, seconds)
        return [guest.answer() for guest in self._guests]


async def decided(managed: RingSwitch) -> dict[str, int]:
    """Packets by what has become of them."""
    counts: dict[str, int] = {}
    for entry, packets in await managed.link.packets("decide"):
        name = entry.action.name if entry.action else ""
        counts[name] = counts.get(name, 0) + packets
    return counts


async def main(members: int, messages: int, window: int, size: int, losses: Sequence[float]) -> None:
    """Boot the machines, and run once for each loss on all their links."""
    there = places(members)
    lay_links(there)
    kernel = find_kernel(Path(os.environ["RXE_CACHE"]))
    namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
    packets = max(MIN_SLOTS, 1 << (window * size // PATH_MTU - 1).bit_length())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        initramfs = build_initramfs(kernel, Path(folder), "ring.c")
        async with switch(there) as managed:
            logs = [Path(folder, f"console{n}") for n in range(members)]
            # In a thread, as booting blocks, and the session with the switch has to go on.
            boots = (
                asyncio.to_thread(stack.enter_context, boot(kernel, initramfs, namespace, log, place))
                for log, place in zip(logs, there, strict=True)
            )
            ring = Members(await asyncio.gather(*boots), there, managed)
            for loss in losses:
                before = await decided(managed)
                joined = await ring.join(packets)
                managed.losses = {
                    (way, port): Loss(port, way, loss)
                    for port in range(1, members + 1)
                    for way in ("ingress", "egress")
                }
                await managed.reconcile()
                said = await asyncio.to_thread(ring.run, messages, window, size, PATIENCE_S)
                managed.losses = {}
                await managed.remove(joined.group)
                counts = {name: n - before[name] for name, n in (await decided(managed)).items()}
                print(json.dumps({"loss": loss, "said": said, "counts": counts}), flush=True)
            await managed.remove((await ring.join(packets)).group)
            print(json.dumps({"said": await asyncio.to_thread(ring.run, 1, 1, size, 2)}), flush=True)


if __name__ == "__main__":
    count, many, ahead, length = map(int, sys.argv[1:5])
    asyncio.run(main(count, many, ahead, length, list(map(float, sys.argv[5:]))))

# SPDX-License-Identifier: Apache-2.0
"""Every fault of a lab stops the traffic that it names, on both kinds of planes. Its repair restores it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from system.namespaces import inside_process

from railweave.topologies.errors import TopologyError
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane
from railweave.topologies.planes import planes

DEADLINE_S = 60.0
UDP_SEGMENT = 103  # linux/udp.h
SO_RCVBUFFORCE = 33
SILENCE_S = 0.02  # a datagram that is later was lost: the delay of the link is microseconds
ALL_LOST, ALL_THROUGH = (False, False), (True, True)

# Whether datagrams pass from h1 to h2, and from h2 to h1, during the fault.
FAULTS: list[tuple[Callable[[Plane], Fault], tuple[bool, bool]]] = [
    (lambda plane: faults.host_down(plane, "h1"), ALL_LOST),
    (lambda plane: faults.port_down(plane, "h1"), ALL_LOST),
    (lambda plane: faults.lossy(plane, "h1"), ALL_LOST),
    (lambda plane: faults.lossy(plane, "h1", to_host=False), (False, True)),
    (lambda plane: faults.lossy(plane, "h1", to_switch=False), (True, False)),
    (faults.switch_frozen, ALL_LOST),
    (faults.switch_killed, ALL_LOST),
]
NO_CARRIER = {"host link down", "switch port down"}


class Link:
    """One socket on each host's interface on a plane."""

    def __init__(self, lab: Lab, plane: Plane) -> None:
        self._lab = lab
        self.sockets = [self._socket(nic.host, nic.address) for nic in plane.nics]

    def _socket(self, host: str, address: str) -> socket.socket:
        with inside_process(self._lab.pid(host)):
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((address, 0))
        return made

    def passes(self, deadline_s: float) -> tuple[bool, bool]:
        """Return whether a datagram arrives, in each direction. It is repeated until the deadline."""
        near, far = self.sockets
        return _arrives(near, far, deadline_s), _arrives(far, near, deadline_s)

    def close(self) -> None:
        for each in self.sockets:
            each.close()


def _arrives(sender: socket.socket, receiver: socket.socket, deadline_s: float) -> bool:
    receiver.settimeout(SILENCE_S)
    for _ in range(max(1, round(deadline_s / SILENCE_S))):
        word = os.urandom(8)
        try:
            sender.sendto(word, receiver.getsockname())
            while receiver.recv(64) != word:
                pass
        except (TimeoutError, OSError):
            continue
        return True
    return False


def _carrier(lab: Lab, interface: str) -> bool:
    """Return whether the host h1 sees a carrier. An interface that is down has no carrier."""
    shown = lab.read("h1", ["ip", "-j", "link", "show", interface])
    return "LOWER_UP" in json.loads(shown)[0]["flags"]


async def faults_stop_traffic_and_repairs_restore_it(lab: Lab, plane: Plane, link: Link) -> None:
    interface = plane.nics[0].interface
    for make, left in FAULTS:
        fault = make(plane)
        async with Injection(lab, fault) as injection:
            assert link.passes(DEADLINE_S) == ALL_THROUGH, f"{fault.name}: before"
            span = await injection.inject()
            assert span.begin <= span.end
            assert link.passes(SILENCE_S) == left, fault.name
            assert _carrier(lab, interface) == (fault.name not in NO_CARRIER), fault.name
            await injection.repair()
            assert link.passes(DEADLINE_S) == ALL_THROUGH, f"{fault.name}: repaired"
            await injection.inject()
        assert link.passes(DEADLINE_S) == ALL_THROUGH, f"{fault.name}: undone at the end"
    assert _leftovers(lab) == []


def _leftovers(lab: Lab) -> list[str]:
    tables = lab.read("h1", ["nft", "list", "tables"])
    links = [link["ifname"] for link in json.loads(lab.read("h1", ["ip", "-j", "link", "show"]))]
    return [name for name in [*tables.split(), *links] if name.startswith((faults.CHAINS, faults.SINK))]


async def network_control_passes_what_waits_in_queues(lab: Lab, plane: Plane, link: Link) -> None:
    """The queues are those of the host and of the switch. The switch's port to h2 is slower than the host."""
    frames, size = 60, 1400
    near, far = link.sockets
    lab.do(faults.rate_steps(plane, plane.rate_bps, 2_000_000, "h1"))
    lab.do(faults.rate_steps(plane, plane.rate_bps, 1_000_000, "h2"))
    for number in range(frames):
        near.sendto(bytes([number]) * size, far.getsockname())
    near.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xC0)
    near.sendto(b"urgent", far.getsockname())
    far.settimeout(DEADLINE_S)
    came = [far.recv(size) for _ in range(frames + 1)]
    assert came.index(b"urgent") < frames // 2
    assert [word[0] for word in came if word != b"urgent"] == list(range(frames))


async def a_link_flaps_until_it_is_repaired(lab: Lab, plane: Plane, link: Link) -> None:
    interface, seen = plane.nics[0].interface, [True]
    async with Injection(lab, faults.flapping(plane, "h1", flap_s=0.05)) as injection:
        await injection.inject()
        while len(seen) < 5:
            carrier = await asyncio.to_thread(_carrier, lab, interface)
            seen += [carrier] if carrier != seen[-1] else []
        await injection.repair()
        assert link.passes(DEADLINE_S) == ALL_THROUGH


async def a_rate_changes_at_run_time_and_the_queue_keeps_its_frames(
    lab: Lab, plane: Plane, link: Link
) -> None:
    frames, size = 20, 1400
    near, far = link.sockets
    lab.do(faults.rate_steps(plane, plane.rate_bps, 50_000))  # the frames would take four seconds
    for number in range(frames):
        near.sendto(bytes([number]) * size, far.getsockname())
    lab.do(faults.rate_steps(plane, 50_000, plane.rate_bps))
    far.settimeout(DEADLINE_S)
    assert [far.recv(size)[0] for _ in range(frames)] == list(range(frames))
    assert _rate(lab, "h1", plane.nics[0].interface) == plane.rate_bps
    async with Injection(lab, faults.rate_changed(plane, 10**6, "h2")) as injection:
        await injection.inject()
        assert _rate(lab, "h2", plane.nics[1].interface) == 10**6
        assert _rate(lab, "h1", plane.nics[0].interface) == plane.rate_bps
    assert _rate(lab, "h2", plane.nics[1].interface) == plane.rate_bps
    lab.do(faults.rate_steps(plane, plane.rate_bps, 0))
    assert _rate(lab, "h1", plane.nics[0].interface) is None
    assert link.passes(DEADLINE_S) == ALL_THROUGH


async def super_packets_that_wait_pass_when_the_rate_falls(lab: Lab, plane: Plane, link: Link) -> None:
    """They are as long as the burst at the usual rate. One packet above the burst would block the link."""
    frames, size = 8, 1400  # per super-packet
    most = 100  # super-packets: they take 90 ms at the link's usual rate
    near, far = link.sockets
    near.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
    far.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 * most * frames * size)  # prevents an overflow
    for number in range(most):
        near.sendto(bytes([number]) * size * frames, far.getsockname())
    lab.do(faults.rate_steps(plane, plane.rate_bps, plane.rate_bps // 4))
    far.settimeout(DEADLINE_S)
    came = [far.recv(size)[0] for _ in range(most * frames)]
    assert came == [number for number in range(most) for _ in range(frames)]


def _rate(lab: Lab, host: str, interface: str) -> int | None:
    """Return the rate of the interface's token bucket in bit/s, or None without a bucket."""
    queue = json.loads(lab.read(host, ["tc", "-j", "qdisc", "show", "dev", interface, "root"]))[0]
    return int(queue["options"]["rate"]) * 8 if queue["kind"] == "tbf" else None


async def a_frozen_switch_does_not_hold_up_the_end(lab: Lab, plane: Plane, link: Link) -> None:
    lab.freeze(plane.switches[0].name)
    assert link.passes(SILENCE_S) == ALL_LOST


Check = Callable[[Lab, Plane, Link], Awaitable[None]]
ON_EVERY_PLANE = (faults_stop_traffic_and_repairs_restore_it, network_control_passes_what_waits_in_queues)
CHECKS: dict[str, tuple[Check, ...]] = {
    "ina": (*ON_EVERY_PLANE, a_frozen_switch_does_not_hold_up_the_end),
    "tcp": (
        *ON_EVERY_PLANE,
        a_link_flaps_until_it_is_repaired,
        super_packets_that_wait_pass_when_the_rate_falls,
        a_rate_changes_at_run_time_and_the_queue_keeps_its_frames,
    ),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_faults_of_a_plane(kind: str, tmp_path: Path) -> None:
    """Carry out all checks in one lab of two hosts and one plane. Each begins at the usual rate."""

    async def run() -> None:
        topology = planes(2, [kind])
        (plane,) = topology.planes
        async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(tmp_path)) as lab:
            for check in CHECKS[kind]:
                link = Link(lab, plane)
                try:
                    assert link.passes(DEADLINE_S) == ALL_THROUGH
                    await check(lab, plane, link)
                finally:
                    link.close()
                if check is not CHECKS[kind][-1]:
                    lab.do(faults.rate_steps(plane, plane.rate_bps, plane.rate_bps))

    asyncio.run(run())
    assert not any("Traceback" in log.read_text() for log in tmp_path.glob("switch-*.log"))


def test_links_of_one_host_lose_frames_independently() -> None:
    orders = [
        {line for step in (*fault.before, *fault.repair) for line in step.orders.splitlines()}
        for plane in planes(2, ("ina", "tcp", "tcp")).planes
        for fault in [faults.lossy(plane, "h1")]
    ]
    for place, mine in enumerate(orders):
        for others in orders[place + 1 :]:
            shared = {line for line in mine & others if "add" in line or "table" in line}
            assert not shared


def test_faults_of_what_is_not_there_are_refused() -> None:
    (plane,) = planes(2, ["tcp"]).planes
    with pytest.raises(TopologyError, match="host 'h3' is not on plane 'tcp': expected one of h1, h2"):
        faults.host_down(plane, "h3")
    with pytest.raises(TopologyError, match="neither direction"):
        faults.lossy(plane, "h1", to_switch=False, to_host=False)

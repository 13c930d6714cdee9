# SPDX-License-Identifier: Apache-2.0
"""The program of ATP: packets in, packets and counters out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dataplane.harness import Frames, Switch
from dataplane.packets import HEADERS
from dataplane.packets import datagram as frame
from dataplane.programs import algorithm, everywhere, place_name

from railweave import sdk
from railweave.algorithms.atp.packet import GRADIENT, RESEND, RESULT, Packet
from railweave.controller.tables import Endpoint, ip_number, mac_number
from railweave.topologies.model import Nic, Plane
from railweave.topologies.named import named

ATP = sdk.find("atp")
PLANE: Plane = replace(named("racks:racks=1,hosts=3,ina=1", rails=["ina"], rates=[0]).planes[0])
SERVER = PLANE.nics[0]
RANKS = (1, 2)  # behind the switch, without the server
JOBS = (0, 1)
FREE = 4  # a port of the switch without a host


pytestmark = pytest.mark.parametrize(
    "switch",
    everywhere(lambda lanes: algorithm("atp", lanes)),
    indirect=True,
    ids=place_name,
)


@pytest.fixture
def rack(switch: Switch) -> Switch:
    """Return a switch with one aggregator for two jobs."""
    jobs = [ATP.job(number, len(PLANE.nics), {"slots": 1}) for number in JOBS]
    [state] = ATP.wanted(PLANE, jobs).values()
    switch.install(state)
    return switch


def station(nic: Nic, port: int) -> Endpoint:
    return Endpoint(mac_number(nic.mac), ip_number(nic.address), port)


def payload(rack: Switch, factor: int) -> bytes:
    return (np.arange(rack.lanes, dtype=np.int64) * factor).astype(">u4").tobytes()


def gradient(rack: Switch, rank: int, factor: int, sequence: int = 0, job: int = 0, **fields: int) -> Packet:
    ranks = fields.get("ranks", 1 << rank)
    return Packet(GRADIENT, fields.get("flags", 0), job, sequence, ranks, payload(rack, factor))


def send(rack: Switch, rank: int, packet: Packet, port: int | None = None) -> Frames:
    """Send a gradient. Check the addresses of the output and return it without headers."""
    nic = PLANE.nics[rank]
    to = station(SERVER, ATP.manifest.server_port(packet.job))
    sent = frame(station(nic, ATP.manifest.rank_port(packet.job)), to, packet.encode())
    out = rack.exchange(port or nic.port, sent)
    for where, data in out:
        assert where == SERVER.port
        assert data[:12] == sent[:12]
        assert data[14:38] == sent[14:38]
    return [(where, data[HEADERS:]) for where, data in out]


def at_server(packet: Packet) -> Frames:
    return [(SERVER.port, packet.encode())]


def answer(rack: Switch, sequence: int, job: int = 0, port: int = SERVER.port) -> Frames:
    """Send a result to the rack and return the output."""
    first = station(PLANE.nics[RANKS[0]], ATP.manifest.rank_port(job))
    result = Packet(RESULT, 0, job, sequence, 7, payload(rack, 9)).encode()
    return rack.exchange(port, frame(station(SERVER, ATP.manifest.server_port(job)), first, result))


def test_the_last_worker_takes_the_sum_along(rack: Switch) -> None:
    assert send(rack, 1, gradient(rack, 1, 3)) == []
    assert send(rack, 2, gradient(rack, 2, -5)) == at_server(gradient(rack, 2, -2, ranks=6))
    assert rack.action_packets("decide")["sum"] == 1


def test_a_result_of_another_frees_nothing_and_one_from_elsewhere_is_not_copied(rack: Switch) -> None:
    send(rack, 1, gradient(rack, 1, 3))
    assert len(answer(rack, 7)) == len(answer(rack, 0, job=1)) == 2
    assert [port for port, _ in answer(rack, 0, port=FREE)] == [PLANE.nics[RANKS[0]].port]
    assert send(rack, 2, gradient(rack, 2, 1)) == at_server(gradient(rack, 2, 4, ranks=6))


@pytest.mark.parametrize("rank", RANKS)
def test_what_is_sent_again_takes_along_what_is_held(rack: Switch, rank: int) -> None:
    send(rack, 1, gradient(rack, 1, 3))
    again = gradient(rack, rank, 3 if rank == 1 else 4, flags=RESEND)
    held = gradient(rack, rank, 3 if rank == 1 else 7, flags=RESEND, ranks=2 if rank == 1 else 6)
    assert send(rack, rank, again) == at_server(held)
    assert send(rack, rank, again) == at_server(again)  # without a sum; it takes no aggregator
    assert send(rack, 1, gradient(rack, 1, 1, sequence=1)) == []


def test_a_worker_cannot_speak_for_others(rack: Switch) -> None:
    for ranks in (0, 1, 4, 6, 2**32 - 1):
        for flags in (0, RESEND):
            assert send(rack, 1, gradient(rack, 1, 3, ranks=ranks, flags=flags)) == []
    assert rack.action_packets("decide")["bad_ranks"] == 10
    send(rack, 1, gradient(rack, 1, 3))
    assert send(rack, 2, gradient(rack, 2, 1)) == at_server(gradient(rack, 2, 4, ranks=6))


def test_strangers_are_forwarded_and_summed_nowhere(rack: Switch) -> None:
    """Strangers send from another port or for another job. The server must judge their packets."""
    stranger = gradient(rack, 1, 3)
    assert send(rack, 1, stranger, port=FREE) == at_server(stranger)
    other = gradient(rack, 1, 3, job=7)
    assert send(rack, 1, other) == at_server(other)
    assert send(rack, 1, gradient(rack, 1, 1)) == []


def test_a_damaged_header_is_dropped_and_another_length_is_no_gradient(rack: Switch) -> None:
    nic = PLANE.nics[1]
    ends = station(nic, ATP.manifest.rank_port(0)), station(SERVER, ATP.manifest.server_port(0))
    whole = gradient(rack, 1, 3).encode()
    damaged = bytearray(frame(*ends, whole))
    damaged[15] ^= 4  # type of service
    assert rack.exchange(nic.port, bytes(damaged)) == []
    assert rack.action_packets("decide")["bad_checksum"] == 1
    for cut in (1, 4, 200):
        sent = frame(*ends, whole[:-cut])
        assert rack.exchange(nic.port, sent) == [(SERVER.port, sent)]
    assert send(rack, 1, gradient(rack, 1, 1)) == []

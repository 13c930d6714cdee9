# SPDX-License-Identifier: Apache-2.0
"""The four programs of `railweave bench switch --parts programs`: packets in, packets out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from dataplane.harness import Program, Switch
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.packet import Packet, Raw

from railweave.benchmarks import programs
from railweave.benchmarks.programs import BNG, IN_PORT, L2FWD, L2L3_ACL, OUT_PORT, PROGRAMS, UPF, entry, frame

Load = Callable[[programs.Program], Switch]
NEXT, ROUTER_OUT = "02:00:00:00:00:12", "02:00:00:00:00:02"
STRANGER = 0x0200000000FF


@pytest.fixture
def load(target: Switch) -> Load:
    """Load a program with the entries of the benchmark."""

    def loaded(program: programs.Program) -> Switch:
        target.load(Program(program.name, program.json_path, program.p4info_path))
        target.control.write([update.encode_update(target.schema) for update in program.updates])
        return target

    return loaded


def routed(data: bytes, outer: Packet) -> bytes:
    """Return a frame's IPv4 packet behind other headers, after a router."""
    packet = IP(data[14:])
    padding = data[14 + packet.len :]
    packet.ttl -= 1
    del packet.chksum
    return bytes(outer / packet) + padding


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_the_frames_of_the_benchmark_have_64_bytes_on_the_wire(program: programs.Program) -> None:
    assert len(program.frame) == 64 - 4
    parsed = Ether(program.frame)
    assert (parsed[IP].len, parsed[UDP].len) == (46, 26)
    checksum = parsed[IP].chksum
    del parsed[IP].chksum
    assert Ether(bytes(parsed))[IP].chksum == checksum


def test_l2fwd_bridges_by_destination(load: Load) -> None:
    switch = load(L2FWD)
    assert switch.exchange(IN_PORT, L2FWD.frame) == [(OUT_PORT, L2FWD.frame)]
    assert switch.exchange(IN_PORT, frame(STRANGER, "16.0.0.1", "48.0.0.1")) == []


def test_l2l3_acl_routes_counts_and_filters(load: Load) -> None:
    switch = load(L2L3_ACL)
    sent = L2L3_ACL.frame
    leaves = routed(sent, Ether(src=ROUTER_OUT, dst=NEXT))
    assert switch.exchange(IN_PORT, sent) == [(OUT_PORT, leaves)]
    bridged = frame(programs.NEXT_MAC, "16.0.0.1", "48.0.0.1")
    assert switch.exchange(IN_PORT, bridged) == [(OUT_PORT, bridged)]
    assert (switch.counter("packets_in", IN_PORT), switch.counter("packets_out", OUT_PORT)) == (2, 2)
    lost = {
        "time to live": frame(programs.ROUTER_MAC, "16.0.0.1", "48.0.0.1", ttl=1),
        "no route": frame(programs.ROUTER_MAC, "16.0.0.1", "49.0.0.1"),
        "no station": frame(STRANGER, "16.0.0.1", "48.0.0.1"),
    }
    assert switch.exchange_many([(IN_PORT, data) for data in lost.values()]) == []
    assert switch.exchange(OUT_PORT, sent) == [], "the port has no VLAN"
    denied = {
        "source": "16.0.0.9",
        "destination": "48.0.0.1",
        "protocol": programs.UDP,
        "source_port": programs.SOURCE_PORT,
        "destination_port": programs.DESTINATION_PORT,
    }
    data = frame(programs.ROUTER_MAC, "16.0.0.9", "48.0.0.1")
    assert switch.exchange(IN_PORT, data) == [(OUT_PORT, routed(data, Ether(src=ROUTER_OUT, dst=NEXT)))]
    switch.insert("acl", denied, "drop")
    assert switch.exchange(IN_PORT, data) == []


def test_upf_encapsulates_packets_to_users_in_gtp_u(load: Load) -> None:
    switch = load(UPF)
    size = IP(UPF.frame[14:]).len
    tunnel = (
        Ether(src=ROUTER_OUT, dst=NEXT)
        / IP(
            src=programs.GATEWAY, dst=programs.BASE_STATION, ttl=64, id=0, len=20 + 8 + 8 + size, proto="udp"
        )
        / UDP(sport=2152, dport=2152, len=8 + 8 + size, chksum=0)
        / GTP_U_Header(teid=programs.TEID, gtp_type=255, length=size)
    )
    assert switch.exchange(IN_PORT, UPF.frame) == [(OUT_PORT, routed(UPF.frame, tunnel))]
    lost = {
        "no session": frame(programs.ROUTER_MAC, "16.0.0.4", "48.0.0.5"),
        "no detection rule": frame(programs.ROUTER_MAC, "16.0.0.5", programs.USER),
        "time to live": frame(programs.ROUTER_MAC, "16.0.0.4", programs.USER, ttl=1),
    }
    assert switch.exchange_many([(IN_PORT, data) for data in lost.values()]) == []
    assert switch.exchange(OUT_PORT, UPF.frame) == [], "the port has no source interface"


def test_bng_puts_packets_into_the_sessions_of_subscribers(load: Load) -> None:
    switch = load(BNG)
    size = IP(BNG.frame[14:]).len
    session = (
        Ether(src=ROUTER_OUT, dst=NEXT, type=0x88A8)
        / Dot1AD(vlan=programs.SERVICE_TAG, type=0x8100)
        / Dot1Q(vlan=programs.CUSTOMER_TAG, type=0x8864)
        / PPPoE(sessionid=programs.PPPOE_SESSION, len=size + 2)
        / PPP(proto=0x0021)
    )
    assert switch.exchange(IN_PORT, BNG.frame) == [(OUT_PORT, routed(BNG.frame, session))]
    assert switch.counter("line_packets", programs.LINE) == 1
    lost = {
        "no route": frame(programs.ROUTER_MAC, "16.0.0.1", "49.0.0.1"),
        "not for the router": frame(STRANGER, "16.0.0.1", "48.0.0.1"),
        "time to live": frame(programs.ROUTER_MAC, "16.0.0.1", "48.0.0.1", ttl=1),
    }
    assert switch.exchange_many([(IN_PORT, data) for data in lost.values()]) == []
    tagged = bytes(Ether(BNG.frame[:12] + b"\x81\x00") / Dot1Q(vlan=7, type=0x0800) / Raw(BNG.frame[14:]))
    assert switch.exchange(IN_PORT, tagged) == [(OUT_PORT, routed(BNG.frame, session))], "both tags are new"


def test_bng_limits_the_rate_of_a_line(load: Load) -> None:
    switch = load(BNG)
    [meter] = BNG.meters
    assert meter.config is not None
    slow = replace(meter, config=replace(meter.config, cir=1, pir=1, cburst=100, pburst=100))
    switch.control.write([slow.encode_update(switch.schema)])
    left = switch.exchange_many([(IN_PORT, BNG.frame)] * 5)
    assert len(left) == 1, "the bucket of 100 bytes has room for one packet"
    assert switch.counter("line_packets", programs.LINE) == 5


def test_upf_drops_packets_without_a_forwarding_action(load: Load) -> None:
    switch = load(UPF)
    switch.delete("pdrs", {"session": 1, "source": "16.0.0.4", "source_interface": 2}, priority=9)
    match = {"session": programs.SESSION, "source_interface": programs.CORE_INTERFACE}
    update = entry("pdrs", match, "set_far", priority=1, far=programs.FAR + 1)
    switch.control.write([update.encode_update(switch.schema)])
    assert switch.exchange(IN_PORT, UPF.frame) == []

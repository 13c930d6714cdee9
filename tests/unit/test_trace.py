# SPDX-License-Identifier: Apache-2.0
"""A trace shows the events of a packet, and changes nothing."""

from __future__ import annotations

import json

import pytest
from vectors.case import case

from railweave._native.engine import InvalidPlan
from railweave.switch.lowering import lower_noting
from railweave.switch.pipeline import Replica, Target, TraceBusy, exact
from railweave.switch.trace import Trace


def packet(kind: int = 0, address: int = 0, number: int = 0, group: int = 0) -> bytes:
    return bytes([kind]) + address.to_bytes(4, "big") + number.to_bytes(2, "big") + bytes([group])


def events(trace: Trace, kind: str) -> list:  # type: ignore[type-arg]
    return [event for event in trace.events if event.kind == kind]


def test_a_hit_is_told_with_its_key_entry_action_and_parameters() -> None:
    pipeline = case("control").pipeline()
    handle = pipeline.tables["hosts"].insert([exact(0x0A000001)], Target("forward", (7,)))
    text = str(pipeline.traces.run(3, packet(9, 0x0A000001) + b"payload")).splitlines()
    assert text[0] == "received on port 3, 15 bytes"
    assert "  parser state start" in text
    assert "  extract h" in text
    assert f"  table hosts: h.h.address=0xa000001: hit, entry {handle} -> forward" in text
    assert "  action forward(port=7)" in text
    assert "  set standard_metadata.egress_spec = 7" in text
    assert "emitted on port 7, 15 bytes" in text


def test_a_drop_is_told_with_its_reason() -> None:
    pipeline = case("control").pipeline()
    text = str(pipeline.traces.run(1, packet(2, 5)))
    assert "table hosts: h.h.address=5: miss -> drop" in text
    assert text.splitlines()[-1] == "dropped: egress_spec is the drop port after ingress"
    assert "multicast to group 9: there is none" in str(pipeline.traces.run(1, packet(3, 5, 0, 9)))
    assert "error PacketTooShort" in str(pipeline.traces.run(1, b"\1\2"))


def test_every_copy_is_told_of() -> None:
    pipeline = case("control").pipeline()
    pipeline.replication.set_group(5, [Replica(1, 1), Replica(2, 7)])
    trace = pipeline.traces.run(1, packet(3, 5, 0, 5))
    assert {event.values["port"] for event in events(trace, "emitted")} == {1, 2}
    assert {event.values["rid"] for event in events(trace, "egress")} == {1, 7}
    assert all(event.values["instance"] == "replicated" for event in events(trace, "egress"))


def test_registers_are_told_with_index_and_value() -> None:
    pipeline = case("lanes").pipeline()
    lanes = b"".join(value.to_bytes(4, "big") for value in range(100, 116))
    trace = pipeline.traces.run(1, bytes([0, 0, 5]) + lanes)
    written = {event.name: event.values for event in events(trace, "register write")}
    assert written["I.r3"] == {"index": 5, "value": 103}
    cell = pipeline.arrays.registers("I.r3", range(5, 6))
    assert int.from_bytes(cell, "big") == 103  # the traced packet has its normal effect


def test_a_trace_ends_by_itself_and_takes_only_its_port() -> None:
    pipeline = case("control").pipeline()
    pipeline.traces.start(port=2, count=2)
    with pytest.raises(TraceBusy):
        pipeline.traces.start()
    for port in (1, 2, 1, 2, 2, 1):
        pipeline.inject(port, packet(7 - 7, 1))
    traces = pipeline.traces.take()
    assert [event.values["port"] for trace in traces for event in events(trace, "received")] == [2, 2]
    assert pipeline.traces.take() == []
    pipeline.traces.start()  # the first has ended
    pipeline.traces.stop()
    pipeline.inject(1, packet(0, 1))
    assert pipeline.traces.take() == []


def test_packets_that_are_not_traced_run_the_plan_as_ever() -> None:
    """The trace uses the plan of another program here, so the output shows which packets run this plan."""
    pipeline = case("control").pipeline()
    pipeline.tables["hosts"].insert([exact(1)], Target("forward", (7,)))
    other = json.loads(case("control").json.read_text())
    for action in other["actions"]:
        if action["name"] == "forward":
            action["primitives"][0]["parameters"][1] = {"type": "hexstr", "value": "0x5"}
    pipeline.native.start_trace(lower_noting(json.dumps(other).encode())[0], 2, 2)
    left = [[port for port, _ in pipeline.inject(port, packet(9, 1))] for port in (1, 2, 1, 2, 2)]
    assert left == [[7], [5], [7], [5], [7]]


def test_what_a_trace_may_be_asked() -> None:
    pipeline = case("control").pipeline()
    for count in (0, -1, 10**6):
        with pytest.raises(ValueError, match="packets"):
            pipeline.traces.start(count=count)
    with pytest.raises(ValueError, match="16 bits"):
        pipeline.traces.start(port=1 << 16)
    with pytest.raises(InvalidPlan):
        pipeline.native.start_trace(lower_noting(case("lanes").json.read_bytes())[0], None, 1)


def test_entries_of_before_and_during_a_trace_go_on_after_it() -> None:
    pipeline = case("control").pipeline()
    pipeline.tables["hosts"].insert([exact(1)], Target("forward", (7,)))
    pipeline.traces.start()
    pipeline.tables["hosts"].insert([exact(2)], Target("forward", (8,)))
    assert pipeline.inject(1, packet(9, 1))[0][0] == 7
    assert pipeline.inject(1, packet(9, 2))[0][0] == 8  # the trace ended with the previous packet
    assert pipeline.inject(1, packet(9, 1))[0][0] == 7


def test_the_trace_of_a_packet_that_waits_ends_at_its_queue() -> None:
    pipeline = case("control").pipeline()
    pipeline.tables["hosts"].insert([exact(1)], Target("forward", (7,)))
    pipeline.native.inject(1, packet(10, 1), busy=True)
    pipeline.traces.start()
    pipeline.native.inject(1, packet(10, 1), busy=True)
    [trace] = pipeline.traces.take()
    assert str(trace).splitlines()[-1] == "queued at port 7, packets before it: 1; the trace ends here"
    assert len(pipeline.native.release(7, 0)) == 1

# SPDX-License-Identifier: Apache-2.0
"""Times and queue lengths that a program sees. Times count from the switch's start, in microseconds."""

from __future__ import annotations

import json

import pytest
from vectors.case import case

from railweave.switch.pipeline import Pipeline, Target, exact

START_US = 1000


def pipeline(**looks: str) -> Pipeline:
    """Load the program with an action before egress that copies standard metadata into header fields."""
    root = json.loads(case("control").json.read_text())
    primitives = [
        {
            "op": "assign",
            "parameters": [
                {"type": "field", "value": ["h", member]},
                {"type": "field", "value": ["standard_metadata", source]},
            ],
        }
        for member, source in looks.items()
    ]
    root["actions"].append({"name": "look", "id": 99, "runtime_data": [], "primitives": primitives})
    [egress] = [item for item in root["pipelines"] if item["name"] == "egress"]
    egress["action_calls"] = [{"name": "look", "action_id": 99, "next_node": egress["init_table"]}]
    egress["init_table"] = "look"
    loaded = Pipeline.load(json.dumps(root).encode())
    loaded.tables["hosts"].insert([exact(1)], Target("forward", (7,)))
    return loaded


def seen(loaded: Pipeline, backlog: tuple[int, int] = (0, 0)) -> tuple[int, int, int]:
    """Return the address, number and group of the outgoing header."""
    packet = bytes([9]) + (1).to_bytes(4, "big") + bytes(3)
    [(_, out)] = loaded.native.inject(1, packet, 5000, backlog)
    return int.from_bytes(out[1:5], "big"), int.from_bytes(out[5:7], "big"), out[7]


def test_the_output_queue_is_seen() -> None:
    loaded = pipeline(address="deq_timedelta", number="enq_qdepth", group="deq_qdepth")
    assert seen(loaded) == (0, 0, 0)
    assert seen(loaded, (12, 3456)) == (3456, 12, 12)


@pytest.mark.parametrize(
    ("name", "time_us"),
    [("ingress_global_timestamp", 4000), ("enq_timestamp", 4000), ("egress_global_timestamp", 4300)],
)
def test_timestamps_count_from_the_start_of_the_switch(name: str, time_us: int) -> None:
    loaded = pipeline(address=name)
    loaded.native.set_start(START_US)
    assert seen(loaded, (1, 300))[0] == time_us


def test_only_programs_that_look_at_time_need_a_clock_for_every_packet() -> None:
    assert not pipeline(address="deq_qdepth").native.uses_clock()
    assert pipeline(address="enq_timestamp").native.uses_clock()


def test_a_priority_needs_a_queue() -> None:
    loaded = Pipeline.load(case("cpu").json.read_bytes())
    loaded.tables["I.hosts"].insert([exact(0)], Target("I.forward", (7,)))

    def leave(queues: int) -> list[bool]:
        loaded.native.set_priority_queues(queues)
        return [bool(loaded.inject(1, bytes([0, priority]) + bytes(10))) for priority in range(9)]

    assert leave(1) == [True, *[False] * 7, True]  # the program sets no priority above 7
    assert leave(3) == [True] * 3 + [False] * 5 + [True]
    assert leave(8) == [True] * 9

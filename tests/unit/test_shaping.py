# SPDX-License-Identifier: Apache-2.0
"""Token buckets, loss rules and the kernel's counters."""

from __future__ import annotations

import json
import re

import pytest

from railweave.topologies.lab import counters, flows
from railweave.topologies.lab.shaping import (
    FRAME,
    SOURCES,
    URGENT,
    TokenBucket,
    bridge_loss_rules,
    class_rules,
    queue_commands,
)

QUEUES = """[
{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"bytes":0,"packets":0,"drops":0},
{"kind":"tbf","handle":"8001:","dev":"h1-ina","root":true,"refcnt":2,"bytes":7654321,"packets":2000,"drops":5},
{"kind":"pfifo","handle":"2:","dev":"h1-tcp","parent":"1:1","bytes":1,"packets":1,"drops":1}]"""


@pytest.mark.parametrize("rate", [100_000, 10**6, 10**8, 10**10, 4 * 10**11])
def test_buckets_hold_a_frame_and_queues_what_is_in_flight(rate: int) -> None:
    bucket = TokenBucket.of(rate)
    assert bucket.burst_bytes >= FRAME
    assert bucket.burst_bytes * 8 / rate <= 0.001 or bucket.burst_bytes == 4 * FRAME
    assert bucket.limit_bytes >= 512 * 1082  # an ina rail's window of full packets
    assert bucket.limit_bytes > bucket.burst_bytes
    assert bucket.limit_frames >= 512


@pytest.mark.parametrize("mtu", [68, 9000, 65535])
def test_buckets_hold_a_jumbo_frame(mtu: int) -> None:
    assert TokenBucket.of(100_000, mtu).burst_bytes >= mtu + 14


def test_the_kernels_super_packets_pass_a_bucket_whole() -> None:
    for rate in (100_000, 10**8, 10**10):
        bucket = TokenBucket.of(rate)
        words = bucket.interface_command("h1-ina").split()
        assert words[:3] == ["link", "set", "h1-ina"]
        options = dict(zip(words[3::2], map(int, words[4::2]), strict=True))
        assert options["txqueuelen"] == bucket.limit_frames
        assert FRAME <= options["gso_max_size"] <= min(bucket.burst_bytes, 65_536)


@pytest.mark.parametrize("rate", [10**6, 5 * 10**7, 10**9])
def test_a_link_whose_rate_changes_lets_the_super_packets_of_its_usual_rate_pass(rate: int) -> None:
    usual = 10**8
    (command,) = queue_commands("h1-tcp", rate, shaped=True, usual_bps=usual)
    words = command.split()
    burst = int(words[words.index("burst") + 1])
    assert burst == TokenBucket.of(max(rate, usual)).burst_bytes
    assert f"rate {rate}bit" in command


def test_commands_are_those_of_tc() -> None:
    unshaped, bucket, bands, *classes = queue_commands("h1-ina", 10**8)
    assert unshaped == "qdisc replace dev h1-ina root noqueue"
    assert bucket == (
        "qdisc replace dev h1-ina root handle 1: tbf rate 100000000bit burst 12500 limit 3125000"
    )
    assert bands == "qdisc add dev h1-ina parent 1:1 handle 2: htb default 2"
    assert f"parent 2: classid {URGENT} htb" in classes[0]
    assert len(classes) == 3 + len(SOURCES)
    assert queue_commands("h1-ina", 10**8, shaped=True) == [bucket]


def test_each_source_has_a_class_as_long_as_there_are_enough() -> None:
    rules = class_rules(["h1-ina"], [f"10.1.0.{place}" for place in range(1, len(SOURCES) + 2)])
    (every,) = re.findall(r"elements = \{ (.*?) \}", rules)
    classes = dict(pair.split(" : ") for pair in every.split(", "))
    assert [classes[f"10.1.0.{place}"] for place in range(1, len(SOURCES) + 1)] == list(SOURCES)
    assert classes[f"10.1.0.{len(SOURCES) + 1}"] == SOURCES[0]


def test_loss_is_a_part_in_a_million() -> None:
    assert "mod 1000000 < 12345 counter drop" in bridge_loss_rules(0.012345)


def test_flows_are_read_as_nft_writes_them() -> None:
    def element(value: object, count: int) -> dict[str, object]:
        return {"elem": {"val": value, "counter": {"packets": 1, "bytes": count}}}

    text = json.dumps(
        {
            "nftables": [
                {"metainfo": {"json_schema_version": 1}},
                {"counter": {"name": "handshakes-h1-tcp", "packets": 2, "bytes": 148}},
                {"counter": {"name": "others-h1-tcp", "packets": 1, "bytes": 42}},
                {"set": {"name": "ports-h1-tcp", "elem": [element({"concat": [6, 47424, 80]}, 300)]}},
                {"set": {"name": "protocols-h1-tcp", "elem": [element(1, 98), element(132, 60)]}},
                {"set": {"name": "ports-h1-ina"}},
            ]
        }
    )
    found = flows.parse(text)
    expected = {
        flows.Flow("tcp", (47424, 80)): 300,
        flows.Flow("icmp"): 98,
        flows.Flow("IP protocol 132"): 60,
        flows.Flow(flows.NOT_IP): 42,
    }
    assert found == {"h1-tcp": flows.Flows(expected, 148), "h1-ina": flows.Flows()}
    before = flows.Flows({flows.Flow("tcp", (47424, 80)): 300, flows.Flow("icmp"): 90}, 100)
    assert (found["h1-tcp"] - before).bytes_sent == {
        flows.Flow("icmp"): 8,
        flows.Flow("IP protocol 132"): 60,
        flows.Flow(flows.NOT_IP): 42,
    }
    assert [str(flow) for flow in expected] == ["tcp port 80", "icmp", "IP protocol 132", flows.NOT_IP]


def test_counters_are_read_as_tc_writes_them() -> None:
    assert counters.parse(QUEUES) == {"h1-ina": counters.InterfaceCounters(7654321, 2000, 5)}

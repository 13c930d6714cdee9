# SPDX-License-Identifier: Apache-2.0
"""Token buckets, loss rules and the kernel's counters."""

from __future__ import annotations

import pytest

from railweave.topologies.lab import counters
from railweave.topologies.lab.shaping import FRAME, TokenBucket, bridge_loss_rules

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


def test_commands_are_those_of_tc() -> None:
    bucket, bands = TokenBucket.of(10**8).commands("h1-ina")
    assert bucket == (
        "qdisc replace dev h1-ina root handle 1: tbf rate 100000000bit burst 12500 limit 3125000"
    )
    assert bands == "qdisc replace dev h1-ina parent 1:1 handle 2: pfifo_fast"


def test_loss_is_a_part_in_a_million() -> None:
    assert "mod 1000000 < 12345 counter drop" in bridge_loss_rules(0.012345)


def test_counters_are_read_as_tc_writes_them() -> None:
    assert counters.parse(QUEUES) == {"h1-ina": counters.InterfaceCounters(7654321, 2000, 5)}

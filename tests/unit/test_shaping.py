# SPDX-License-Identifier: Apache-2.0
"""Token buckets, loss rules and the kernel's counters."""

from __future__ import annotations

import pytest
from railweave.topologies import counters
from railweave.topologies.shaping import FRAME, TokenBucket, bridge_loss_rules

HEADER = "Inter-|   Receive   |  Transmit\n"
HEADER += " face |bytes  packets errs drop fifo frame compressed multicast|bytes …\n"
NET_DEV = (
    HEADER
    + "    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nh1-ina: 1234567 1000 0 3 0 0 0 0 7654321 2000 0 5 0 0 0 0\n"
)


@pytest.mark.parametrize("rate", [100_000, 10**6, 10**8, 10**10, 4 * 10**11])
def test_buckets_hold_a_frame_and_queues_what_is_in_flight(rate: int) -> None:
    bucket = TokenBucket.of(rate)
    assert bucket.burst_bytes >= FRAME
    assert bucket.burst_bytes * 8 / rate <= 0.001 or bucket.burst_bytes == 4 * FRAME
    assert bucket.limit_bytes >= 512 * 1082  # an ina rail's window of full packets
    assert bucket.limit_bytes > bucket.burst_bytes


def test_commands_are_those_of_tc() -> None:
    command = TokenBucket.of(10**8).command("h1-ina")
    assert command == "qdisc replace dev h1-ina root tbf rate 100000000bit burst 12500 limit 3125000"


def test_loss_is_a_part_in_a_million() -> None:
    assert "mod 1000000 < 12345 counter drop" in bridge_loss_rules(0.012345)


def test_counters_are_read_as_the_kernel_writes_them() -> None:
    counted = counters.parse(NET_DEV)["h1-ina"]
    assert (counted.bytes_received, counted.packets_received, counted.dropped_on_receipt) == (
        1234567,
        1000,
        3,
    )
    assert (counted.bytes_sent, counted.packets_sent, counted.dropped_on_send) == (7654321, 2000, 5)


def test_this_process_has_a_loopback() -> None:
    assert "lo" in counters.read(1) or "lo" in counters.parse(open("/proc/self/net/dev").read())  # noqa: SIM115, PTH123

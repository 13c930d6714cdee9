# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a core's receive path: its measurements and its arithmetic."""

from __future__ import annotations

import os

import pytest

from railweave._native import load
from railweave.benchmarks.namespaces import mask
from railweave.benchmarks.receive import benchmark, link_gbps, payload_of
from railweave.experiments.errors import OptionError


@pytest.mark.parametrize("kind", ["spread", "result"])
@pytest.mark.parametrize(("payload", "batch"), [(64, 8192), (1456, 8192), (8192, 2048)])
def test_what_lies_in_memory_is_received_whole(kind: str, payload: int, batch: int) -> None:
    """The native code compares every byte of every batch, and raises an error for a wrong byte."""
    reading = load.receive_from_memory(kind, payload, 0.001)
    assert reading["packets"] > 0
    assert reading["packets"] % batch == 0
    assert reading["cpu"] > 0
    assert reading["clock"] > 0


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        ("spread", 0, "a chunk has 1 to"),
        ("spread", 65492, "a chunk has 1 to"),
        ("result", 0, "lanes must be 1 to 2048"),
        ("result", 8196, "lanes must be 1 to 2048"),
        ("result", 6, "lanes of 4 bytes"),
        ("fetch", 64, "kind must be spread or result"),
    ],
)
def test_packets_that_there_are_not_are_refused(kind: str, payload: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load.receive_from_memory(kind, payload, 0.001)


def test_a_sender_on_no_cpu_is_refused() -> None:
    with pytest.raises(ValueError, match="CPU 1023 is not one of those"):
        load.receive_from_kernel("spread", 64, 0.001, super_packets=True, send_on=1023)
    assert os.sched_getaffinity(0)


def test_an_mtu_has_room_for_headers_and_payload() -> None:
    """Headers are 20 bytes of IPv4, 8 of UDP, 16 of the rail, and a code. At most 2,048 lanes fit."""
    assert [payload_of("spread", mtu) for mtu in (1500, 4096, 9000)] == [1440, 4036, 8940]
    assert [payload_of("result", mtu) for mtu in (1500, 1503, 9000)] == [1456, 1456, 8192]


@pytest.mark.parametrize("mtu", [0, 127, 65536])
def test_what_is_no_mtu_is_refused(mtu: int) -> None:
    with pytest.raises(OptionError, match=f"--mtu {mtu}: expected 128 to 65535 bytes"):
        benchmark([1500, mtu], 0.001)


def test_the_rate_of_a_link_includes_all_headers_and_gaps() -> None:
    """With MTU 1,500, a frame takes 1,538 bytes of a link. So 100 Gbit/s carry 8.127 million per second."""
    assert link_gbps("spread", 1440, ns=150.0) == pytest.approx(1538 * 8 / 150)
    assert link_gbps("spread", 1440, ns=1e3 / 8.127) == pytest.approx(100, rel=1e-3)


def test_a_set_of_one_cpu_is_words_of_32_bits() -> None:
    assert [mask(cpu) for cpu in (0, 3, 31, 32, 65)] == [
        *("1", "8", "80000000", "1,00000000", "2,00000000,00000000")
    ]


@pytest.mark.parametrize("kind", ["spread", "result"])
def test_workers_receive_what_their_groups_get(kind: str) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    for workers in (cpus[:1], cpus):
        reading = load.receive_by_workers(kind, 1456, 0.001, None, workers)
        assert reading["packets"] > 0
        assert reading["packets"] % (2 * 8192) == 0
        assert reading["cpu"] > 0
    with pytest.raises(ValueError, match="CPU 1023 is not one of those"):
        load.receive_by_workers(kind, 1456, 0.001, None, [*cpus, 1023])
    with pytest.raises(ValueError, match="at least one CPU"):
        load.receive_by_workers(kind, 1456, 0.001, None, [])
    assert sorted(os.sched_getaffinity(0))[:2] == cpus

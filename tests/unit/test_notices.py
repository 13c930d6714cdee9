# SPDX-License-Identifier: Apache-2.0
"""Messages for the control plane: packets to and from the CPU port, digests, idle entries."""

from __future__ import annotations

import os

import pytest
from vectors.case import case

from railweave.switch.pipeline import Pipeline, exact, range_, ternary

CPU = 510


@pytest.fixture
def cpu() -> Pipeline:
    pipeline = Pipeline.load(case("cpu").json.read_bytes())
    pipeline.set_cpu_port(CPU)
    return pipeline


def data(key: int) -> bytes:
    return bytes([key]) + bytes(11)


def readable(fd: int) -> bool:
    try:
        return os.eventfd_read(fd) > 0
    except BlockingIOError:
        return False


def test_packets_in_wait_with_their_header(cpu: Pipeline) -> None:
    notices = cpu.notices_fd
    assert not readable(notices)
    assert cpu.inject(3, data(9) + b"abc") == []
    assert readable(notices)
    assert not readable(notices)
    assert cpu.packets_in() == [(3 << 7 | 5).to_bytes(2, "big") + data(9) + b"abc"]
    assert cpu.packets_in() == []
    cpu.set_cpu_port(None)
    assert [port for port, _ in cpu.inject(3, data(9))] == [CPU]
    with pytest.raises(ValueError, match="no CPU port"):
        cpu.packet_out(b"\0\0")


def test_a_slow_control_plane_loses_notices_and_nothing_else(cpu: Pipeline) -> None:
    for _ in range(5000):
        cpu.inject(1, data(9))
    assert cpu.native.statistics()["unnoticed"] == 5000 - 4096
    assert len(cpu.packets_in()) == 4096
    for _ in range(200):
        cpu.inject(1, data(9) + bytes(60000))
    assert len(cpu.packets_in()) == (4 << 20) // 60014


def test_idle_entries_are_told_again_after_each_time_out(cpu: Pipeline) -> None:
    def insert(key: int, **options: int) -> int:
        return cpu.tables.insert("I.hosts", [exact(key)], "I.forward", [key], now_us=1_000, **options)

    quick, slow = insert(1, idle_timeout_ns=5_000_000), insert(2, idle_timeout_ns=20_000_000)
    insert(3)

    def told(now_us: int) -> list[int]:
        found, more = cpu.tables.expired(now_us, 100)
        assert not more
        return [entry.handle for _, entry in found]

    assert told(5_999) == []
    assert told(6_000) == [quick]
    assert told(10_999) == []
    cpu.inject(1, data(1), 8_000)
    assert cpu.tables.time_since_last_hit_ns("I.hosts", quick, 9_500) == 1_500_000
    assert cpu.tables.time_since_last_hit_ns("I.hosts", slow, 9_500) == 8_500_000
    assert told(12_999) == []
    assert told(30_000) == [quick, slow]
    assert told(34_999) == []
    assert told(35_000) == [quick]
    assert told(50_000) == [quick, slow]
    cpu.tables.modify("I.hosts", slow, "I.forward", [4], idle_timeout_ns=1_000, now_us=51_000)
    assert told(51_000) == []
    assert told(51_001) == [slow]
    assert cpu.tables.time_since_last_hit_ns("I.hosts", slow, 51_001) == 50_001_000  # writes are no hits
    cpu.tables.modify("I.hosts", slow, "I.forward", [4], idle_timeout_ns=0, now_us=52_000)
    cpu.tables.delete("I.hosts", quick)
    assert told(1_000_000) == []
    assert cpu.tables.entry("I.hosts", slow).idle_timeout_ns == 0


def test_time_outs_need_a_table_that_has_them(cpu: Pipeline) -> None:
    with pytest.raises(ValueError, match="support_timeout"):
        cpu.tables.insert("I.wide", [range_(0, 9), ternary(0, 0)], "I.mark", [1], 1, idle_timeout_ns=1)
    with pytest.raises(ValueError, match="not negative"):
        cpu.tables.insert("I.hosts", [exact(1)], "I.forward", [1], idle_timeout_ns=-1)

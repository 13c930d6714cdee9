# SPDX-License-Identifier: Apache-2.0
"""Messages for the control plane: packets to and from the CPU port, digests, idle entries."""

from __future__ import annotations

import os

import pytest
from vectors.case import case

from railweave.switch.pipeline import Pipeline, Target, exact

CPU = 510


@pytest.fixture
def cpu() -> Pipeline:
    pipeline = case("cpu").pipeline()
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
    def insert(key: int, timeout_ms: int = 0) -> int:
        timeout_ns = timeout_ms * 1_000_000
        return cpu.tables["I.hosts"].insert(
            [exact(key)], Target("I.forward", (key,)), now_us=1_000, idle_timeout_ns=timeout_ns
        )

    def modify(handle: int, timeout_ns: int, now_ms: int) -> None:
        cpu.tables["I.hosts"].modify(
            handle, Target("I.forward", (4,)), idle_timeout_ns=timeout_ns, now_us=now_ms * 1_000
        )

    def told(now_ms: int) -> list[int]:
        found, more = cpu.expired(now_ms * 1_000, 100)
        assert not more
        return [entry.handle for _, entry in found]

    quick, slow = insert(1, 100), insert(2, 300)
    insert(3)
    assert told(100) == []
    assert told(101) == [quick]
    assert told(200) == []
    cpu.inject(1, data(1), 150_000)
    assert cpu.tables["I.hosts"].time_since_last_hit_ns(quick, 160_000) == 10_000_000
    assert cpu.tables["I.hosts"].time_since_last_hit_ns(slow, 160_000) == 159_000_000
    assert told(249) == []
    assert told(310) == [quick, slow]
    assert told(409) == []
    assert told(410) == [quick]
    assert told(620) == [quick, slow]
    modify(slow, 1, 630)
    assert told(679) == []
    assert told(680) == [slow]  # 50 ms is the shortest time-out
    assert cpu.tables["I.hosts"].entry(slow).idle_timeout_ns == 1
    assert cpu.tables["I.hosts"].time_since_last_hit_ns(slow, 680_000) == 679_000_000  # a write is no hit
    modify(slow, 0, 690)
    cpu.tables["I.hosts"].delete(quick)
    assert told(10_000) == []


def test_a_scan_looks_at_few_entries_and_old_timers_are_dropped(cpu: Pipeline) -> None:
    def insert(key: int) -> int:
        return cpu.tables["I.hosts"].insert(
            [exact(key)], Target("I.forward", (key,)), now_us=key, idle_timeout_ns=10**9
        )

    handles = [insert(key) for key in range(8)]
    found, more = cpu.expired(2_000_000, 5)
    assert ([entry.handle for _, entry in found], more) == (handles[:5], True)
    found, more = cpu.expired(2_000_000, 5)
    assert ([entry.handle for _, entry in found], more) == (handles[5:], False)
    for _ in range(1000):
        cpu.tables["I.hosts"].delete(handles.pop())
        handles.append(insert(7))
    assert len(cpu.timers._queue) < 100

# SPDX-License-Identifier: Apache-2.0
"""The proof that Multipath TCP has used all planes."""

from __future__ import annotations

from typing import Any

import pytest

from railweave.experiments.contenders import Contender, Job
from railweave.experiments.contenders.mptcp import check, multipath_counters

NETSTAT = """\
TcpExt: SyncookiesSent SyncookiesRecv
TcpExt: 1 2
MPTcpExt: MPCapableSYNRX MPJoinAckRx
MPTcpExt: 3 4
"""
JOB = Job(Contender("mptcp", "mptcp"), 3, ("a", "b"), {}, "", 1.0, {})


def counts(b: int, joined: int = 3) -> dict[str, Any]:
    sent = {
        "a": {"h1": 10 << 20, "h2": 10 << 20, "h3": 10 << 20},
        "b": {"h1": 9 << 20, "h2": b, "h3": 9 << 20},
    }
    return {
        "bytes_sent": sent,
        "kernel": {
            "h1": {"MPCapableSYNRX": 2, "MPJoinAckRx": joined - 1},
            "h2": {"MPCapableSYNRX": 1, "MPJoinAckRx": 1},
            "h3": {},
        },
    }


def test_the_kernels_counters_are_read() -> None:
    assert multipath_counters(NETSTAT) == {"MPCapableSYNRX": 3, "MPJoinAckRx": 4}


def test_bytes_on_all_planes_are_a_proof() -> None:
    check(counts(9 << 20), JOB)


def test_a_plane_without_bytes_is_none() -> None:
    with pytest.raises(OSError, match="h2 sent 10,485,860 bytes, but less than 1% of them on b"):
        check(counts(100), JOB)


def test_a_missing_path_is_none() -> None:
    with pytest.raises(OSError, match="joined 2 paths of 3"):
        check(counts(9 << 20, joined=2), JOB)


def test_without_a_connection_nothing_is_proven() -> None:
    given = counts(9 << 20)
    with pytest.raises(OSError, match="0 connections"):
        check({**given, "kernel": {"h1": {"MPTCPRetrans": 1}}}, JOB)

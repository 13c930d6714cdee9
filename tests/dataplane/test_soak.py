# SPDX-License-Identifier: Apache-2.0
"""A switch process under hostile packets and messages for seconds. `python -m hostile` runs longer."""

from __future__ import annotations

import os

import pytest
from hostile.__main__ import messages, packets

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and raw sockets need root")


def test_hostile_packets_at_line_rate_leave_the_switch_as_it_was() -> None:
    report = packets(seed=7, seconds=2)
    assert report.sent > 1000
    assert report.ok, report


def test_hostile_messages_are_answered_within_bounds_and_leave_the_switch_as_it_was() -> None:
    report = messages(seed=7, seconds=4)
    assert report.sent > 50
    assert {"OK", "PERMISSION_DENIED"} <= set(report.answers)
    assert report.ok, report

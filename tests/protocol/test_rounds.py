# SPDX-License-Identifier: Apache-2.0
"""The time that the agreement on rails takes, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from protocol.recovery_pauses import SHAPES, pauses_ms
from protocol.recovery_schedules import BusyMachine
from protocol.virtual_time import SECOND

AIM_MS = 80  # from a cut to the decision
AIM_EARLY_MS = 180  # for a rail that is almost unknown
BUSY_SEEDS = range(6)


def test_pauses(record_property: Callable[[str, object], None]) -> None:
    for ranks, rails in SHAPES:
        pauses = pauses_ms(ranks, rails, 20)
        assert pauses[-1] < AIM_MS
        record_property(
            "summary", f"recovery: {ranks} ranks, {rails} rails: cut to decision {pauses[-1]:.1f} ms at most"
        )


def test_pauses_of_a_job_that_has_just_begun() -> None:
    """Ranks are more patient with an almost unknown rail, but still exclude it within 180 ms."""
    for ranks, rails in SHAPES:
        assert pauses_ms(ranks, rails, 10, known=SECOND // 10)[-1] < AIM_EARLY_MS


@pytest.mark.parametrize("seed", BUSY_SEEDS)
def test_nobody_suspects_a_rail_for_processes_that_run_late(seed: int) -> None:
    BusyMachine(seed).run()

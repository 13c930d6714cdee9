# SPDX-License-Identifier: Apache-2.0
"""An agent with rails that misbehave, and with threads that run at the same time."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from railweave._native.agent import Agent, Call, FailureKind
from railweave._native.collectives import DType, ReduceOp

DEADLINE_S = 30.0


@pytest.mark.parametrize("start_now", [True, False])
def test_a_rail_that_cannot_start_a_slice_ends_the_communicator_and_holds_nothing(start_now: bool) -> None:
    agent = Agent(0, 2)
    rail, _ = agent.add_ina("ina", "127.0.0.1", "lo")  # a rail without a tree
    x, out = np.ones(4, np.float32), np.empty(4, np.float32)
    point = op, _ = agent.plan_point(DEADLINE_S)
    agent.submit(point, Call(DType.FLOAT32, ReduceOp.SUM, 4), x, out, [(rail, 0, 4)], start_now)
    assert agent.wait(op, DEADLINE_S)
    failure = agent.failure_of(op)
    assert failure is not None
    assert (failure.kind, failure.rail) == (FailureKind.RAIL_DOWN, "ina")
    assert "must be attached" in failure.message
    stats = threading.Thread(target=agent.stats, daemon=True)  # hangs if a thread never releases the loop
    stats.start()
    stats.join(DEADLINE_S)
    assert not stats.is_alive()
    agent.close(0)

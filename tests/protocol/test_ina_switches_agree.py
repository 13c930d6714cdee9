# SPDX-License-Identifier: Apache-2.0
"""The compiled P4 program and the reference model, fed the same packets, give the same answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.engine_switch import EngineSwitch
from protocol.network import GROUP
from protocol.switch_model import PARENT, Membership, Packet, SwitchModel

LANES = 64


@st.composite
def packets(draw: st.DrawFn, children: int, has_parent: bool) -> tuple[int | str, bytes]:
    """A packet of this group or nearly so, and the port that it comes by."""
    port: int | str = draw(st.sampled_from([*range(children), *([PARENT] * has_parent)]))
    child = 3 if port == PARENT else port
    usual_kind = 1 if port == PARENT else 0
    packet = Packet(
        kind=draw(st.sampled_from([usual_kind] * 8 + [0, 1, 2, 3])),
        op=draw(st.sampled_from([0] * 4 + [1, 1, 2])),
        group=draw(st.sampled_from([GROUP] * 9 + [GROUP + 1])),
        child=draw(st.sampled_from([child] * 9 + [30])),
        flags=draw(st.sampled_from([0, 0, 1, 2, 3, 32, 32])),
        slot=draw(st.sampled_from([0, 0, 0, 1, 2, 4])),
        round=draw(st.sampled_from([0, 0, 0, 1, 2, 2**31])),
        mark=draw(st.sampled_from([5, 5, 5, 6])),
        lanes=np.full(LANES, draw(st.integers(-(2**31), 2**31 - 1)), ">i4").tobytes(),
    )
    cut = draw(st.sampled_from([None] * 12 + [4, 16, 16, 16]))
    return port, packet.encode()[:cut]


@pytest.mark.parametrize("child_at_parent", [None, 3], ids=["root", "leaf"])
@settings(max_examples=60, deadline=None)
@given(data=st.data(), start=st.sampled_from([1, 2**32 - 1]))
def test_same_packets_same_answers(data: st.DataObject, start: int, child_at_parent: int | None) -> None:
    children = data.draw(st.integers(1, 3))
    member = Membership(GROUP, children, slots=2, start=start, child_at_parent=child_at_parent)
    model, engine = SwitchModel(LANES, [member]), EngineSwitch(LANES, [member])
    for port, packet in data.draw(st.lists(packets(children, child_at_parent is not None), max_size=25)):
        assert by_port(engine.process(port, packet)) == by_port(model.process(port, packet))


def by_port(packets: list[tuple[int | str, bytes]]) -> list[tuple[str, bytes]]:
    """What leaves by one port is in order; between ports there is none."""
    return sorted(((str(port), data) for port, data in packets), key=lambda pair: pair[0])

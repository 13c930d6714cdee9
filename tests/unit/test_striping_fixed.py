# SPDX-License-Identifier: Apache-2.0
"""Shares that an option gives, and the limits of links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railweave._native.collectives import Called, Collective, DType, ReduceOp
from railweave.hosts.decisions import Ledger, Reason
from railweave.hosts.errors import UnsupportedDType
from railweave.hosts.limits import INA_HEADER, LANE_BYTES
from railweave.hosts.striping import Plan, Planner, StripedRail
from railweave.hosts.striping.splits import ALIGNMENT
from railweave.p4src.config import CONFIG

shares = st.lists(st.floats(0, 10), min_size=1, max_size=5).filter(lambda values: sum(values) > 1e-3)
KINDS = ("tcp", "ina", "rdma")


def planner(values: list[float], ledger: Ledger | None = None) -> Planner:
    rails = [StripedRail(f"r{i}", i, KINDS[i % 3], 0, share) for i, share in enumerate(values)]
    return Planner(rails, 4, ledger or Ledger(), fixed=True)


def plan(
    of: Planner, count: int, dtype: DType = DType.FLOAT32, op: ReduceOp = ReduceOp.SUM, op_index: int = 0
) -> Plan:
    return of.plan(op_index, (Collective.ALL_REDUCE, dtype, op, 0, Called.AS_CARRIED, count), [])


@given(shares, st.integers(1, 10**9))
def test_parts_cover_the_tensor_in_order_and_begin_at_chunks(values: list[float], count: int) -> None:
    parts = plan(planner(values), count, DType.INT32).parts
    carried = dict.fromkeys(range(len(values)), 0)
    for rail, offset, size in parts:
        assert (offset, offset % ALIGNMENT) == (sum(carried.values()), 0)
        assert size > 0
        assert values[rail] > 0
        carried[rail] = size
    assert sum(carried.values()) == count
    if count >= len(values) * ALIGNMENT:
        for rail, share in enumerate(values):
            assert abs(carried[rail] - count * share / sum(values)) <= ALIGNMENT


SMALL = 3 * ALIGNMENT - 1


def test_small_tensors_ride_the_in_network_rail_if_it_has_a_share() -> None:
    ledger = Ledger()
    of = planner([0.7, 0.1, 0.2], ledger)
    small = plan(of, SMALL)
    assert small.parts == ((1, 0, SMALL),)
    of.submitted(0, small)
    assert [d.reason for d in ledger.decisions()] == [Reason.THRESHOLD, "", Reason.THRESHOLD]
    assert plan(planner([0.3, 0.0, 0.7]), 1).parts == ((2, 0, 1),)


@pytest.mark.parametrize(
    ("dtype", "op", "reason"),
    [
        (DType.FLOAT64, ReduceOp.SUM, Reason.DTYPE),
        (DType.INT8, ReduceOp.MAX, Reason.DTYPE),
        (DType.FLOAT32, ReduceOp.PROD, Reason.OP),
    ],
)
def test_what_the_switch_lacks_goes_wholly_by_the_others(dtype: DType, op: ReduceOp, reason: Reason) -> None:
    for count in (1, 10**6):
        ledger = Ledger()
        of = planner([0.3, 0.4, 0.3], ledger)
        cut = plan(of, count, dtype, op)
        of.submitted(0, cut)
        assert {d.rail: d.reason for d in ledger.decisions()}["r1"] is reason
        assert sum(size for rail, _, size in cut.parts if rail != 1) == count


def test_without_a_rail_that_can_the_error_says_what_to_add() -> None:
    only_ina = Planner([StripedRail("ina", 0, "ina", 0, 1.0)], 4, Ledger(), fixed=True)
    with pytest.raises(UnsupportedDType, match=r"no rail can carry all_reduce sum of float64 .*; add a tcp"):
        plan(only_ina, 1, DType.FLOAT64)
    with pytest.raises(UnsupportedDType, match=r"r0: its share is 0.*give rail r0 a share"):
        plan(planner([0, 1]), 10, op=ReduceOp.PROD)


def test_numbers_are_those_of_the_program_in_the_switch() -> None:
    assert CONFIG["LANES"] == ALIGNMENT
    assert CONFIG["INA_HEADER_BYTES"] == INA_HEADER
    assert LANE_BYTES == 4

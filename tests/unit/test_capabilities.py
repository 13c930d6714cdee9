# SPDX-License-Identifier: Apache-2.0
"""The calls that rails can carry, and the limits of links, for every collective."""

from __future__ import annotations

import pytest

from railweave._native.collectives import Collective, DType, ReduceOp
from railweave.hosts import capabilities
from railweave.hosts.decisions import Reason
from railweave.hosts.limits import limit_bps, payload_fraction
from railweave.hosts.striping.priors import StripedRail, prior_lines


@pytest.mark.parametrize("collective", [Collective.ALL_REDUCE, Collective.REDUCE_SCATTER])
def test_switches_reduce_some_types_with_some_operations(collective: Collective) -> None:
    assert capabilities.obstacle("ina", DType.FLOAT64, ReduceOp.SUM, collective) == Reason.DTYPE
    assert capabilities.obstacle("ina", DType.FLOAT32, ReduceOp.PROD, collective) == Reason.OP
    assert capabilities.obstacle("ina", DType.BFLOAT16, ReduceOp.AVG, collective) is None


@pytest.mark.parametrize("collective", [Collective.ALL_GATHER, Collective.BROADCAST])
@pytest.mark.parametrize("dtype", DType)
def test_switches_move_all_types(collective: Collective, dtype: DType) -> None:
    assert capabilities.obstacle("ina", dtype, ReduceOp.SUM, collective) is None


@pytest.mark.parametrize("collective", Collective)
@pytest.mark.parametrize("dtype", DType)
def test_hosts_do_everything(collective: Collective, dtype: DType) -> None:
    for kind in ("tcp", "rdma"):
        assert capabilities.obstacle(kind, dtype, ReduceOp.PROD, collective) is None


def test_the_size_of_a_call_is_that_of_all_shards() -> None:
    sizes = {each: capabilities.size_bytes(each, 10, 4, 3) for each in Collective}
    assert sizes == {
        Collective.ALL_REDUCE: 40,
        Collective.BROADCAST: 40,
        Collective.REDUCE_SCATTER: 120,
        Collective.ALL_GATHER: 120,
    }


def test_a_link_carries_what_the_algorithm_sends_over_it() -> None:
    volumes = {
        Collective.ALL_REDUCE: 1.5,
        Collective.REDUCE_SCATTER: 0.75,
        Collective.ALL_GATHER: 0.75,
        Collective.BROADCAST: 1.0,
    }
    for collective, volume in volumes.items():
        assert limit_bps("tcp", 1e8, 4, collective=collective) == pytest.approx(
            1e8 * payload_fraction("tcp") / volume
        )
        of_ina = {
            Collective.ALL_REDUCE: 1008 / 1082,
            Collective.BROADCAST: 1440 / 1514,  # in packets that fill the MTU
            Collective.ALL_GATHER: 1440 / 1514 / 0.75,  # three other shards come down
            Collective.REDUCE_SCATTER: 1008
            / (0.75 * 1082 + 58 / 4),  # they go up, with headers of the own shard
        }[collective]
        assert limit_bps("ina", 1e8, 4, collective=collective) == pytest.approx(1e8 * of_ina)


@pytest.mark.parametrize("collective", list(Collective))
def test_a_switch_that_adds_saves_an_allreduce_the_way_round(collective: Collective) -> None:
    ring = limit_bps("rdma", 1e8, 8, collective=collective)
    saved = 1.75 if collective is Collective.ALL_REDUCE else 1.0
    assert limit_bps("netreduce", 1e8, 8, collective=collective) == pytest.approx(ring * saved)
    for adds, found in ((True, ring * saved), (False, ring)):
        rail = StripedRail("n", 0, "netreduce", 10**8, adds=adds)
        assert prior_lines([rail], 8, collective.name.lower())[0].rate == pytest.approx(found / 8)

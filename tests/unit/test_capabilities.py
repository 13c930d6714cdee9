# SPDX-License-Identifier: Apache-2.0
"""The calls that rails can carry, and the limits of links, for every collective."""

from __future__ import annotations

import pytest

from railweave._native.collectives import Collective, DType, ReduceOp
from railweave.hosts import capabilities
from railweave.hosts.decisions import Reason
from railweave.hosts.endpoints import carried
from railweave.hosts.limits import limit_bps, payload_fraction
from railweave.hosts.striping.priors import StripedRail, prior_lines

OBSTACLES = {(DType.FLOAT64, ReduceOp.SUM): Reason.DTYPE, (DType.FLOAT32, ReduceOp.PROD): Reason.OP}
REDUCING = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


@pytest.mark.parametrize("collective", Collective)
def test_switches_reduce_some_types_and_operations_and_move_all_and_hosts_do_everything(
    collective: Collective,
) -> None:
    for (dtype, op), reason in {**OBSTACLES, (DType.BFLOAT16, ReduceOp.AVG): None}.items():
        expected = reason if collective in REDUCING else None
        assert capabilities.obstacle("ina", dtype, op, collective) == expected
        for kind in ("tcp", "rdma"):
            assert capabilities.obstacle(kind, dtype, op, collective) is None


def test_an_algorithm_carries_only_the_all_reduces_of_its_manifest() -> None:
    rail = StripedRail("mine", 0, "algorithm", where="mine", carries=carried(["float32"], ["sum", "x"]))
    float32, reduce_all = DType.FLOAT32, Collective.ALL_REDUCE
    for call, reason in (
        ((reduce_all, float32, ReduceOp.SUM), None),
        ((reduce_all, float32, ReduceOp.AVG), None),
        ((reduce_all, float32, ReduceOp.MAX), Reason.OP),
        ((reduce_all, DType.INT32, ReduceOp.SUM), Reason.DTYPE),
        ((Collective.BROADCAST, float32, ReduceOp.SUM), Reason.COLLECTIVE),
    ):
        verdict = capabilities.barred(rail, *call)
        text = "mine carries all_reduces: avg of float32, sum of float32"
        assert (verdict and (verdict.reason, verdict.text)) == (reason and (reason, text))
    assert carried(["int32"], ["sum"]) == {(DType.INT32, ReduceOp.SUM)}


def test_the_size_of_a_call_is_that_of_all_shards() -> None:
    sizes = [capabilities.size_bytes(each, 10, 4, 3) for each in (*REDUCING, Collective.ALL_GATHER)]
    assert sizes == [40, 120, 120]
    assert capabilities.size_bytes(Collective.BROADCAST, 10, 4, 3) == 40


@pytest.mark.parametrize(
    ("collective", "volume", "of_ina"),
    [
        (Collective.ALL_REDUCE, 1.5, 1008 / 1082),
        (Collective.BROADCAST, 1.0, 1440 / 1514),  # in packets that fill the MTU
        (Collective.ALL_GATHER, 0.75, 1440 / 1514 / 0.75),  # three other shards come down
        # They go up, with the headers of the rank's own shard.
        (Collective.REDUCE_SCATTER, 0.75, 1008 / (0.75 * 1082 + 58 / 4)),
    ],
)
def test_a_link_carries_what_the_algorithm_sends_over_it(
    collective: Collective, volume: float, of_ina: float
) -> None:
    of_tcp = payload_fraction("tcp") / volume
    for kind, fraction in (("tcp", of_tcp), ("ina", of_ina)):
        assert limit_bps(kind, 1e8, 4, collective=collective) == pytest.approx(1e8 * fraction)


@pytest.mark.parametrize("collective", list(Collective))
def test_a_switch_that_adds_saves_an_allreduce_the_way_round(collective: Collective) -> None:
    ring = limit_bps("rdma", 1e8, 8, collective=collective)
    saved = 1.75 if collective is Collective.ALL_REDUCE else 1.0
    assert limit_bps("netreduce", 1e8, 8, collective=collective) == pytest.approx(ring * saved)
    for adds, found in ((True, ring * saved), (False, ring)):
        rail = StripedRail("n", 0, "netreduce", 10**8, adds=adds)
        assert prior_lines([rail], 8, collective.name.lower())[0].rate == pytest.approx(found / 8)

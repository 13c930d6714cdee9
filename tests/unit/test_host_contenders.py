# SPDX-License-Identifier: Apache-2.0
"""The parameter server and the hierarchical ring: sums, limits and invalid peers."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from free_ports import free_port

from railweave.algorithms.atp import control
from railweave.experiments.contenders import Array, Contender, Endpoint, Job, hierarchical, ps
from railweave.experiments.errors import OptionError
from railweave.sdk import Job as AlgorithmJob
from railweave.topologies.named import named

RANKS = 6
DEADLINE_S = 60.0


def job_of(kind: str, servers: int = 1) -> Job:
    contender = Contender(kind, kind, options={"racks": 2, "servers": servers})
    # Each rank has its own address, because the rings of several racks meet at the same port.
    addresses = {"lo": tuple(f"127.0.1.{rank + 1}" for rank in range(RANKS))}
    return Job(contender, RANKS, ("lo",), addresses, "", DEADLINE_S, {})


@pytest.mark.parametrize(
    ("kind", "servers"), [("ps", 1), ("ps", 2), ("ps", RANKS), ("hierarchical", 1)], ids=str
)
@pytest.mark.parametrize("count", [1, 7, 100_000])
def test_it_sums(kind: str, servers: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(kind, servers)

    def work(rank: int, port: int) -> list[Array]:
        if kind == "ps":
            endpoint: Endpoint = job.contender.implementation().connect(job, rank)
        else:
            endpoint = hierarchical.Hierarchy(rank, job, 2, port=port)
        outs = []
        for call in range(3):
            given = np.arange(count, dtype=np.int32) * (rank + 1) + call
            out = given.copy()
            endpoint.all_reduce(given, out, "sum")
            outs.append(out)
        endpoint.barrier()
        endpoint.close()
        return outs

    with free_port() as port, ThreadPoolExecutor(RANKS) as ranks:
        monkeypatch.setattr(ps, "PORT", port)
        results = list(ranks.map(work, range(RANKS), [port] * RANKS))
    factor = sum(range(RANKS + 1))
    for outs in results:
        for call, out in enumerate(outs):
            np.testing.assert_array_equal(out, np.arange(count) * factor + call * RANKS)


def test_limits_are_those_of_their_models() -> None:
    """The busiest link carries 15 tensors each way to a server of 16 ranks, and 4 * 3/4 in the hierarchy."""
    network = named("racks:racks=4,hosts=4,ina=0", rails=["ina"], rates=[10_000_000])
    goodput = 10e6 * 1448 / 1514
    volumes = {"ps": 15.0, "hierarchical": 3.0, "ring": 1.875, "railweave": 1.875}
    for kind, volume in volumes.items():
        implementation = Contender(kind, kind, options={"racks": 4}).implementation()
        assert implementation.limit_bps(network.planes[0], "all_reduce") == pytest.approx(goodput / volume)
    servers = Contender("ps", "ps", options={"servers": 16}).implementation()
    assert servers.limit_bps(network.planes[0], "all_reduce") == pytest.approx(goodput / 1.875)


def test_a_hierarchy_without_racks_says_so() -> None:
    with pytest.raises(OptionError, match="contender 'tree' without racks: expected the option racks"):
        Contender("tree", "hierarchical").implementation()


@pytest.mark.parametrize(("ina", "members"), [(0, 16), (1, 13), (2, 10), (3, 7), (4, 4)])
def test_our_limit_follows_the_members_of_the_ring(ina: int, members: int) -> None:
    network = named(f"racks:racks=4,hosts=4,ina={ina}", rails=["ina"], rates=[10_000_000])
    limit = Contender("ina", "railweave").implementation().limit_bps(network.planes[0], "all_reduce")
    assert limit == pytest.approx(10e6 * 1448 / 1514 * members / (2 * (members - 1)))


def test_a_worker_that_leaves_is_an_error() -> None:
    server_end, worker_end = socket.socketpair()
    server = ps.Ps(0, 1, {}, [server_end], DEADLINE_S)
    worker_end.close()
    with pytest.raises(ConnectionError):
        server.all_reduce(np.ones(4, np.int32), np.ones(4, np.int32), "sum")


def test_ranks_that_do_not_come_are_an_error() -> None:
    job = replace(job_of("ps"), timeout_s=0.2)
    for rank in range(2):
        with pytest.raises(TimeoutError):
            ps.Kind(job.contender).connect(job, rank)


@pytest.mark.parametrize(("ina", "flows"), [(0, 15), (1, 13), (2, 10), (3, 7), (4, 4)])
def test_flows_of_atp_meet_at_the_server(ina: int, flows: int) -> None:
    plane = named(f"racks:racks=4,hosts=4,ina={ina}", rails=["ina"], rates=[10_000_000]).planes[0]
    assert control.crossings(plane) == flows
    limit = Contender("atp", "atp").implementation().limit_bps(plane, "all_reduce")
    assert limit == pytest.approx(10e6 * 1024 / (1024 + 12 + 8 + 20 + 14) / flows)


def test_results_of_a_rack_that_aggregates_go_to_its_first_worker() -> None:
    plane = named("racks:racks=3,hosts=2,ina=2", rails=["ina"], rates=[10_000_000]).planes[0]
    address = [nic.address for nic in plane.nics]
    assert control.receivers(plane) == [address[n] for n in (0, 1, 2, 2, 4, 5)]


def test_a_rack_of_the_server_alone_sums_nothing() -> None:
    plane = named("racks:racks=2,hosts=1,ina=2", rails=["ina"], rates=[10_000_000]).planes[0]
    states = control.wanted(plane, [AlgorithmJob(0, 2, 5280, 64)])
    tables = {name: {entry.table for entry in state.entries} for name, state in states.items()}
    assert tables == {"leaf1": {"mac_table"}, "leaf2": {"mac_table", "workers", "copies", "results"}}

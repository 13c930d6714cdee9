# SPDX-License-Identifier: Apache-2.0
"""The Python interface of the lab for notebooks, tests and experiments."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import railweave
from railweave._native import ina
from railweave._rigs import spread
from railweave.experiments.errors import OptionError
from railweave.hosts.communicator import Communicator
from railweave.p4src.artifacts import JUMBO_LANES
from railweave.pytest_plugin import railweave_lab  # noqa: F401 - a fixture
from railweave.topologies.errors import LabError, WorkerFailed

if TYPE_CHECKING:
    from railweave.experiments.program.testbed import Testbed

EXAMPLE = Path(__file__).parents[2] / "examples" / "second_rail.py"
DEADLINE_S = 60.0
SHARD = 200_000  # bytes

Labs = Callable[..., "Testbed"]


def rank_sum(comm: Communicator, factor: int) -> dict[str, Any]:
    result = comm.all_reduce(np.full(1 << 16, factor * (comm.rank + 1), np.int32))
    return {"rank": comm.rank, "sum": int(result[0]), "rails": [rail.name for rail in comm.stats().rails]}


def rank_sums(comm: Communicator, count: int) -> dict[str, Any]:
    given = np.random.default_rng(1).integers(-(2**31), 2**31, (comm.world_size, count), np.int32)
    before = comm.stats().rails[0].packets_sent
    right = np.array_equal(comm.all_reduce(given[comm.rank]), given.sum(axis=0, dtype=np.int32))
    return {"right": right, "packets": comm.stats().rails[0].packets_sent - before}


def until_failed(comm: Communicator) -> bool:
    """Call until the first rail has failed."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        failed = [rail.failures for rail in comm.stats().rails[:1]]
        if comm.all_reduce(np.array(failed, np.int32), op="min")[0]:
            return True
    return False


def gather(comm: Communicator) -> dict[str, int]:
    shards = np.random.default_rng(1).integers(0, 256, (comm.world_size, SHARD), np.uint8)
    before = comm.stats().rails[0].packets_sent
    np.testing.assert_array_equal(comm.all_gather(shards[comm.rank]), shards.reshape(-1))
    return {"packets": comm.stats().rails[0].packets_sent - before}


def fails(comm: Communicator) -> None:
    if comm.rank == 1:
        raise RuntimeError("on purpose")
    comm.barrier()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    with railweave.lab(hosts=2, rails="tcp,rdma", out=str(tmp_path_factory.mktemp("lab"))) as made:
        yield made


def test_jobs_run_one_after_the_other_and_return_values(lab: Testbed) -> None:
    for factor in (1, 5):
        result = lab.run(rank_sum, factor).wait(DEADLINE_S)
        assert [value["sum"] for value in result.values] == [3 * factor] * 2
        assert [value["rank"] for value in result.values] == [0, 1]
        assert all(rail.bytes_agree for rail in result.collected.rails)
    only = lab.run(rank_sum, 1, rails=["rdma"]).wait(DEADLINE_S)
    assert only.values[0]["rails"] == ["rdma"]
    said = lab.run(["sh", "-c", "echo $RANK; echo of $WORLD_SIZE >&2"]).wait(DEADLINE_S)
    assert said.output == [["0", "of 2"], ["1", "of 2"]]
    counters = lab.counters()
    sent = sum(host.bytes_sent for host in counters.interfaces["tcp"].values())
    assert 0 < sent < counters.links["tcp"]
    assert counters.links["tcp"] == pytest.approx(2 * sent, rel=0.01)  # two links per byte


def test_faults_are_injected_and_repaired_while_a_job_runs(lab: Testbed) -> None:
    with lab.fault("host link down h2 tcp"):
        assert lab.run(rank_sum, 1, rails=["rdma"]).wait(DEADLINE_S).values[0]["sum"] == 3
    job = lab.run(until_failed)
    outage = lab.fault("loss both ways h1 tcp")
    assert job.wait(DEADLINE_S).values == [True, True]
    outage.repair()
    outage.repair()
    with pytest.raises(OptionError, match="expected one of: host link down"):
        lab.fault("earthquake h1")


def test_a_rank_that_fails_is_named_and_the_lab_goes_on(lab: Testbed) -> None:
    with pytest.raises(WorkerFailed, match="on purpose") as error:
        lab.run(fails).wait(DEADLINE_S)
    assert error.value.code == 1
    assert lab.run(rank_sum, 2).wait(DEADLINE_S).values[1]["sum"] == 6


def test_a_second_job_and_a_function_without_a_file_are_refused(lab: Testbed, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="top level of a file"):
        lab.run(lambda comm: comm.rank)
    job = lab.run(["sh", "-c", f"until [ -e {tmp_path}/stop ]; do sleep 0.02; done"])
    with pytest.raises(LabError, match="a job is running"):
        lab.run(rank_sum, 1)
    assert not job.done()
    (tmp_path / "stop").touch()
    job.wait(DEADLINE_S)


def test_what_is_multicast_fits_the_smallest_mtu(railweave_lab: Labs) -> None:  # noqa: F811
    lab = railweave_lab(hosts=2, rails="ina")
    for mtu in (1500, 1200):
        script = f"[ $RANK = 0 ] || ip link set dev h2-ina mtu {mtu}"
        lab.run(["sh", "-c", script]).wait(DEADLINE_S)
        chunks = -(-SHARD // (mtu - 20 - 8 - ina.HEADER_BYTES - spread.CODE_BYTES))
        for sent in lab.run(gather).wait(DEADLINE_S).values:
            assert chunks < sent["packets"] < 1.2 * chunks  # more for READY and for fetched chunks


def test_jumbo_frames_carry_more_lanes_and_a_link_without_is_refused(railweave_lab: Labs) -> None:  # noqa: F811
    lab = railweave_lab(hosts=2, rails="ina", mtu=9000)
    for value in lab.run(rank_sums, 24 * JUMBO_LANES).wait(DEADLINE_S).values:
        assert value["right"]
        assert 24 <= value["packets"] < 96  # packets of 256 lanes would be 96 or more
    lab.run(["sh", "-c", "[ $RANK = 0 ] || ip link set dev h2-ina mtu 4139"]).wait(DEADLINE_S)
    refusal = "link 'h2-ina' has an MTU of 4139: expected 4140 or more, for packets of 1024 lanes; raise it"
    with pytest.raises(WorkerFailed, match=refusal):
        lab.run(rank_sum, 1).wait(DEADLINE_S)


def test_the_example_draws_its_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.RATES = (100,)
    example.main("figure.png", calls=3)
    assert Path("figure.png").read_bytes().startswith(b"\x89PNG")

# SPDX-License-Identifier: Apache-2.0
"""PyTorch on railweave: the examples on the lab's hosts, and a part of PyTorch's own tests."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, python
from system.command import Start
from system.namespaces import inside, ip
from system.rdma_hosts import NIC, bridged

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
RUN = ("run", "--hosts", "2", "--rails", "ina,tcp,rdma", "--rate", "50M", "--join", "0")
DEADLINE_S = 120.0
LOSS_TOLERANCE = 1e-3  # the loss is about 4.5; the ina rail rounds sums to fixed point
OWN_TESTS = (  # tests of PyTorch: one per kind of call, groups, futures, models, and calls over Gloo
    "test_all_gather_coalesced_with_empty",
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_max",
    "test_all_reduce_sum_async",
    "test_all_reduce_sum_complex",
    "test_barrier_timeout_full_group",
    "test_batch_isend_irecv_gloo",
    "test_broadcast_full_group",
    "test_ddp_logging_data_cpu",
    "test_DistributedDataParallelCPU_grad_is_view",
    "test_gather",
    "test_get_future",
    "test_monitored_barrier_gloo_subgroup",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_reduce_sum_twice",
    "test_scatter_object_list",
    "test_sparse_all_reduce_sum",
    "test_static_graph_api_cpu",
)


TWO_MACHINES = """
import os, sys, torch, torch.distributed as dist, railweave.torch
for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "GLOO_SOCKET_IFNAME"):
    os.environ.pop(name, None)
os.environ.update(name.split("=") for name in sys.argv[3:])
dist.init_process_group("railweave", init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2)
x = torch.ones(3)
dist.all_reduce(x)  # over the rail
bits = torch.tensor([1 << dist.get_rank()])
dist.all_reduce(bits, dist.ReduceOp.BOR)  # over Gloo
print(x.tolist(), bits.item())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("rails", [(), (f"RAILWEAVE_RAILS=tcp@{NIC}",)])
def test_a_name_that_is_loopbacks_on_its_own_machine(rails: tuple[str, ...]) -> None:
    """Debian's /etc/hosts does this. Rank 0 still finds the interface to rank 1, for rail and Gloo."""
    with bridged(2) as hosts:
        ranks = []
        for rank, store in enumerate(("127.0.1.1", hosts.address(0))):
            with inside(hosts.namespaces[rank]):
                ip("link", "set", "lo", "up")
                program = (sys.executable, "-c", TWO_MACHINES, f"tcp://{store}:29500", str(rank), *rails)
                out = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
                ranks.append(subprocess.Popen(program, **out))  # type: ignore[call-overload]
        try:
            for rank in ranks:
                said, complaint = rank.communicate(timeout=DEADLINE_S)
                assert said == "[2.0, 2.0, 2.0] 3\n", complaint
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def trained(start: Start, folder: Path, example: str, backend: str) -> dict[str, Any]:
    """Run an example, and return the result that it has written."""
    out = folder / f"{backend}.json"
    program = (sys.executable, str(ROOT / "examples" / example), "--backend", backend, "--steps", "6")
    command = start(*RUN, "--", *program, "--out", str(out))
    said, complaint = command.process.communicate()
    # PyTorch's Gloo sometimes aborts when the interpreter ends ("terminate called without an active
    # exception"), also without railweave. The result exists by then.
    assert command.process.returncode == 0 or (backend == "gloo" and out.exists()), said + complaint
    result: dict[str, Any] = json.loads(out.read_text())
    return {**result, "said": said}


@pytest.mark.parametrize("example", ["ddp.py", "fsdp.py"])
def test_an_example_trains_as_on_gloo(start: Start, tmp_path: Path, example: str) -> None:
    ours, gloo = (trained(start, tmp_path, example, backend) for backend in ("railweave", "gloo"))
    assert ours["losses"] == pytest.approx(gloo["losses"], abs=LOSS_TOLERANCE)
    assert ours["losses"][-1] < ours["losses"][0]
    assert "all counts agree" in ours["said"]
    assert "hidden" in ours["said"]


def test_some_of_pytorchs_own_tests(record_property: Any) -> None:
    suite = python(ROOT / "tests" / "torch_suite.py", *OWN_TESTS, timeout=None)
    record_property("summary", f"PyTorch's own tests: {suite.stdout.splitlines()[-1]}")

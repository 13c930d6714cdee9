# SPDX-License-Identifier: Apache-2.0
"""The back end and device of a process group. The ranks are separate processes, without a GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
DEADLINE_S = 120.0
BEGIN = """
import sys, torch, torch.distributed as dist, railweave.torch
import torch.distributed._functional_collectives as functional
backend, store, rank, size = sys.argv[1:]
dist.init_process_group(backend, init_method=f"file://{store}", rank=int(rank), world_size=int(size))
group = dist.group.WORLD
x, flags = torch.ones(4), torch.tensor([True, False])
"""
END = """
dist.destroy_process_group()
print("done")
"""


def run(backend: str, folder: Path, program: str, size: int = 1) -> None:
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                BEGIN + program + END,
                backend,
                str(folder / "store"),
                str(rank),
                str(size),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        for rank in ranks:
            said, complaint = rank.communicate(timeout=DEADLINE_S)
            assert said == "done\n", complaint
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.parametrize("backend", ["railweave", "cpu:railweave", "cuda:railweave,cpu:railweave"])
def test_rails_carry_tensors_on_the_cpu(tmp_path: Path, backend: str) -> None:
    program = """
dist.all_reduce(x)
assert sum(times.calls for times in group.overlap.times().values()) == 1
"""
    run(backend, tmp_path, program)


def test_gloo_carries_tensors_on_the_cpu_where_the_program_names_it(tmp_path: Path) -> None:
    program = """
dist.all_reduce(x)
assert not group.overlap.times()
dist.barrier()
"""
    run("cpu:gloo,cuda:railweave", tmp_path, program)


def test_gloo_carries_what_rails_do_not(tmp_path: Path) -> None:
    program = """
assert functional.all_gather_tensor(flags, 0, group).tolist() == [True, False]
assert functional.all_to_all_single(x, None, None, group).tolist() == [1, 1, 1, 1]
out = torch.zeros(2, dtype=torch.bool)
dist.all_gather_into_tensor(out, flags)
assert out.tolist() == [True, False]
assert not group.overlap.times()
"""
    run("railweave", tmp_path, program)


def test_a_call_of_gloo_does_not_hold_the_gil_that_the_end_of_another_one_needs(tmp_path: Path) -> None:
    program = """
for _ in range(2500):
    for bits in torch.ones(3, dtype=torch.int32), torch.ones(3, dtype=torch.int32):
        dist.all_reduce(bits, dist.ReduceOp.BOR)
    del bits
"""
    run("railweave", tmp_path, program, size=4)


def test_other_devices_are_refused(tmp_path: Path) -> None:
    program = """
try:
    dist.all_reduce(torch.ones(3, device="meta"))
except railweave.InvalidOption as error:
    assert str(error) == (
        "a tensor on meta: expected one on the CPU or on a CUDA device; copy it to one of these"
    ), error
else:
    raise AssertionError("it has been taken")
"""
    run("railweave", tmp_path, program)

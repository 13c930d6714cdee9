# SPDX-License-Identifier: Apache-2.0
"""Which back end and device a process group takes: one rank in a process of its own, without a GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
BEGIN = """
import sys, torch, torch.distributed as dist, railweave.torch
import torch.distributed._functional_collectives as functional
dist.init_process_group(sys.argv[1], init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
group = dist.group.WORLD
x, flags = torch.ones(4), torch.tensor([True, False])
"""
END = """
dist.destroy_process_group()
print("done")
"""


def run(backend: str, folder: Path, program: str) -> None:
    rank = subprocess.run(
        [sys.executable, "-c", BEGIN + program + END, backend, str(folder / "store")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert rank.stdout == "done\n", rank.stderr


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

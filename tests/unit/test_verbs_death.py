# SPDX-License-Identifier: Apache-2.0
"""A dead RDMA device or a dead queue pair does not keep the loop busy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from commands import python, run

HERE = Path(__file__).parent
MOST_TURNS = 100  # turns of an idle loop; a busy loop makes thousands

RANK = """
import ctypes

import numpy as np

from railweave._native.agent import Agent, Call, RdmaPlace
from railweave._native.collectives import DType, ReduceOp

fake = ctypes.CDLL(None)
agent = Agent(0, 2)
agent.set_secret(bytes(32))
rail, numbers = agent.add_rdma("rdma", "127.0.0.1", "lo", place=RdmaPlace.DEVICE)
assert agent.rdma_place(rail) == (True, "on device fake0")
agent.open_control(rail)  # another rail may carry on: the failure of this one ends nothing
agent.connect_rdma(rail, [("127.0.0.1", "", numbers), ("127.0.0.2", "", numbers[::-1])], [0, 1])
x = np.ones(4, np.float32)
{death}
agent.submit(agent.plan_point(1.0), Call(DType.FLOAT32, ReduceOp.SUM, x.size), x, x, [(rail, 0, x.size)])
assert not agent.wait(0, 0.2)
before = fake.count_turns()
assert not agent.wait(0, 0.3)
print(fake.count_turns() - before)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the fake library under the name of the real library."""
    if not Path("/usr/include/infiniband/verbs.h").exists() or shutil.which("gcc") is None:
        pytest.skip("needs gcc and libibverbs-dev")
    made = tmp_path_factory.mktemp("verbs") / "libibverbs.so.1"
    options = ["-shared", "-fPIC", "-w", "-Wl,-soname,libibverbs.so.1"]
    run("gcc", *options, "-o", made, HERE / "fake_verbs.c")
    return made


@pytest.mark.parametrize("death", ["fake.fail_posts()", "fake.say_fatal(2)"], ids=["queue pair", "device"])
def test_the_loop_sleeps_beside_a_dead_rail(library: Path, death: str) -> None:
    preloaded = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)]))
    done = python("-c", RANK.format(death=death), env=os.environ | {"LD_PRELOAD": preloaded})
    assert int(done.stdout) < MOST_TURNS

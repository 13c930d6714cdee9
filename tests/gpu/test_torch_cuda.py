# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors of ranks that share one GPU, over a TCP rail on loopback and on the lab's hosts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from free_ports import free_port

from railweave.topologies.errors import LabError
from railweave.topologies.lab.namespaces import require_tools

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).with_name("cases.py")
DEADLINE_S = 240.0
Outcomes = list[tuple[dict[str, str], str]]


def devices() -> int:
    """Count GPUs in a separate process, so that this process can still fork."""
    if importlib.util.find_spec("torch") is None:
        return 0
    ask = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    return int(subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout)


pytestmark = pytest.mark.skipif(devices() == 0, reason="no CUDA device")
NAMES = re.findall(r"^@case\ndef (\w+)", CASES.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with free_port() as number:
        yield number


@pytest.fixture(scope="module", params=[2, 4], ids=lambda size: f"{size} ranks")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, port: int) -> Outcomes:
    """Run all cases on the ranks. Return each rank's errors by case, and its standard error."""
    folder = tmp_path_factory.mktemp("ranks")
    ranks = []
    for rank in range(request.param):
        variables = {
            "RANK": rank,
            "WORLD_SIZE": request.param,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        with Path(folder, f"{rank}.out").open("w") as out, Path(folder, f"{rank}.err").open("w") as err:
            environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
            ranks.append(
                subprocess.Popen([sys.executable, str(CASES)], stdout=out, stderr=err, env=environment)
            )
    end = time.monotonic() + DEADLINE_S
    for process in ranks:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - time.monotonic()))
        process.kill()
        process.wait()
    return [said(folder / f"{rank}.out", folder / f"{rank}.err") for rank in range(request.param)]


def said(out: Path, err: Path) -> tuple[dict[str, str], str]:
    lines = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    return {line["case"]: line["error"] for line in lines if "case" in line}, err.read_text()[-3000:]


@pytest.mark.parametrize("name", NAMES)
def test_on_one_gpu(outcomes: Outcomes, name: str) -> None:
    for rank, (errors, complaint) in enumerate(outcomes):
        assert name in errors, f"rank {rank} has not tried it: {complaint}"
        assert not errors[name], f"rank {rank}: {errors[name]}"


@pytest.fixture
def _lab() -> None:
    try:
        require_tools()
    except LabError as error:
        pytest.skip(str(error))


RUN = ("run", "--hosts", "2", "--rails", "ina,tcp", "--join", "0")
IN_THE_LAB = (  # cases with numbers that the switch adds exactly
    "the_current_stream_orders_a_call_with_what_is_before_and_behind_it",
    "memory_that_is_freed_is_not_used_before_the_call_has_ended",
    "callbacks_run_on_streams_that_wait_for_the_result",
    "calls_for_both_devices_keep_their_order",
    "what_gloo_carries",
)


@pytest.mark.usefixtures("_lab")
@pytest.mark.parametrize(
    "program",
    [("tests/gpu/cases.py", *IN_THE_LAB), ("examples/ddp.py",), ("examples/fsdp.py",)],
    ids=lambda program: Path(program[0]).stem,
)
def test_on_hosts_of_the_lab(tmp_path: Path, program: tuple[str, ...]) -> None:
    where = ("--device", "cuda", "--steps", "6") if "examples" in program[0] else ()
    rank = [sys.executable, str(ROOT / program[0]), *program[1:], *where]
    lab = subprocess.run(
        [sys.executable, "-m", "railweave", *RUN, "--out", str(tmp_path), "--", *rank],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert lab.returncode == 0, lab.stdout + lab.stderr
    assert "all counts agree" in lab.stdout

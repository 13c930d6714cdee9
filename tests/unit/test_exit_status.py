# SPDX-License-Identifier: Apache-2.0
"""Every command ends with the exit status of the table in docs/reference/cli.md."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import invoke

from railweave.benchmarks import ratios
from railweave.commands import common
from railweave.experiments import reproduce
from railweave.experiments.allreduce import run as sweep
from railweave.experiments.program import run as program
from railweave.experiments.soak import run as soak
from railweave.topologies.errors import WorkerFailed


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "command",
    ["topo planes", "plan 4M", "reproduce --list", "bench all-reduce --print-scenario", "switch --help"],
)
def test_success_is_0(command: str) -> None:
    assert invoke(command).exit_code == 0


def test_a_wrong_result_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed(*_: object) -> tuple[list[ratios.Found], list[str]]:
        return [], ["a run has failed"]

    monkeypatch.setattr(ratios, "run", failed)
    done = invoke("bench ratios")
    assert done.exit_code == 1
    assert "runs failed, so the ratios do not count: expected runs without errors" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        *("trian", "demo --no-such-option", "run --live 99999 -- true", "reproduce N1 --repeat 0"),
        "bench --scenario absent.toml jobs",
    ],
)
def test_options_that_do_not_exist_are_2(command: str) -> None:
    assert invoke(command).exit_code == 2


REFUSED = {
    "demo --rails ina,ib": "rail 'ib': expected one of ina, tcp, rdma",
    "demo --rate fast": "rate 'fast'",
    "demo --hosts 40": "40 hosts: expected 1 to 31",
    "demo --hosts 1": "at least 2",
    "demo --steps 0": "--steps 0",
    "demo --shares 1,2": "2 numbers: expected 3, one per rail",
    "demo --loss 2": "loss '2'",
    "demo --switch asic": "switch target 'asic': expected one of embedded, bmv2",
    "run --hosts 2": "no program",
    "run -- pyton my.py": "program 'pyton' is no executable file",
    "run --fault soon -- true": "'soon'",
    "bench --scenario absent.toml": "absent.toml",
    "bench --out elsewhere": "no command: expected one, or --scenario",
    "bench all-reduce --sizes 5M:1M": "swap them",
    "bench all-reduce --sizes 3": "multiple of 4 bytes",
    "bench all-reduce --dtype float64": "dtype 'float64': expected one of float32, int32",
    "bench all-reduce --op prod": "op 'prod'",
    "bench all-reduce --iters 0": "iterations is 0: expected at least 1",
    "bench all-reduce --rate 0 --control": "some rates cannot be halved",
    "bench all-reduce --compare nccl": "contender 'nccl'",
    "bench broadcast --root 9 --print-scenario": "root",
    "bench jobs --jobs 0": "--jobs 0",
    "bench jobs --seconds 1": "--seconds 1",
    "bench jobs --size 1K,2K": "size '1K,2K'",
    "bench loss --losses 1.5": "--losses 1.5",
    "bench loss --duplicate 7": "--duplicate 7",
    "bench loss --reorder -1": "--reorder -1",
    "bench loss --chunks 0": "--chunks 0",
    "bench loss --print-scenario": "--print-scenario",
    "bench scaling --hosts 2,many": "--hosts '2,many'",
    "bench scaling --plot curve.gif": "--plot curve.gif",
    "bench soak --seconds 0": "--seconds 0",
    "bench striping --parts speed": "part 'speed': expected one of",
    "bench failover --rails tcp": "expected a second rail",
    "bench failover --plot curve.txt": "expected a name that ends in",
    "bench failover --rails ina,ina --faults 'spine killed'": "fits none of the rails: expected two spines",
    "bench failover --rails tcp,tcp --faults 'leaf killed'": "expected an in-network rail",
    "bench switch --lanes 100": "for 100 lanes: expected one of 32, 64, 256",
    "bench switch --compare tofino": "--compare tofino: expected one of",
    "bench switch --parts speed": "--parts 'speed': expected one of engine, load, programs, pauses",
    "bench controller --k 4 --ranks 17": "--ranks 17: expected 2 to 16, the hosts of k=4",
    "reproduce N99": "figure 'N99': expected one of A1",
    "why --cluster absent.yaml": "absent.yaml",
    "plan 5": "size '5': expected a multiple of 4",
    "plan 4M --rails tcp,ib": "rail 'ib': expected one of ina",
    "plan 4M --hosts 1": "--hosts 1: expected at least 2",
    "plan 4M --rate 1M,2M": "2 rates for 3 planes",
    "plan 4M --op xor": "op 'xor': expected one of sum",
    "plan 4M --collective gather": "collective 'gather': expected one of all_reduce",
    "plan 4M --costs /none/costs.json": "/none/costs.json: No such file",
    "plan 4M --costs /none --rails tcp": "--costs and --rails: expected one option",
    "plan 4M --jobs 4x4M": "topology '4M': expected planes",
    "plan racks --jobs 4x4M --rails ina": "expected --jobs with a fabric and --rate only",
    "plan racks --jobs 4x4M --rate 0": "the links of the fabric have no rate",
    "topo file absent.yaml": "absent.yaml",
    "topo planes --save net.gif": "cannot draw to 'net.gif'",
    "doctor --cluster absent.yaml": "absent.yaml",
    "switch": "-i",
    "switch impair": "no links: expected one at least",
    "shell --election-id 7": "--election-id",
    "controller": "--topology",
    "controller --topology absent.yaml": "absent.yaml",
}


@pytest.mark.parametrize(("command", "words"), REFUSED.items())
def test_bad_usage_is_2_and_one_line(command: str, words: str) -> None:
    done = invoke(command)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.startswith("railweave: ")
    assert done.stderr.count("\n") == 1
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    "command",
    [
        "demo --switch bmv2",
        "run --rails tcp -- sh",
        "bench all-reduce --rails tcp",
        "bench jobs --rails tcp",
        "doctor",
        "why --controller 127.0.0.1:1",
        "switch -i 1@lo --target bmv2",
        "switch tables --grpc 127.0.0.1:1",
        "shell --grpc 127.0.0.1:1",
    ],
)
def test_a_machine_that_lacks_something_is_3(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tools))
    done = invoke(command)
    assert done.exit_code == 3, done.output


@pytest.mark.parametrize(("code", "status"), [(3, 3), (-signal.SIGKILL, 137)])
def test_a_program_that_fails_has_its_own_status(
    code: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failed(*_: object) -> None:
        raise WorkerFailed(code, "h2 has ended", "exit status 0", "read the log")

    monkeypatch.setattr(program, "run", failed)
    assert invoke("run -- true").exit_code == status


def test_missing_memory_is_3(monkeypatch: pytest.MonkeyPatch) -> None:
    async def greedy(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(sweep, "run", greedy)
    done = invoke("bench all-reduce")
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1].startswith("railweave: no memory is left: expected ")


async def waits(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("number", "status", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize(
    ("command", "module", "name"),
    [
        ("bench all-reduce", sweep, "run"),
        ("bench soak", soak, "run"),
        ("reproduce A1", reproduce, "reproduce"),
    ],
)
def test_a_signal_is_128_and_its_number(
    command: str,
    module: Any,
    name: str,
    number: signal.Signals,
    status: int,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, name, lambda *_, **__: waits(number))
    done = invoke(command)
    assert done.exit_code == status
    assert done.stderr.splitlines()[-1] == f"railweave: {word}; the network has been removed"


def test_ctrl_c_in_a_command_without_a_network_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Callable[[], None]:
        raise KeyboardInterrupt

    monkeypatch.setattr(common.units, "parse_sizes", interrupted)
    assert invoke("plan 4M").exit_code == 130

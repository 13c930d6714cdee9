# SPDX-License-Identifier: Apache-2.0
"""Every command ends with the exit status of the table in docs/reference/cli.md."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from railweave.benchmarks import ratios
from railweave.cli import build
from railweave.commands import common
from railweave.experiments import reproduce
from railweave.experiments.allreduce import run as sweep
from railweave.experiments.soak import run as soak


def invoke(command: str) -> Result:
    words = shlex.split(command)
    return CliRunner().invoke(build(words[0]), words)


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
        "demo --rate fast",
        "demo --no-such-option",
        "run",
        "run --fault soon -- true",
        "bench all-reduce --sizes 5M:1M",
        "bench broadcast --root 9 --print-scenario",
        "bench loss --print-scenario",
        "bench failover --rails tcp",
        "bench soak --seconds 0",
        "bench --scenario absent.toml",
        "bench --scenario absent.toml jobs",
        "bench --out elsewhere",
        "reproduce N99",
        "why --cluster absent.yaml",
        "plan 5",
        "topo file absent.yaml",
        "doctor --cluster absent.yaml",
        "switch",
        "switch impair",
        "shell --election-id 7",
        "controller",
        "controller --topology absent.yaml",
    ],
)
def test_bad_usage_is_2(command: str) -> None:
    done = invoke(command)
    assert done.exit_code == 2
    assert done.stderr
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

# SPDX-License-Identifier: Apache-2.0
"""`railweave bench soak`, seconds of it: calls of all sorts under faults, a record, an end in good order."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

from system.command import Command

SEED = "144"  # its first faults come in the third second, on either rail
OPTIONS = ("bench", "soak", "--hosts", "2", "--rails", "tcp,tcp", "--largest", "20000")


def test_calls_of_all_sorts_are_exact_while_rails_fail(start: Callable[..., Command], tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    code, told = start(*OPTIONS, "--minutes", "0.12", "--seed", SEED, "--json", str(file)).end()
    assert code == 0, told
    result = json.loads(file.read_text())
    assert (result["wrong"], result["errors"]) == (0, 0)
    assert result["calls"] > 0
    assert result["faults"] > 0
    record = [json.loads(line) for line in (tmp_path / "out" / "soak.jsonl").read_text().splitlines()]
    assert record[-1]["event"] == "summary"
    assert sum(line["event"] == "fault" for line in record) == result["faults"]


def test_ctrl_c_tells_what_has_come_so_far(start: Callable[..., Command], tmp_path: Path) -> None:
    command = start(*OPTIONS, "--minutes", "60", "--no-faults")
    assert command.process.stderr is not None
    for line in command.process.stderr:
        if "all ranks call" in line:
            break
    command.process.send_signal(signal.SIGINT)
    assert "calls of each rank" in command.until("calls of each rank")
    assert command.end()[0] == 130
    assert not command.records
    last = (tmp_path / "out" / "soak.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["event"] == "summary"

# SPDX-License-Identifier: Apache-2.0
"""Every command of README's lists: its options are read, and the short ones run to status 0.

SHORTENED says which run, and by which further options they are made short. The others take minutes or hours,
or need files, a terminal or a switch that not every machine has: of these only the options are read.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from railweave import cli

README = Path(__file__).parents[2] / "README.md"
COMMANDS = [
    match["command"].strip()
    for match in re.finditer(r"^    railweave (?P<command>[^#\n]+)", README.read_text(), re.MULTILINE)
]
CALL = "--hosts 2 --iters 1 --warmup 0 --sizes 1K"
# The beginning of a command, and what is added to it, before its program. The first that fits counts.
SHORTENED = {
    "demo --live": None,
    "demo": "--hosts 2 --steps 1",
    "run --topology": None,  # sixteen hosts
    "run --hosts": None,  # PyTorch's
    "run": "--hosts 2",
    "bench all-reduce --rails ina --mtu 9000": f"{CALL} --baseline ring",  # Gloo's ranks start slowly
    "bench all-reduce": CALL,
    "bench all-gather": CALL,
    "bench scaling": f"{CALL} --baseline ring",
    "bench jobs": "--seconds 2.1 --hosts 2 --size 64K",
    "bench controller": "--k 4 --jobs 2 --ranks 4",
    "bench": None,
    "plan": "",
    "reproduce": "--list",
    "topo": "",
    "doctor --cluster": None,
    "doctor": "",
}
PROGRAM = """
import numpy as np
import railweave

with railweave.init() as comm:
    assert (comm.all_reduce(np.ones(1000, np.float32)) == comm.world_size).all()
"""
DEADLINE_S = 120.0


def extra(command: str) -> str | None:
    """What shortens a command; None if it is not run."""
    return next(more for beginning, more in SHORTENED.items() if f"{command} ".startswith(f"{beginning} "))


def with_options(command: str, more: str) -> list[str]:
    """Add options before the program that a command runs."""
    options, dashes, program = command.partition(" -- ")
    return shlex.split(f"{options} {more} {dashes} {program}")


def test_the_lists_are_found() -> None:
    assert len(COMMANDS) > 25
    unused = [beginning for beginning in SHORTENED if not any(c.startswith(beginning) for c in COMMANDS)]
    assert not unused


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_are_read(command: str) -> None:
    words = shlex.split(command)
    part: Any = get_command(cli.build(words[0]))
    while hasattr(part, "commands"):
        part, words = part.commands[words[0]], words[1:]
    if hasattr(part, "parse_args"):
        assert part.make_context(command, words) is not None


@pytest.mark.parametrize("command", [command for command in COMMANDS if extra(command) is not None])
def test_the_command_ends_with_status_0(command: str, tmp_path: Path) -> None:
    if "--baseline gloo" in command and find_spec("torch") is None:
        pytest.skip("PyTorch is missing: make baseline")
    (tmp_path / "my.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "railweave", *with_options(command, extra(command) or "")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr

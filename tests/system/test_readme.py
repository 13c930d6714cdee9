# SPDX-License-Identifier: Apache-2.0
"""The `railweave` commands that the tutorial's second page and the troubleshooting page show.

`test_docs.py` parses the options of all commands. The short commands must run to status 0. SHORTENED lists
them and the options that make them short. The other commands take minutes or hours, or need files, a terminal
or a switch that not every machine has. `test_runs.py` and `test_benches.py` run some of these commands.
`test_tutorial.py` runs the commands of README and of the tutorial's first page.
"""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import ROOT, railweave
from document_commands import commands

PAGES = ("docs/tutorial/more.md", "docs/howto/troubleshooting.md")
COMMANDS = list(dict.fromkeys(shlex.join(words) for page in PAGES for words in commands(ROOT / page)))
CALL = "--hosts 2 --iters 1 --warmup 0 --sizes 1K"
# Beginnings of commands, with options to add before the program; None: do not run it. The first match counts.
SHORTENED = {
    "demo --live": None,
    "demo --loss": None,
    "demo": "--hosts 2 --steps 1",
    "run --topology": None,  # sixteen hosts
    "run --shell": None,
    "run --fault": None,  # as in README
    "run": "--hosts 2",
    "bench all-reduce --rails ina --mtu 9000": f"{CALL} --compare ring",  # Gloo's ranks start slowly
    "bench all-reduce --sizes": None,  # as in test_runs.py
    "bench all-reduce": CALL,
    "bench": None,
    "plan": "",
    "reproduce": None,
    "topo": "",
    "doctor": None,
}
PROGRAM = """
import numpy as np
import railweave

with railweave.init() as comm:
    assert (comm.all_reduce(np.ones(1000, np.float32)) == comm.world_size).all()
"""


def extra(command: str) -> str | None:
    """Return the options that shorten a command; None if it is not run."""
    return next(more for beginning, more in SHORTENED.items() if f"{command} ".startswith(f"{beginning} "))


def with_options(command: str, more: str) -> list[str]:
    """Add options before the program that a command runs."""
    options, dashes, program = command.partition(" -- ")
    return shlex.split(f"{options} {more} {dashes} {program}")


def test_the_lists_are_found() -> None:
    assert len(COMMANDS) > 30
    unused = [beginning for beginning in SHORTENED if not any(c.startswith(beginning) for c in COMMANDS)]
    assert not unused


@pytest.mark.parametrize("command", [command for command in COMMANDS if extra(command) is not None])
def test_the_command_ends_with_status_0(command: str, tmp_path: Path) -> None:
    if "--compare gloo" in command and find_spec("torch") is None:
        pytest.skip("PyTorch is missing: make baseline")
    for name in ("my.py", "steps.py"):
        (tmp_path / name).write_text(PROGRAM)
    railweave(*with_options(command, extra(command) or ""), cwd=tmp_path)

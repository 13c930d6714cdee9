# SPDX-License-Identifier: Apache-2.0
"""Commands under test: `railweave` in this process, and any command in a separate process."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner, Result

from railweave.cli import COMMANDS, build

ROOT = Path(__file__).parents[1]
DEADLINE_S = 120.0


def invoke(command: str | Sequence[object]) -> Result:
    """Run a `railweave` command in this process. Give its words without `railweave`."""
    words = shlex.split(command) if isinstance(command, str) else [*map(str, command)]
    return CliRunner().invoke(build(words[0]), words)


def every_command() -> Iterator[tuple[str, Any]]:
    """Yield the words of every command and group, and its click command."""
    for name, _ in COMMANDS:
        yield from _within(name, typer.main.get_command(build(name)).commands[name])  # type: ignore[attr-defined]


def _within(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _within(f"{path} {name}", inner)


def run(*command: object, status: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and check its exit status (None: any). Take the options of subprocess.run."""
    taken = {"capture_output": True, "text": True, "timeout": DEADLINE_S, **options}
    done = subprocess.run([*map(str, command)], check=False, **taken)
    assert status in (done.returncode, None), f"status {done.returncode}: {done.stdout}{done.stderr}"
    return done


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run this Python, as `run` does."""
    return run(sys.executable, *arguments, **options)


def railweave(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a `railweave` command in a separate process, as `run` does."""
    return python("-m", "railweave", *arguments, **options)

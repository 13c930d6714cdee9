# SPDX-License-Identifier: Apache-2.0
"""A `railweave` command under test, in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from railweave.topologies.lab.record import RUN_FOLDER, Identity


class Command:
    """A `railweave` command that runs. With a `folder`, it sees only the records of labs in that folder."""

    def __init__(self, arguments: tuple[str, ...], folder: Path | None = None) -> None:
        self._folder = folder or RUN_FOLDER
        RUN_FOLDER.mkdir(parents=True, exist_ok=True)
        mount = f'mount --bind "$0" {RUN_FOLDER} && exec "$@"'
        own = ("unshare", "--mount", "sh", "-c", mount, str(folder)) if folder else ()
        self.process = subprocess.Popen(
            [*own, sys.executable, "-u", "-m", "railweave", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def records(self) -> list[Path]:
        """The records of the labs that this command has made."""
        return list(self._folder.glob(f"{self.process.pid}-*.json"))

    def processes(self) -> dict[str, Identity]:
        """Return the processes of the command's lab, by name."""
        (record,) = self.records
        return {entry["name"]: Identity(**entry) for entry in json.loads(record.read_text())["processes"]}

    def until(self, word: str) -> str:
        """Return the first line of output with `word`; the test's own timeout is the deadline."""
        return self._until(word, self.process.stdout)

    def until_progress(self, word: str) -> str:
        """Return the first line on stderr with `word`."""
        return self._until(word, self.process.stderr)

    def _until(self, word: str, lines: IO[str] | None) -> str:
        assert lines is not None
        for line in lines:
            if word in line:
                return line
        raise AssertionError(f"ended without a line with {word!r}: {self.process.communicate()[1]}")

    def end(self) -> tuple[int, str]:
        """Wait for the end of the command, and return its exit status and its text on stderr."""
        _, complaint = self.process.communicate()
        return self.process.returncode, complaint


Start = Callable[..., Command]


def result_of(start: Start, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "result.json"
    code, complaint = start(*arguments, "--json", str(path)).end()
    assert code == 0, complaint
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def processes_of_this_test() -> list[str]:
    """Return the command lines of all processes of this test, with the processes that those have started."""
    mark = f"PYTEST_CURRENT_TEST={os.environ['PYTEST_CURRENT_TEST']}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass
    return found

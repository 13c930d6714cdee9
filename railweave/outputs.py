# SPDX-License-Identifier: Apache-2.0
"""Output of commands: a new folder for each run, and files that are new or empty."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.errors import USAGE, Unavailable, UserError

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 100
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
LATEST = "latest"  # a link beside the numbered folders
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class OutputError(UserError, ValueError):
    """A file or folder cannot be written. The message names it and says what to do."""

    status = USAGE


@contextlib.contextmanager
def run_folder(out: Path) -> Iterator[Path]:
    """Make the folder of a new run: `out`/1, `out`/2 and so on.

    The link `out`/latest leads to the newest folder. At the end this function removes the folders that it has
    made, if they are empty. Everything else in `out` stays as it is.
    Raises OutputError if the folder cannot be made.
    """
    missing = [each for each in (out, *out.parents) if not each.exists()]
    folder = new_folder(out)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
            _link_latest(out)
            for each in missing:
                each.rmdir()


def new_folder(out: Path) -> Path:
    """Make the folder of a new run as `run_folder` does, and return its path."""
    try:
        _make(out)
        number = max(numbers(out), default=0) + 1
        while not _made(out / str(number)):
            number += 1  # another run has taken this number meanwhile
        _link_latest(out)
    except OSError as error:
        raise _refusal(f"--out {out}", error, "a folder that can be written to") from error
    return out / str(number)


def numbers(out: Path) -> list[int]:
    """Return the numbers of the folders of runs, in order."""
    names = [each.name for each in out.iterdir()] if out.is_dir() else []
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _made(folder: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _link_latest(out: Path) -> None:
    """Point the link to the newest folder. Keep any other file of the link's name."""
    latest, runs = out / LATEST, numbers(out)
    # Another run may do the same at the same time.
    with contextlib.suppress(FileNotFoundError):
        if latest.is_symlink() and _NUMBER.fullmatch(str(latest.readlink())):
            latest.unlink()
    with contextlib.suppress(FileExistsError):
        if runs:
            latest.symlink_to(str(runs[-1]))


def check_new_file(option: str, path: Path | None) -> None:
    """Raise OutputError unless a result can be written to a file without loss of data; `-` is stdout.

    The function makes the file's folder. It refuses files with content, but accepts devices and pipes.
    """
    if path is None or str(path) == "-":
        return
    try:
        _make(path.parent)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.is_file() and path.stat().st_size:
            raise OutputError(
                f"{option} {path}: the file holds something already",
                "a new or empty file",
                "remove it, or name another one",
            )
        if path.exists():
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        else:
            path.open("xb").close()
            path.unlink()
    except OSError as error:
        raise _refusal(f"{option} {path}", error, "a file that can be written to") from error


def _refusal(given: str, error: OSError, expected: str) -> UserError:
    """Return the error of a place that cannot be written to: a bad name, or a disk without room."""
    kind = Unavailable if error.errno in NO_ROOM else OutputError
    return kind(f"{given}: {error.strerror}", expected, "name another one")


def console(json_file: Path | None, plain_width: int = PLAIN_WIDTH) -> Console:
    """Return the console for text: stdout, or stderr if JSON goes to stdout.

    It prints text as it is: names, paths and errors may contain square brackets. `rich.text.Text` has styles.
    Tables in files and pipes have `plain_width` columns.
    """
    from rich.console import Console  # noqa: PLC0415 - help needs none

    chosen = Console(stderr=str(json_file) == "-", highlight=False, markup=False, emoji=False)
    if not chosen.is_terminal:
        chosen.width = plain_width
    return chosen


def write_json(value: Mapping[str, Any], path: Path | None) -> None:
    """Write a value to a new or empty file, or to stdout for `-`; without a path, do nothing."""
    if path is None:
        return
    text = json.dumps(value, indent=2) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        write_new_file("--json", path, text)


def write_new_file(option: str, path: Path, text: str) -> None:
    """Write a result to a new or empty file.

    Raises OutputError as `check_new_file` does, and Unavailable if the disk has no room.
    """
    check_new_file(option, path)
    try:
        path.write_text(text)
    except OSError as error:
        raise Unavailable(
            f"{option} {path}: {error.strerror}; the result there is not complete",
            "room for the whole result",
            "make room, and run the command again",
        ) from error


def print_line(line: str) -> None:
    """Print a line. An output that is full, closed or not read does not stop the process."""
    with contextlib.suppress(OSError):
        if select.select([], [sys.stdout], [], 0)[1]:
            print(line, flush=True)

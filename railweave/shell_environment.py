# SPDX-License-Identifier: Apache-2.0
"""The virtual environment of p4runtime-shell, which needs an older protobuf than railweave.

It is a folder of the environment in which railweave runs. railweave makes it from `shell.lock` on first use,
and again when that file changes. `python -m railweave.shell_environment` makes it in advance.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from railweave.errors import Unavailable

LOCK = Path(__file__).with_name("shell.lock")
FOLDER = Path(sys.prefix) / "shell"
_STAMP = "made-from"


class EnvironmentFailed(Unavailable):
    """The environment cannot be made. The message has the failed step and the remedy."""


def python() -> Path | None:
    """Return the interpreter of the environment; None if the lock file has changed or it was never made."""
    interpreter, stamp = FOLDER / "bin" / "python", FOLDER / _STAMP
    with contextlib.suppress(OSError):
        if stamp.read_text() == _fingerprint() and interpreter.exists():
            return interpreter
    return None


def ensure(say: Callable[[str], None]) -> Path:
    """Return the interpreter of the environment, and make the environment first if it is missing.

    Raises EnvironmentFailed if it cannot be made.
    """
    if made := python():
        return made
    with _alone():
        if made := python():  # another process was faster
            return made
        say(f"making the environment of p4runtime-shell in {FOLDER} (once; it wants a protobuf of its own) …")
        _empty_folder()
        _run(
            [sys.executable, "-m", "venv", str(FOLDER)],
            "Python with its venv module",
            "install python3-venv (Debian)",
        )
        interpreter = FOLDER / "bin" / "python"
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run(
            [*pip, "-r", str(LOCK)],
            "a package index that pip can reach",
            "correct network or pip's configuration",
        )
        _run(
            [str(interpreter), "-c", "import p4runtime_sh.shell"],
            "p4runtime-shell that can be imported",
            f"remove {FOLDER} and run again",
        )
        (FOLDER / _STAMP).write_text(_fingerprint())
        return interpreter


def _empty_folder() -> None:
    """Make FOLDER, or empty it if its stamp shows that an earlier call has made it."""
    stamp = FOLDER / _STAMP
    try:
        if FOLDER.exists() and not stamp.exists() and any(FOLDER.iterdir()):
            raise EnvironmentFailed(
                f"{FOLDER} holds something that railweave has not made",
                "a new or empty folder",
                "move it away",
            )
        if stamp.exists():
            shutil.rmtree(FOLDER)
        FOLDER.mkdir(exist_ok=True)
        stamp.write_text("")  # an empty stamp: the environment is incomplete
    except OSError as error:
        raise EnvironmentFailed(
            f"{FOLDER}: {error.strerror}", "a folder that can be written to", "correct its owner and mode"
        ) from None


def _fingerprint() -> str:
    return hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()


def _run(command: list[str], expected: str, do: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise EnvironmentFailed(f"{' '.join(command)} failed: {last[0]}", expected, do)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let one process make the environment, while the others wait."""
    try:
        handle = os.open(FOLDER.with_name("shell.making"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise EnvironmentFailed(
            f"{FOLDER.parent}: {error.strerror}",
            "a folder that can be written to",
            "correct its owner and mode",
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def main() -> None:
    """Make the environment, or exit with the reason."""
    try:
        ensure(lambda line: print(line, flush=True))
    except EnvironmentFailed as error:
        sys.exit(f"railweave: {error}")


if __name__ == "__main__":
    main()

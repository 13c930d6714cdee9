# SPDX-License-Identifier: Apache-2.0
"""The origin of a measurement: command, commit, kernel and versions."""

from __future__ import annotations

import functools
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any


def of_run() -> dict[str, Any]:
    """Return the fields of a record that describe the software and the time of a run."""
    found = versions()
    return {
        "kernel": found.pop("linux"),
        "versions": found,
        "commit": commit(),
        "command": command(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def command() -> str:
    """Return the command line of this process."""
    return shlex.join(["railweave", *sys.argv[1:]])


def versions() -> dict[str, str]:
    """Return the versions of the software that every measurement depends on."""
    installed = {name: metadata.version(name) for name in ("railweave", "numpy")}
    return {**installed, "python": platform.python_version(), "linux": platform.release()}


def source(commit_: str, versions_: Mapping[str, str]) -> str:
    """Return the railweave of a measurement: its commit, or the package's version if there is no commit."""
    return f"commit {commit_}" if commit_ else f"railweave {versions_.get('railweave', 'of unknown version')}"


@functools.cache
def commit() -> str:
    """Return the commit of the source tree; empty outside of a source tree.

    The suffix -dirty says that files differ from the commit.
    """
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""

# SPDX-License-Identifier: Apache-2.0
"""What a measurement was made with: command, commit, kernel, versions."""

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
    """Return the fields of a record that say what a run was made with, and when."""
    found = versions()
    return {
        "kernel": found.pop("linux"),
        "versions": found,
        "commit": commit(),
        "command": command(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def command() -> str:
    """Return the command line that runs."""
    return shlex.join(["railweave", *sys.argv[1:]])


def versions() -> dict[str, str]:
    """Return the versions of what every measurement depends on."""
    installed = {name: metadata.version(name) for name in ("railweave", "numpy")}
    return {**installed, "python": platform.python_version(), "linux": platform.release()}


def source(commit_: str, versions_: Mapping[str, str]) -> str:
    """Return what a measurement was made with: the commit, or the version of a package without one."""
    return f"commit {commit_}" if commit_ else f"railweave {versions_.get('railweave', 'of unknown version')}"


@functools.cache
def commit() -> str:
    """Return the commit of the source tree, with -dirty where files differ from it; empty outside of one."""
    git = [
        "git",
        "-C",
        str(Path(__file__).resolve().parent),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
    ]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""

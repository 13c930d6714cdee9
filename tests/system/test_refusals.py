# SPDX-License-Identifier: Apache-2.0
"""A machine that cannot make a lab: the command names what it lacks."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from commands import python, railweave


def complaint(path: Path) -> str:
    """Start a demo with the tools in one folder, and return the last line on stderr."""
    done = railweave("demo", "--rails", "tcp", status=3, env={**os.environ, "PATH": str(path)})
    return done.stderr.splitlines()[-1]


def link_tools(folder: Path) -> None:
    for tool in ("ip", "tc", "nft", "setpriv"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)


def test_a_machine_that_lets_nobody_make_namespaces_is_named(tmp_path: Path) -> None:
    link_tools(tmp_path)
    refusing = tmp_path / "mnexec"
    refusing.write_text("#!/bin/sh\necho 'unshare: not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    assert re.search("cannot make network namespaces.*unshare: not permitted", complaint(tmp_path))


def test_a_missing_tool_is_named_with_its_package(tmp_path: Path) -> None:
    link_tools(tmp_path)
    assert complaint(tmp_path) == (
        "railweave: mnexec is missing: expected the package mininet; install it: apt-get install mininet"
    )


def test_without_root_nothing_is_tried() -> None:
    script = """
import os
from railweave.topologies.lab.namespaces import require_tools
os.setuid(65534)
require_tools()
"""
    done = python("-c", script, status=1)
    assert "expected root, which network namespaces need; run the command again with sudo" in done.stderr

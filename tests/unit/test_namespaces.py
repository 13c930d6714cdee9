# SPDX-License-Identifier: Apache-2.0
"""A machine that cannot make a lab's namespaces: the error names what it lacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from railweave.topologies.errors import LabUnavailable
from railweave.topologies.lab.namespaces import require_tools

REFUSING = "#!/bin/sh\necho 'unshare: not permitted' >&2\nexit 1\n"


def test_what_a_machine_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal() -> str:
        with pytest.raises(LabUnavailable) as refused:
            require_tools()
        return str(refused.value)

    def add(*tools: str) -> None:
        for tool in tools:
            (tmp_path / tool).write_text(REFUSING)
            (tmp_path / tool).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert refusal().startswith("user 65534 runs this: expected root, which network namespaces need; ")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    add("ip", "tc", "nft", "setpriv")
    install = "install it: apt-get install mininet"
    assert refusal() == f"mnexec is missing: expected the package mininet; {install}"
    add("mnexec")
    assert "cannot make network namespaces: `mnexec -cn true` says 'unshare: not permitted'" in refusal()

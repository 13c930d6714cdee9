# SPDX-License-Identifier: Apache-2.0
"""What unit tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from p4runtime_clients import Server


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """A P4Runtime server, which runs while a test that is a coroutine does."""
    return Server(f"unix:{tmp_path}/grpc")

# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from p4runtime_clients import Server


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Return a P4Runtime server. A test that is a coroutine starts and ends it."""
    return Server(f"unix:{tmp_path}/grpc")

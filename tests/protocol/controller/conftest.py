# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of the controller. Tests import the modules beside this file by their names."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from controller_world import World, new_world


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    """Return a controller of four hosts on one switch."""
    return new_world()

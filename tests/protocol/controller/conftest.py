# SPDX-License-Identifier: Apache-2.0
"""What the tests of the controller share; the modules beside this file are imported by their names."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a coroutine to its end, within a deadline."""

    def runner(coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run(asyncio.wait_for(coroutine, 60))

    return runner

# SPDX-License-Identifier: Apache-2.0
"""What unit tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from p4runtime_clients import Server

DEADLINE_S = 20


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(f"unix:{tmp_path}/grpc")


@pytest.fixture
def served(tmp_path: Path) -> Callable[[Callable[[Server], Awaitable[None]]], None]:
    """Run a test's coroutine against a server, with a deadline."""

    def run(test: Callable[[Server], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(DEADLINE_S), Server(f"unix:{tmp_path}/grpc") as server:
                await test(server)

        asyncio.run(main())

    return run

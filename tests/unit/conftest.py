# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the unit tests. A test that is a coroutine starts and ends servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from p4runtime_clients import ENTITIES, ORACLE, ROUTER, Client, Server, client


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Return a P4Runtime server."""
    return Server(f"unix:{tmp_path}/grpc")


@asynccontextmanager
async def loaded(server: Server, program: str) -> AsyncIterator[Client]:
    async with server, client(server, load=True, program=program) as primary:
        yield primary


@pytest.fixture
def router(server: Server) -> AbstractAsyncContextManager[Client]:
    """Return the primary client of a server that runs the program `router`."""
    return loaded(server, ROUTER)


@pytest.fixture
def entities(server: Server) -> AbstractAsyncContextManager[Client]:
    """Return the primary client of a server that runs the program `entities`."""
    return loaded(server, ENTITIES)


@pytest.fixture
def oracle(server: Server) -> AbstractAsyncContextManager[Client]:
    """Return the primary client of a server that runs the program `oracle`."""
    return loaded(server, ORACLE)

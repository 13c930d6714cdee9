# SPDX-License-Identifier: Apache-2.0
"""A program that replaces another one: saved and written before it runs, or reconciled with the old state."""

from __future__ import annotations

import re

import grpc
import pytest
from finsy import P4DirectCounterEntry, P4TableAction, P4TableEntry, P4TableMatch
from p4runtime_clients import (
    ENTITIES,
    JSON,
    A,
    Client,
    Config,
    Server,
    client,
    files,
    to_port,
    update,
)
from p4runtime_entities import EVERYTHING, MODIFIED, WRITTEN, frame, write

_, ENTITIES_JSON = files(ENTITIES)
COUNTERS = [P4DirectCounterEntry()]


async def everything(one: Client) -> list[str]:
    return sorted(str(entity) for entity in await one.read(*EVERYTHING, *MODIFIED, *COUNTERS))


async def test_what_is_written_after_saving_is_there_when_the_program_runs(server: Server) -> None:
    async with client(server, load=True) as one:
        assert await one.write(update("INSERT", to_port(1))) == []
        await one.set_pipeline(Config.VERIFY_AND_SAVE, cookie=2)
        assert await one.read(P4TableEntry("bridge")) == []
        assert await one.write(update("INSERT", to_port(5))) == []
        assert len(server.pipelines) == 1
        packet = A.to_bytes(6, "big") + bytes(60)
        assert server.pipelines[0].inject(2, packet) == [(1, packet)]
        await one.set_pipeline(Config.COMMIT)
        assert server.pipelines[1].inject(2, packet) == [(5, packet)]


async def test_reconciliation_keeps_all_state_and_a_commit_forgets_it(server: Server) -> None:
    async with client(server, load=True, program=ENTITIES) as one:
        await write(one, *(("INSERT", entity) for entity in WRITTEN))
        await write(one, *(("MODIFY", entity) for entity in MODIFIED))
        default = P4TableEntry("policy", action=P4TableAction("drop"), is_default_action=True)
        assert await write(one, ("MODIFY", default)) == []
        server.pipelines[0].inject(1, frame())
        before = await everything(one)
        await one.set_pipeline(Config.RECONCILE_AND_COMMIT, cookie=3)
        assert len(server.pipelines) == 1  # the same program runs on
        changed = ENTITIES_JSON.read_bytes().replace(b'"entities.p4"', b'"other.p4"')
        await one.set_pipeline(Config.RECONCILE_AND_COMMIT, changed, cookie=4)
        assert len(server.pipelines) == 2
        assert await everything(one) == before
        assert server.pipelines[1].tables.default("EntitiesIngress.policy") == (
            "EntitiesIngress.drop",
            (),
        )
        await one.set_pipeline(Config.VERIFY_AND_COMMIT)
        assert await one.read(*EVERYTHING) == []


async def test_state_without_a_place_in_the_new_program_is_refused(server: Server) -> None:
    async with client(server, load=True, program=ENTITIES) as one:
        hosts = P4TableEntry(
            "hosts", match=P4TableMatch(destination=A), action=P4TableAction("host_port", port=3)
        )
        await write(one, ("INSERT", hosts))
        one.program = "router"
        with pytest.raises(grpc.aio.AioRpcError, match=r"forwarding state.*hosts") as refused:
            await one.set_pipeline(Config.RECONCILE_AND_COMMIT, JSON.read_bytes())
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert len(server.pipelines) == 1
        assert len(await one.read(P4TableEntry())) == 1


async def test_a_program_that_cannot_run_is_named(server: Server) -> None:
    async with client(server) as one:
        await one.arbitrate()
        odd = re.sub(rb'"op" : "mark_to_drop"', b'"op" : "teleport"', JSON.read_bytes())
        assert odd != JSON.read_bytes()
        with pytest.raises(grpc.aio.AioRpcError, match="teleport") as refused:
            await one.set_pipeline(Config.VERIFY, odd)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT

# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime session with a switch. A broken session is opened again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import finsy as fy
import grpc
from finsy.gnmiclient import GNMIClientError
from finsy.p4entity import P4Entity
from finsy.proto import p4i, p4r, p4r_grpc

from railweave.access import refusal
from railweave.controller import wire
from railweave.controller.errors import SwitchUnavailable
from railweave.controller.state import SwitchState, Update
from railweave.errors import explain
from railweave.p4src.artifacts import Artifact
from railweave.p4src.tofino_program import TofinoProgram
from railweave.topologies.cluster import TlsFiles
from railweave.topologies.model import Switch

LISTENING_S = 1.0  # for a TCP connection with a switch
CONNECT_S = 5.0  # for connecting and arbitration; finsy gives every request 10 s
PUSH_S = 60.0  # for loading a program; a Tofino takes seconds
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0  # between attempts
WRITE_BATCH = 256  # updates per request: keeps messages far below gRPC's 4 MiB

NO_ANSWER = (fy.GRPCStatusCode.UNAVAILABLE, fy.GRPCStatusCode.DEADLINE_EXCEEDED)
SERVER = "a P4Runtime server that answers"
START = "start the switch, or check its `p4runtime` address, certificates and cable to the controller"

LOG = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E", bound=P4Entity)


class SwitchLink:
    """Keeps a P4Runtime session with one switch. finsy does the arbitration.

    This class reconnects itself, because finsy waits 10 s after a short session. It also pushes the program
    itself, because finsy does not report why a switch refuses it.
    """

    def __init__(
        self,
        switch: Switch,
        program: Artifact | TofinoProgram,
        connected: Callable[[], Awaitable[None]],
        unreachable: Callable[[], None] = lambda: None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Prepare a link, with TLS if `tls` is given. Each session starts by awaiting `connected`.

        `unreachable` is called when a session has ended and could not be reopened at once.
        """
        self.name = switch.name
        self.address = switch.p4runtime
        self._tls = tls
        self._ports = switch.ports
        self._options = fy.SwitchOptions(
            p4info=cast(Path, _p4info(program.p4info_path)),  # finsy also takes P4Info; parsing takes 30 ms
            device_id=switch.device_id,
            channel_credentials=_credentials(tls) if tls else None,
        )
        self._program = fy.P4Schema(_p4info(program.p4info_path), program.device_config)
        self._connected = connected
        self._unreachable = unreachable
        self._switch: fy.Switch | None = None
        self._where = f"switch {switch.name} at {switch.p4runtime}"
        self.problem = explain(f"{self._where}: not connected yet", SERVER, START)
        self.sessions = 0  # number of sessions that have been reconciled
        self.wiped = False  # the switch has lost all its state, and `connected` has not handled this yet

    @property
    def up(self) -> bool:
        """Whether a session is open."""
        return self._switch is not None and self._switch.is_up

    @property
    def session(self) -> object:
        """The identity of this session. SwitchUnavailable without a session."""
        return self._session_switch()

    async def run(self) -> None:
        """Open sessions again and again until cancelled. No error ends this loop."""
        pause = FIRST_PAUSE_S
        known = 0
        while True:
            try:
                await self._guard(self._session())
                pause = FIRST_PAUSE_S
                continue  # at once: a switch that answers is not dead
            except SwitchUnavailable as unavailable:
                self.problem = str(unavailable)
            except Exception as error:
                LOG.exception("session with switch %s", self.name)
                failed = f"switch {self.name}: the controller failed: {error}"
                self.problem = explain(failed, "a session", "read the controller's log")
            if known < self.sessions:
                known = self.sessions
                self._unreachable()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _session(self) -> None:
        """Run one session, from connecting to the loss of the connection."""
        async with AsyncExitStack() as stack:
            down = asyncio.Event()
            switch = await self._open(stack, down)
            await self._guard(self._push(switch.election_id))
            self._switch = switch
            try:
                await self._connected()
                self.sessions += 1
                await down.wait()
                self.problem = explain(f"connection to {self._where} lost", SERVER, START)
            finally:
                self._switch = None

    async def check(self) -> None:
        """Raise SwitchUnavailable if a session or the program is not possible. This changes nothing."""
        async with AsyncExitStack() as stack:
            switch = await self._open(stack, asyncio.Event())
            client = await stack.enter_async_context(self._client())
            verify = p4r.SetForwardingPipelineConfigRequest.VERIFY
            await self._guard(self._set(client, verify, switch.election_id))

    async def _open(self, stack: AsyncExitStack, down: asyncio.Event) -> fy.Switch:
        """Connect, and become primary. The loss of the connection sets `down`."""
        await self._require_listener()
        switch = fy.Switch(self.name, self.address, self._options)
        switch.ee.add_listener(fy.SwitchEvent.CHANNEL_DOWN, lambda _: down.set())
        await self._guard(self._enter(stack, switch))
        if not switch.is_primary:
            raise SwitchUnavailable(
                f"switch {self.name} has another controller as primary",
                "this controller",
                "end the other one",
            )
        self._require_ports(switch)
        return switch

    def _require_ports(self, switch: fy.Switch) -> None:
        """Raise SwitchUnavailable if gNMI reports other numbers for the switch's port names."""
        numbers = {port.name: port.id for port in switch.ports}
        for name, given in self._ports.items():
            if numbers.get(name, given) != given:
                raise SwitchUnavailable(
                    f"switch {self.name}: port {name} has another number, {numbers[name]}",
                    f"{given}, as in the file",
                    "write the number that the switch has into its `ports`",
                )

    async def _require_listener(self) -> None:
        """Raise SwitchUnavailable at once if no trusted server listens. gRPC would retry instead."""
        host, _, port = self.address.rpartition(":")
        try:
            async with asyncio.timeout(LISTENING_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            reason = str(error) or f"no answer within {LISTENING_S:g} s"
            raise SwitchUnavailable(f"{self._where}: {reason}", SERVER, START) from error
        writer.close()
        if why := await asyncio.to_thread(refusal, self._tls, self.address):
            raise SwitchUnavailable(f"{self._where}: {why}", do="correct the certificates or `switch_tls`")

    async def _enter(self, stack: AsyncExitStack, switch: fy.Switch) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await stack.enter_async_context(switch)
        except fy.P4ClientError as error:
            if error.code != fy.GRPCStatusCode.NOT_FOUND:
                raise
            raise SwitchUnavailable(
                f"{self._where} has no such device {self._options.device_id}: {error.message}",
                "the number of the switch's node (Stratum's chassis config)",
                "write it into `device_id`",
            ) from error

    def _client(self) -> fy.P4Client:
        return fy.P4Client(self.address, self._options.channel_credentials, wait_for_ready=False)

    async def _push(self, election_id: int) -> None:
        """Push the program unless the switch runs it already, because a push clears all its state."""
        async with self._client() as client:
            if await self._cookie(client) == self._program.p4cookie:
                return
            self.wiped = True  # the push may succeed even if no answer comes
            await self._set(client, p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, election_id)

    async def _set(self, client: fy.P4Client, action: Any, election_id: int) -> None:
        """Request an action with the program. finsy would wait only 10 s."""
        assert client.channel is not None  # noqa: S101 - it is open
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._options.device_id,
            election_id=p4r.Uint128(low=election_id),
            action=action,
            config=self._program.get_pipeline_config(),
        )
        stub = p4r_grpc.P4RuntimeStub(client.channel)
        try:
            await stub.SetForwardingPipelineConfig(request, timeout=PUSH_S)
        except grpc.RpcError as error:
            failed = fy.P4ClientError(error, "SetForwardingPipelineConfig")
            if failed.code in NO_ANSWER:
                raise failed from error
            raise SwitchUnavailable(
                f"{self._where} refuses the program: {failed.code.name}: {failed.message}",
                "a program that it can run",
                "read its log: a Tofino needs one compiled for its chip and its SDE",
            ) from error

    async def _cookie(self, client: fy.P4Client) -> int | None:
        """Return the cookie of the switch's program; None without a program."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._options.device_id,
            response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY,
        )
        try:
            return (await client.request(request)).config.cookie.cookie
        except fy.P4ClientError as error:
            if not error.is_pipeline_missing:
                raise
            return None

    async def read(self) -> SwitchState:
        """Read all entries that a controller can have written."""
        entities: list[P4Entity] = [*await self._read(fy.P4TableEntry())]
        entities += await self._read(fy.P4MulticastGroupEntry())
        constant = {table.alias for table in self._session_switch().p4info.tables if table.is_const}
        return wire.decode(entities, frozenset(constant))

    async def write(self, updates: Sequence[Update]) -> None:
        """Write the updates in this order. SwitchUnavailable if one fails."""
        for first in range(0, len(updates), WRITE_BATCH):
            batch = [wire.encode(update) for update in updates[first : first + WRITE_BATCH]]
            await self._guard(self._session_switch().write(batch))

    async def wipe(self) -> None:
        """Push the program again, which clears all tables and registers. SwitchUnavailable if that fails."""
        switch = self._session_switch()
        commit = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        async with self._client() as client:
            await self._guard(self._set(client, commit, switch.election_id))

    def has(self, name: str) -> bool:
        """Return whether the switch's program has an indirect counter of that name."""
        return any(counter.preamble.alias == name for counter in self._program.p4info.counters)

    async def packets(self, table: str) -> list[tuple[fy.P4TableEntry, int]]:
        """Read every entry of a table with its direct counter of packets."""
        wildcard = fy.P4TableEntry(table, counter_data=fy.P4CounterData())
        entities = await self._read(wildcard)
        return [(e, e.counter_data.packet_count if e.counter_data else 0) for e in entities]

    async def counter(self, name: str, indices: Iterable[int | None] = (None,)) -> dict[int, int]:
        """Read an indirect counter, or some of its cells: packets by index, without cells at 0."""
        entities = await self._read([fy.P4CounterEntry(name, index=index) for index in indices])
        return {e.index: e.packet_count for e in entities if e.index is not None and e.packet_count}

    async def _read(self, wildcard: E | list[E]) -> list[E]:
        entities = cast(AsyncIterator[E], self._session_switch().read(wildcard))

        async def read() -> list[E]:
            return [entity async for entity in entities]

        return await self._guard(read())

    def _session_switch(self) -> fy.Switch:
        if self._switch is None or not self._switch.is_up:
            raise SwitchUnavailable(self.problem)
        return self._switch

    async def _guard(self, work: Awaitable[T]) -> T:
        """Convert errors of finsy and gRPC to SwitchUnavailable.

        A call on a closing channel raises CancelledError, too. `cancelling` tells if this task is cancelled.
        """
        try:
            return await work
        except (fy.P4ClientError, GNMIClientError, TimeoutError, ValueError, RuntimeError) as error:
            text = getattr(error, "message", None) or str(error) or "no answer in time"
            if isinstance(error, fy.P4ClientError) and error.details:
                text += f" {next(iter(error.details.values())).message}"
            silent = isinstance(error, TimeoutError) or getattr(error, "code", None) in NO_ANSWER
            rest = (SERVER, START) if silent else ("the request carried out", "read the switch's log")
            raise SwitchUnavailable(f"{self._where}: {text}", *rest) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise SwitchUnavailable(f"{self._where} closed the connection", SERVER, START) from None


@cache
def _p4info(path: Path) -> p4i.P4Info:
    return fy.P4Schema(path).p4info


def _credentials(tls: TlsFiles) -> fy.GRPCCredentialsTLS:
    return fy.GRPCCredentialsTLS(cacert=Path(tls.ca), cert=Path(tls.certificate), private_key=Path(tls.key))

# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server or its device in this process, and two kinds of clients: finsy, and bare gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import finsy
import grpc
import pytest
from compressed import unpacked
from finsy import P4Schema, P4TableAction, P4TableEntry, P4TableMatch, Switch, SwitchOptions
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_status

from railweave.switch.options import Tls
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.server import Extra, listen
from railweave.switch.p4runtime.service import Service
from railweave.switch.pipeline import Pipeline

PROGRAMS = Path(__file__).parent / "dataplane" / "programs"
ROUTER, ENTITIES, ORACLE = "router", "entities", "oracle"
DEVICE = 3
CPU_PORT = 510  # of entities.p4
Config = p4r.SetForwardingPipelineConfigRequest
A, B = 0x020000000001, 0x020000000002


class Server(AbstractAsyncContextManager["Server"]):
    """A served device, restartable on its address. `pipelines` lists the pipelines that became active."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pipelines: list[Pipeline] = []
        self.extras: Callable[[Service], Sequence[Extra]] = lambda _: ()

    async def start(self, tls: Tls | None = None) -> None:
        service = Service(DEVICE, self.pipelines.append, cpu_port=CPU_PORT)
        self.config = service.config
        self._server = await listen(service, self.address, tls, self.extras(service))
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def finsy(self, program: str = ROUTER, **options: object) -> AsyncIterator[Switch]:
        chosen = SwitchOptions(*files(program), device_id=DEVICE, **options)  # type: ignore[arg-type]
        async with Switch("s1", self.address, chosen) as switch:
            yield switch


def files(program: str) -> tuple[Path, Path]:
    """Return P4Info and JSON of one of the tests' programs."""
    return unpacked(PROGRAMS / f"{program}.p4info.txtpb"), unpacked(PROGRAMS / f"{program}.json")


P4INFO, JSON = files(ROUTER)
SCHEMAS = {name: P4Schema(*files(name)) for name in (ROUTER, ENTITIES, ORACLE)}


def to_port(port: int, destination: int = A) -> P4TableEntry:
    return P4TableEntry(
        "bridge", match=P4TableMatch(destination=destination), action=P4TableAction("to_port", port=port)
    )


class Client:
    """A bare gRPC client with a stream. Its requests carry its election id."""

    def __init__(
        self, server: Server, channel: grpc.aio.Channel, election_id: int | None, program: str
    ) -> None:
        self.server = server
        self.program = program
        self.stub = p4r_grpc.P4RuntimeStub(channel)
        self.election_id = None if election_id is None else U128.encode(election_id)
        self.stream = self.stub.StreamChannel()

    async def arbitrate(
        self, election_id: int | None = None, device: int = DEVICE
    ) -> p4r.MasterArbitrationUpdate:
        if election_id is not None:
            self.election_id = U128.encode(election_id)
        update = p4r.MasterArbitrationUpdate(device_id=device, election_id=self.election_id)
        await self.stream.write(p4r.StreamMessageRequest(arbitration=update))
        return await self.hear()

    async def hear(self) -> p4r.MasterArbitrationUpdate:
        response = await self.stream.read()
        assert isinstance(response, p4r.StreamMessageResponse)
        return response.arbitration

    async def set_pipeline(
        self, action: int, json: bytes | None = None, cookie: int = 0, p4info: p4i.P4Info | None = None
    ) -> None:
        """Push the client's program, or another JSON or P4Info. COMMIT pushes nothing."""
        request = Config(device_id=DEVICE, election_id=self.election_id, action=action)  # type: ignore[arg-type]
        if action != Config.COMMIT:
            config = SCHEMAS[self.program].get_pipeline_config()
            request.config.p4info.CopyFrom(config.p4info if p4info is None else p4info)
            request.config.p4_device_config = config.p4_device_config if json is None else json
            request.config.cookie.cookie = cookie
        await self.stub.SetForwardingPipelineConfig(request)

    async def read(self, *entities: finsy.P4Entity | p4r.Entity) -> list[p4r.Entity]:
        """Return all entities of the answer, in order."""
        patterns = [encode(entity, self.program) for entity in entities]
        request = p4r.ReadRequest(device_id=DEVICE, entities=patterns)
        return [entity async for reply in self.stub.Read(request) for entity in reply.entities]

    async def write(self, *updates: p4r.Update, **fields: object) -> list[p4r.Error]:
        """Write updates. Return one error per update, or an empty list on success."""
        request = p4r.WriteRequest(device_id=DEVICE, election_id=self.election_id, updates=updates, **fields)  # type: ignore[arg-type]
        try:
            await self.stub.Write(request)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNKNOWN:
                raise
            found = errors(error)
            assert len(found) == len(updates)
            return found
        return []


@asynccontextmanager
async def client(
    server: Server, election_id: int | None = 1, *, load: bool = False, program: str = ROUTER
) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        made = Client(server, channel, election_id, program)
        if load:
            assert (await made.arbitrate()).status.code == 0
            await made.set_pipeline(Config.VERIFY_AND_COMMIT)
        yield made
        made.stream.cancel()


async def refused(call: Awaitable[object], code: str, words: str | None = None) -> grpc.aio.AioRpcError:
    """Await a call that is refused with this code. Its message has these words."""
    with pytest.raises(grpc.aio.AioRpcError, match=words) as refusal:
        await call
    assert refusal.value.code().name == code
    return refusal.value


def status(failed: grpc.aio.AioRpcError) -> rpc_status.Status:
    """Return the status in the metadata of a call that failed. Without metadata, it is empty."""
    metadata = dict(failed.trailing_metadata() or ())
    return rpc_status.Status.FromString(metadata.get("grpc-status-details-bin", b""))


def errors(failed: grpc.aio.AioRpcError) -> list[p4r.Error]:
    """Return one error per update or request."""
    found = []
    for packed in status(failed).details:
        found.append(p4r.Error())
        assert packed.Unpack(found[-1])
    return found


def codes(errors: list[p4r.Error]) -> list[str]:
    names = {code.value[0]: code.name for code in grpc.StatusCode}
    return [names[error.canonical_code] for error in errors]


def encode(entity: finsy.P4Entity | p4r.Entity, program: str = ROUTER) -> p4r.Entity:
    return entity if isinstance(entity, p4r.Entity) else entity.encode(SCHEMAS[program])


def update(kind: str, entity: finsy.P4Entity | p4r.Entity, program: str = ROUTER) -> p4r.Update:
    return p4r.Update(type=p4r.Update.Type.Value(kind), entity=encode(entity, program))  # type: ignore[arg-type]


def device(program: str, p4info: p4i.P4Info | None = None, json: bytes | None = None) -> Device:
    """Return the device behind a server, without the server. It may have another P4Info or JSON."""
    config = SCHEMAS[program].get_pipeline_config()
    if p4info is not None:
        config.p4info.CopyFrom(p4info)
    return Device.of(config, Pipeline.load(json or config.p4_device_config))

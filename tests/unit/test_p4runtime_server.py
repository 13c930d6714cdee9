# SPDX-License-Identifier: Apache-2.0
"""The server around P4Runtime: TLS, reflection, health, limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from certificates import authority, certificate
from finsy import P4RegisterEntry
from finsy.proto import p4r, p4r_grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from p4runtime_clients import (
    DEVICE,
    ENTITIES,
    JSON,
    P4INFO,
    Client,
    Config,
    Server,
    client,
    encode,
    refused,
    to_port,
    update,
)

from railweave.switch.daemon import load_program
from railweave.switch.errors import SwitchError
from railweave.switch.options import SwitchOptions, Tls
from railweave.switch.p4runtime import arbitration
from railweave.switch.p4runtime.server import listen
from railweave.switch.p4runtime.service import API_VERSION, Service
from railweave.switch.pipeline import Pipeline
from railweave.v1 import switch_pb2

NAME = "switch.test"
SERVICE = "p4.v1.P4Runtime"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a CA, and a certificate from this CA for the name of the switch."""
    ca = authority(tmp_path_factory.mktemp("tls"))
    certificate(ca, "own", f"DNS:{NAME}")
    return ca.parent


@pytest.mark.parametrize("mutual", [False, True])
async def test_tls_shows_the_switch_and_may_want_to_see_the_client(
    server: Server, certificates: Path, *, mutual: bool
) -> None:
    ca, own, key = (certificates / name for name in ("ca.pem", "own.pem", "own.key"))

    async def version(*credentials: bytes | None) -> str:
        options = [("grpc.ssl_target_name_override", NAME)]
        ssl = grpc.ssl_channel_credentials(*credentials)
        async with grpc.aio.secure_channel(server.address, ssl, options) as channel:
            answer = await p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest())
            return answer.p4runtime_api_version

    await server.stop()
    server.address = f"unix:{certificates}/grpc-{mutual}"
    await server.start(Tls(own, key, ca if mutual else None))
    assert await version(ca.read_bytes(), key.read_bytes(), own.read_bytes()) == API_VERSION
    if mutual:
        with pytest.raises(grpc.aio.AioRpcError):
            await version(ca.read_bytes())
    with pytest.raises(grpc.aio.AioRpcError):
        async with client(server) as plain:
            await plain.stub.Capabilities(p4r.CapabilitiesRequest())


async def test_an_address_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(OSError, match="in use"):
        await listen(Service(1, lambda _: None), "256.0.0.1:9")


async def test_tls_files_that_are_none_are_named(server: Server, tmp_path: Path) -> None:
    missing = Tls(tmp_path / "no.pem", tmp_path / "no.key")
    with pytest.raises(SwitchError, match=r"--tls-key .*no\.key"):
        await listen(Service(1, lambda _: None), f"unix:{tmp_path}/other", missing)
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    rubbish.chmod(0o644)
    with pytest.raises(SwitchError, match=r"--tls-key .*mode 0644, .*others could read"):
        await listen(Service(1, lambda _: None), f"unix:{tmp_path}/other", Tls(rubbish, rubbish))
    rubbish.chmod(0o600)
    with pytest.raises(OSError, match="TLS"):
        await listen(Service(1, lambda _: None), f"unix:{tmp_path}/other", Tls(rubbish, rubbish))


async def test_reflection_tells_the_services_and_health_that_they_serve(server: Server) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
        ]
        listed, found = [answer async for answer in ask(iter(requests))]
        assert SERVICE in {service.name for service in listed.list_services_response.service}
        files = [
            FileDescriptorProto.FromString(data)
            for data in found.file_descriptor_response.file_descriptor_proto
        ]
        assert any(method.name == "Write" for file in files for s in file.service for method in s.method)
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_role_has_a_limit_of_streams(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arbitration, "MAX_STREAMS", 2)
    async with client(server, 1) as one, client(server, 2) as two, client(server, 3) as three:
        assert (await one.arbitrate()).status.code == 0
        assert (await two.arbitrate()).status.code == 0
        await refused(three.arbitrate(), "RESOURCE_EXHAUSTED", "limit")


async def test_an_answer_to_a_read_comes_in_messages_of_bounded_size(entities: Client) -> None:
    patterns = [encode(P4RegisterEntry("sizes"), ENTITIES)] * 100
    request = p4r.ReadRequest(device_id=DEVICE, entities=patterns)
    sizes = [len(reply.entities) async for reply in entities.stub.Read(request)]
    assert sizes == [256, 256, 256, 32]


async def test_a_program_may_come_inside_a_device_config(server: Server) -> None:
    """Controllers of p4lang/tutorials wrap it in p4.tmp.P4DeviceConfig, whose field 1 is `reassign`."""
    wrapped = b"\x08\x01" + switch_pb2.DeviceConfig(device_data=JSON.read_bytes()).SerializeToString()
    async with client(server) as one:
        await one.arbitrate()
        await one.set_pipeline(Config.VERIFY_AND_COMMIT, json=wrapped)
        assert await one.write(update("INSERT", to_port(1))) == []
        request = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE)
        answer = await one.stub.GetForwardingPipelineConfig(request)
    assert answer.config.p4_device_config == wrapped


async def test_capabilities_are_those_of_the_device(server: Server) -> None:
    async with client(server) as one:
        for device in (0, DEVICE):
            answer = await one.stub.Capabilities(p4r.CapabilitiesRequest(device_id=device))
            assert answer.p4runtime_api_version == API_VERSION
        other = p4r.CapabilitiesRequest(device_id=99)
        await refused(one.stub.Capabilities(other), "NOT_FOUND", f"this is device {DEVICE}")


@pytest.mark.parametrize("cpu_port", [None, 77])
def test_packets_go_to_the_controller_only_where_a_cpu_port_is_asked_for(cpu_port: int | None) -> None:
    asked = {} if cpu_port is None else {"cpu_port": cpu_port}
    options = SwitchOptions({1: "eth1"}, program=JSON, p4info=P4INFO, **asked)
    served: list[Pipeline] = []
    asyncio.run(load_program(Service(1, served.append, options.cpu_port), served.append, options))
    assert [pipeline.cpu_port for pipeline in served] == [cpu_port]

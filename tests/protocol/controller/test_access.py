# SPDX-License-Identifier: Apache-2.0
"""Strangers on the management network. The controller and the switch refuse their calls."""

from __future__ import annotations

import asyncio
import queue
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from certificates import authority, certificate
from controller_world import World, at_address, controller_for, running_switch, served
from test_bootstrap import join_all, joiner, leave_all
from test_command import check_refusals

from railweave.access import IN_CLEAR, Access
from railweave.controller.errors import ControllerError
from railweave.hosts.errors import ControllerUnreachable, RailweaveError
from railweave.topologies.cluster import TlsFiles
from railweave.topologies.planes import planes
from railweave.v1 import controller_pb2 as pb

TOKEN = "a token of the cluster"  # noqa: S105
HERE = "IP:127.0.0.1"
METHODS = pb.DESCRIPTOR.services_by_name["Controller"].methods


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the cluster's certificates. Its folder `other` has those of another CA."""
    folder = tmp_path_factory.mktemp("tls")
    for place in (folder, folder / "other"):
        ca = authority(place)
        certificate(ca, "host", HERE)
        certificate(ca, "elsewhere", "IP:127.0.0.9")
    return folder


@pytest.fixture
def own(folder: Path) -> Access:
    """Return the credentials of the cluster's members."""
    return Access(certificate_of(folder), TOKEN)


def certificate_of(folder: Path, name: str = "host") -> TlsFiles:
    return TlsFiles(f"{folder}/ca.pem", f"{folder}/{name}.pem", f"{folder}/{name}.key")


@asynccontextmanager
async def closed_world(own: Access, **options: object) -> AsyncIterator[World]:
    """Run a controller and a switch that both require credentials."""
    chosen = {"access": own, "switch_tls": own.tls, **options}
    async with (
        running_switch(access=replace(own, token="")) as switch,
        controller_for(switch, **chosen) as world,
    ):
        yield world


def strangers(folder: Path) -> dict[str, grpc.ChannelCredentials | None]:
    """Return insufficient credentials, with the token if it can be sent. None means no TLS."""
    ca = (folder / "ca.pem").read_bytes()
    mine, other = (
        [(place / name).read_bytes() for name in ("host.key", "host.pem")]
        for place in (folder, folder / "other")
    )

    def known(*pair: bytes, token: str = "") -> grpc.ChannelCredentials:
        tls = grpc.ssl_channel_credentials(ca, *pair)
        call = grpc.access_token_call_credentials(token)
        return grpc.composite_channel_credentials(tls, call) if token else tls

    return {
        "no TLS": None,
        "no certificate": known(token=TOKEN),
        "a certificate of another CA": known(*other, token=TOKEN),
        "no token": known(*mine),
        "wrong token": known(*mine, token=TOKEN[:-1] + "R"),
        "a beginning of the token": known(*mine, token=TOKEN[:-1]),
    }


async def refused(channel: grpc.aio.Channel, path: str) -> grpc.StatusCode:
    """Call a method of any kind. Return the status of the refusal."""
    # The request is no stream: gRPC's client reports INTERNAL for a write after the end of the call.
    call = channel.unary_stream(path)(b"", timeout=20)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        async for _ in call:
            pass
    return error.value.code()


async def test_strangers_get_no_answer_from_any_method(folder: Path, own: Access) -> None:
    async with closed_world(own) as world:
        address = f"127.0.0.1:{world.running.port}"
        for who, credentials in strangers(folder).items():
            expected = "UNAUTHENTICATED" if "token" in who else "UNAVAILABLE"
            open_channel = grpc.aio.secure_channel if credentials else grpc.aio.insecure_channel
            given = (address, credentials) if credentials else (address,)
            async with open_channel(*given) as channel:
                paths = [f"/railweave.v1.Controller/{method.name}" for method in METHODS]
                codes = [await refused(channel, path) for path in (*paths, "/x/y")]
            assert {code.name for code in codes} == {expected}, who
        assert not world.running.groups.running()
        assert not world.running.groups.waiting("")


async def test_those_who_belong_there_join_watch_and_leave(own: Access) -> None:
    async with closed_world(own) as world:
        memberships = await join_all(world, 2, queue.Queue(), access=own)
        await world.watched("job", 0, 1)
        assert all(membership.groups["ina"] for membership in memberships)
        await leave_all(memberships)


@pytest.mark.parametrize(
    ("who", "error", "message"),
    [
        ("no TLS", ControllerUnreachable, "a controller there, without TLS"),
        ("another CA", ControllerUnreachable, r"TLS with 127\.0\.0\.1:\d+: .*certificate"),
        (
            "not believed",
            ControllerUnreachable,
            r"TLS with 127\.0\.0\.1:\d+: it ends the connection on seeing our",
        ),
        ("wrong token", RailweaveError, "no token, or another one than the controller's: expected the token"),
        # The false controller has the real one's address, but a certificate for a different address.
        ("a false controller", ControllerUnreachable, r"not valid for '127\.0\.0\.1'"),
    ],
)
async def test_a_rank_that_is_refused_learns_why(
    folder: Path, own: Access, who: str, error: type[Exception], message: str
) -> None:
    another = certificate_of(folder / "other")
    access = {
        "no TLS": IN_CLEAR,
        "another CA": Access(another, TOKEN),
        "not believed": Access(replace(another, ca=f"{folder}/ca.pem"), TOKEN),
        "wrong token": replace(own, token=TOKEN.upper()),
        "a false controller": own,
    }[who]
    false = replace(own, tls=certificate_of(folder, "elsewhere"))
    async with closed_world(own, access=false if who == "a false controller" else own) as world:
        deadline_s = 3.0 if who == "no TLS" else 60.0
        join = joiner(world.running.port, queue.Queue(), access=access, deadline_s=deadline_s)
        with pytest.raises(error, match=message):
            await asyncio.to_thread(join, 0)
        assert not world.running.groups.waiting("job")


async def test_switch_and_controller_must_believe_each_other(folder: Path) -> None:
    async def refuse(of_switch: str | None, of_controller: str | None, message: str) -> None:
        def files(name: str | None) -> TlsFiles | None:
            path = folder / (name or "")
            return certificate_of(path.parent, path.name) if name else None

        async with running_switch(access=Access(files(of_switch))) as switch:
            topology = at_address(planes(2, ("ina", "tcp")), switch.port)
            with pytest.raises(ControllerError, match=message):
                async with served(topology, switch_tls=files(of_controller), switch_deadline_s=2.0):
                    pass
            assert not switch.updates

    await asyncio.gather(
        refuse("host", None, "no switch is configured within"),
        refuse("host", "other/host", r"s-ina at .*TLS with .*certificate"),
        refuse("elsewhere", "host", r"s-ina at .*not valid for '127\.0\.0\.1'"),
        refuse(None, "host", r"s-ina at .*TLS with .*WRONG_VERSION_NUMBER"),
    )


async def test_metrics_want_a_certificate_too(folder: Path, own: Access) -> None:
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")

    def scrape(address: str) -> str:
        with urllib.request.urlopen(f"https://{address}/metrics", context=context, timeout=20) as answer:
            return answer.read().decode()

    async with closed_world(own, metrics="127.0.0.1:0") as world:
        with pytest.raises(OSError, match=r"(?i)certificate required|reset|EOF"):
            await asyncio.to_thread(scrape, world.running.metrics)
        context.load_cert_chain(own.tls.certificate, own.tls.key)
        assert "railweave_switch_up" in await asyncio.to_thread(scrape, world.running.metrics)


CLUSTER = """\
controller: 127.0.0.1:9600
planes: {tcp: {network: 10.2.0.0/16}}
hosts: {a: {tcp: 10.2.0.1}}
"""


def test_the_command_refuses_to_start_where_secrets_would_be_open(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cluster(more: str) -> tuple[str, Path]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(CLUSTER + more)
        return "--cluster", path

    for name, text, mode in (
        ("open.key", (folder / "host.key").read_text(), 0o644),
        ("token", TOKEN, 0o644),
        ("empty", "\n", 0o600),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    tls = f"tls: {{ca: {folder}/ca.pem, certificate: {folder}/host.pem, key: {folder}/host.key}}\n"
    open_key = tls.replace(f"{folder}/host.key", "open.key")
    check_refusals(
        ("token: is given without tls", *cluster("token: token\n")),
        ("open.key: mode 0644, owner 0, so others could read", *cluster(open_key)),
        ("token: mode 0644", *cluster(f"{tls}token: token\n")),
        ("No such file", *cluster(f"{tls}token: none\n")),
        ("a certificate and its key", *cluster(tls.replace("host.key", "elsewhere.key"))),
        ("0 characters: expected a line", *cluster(f"{tls}token: empty\n")),
        ("both or none of --topology and --cluster",),
    )
    monkeypatch.setenv("RAILWEAVE_TOKEN", TOKEN)
    check_refusals(("RAILWEAVE_TOKEN is set without TLS", *cluster("")))
    monkeypatch.setenv("RAILWEAVE_TOKEN", "short")
    check_refusals(("at least 16 ASCII characters", *cluster(tls)))

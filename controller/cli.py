# SPDX-License-Identifier: Apache-2.0
"""`railweave controller`."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from railweave.access import access_of, check
from railweave.controller.errors import ControllerError
from railweave.controller.quotas import Quota, read
from railweave.controller.server import ControllerOptions, PlaneLoss, serve
from railweave.controller.slots import MIN_SLOTS
from railweave.exit_status import one_line_errors
from railweave.help_texts import examples
from railweave.p4src.artifacts import AGGREGATION, JUMBO_LANES, JUMBO_MTU, PROFILES
from railweave.topologies import cluster as clusters
from railweave.topologies.model import Topology
from railweave.topologies.serialize import load

app = typer.Typer()

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

DEFAULTS = ControllerOptions()


@app.command(
    "controller",
    epilog=examples(
        "controller --cluster /etc/railweave/cluster.yaml",
        "controller --topology planes.yaml --listen 10.255.0.250:9600 --loss ina=0.01",
    ),
)
def controller(
    topology: Annotated[
        Path | None, typer.Option(help="Path of the topology file (YAML); give this or --cluster.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Path of the cluster file (YAML); give this or --topology.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT on which agents are served; port 0 means a free one. "
            f"Default: that of the cluster file, or {DEFAULTS.listen}."
        ),
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            help=f"Number of lanes (int32) per packet: {', '.join(map(str, PROFILES[AGGREGATION]))}. "
            f"Default: {JUMBO_LANES} on planes whose links all have an MTU of {JUMBO_MTU} bytes, else 256."
        ),
    ] = DEFAULTS.lanes,
    slots: Annotated[
        int,
        typer.Option(
            help="Number of slots (chunks in flight) per job and plane, a power of two; see also --quota."
        ),
    ] = DEFAULTS.quotas.default.slots,
    trees: Annotated[
        int, typer.Option(help="Most trees per job and plane, where several switches can be roots.")
    ] = DEFAULTS.quotas.default.trees,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            help="Limits of slots and trees per job and plane; JOB may contain * and ?, and the option may "
            "repeat.",
            metavar="[JOB:]slots=N,trees=N",
        ),
    ] = None,
    quotas: Annotated[
        Path | None,
        typer.Option(
            help="File with such limits (YAML): `default: {…}` and `jobs: {JOB: {…}}`. Default: none."
        ),
    ] = None,
    suspect: Annotated[
        float,
        typer.Option(
            help="Time in seconds for which the controller avoids links that ranks have reported as dead."
        ),
    ] = DEFAULTS.suspect_s,
    lease: Annotated[
        float, typer.Option(help="Time in seconds without a heartbeat after which a rank counts as lost.")
    ] = DEFAULTS.lease_s,
    switch_deadline: Annotated[
        float,
        typer.Option(
            help="Longest wait in seconds for all switches at the start; a late switch is configured when "
            "it answers."
        ),
    ] = DEFAULTS.switch_deadline_s,
    device_id: Annotated[
        int | None,
        typer.Option(help="P4Runtime device id of all switches, 0 for BMv2. Default: that of the topology."),
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            help="Probability that the switches of a plane drop a frame; the option may repeat. Without it, "
            "SetLoss is refused.",
            metavar="PLANE=PROBABILITY[:ingress|egress]",
        ),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            help="HOST:PORT on which Prometheus metrics are served; port 0 means a free one. Default: no "
            "metrics.",
            show_default=False,
        ),
    ] = DEFAULTS.metrics,
    verbose: Annotated[bool, typer.Option(help="Log all actions to stderr.")] = False,
) -> None:
    """Run the controller, which places jobs in the network.

    It loads the P4 program into the switches, forms groups with aggregation trees, and monitors their ranks.

    It prints `ready listen=HOST:PORT` once all switches are configured, or after --switch-deadline. In the
    second case it warns of each switch that is not configured, and configures the switch when it answers.

    SIGTERM or Ctrl-C ends it. Running groups stay in the switches, and the next controller adopts them.
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("finsy").setLevel(logging.WARNING if verbose else logging.CRITICAL + 1)
    for proxy in PROXIES:
        os.environ.pop(proxy, None)  # switches are reached directly, and finsy has no option for that
    with one_line_errors():
        value, of_cluster = _network(topology, cluster)
        if device_id is not None:
            value = _with_device_id(value, device_id)
        options = replace(
            of_cluster,
            listen=listen or _reachable(of_cluster.listen, len(value.hosts)),
            lanes=lanes,
            quotas=read(quota or (), quotas, Quota(slots, trees)),
            lease_s=lease,
            switch_deadline_s=switch_deadline,
            suspect_s=suspect,
            metrics=metrics,
            losses=tuple(_parse_loss(text) for text in loss or ()),
        )
        _check(options)
        asyncio.run(_run(value, options))


def _network(topology: Path | None, cluster: Path | None) -> tuple[Topology, ControllerOptions]:
    """Return the topology, and the options that come with a cluster file."""
    if (topology is None) == (cluster is None):
        raise ControllerError(
            "both or none of --topology and --cluster", "one of them, with a file", "give one of them"
        )
    if topology is not None:
        access_of(None)  # refuses a token, which would travel in clear
        return load(topology), DEFAULTS
    assert cluster is not None  # noqa: S101
    described = clusters.load(cluster)
    switch_tls = described.switch_tls or described.tls
    if switch_tls is not None:
        check(switch_tls)
    options = replace(
        DEFAULTS, listen=described.controller, access=access_of(described), switch_tls=switch_tls
    )
    return described.topology(), options


def _reachable(listen: str, hosts: int) -> str:
    """Return a cluster's address of the controller. ControllerError if it is a loopback address here."""
    name = listen.rpartition(":")[0]
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except OSError:
        return listen  # gRPC reports the error
    if hosts > 1 and name not in found and all(ipaddress.ip_address(each).is_loopback for each in found):
        raise ControllerError(
            f"the cluster file's controller {name!r} is {', '.join(sorted(found))} on this machine",
            "an address that other machines can reach",
            "give this machine's address there, or --listen ADDRESS:PORT here",
        )
    return listen


async def _run(topology: Topology, options: ControllerOptions) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = asyncio.create_task(_serve_until(stop, topology, options))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({server, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not server.done():
        server.cancel()
    stopped.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await server


async def _serve_until(stop: asyncio.Event, topology: Topology, options: ControllerOptions) -> None:
    async with serve(topology, options) as running:
        host = options.listen.rpartition(":")[0]
        scrape = f" metrics={running.metrics}" if running.metrics else ""
        print(f"ready listen={host}:{running.port}{scrape}", flush=True)
        await stop.wait()


def _check(options: ControllerOptions) -> None:
    slots = options.quotas.default.slots
    if slots and (slots < MIN_SLOTS or slots & (slots - 1)):
        raise ControllerError(
            f"--slots {slots}", f"a power of two from {MIN_SLOTS}, or 0 for none", "correct --slots"
        )
    if min(options.lease_s, options.switch_deadline_s, options.suspect_s) <= 0:
        raise ControllerError(
            f"--lease {options.lease_s:g}, --switch-deadline {options.switch_deadline_s:g}, "
            f"--suspect {options.suspect_s:g}",
            "more than 0 seconds",
            "correct these options",
        )


def _parse_loss(text: str) -> PlaneLoss:
    plane, _, rest = text.partition("=")
    probability, _, direction = rest.partition(":")
    try:
        return PlaneLoss(plane, float(probability), direction or "both")
    except ValueError:
        raise ControllerError(
            f"--loss {text!r}", "PLANE=PROBABILITY[:ingress|egress]", "correct --loss"
        ) from None


def _with_device_id(topology: Topology, device_id: int) -> Topology:
    planes = tuple(
        replace(plane, switches=tuple(replace(switch, device_id=device_id) for switch in plane.switches))
        for plane in topology.planes
    )
    return replace(topology, planes=planes)

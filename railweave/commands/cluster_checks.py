# SPDX-License-Identifier: Apache-2.0
"""The checks of `railweave doctor --cluster`: from this machine to the parts of the cluster that it reaches.

The controller reports on the switches. The kernels of other hosts answer pings. A switch sums a packet of a
job with one rank.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import grpc
import numpy as np

from railweave._native import ina
from railweave.access import Access, access_of, refusal
from railweave.commands.checks import Finding, super_packets
from railweave.controller import programs
from railweave.controller.errors import SwitchUnavailable
from railweave.controller.slots import FEWER
from railweave.controller.southbound import SwitchLink
from railweave.errors import explain, parts
from railweave.hosts import bootstrap
from railweave.hosts.cluster import interface_of, this_host
from railweave.hosts.errors import InvalidOption, RailweaveError
from railweave.hosts.events import InaGroup, RailOffer
from railweave.hosts.interfaces import interface
from railweave.topologies.cluster import Cluster, ClusterNic, TlsFiles
from railweave.topologies.model import P4_KINDS, Plane, Switch
from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

ANSWER_S = 10.0
MOST_OFFSET_S = 1.0  # between clocks, because people read logs and traces of several machines together
MAX_DATAGRAM = 65535
PINGS = 3  # attempts until one is answered
PING_HEADERS = 28  # IPv4 and ICMP
TRIES, TRY_S = 5, 0.3  # of the packet to be summed


def run_checks(cluster: Cluster) -> list[Finding]:
    """Return all findings, in the order in which they depend on each other."""
    access = access_of(cluster)
    findings = list(_controller(cluster, access))
    answers = all(finding.present for finding in findings[:1])
    if not answers:
        findings += asyncio.run(ask_switches(cluster))
    findings.append(check_host(cluster))
    try:
        host = this_host(cluster)
    except InvalidOption:
        return findings
    for plane, nic in cluster.hosts[host].items():
        of_plane = list(_plane(cluster, host, plane, nic))
        findings += of_plane
        if cluster.kind(plane) == "ina" and answers and all(finding.present for finding in of_plane):
            findings.append(_reduced_packet(cluster, access, host, plane, nic))
    if any(cluster.kind(plane) in ("rdma", "netreduce") for plane in cluster.hosts[host]):
        findings.append(super_packets())
    return findings


def check_host(cluster: Cluster) -> Finding:
    """Return which host this machine is; a machine without ranks may have the controller or a switch."""
    try:
        return _fine("host", f"{this_host(cluster)} of {', '.join(cluster.hosts)}")
    except InvalidOption as error:
        why = parts(str(error))
    switches = [switch for plane in cluster.planes.values() for switch in plane.switches.values()]
    if any(_is_here(place) for place in (cluster.controller, *(each.p4runtime for each in switches))):
        return _fine("host", "none: this machine has the controller or a switch, and no rank can run here")
    return _bad("host", *why)


def _is_here(place: str) -> bool:
    """Whether this machine has the address of HOST:PORT; an empty text has none."""
    host = place.rpartition(":")[0].strip("[]")
    if not host:
        return False
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _fine(name: str, detail: str) -> Finding:
    return Finding(name, True, True, detail, "", "")


def _bad(name: str, detail: str, expected: str, remedy: str) -> Finding:
    return Finding(name, False, True, detail, expected, remedy)


# ------------------------------------------------------------ controller, clock, switches


def _controller(cluster: Cluster, access: Access) -> Iterator[Finding]:
    where = cluster.controller
    with access.channel(where, [("grpc.enable_http_proxy", 0)]) as channel:
        stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
        try:
            began = time.time()
            report = stub.Explain(pb.ExplainRequest(), timeout=ANSWER_S)
            ended = time.time()
        except grpc.RpcError as error:
            yield _unanswered(where, access, error)
            return
        secured = "with TLS" if access.tls else "in clear"
        secured += " and token" if access.token else ""
        yield _fine("controller", f"{where} answers {secured}; {len(report.jobs)} jobs run")
        yield _clock(report.time_s, began, ended)
        try:
            counters = stub.GetSwitchCounters(pb.SwitchCountersRequest(), timeout=2 * ANSWER_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:  # which means: no P4 switch
                yield _bad(
                    "switches",
                    f"{error.code().name}: {error.details()}",
                    "their counters",
                    "read the controller's log",
                )
            return
    for switch in counters.switches:
        yield from _switch(switch)


def _unanswered(where: str, access: Access, error: grpc.RpcError) -> Finding:
    if why := refusal(access.tls, where):
        remedy = "make certificates as docs/howto/cluster.md says, and look at clocks and addresses"
        return _bad("controller", *parts(explain(why, do=remedy)))
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return _bad("controller", *parts(str(error.details())))
    return _bad(
        "controller",
        f"{where}: {error.code().name}, {error.details()}",
        "a controller that answers",
        "start `railweave controller` there with the same cluster file, and ping its address",
    )


def _clock(theirs: float, began: float, ended: float) -> Finding:
    offset = (began + ended) / 2 - theirs
    if abs(offset) <= MOST_OFFSET_S + (ended - began) / 2:
        return _fine("clock", f"{offset:+.3f} s from the controller's")
    return _bad(
        "clock",
        f"{offset:+.1f} s from the controller's",
        f"at most {MOST_OFFSET_S:g} s",
        "have chrony or ntpd set both clocks",
    )


def _switch(switch: pb.SwitchCounters) -> Iterator[Finding]:
    name = f"switch {switch.name}"
    if switch.problem:
        yield _bad(f"{name}, P4Runtime", *parts(switch.problem))
        return
    yield _fine(f"{name}, P4Runtime", "answers, and runs the program")
    free = switch.slots - switch.slots_used
    detail = f"{free} of {switch.slots} free"
    if free:
        yield _fine(f"{name}, slots", detail)
    else:
        remedy = f"end a job (`railweave why` lists them), or {FEWER}"
        yield _bad(f"{name}, slots", detail, "some free slots", remedy)


async def ask_switches(cluster: Cluster) -> list[Finding]:
    """Check the switches directly, as the controller would, if this machine has the controller's key."""
    tls = cluster.switch_tls or cluster.tls
    if tls and not os.access(tls.key, os.R_OK):
        return []
    planes = [plane for plane in cluster.topology().planes if plane.kind == "ina"]
    switches = [(switch, plane) for plane in planes for switch in plane.switches if switch.p4runtime]
    return [await _asked(switch, plane, tls) for switch, plane in switches]


async def _asked(switch: Switch, plane: Plane, tls: TlsFiles | None) -> Finding:
    what = f"switch {switch.name}, P4Runtime"
    try:
        await SwitchLink(
            switch, programs.of_switch(switch, programs.of_plane(plane)), _nothing, tls=tls
        ).check()
    except (SwitchUnavailable, ValueError) as error:
        return _bad(what, *parts(str(error)))
    return _fine(what, "answers, and takes the program")


async def _nothing() -> None:
    """Do nothing at the start of a session, which a check does not have."""


# ------------------------------------------------------------ planes


def _plane(cluster: Cluster, host: str, plane: str, nic: ClusterNic) -> Iterator[Finding]:
    """Check a plane up to the first error, because later checks depend on earlier ones."""
    for finding in _steps(cluster, host, plane, nic):
        yield finding
        if not finding.present:
            return


def _steps(cluster: Cluster, host: str, plane: str, nic: ClusterNic) -> Iterator[Finding]:
    where = f"hosts.{host}.{plane}"
    links = {link["ifname"]: link for link in json.loads(_output("ip", "-json", "address"))}
    try:
        name = interface_of(cluster, host, plane)
    except InvalidOption:
        name = ""
    if name not in links:
        missing = f"no interface {name}" if name else f"no interface has {nic.address} as its first address"
        remedy = f"give one the address, or correct {where}"
        yield _bad(f"{plane}: interface", missing, f"one of {', '.join(links)}", remedy)
        return
    link = links[name]
    yield _link(plane, link, cluster.planes[plane].mtu if nic.mtu is None else nic.mtu)
    yield _address(plane, where, cluster, nic, link)
    if cluster.kind(plane) in P4_KINDS and link["address"] != nic.mac.lower():
        remedy = f"write {link['address']} into {where}.mac on all machines, and restart the controller"
        yield _bad(f"{plane}: MAC", f"{name} has {link['address']}", f"{nic.mac}, as in the file", remedy)
    for peer, nics in cluster.hosts.items():
        if peer != host and plane in nics:
            yield from _peer(plane, peer, nics[plane].address, name, link["mtu"])


def _link(plane: str, link: dict[str, Any], least_mtu: int) -> Finding:
    what, name, mtu = f"{plane}: link", link["ifname"], link["mtu"]
    if "UP" not in link["flags"]:
        return _bad(what, f"{name} is down", "an interface that is up", f"ip link set {name} up")
    if "LOWER_UP" not in link["flags"]:
        remedy = "look at the cable, and whether the other end is up"
        return _bad(what, f"{name} has no carrier", "a carrier", remedy)
    if mtu < least_mtu:
        remedy = f"ip link set {name} mtu {least_mtu}, or write {mtu} into the file as `mtu`, on all machines"
        return _bad(what, f"{name} has an MTU of {mtu}", f"{least_mtu} or more", remedy)
    return _fine(what, f"{name} is up, MTU {mtu}")


def _address(plane: str, where: str, cluster: Cluster, nic: ClusterNic, link: dict[str, Any]) -> Finding:
    network = IPv4Network(cluster.planes[plane].network)
    name = link["ifname"]
    try:
        own = interface(name).address  # the one that a rank uses
    except InvalidOption:
        own = ""
    if own and IPv4Address(own) in network and nic.address in ("", own):
        return _fine(f"{plane}: address", own)
    others = [one["local"] for one in link["addr_info"] if one["family"] == "inet" and one["local"] != own]
    place = f"{nic.address or 'ADDRESS'}/{network.prefixlen}"
    remedy = f"ip address add {place} dev {name}, or correct {where}"
    if others:
        remedy = f"a rank uses the first address: ip address del {own} dev {name}, or correct {where}"
    found = ", then ".join(filter(None, [own, *others])) or "none"
    return _bad(
        f"{plane}: address", f"{name} has {found}", f"{nic.address or 'an address'} of {network}", remedy
    )


def _peer(plane: str, peer: str, address: str, interface: str, mtu: int) -> Iterator[Finding]:
    """Check the path to another host: route, and pings of small and full size."""
    what = f"{plane}: to {peer}"
    if not address:
        yield _fine(what, f"not checked: the file gives no address of {peer} on this plane")
        return
    route = json.loads(_output("ip", "-json", "route", "get", address) or "[{}]")[0]
    if route.get("dev") != interface:
        over = f"over {route['dev']}" if "dev" in route else "nowhere"
        remedy = (
            f"`ip route get {address}` shows the route: remove it, or correct addresses and prefix lengths"
        )
        yield _bad(f"{what}, route", f"{address} is reached {over}", interface, remedy)
        return
    if shutil.which("ping") is None:
        yield _bad(what, "not on PATH", "the command ping", "apt-get install iputils-ping")
    elif not _pings(address, interface, 0):
        remedy = f"run this on {peer} as well, and look whether cables, VLANs and the switch join both"
        yield _bad(what, f"{address} does not answer pings", "an answer", remedy)
    elif not _pings(address, interface, mtu - PING_HEADERS):
        remedy = f"give switches and {peer} an MTU of {mtu} or more on this plane, or this machine less"
        yield _bad(f"{what}, MTU", f"{address} gets no packets of {mtu} bytes", "an answer", remedy)
    else:
        yield _fine(what, f"{address} answers packets of {mtu} bytes")


def _pings(address: str, interface: str, payload: int) -> bool:
    unfragmented = ("-M", "do", "-s", str(payload), "-I", interface)
    command = ("ping", "-n", "-q", "-c", "1", "-W", "1", *unfragmented, address)
    attempts = (subprocess.run(command, capture_output=True, check=False) for _ in range(PINGS))
    return any(attempt.returncode == 0 for attempt in attempts)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


# ------------------------------------------------------------ a summed packet


def _reduced_packet(cluster: Cluster, access: Access, host: str, plane: str, nic: ClusterNic) -> Finding:
    """Join a job of one rank, and send one packet. Its result comes back at once."""
    what = f"{plane}: sum in the network"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((nic.address, 0))
        udp.settimeout(TRY_S)
        offer = RailOffer(plane, "ina", plane, nic.address, nic.mac, udp.getsockname()[1])
        job = f"doctor-{host}-{os.getpid()}"
        given: dict[str, Any] = {"job": job, "rank": 0, "size": 1, "rails": [offer], "access": access}
        try:
            with bootstrap.join(cluster.controller, **given, deadline_s=ANSWER_S) as membership:
                return _sum(what, udp, membership.groups[plane][0])
        except RailweaveError as error:
            return _bad(what, *parts(str(error)))


def _sum(what: str, udp: socket.socket, place: InaGroup) -> Finding:
    lanes = np.arange(place.lanes, dtype=">i4").tobytes()
    header = ina.Header(group=place.group, child=place.child).encode()
    began, why = time.monotonic(), ""
    for _ in range(TRIES):
        try:
            udp.sendto(header + lanes, (place.virtual_address, place.udp_port))
            answer = udp.recv(MAX_DATAGRAM)
        except OSError as error:  # TimeoutError is one
            why = str(error)
            continue
        if answer[ina.HEADER_BYTES :] == lanes:
            took_ms = 1e3 * (time.monotonic() - began)
            return _fine(what, f"{place.lanes} numbers came back in {took_ms:.1f} ms")
        return _bad(
            what,
            "another sum came back",
            "the numbers that were sent",
            "restart the switch, so that it runs this version",
        )
    return _bad(
        what,
        f"no answer from {place.virtual_address}, UDP port {place.udp_port}: {why}",
        "the sum of one packet",
        "look whether the cable is in the port that the file says, and for firewalls (nft list ruleset)",
    )

# SPDX-License-Identifier: Apache-2.0
"""One interface to every switch target: write tables by name, send packets and collect the output."""

from __future__ import annotations

import contextlib
import functools
import itertools
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import finsy as fy
from dataplane import wire
from dataplane.control import Control, GrpcControl, Tables
from finsy.proto import p4r

from railweave.controller.state import SwitchState
from railweave.switch.targets import Target

PORTS = (1, 2, 3, 4)
START_S = 20.0
STOP_S = 5.0
ANSWER_S = 0.05  # after this time a sentinel may be lost: send another one
GIVE_UP_S = 1.5  # stop waiting for sentinels: the program may drop all of them
BURST = {"bmv2": 32}  # packets at a time: BMv2 loses packets beyond its small input buffer

Frames = list[tuple[int, bytes]]
Sentinel = Callable[[int, bytes], bytes]


@dataclass(frozen=True)
class Program:
    """A compiled program, and a way to send sentinels to a chosen port.

    `prepare` writes the table entries for sentinels. `sentinel(port, token)` is a packet that carries the
    token and leaves by that port. Without a sentinel, an exchange only ends by a time-out.
    """

    name: str
    json: Path
    p4info: Path
    lanes: int = 0
    prepare: Callable[[Switch], None] | None = None
    sentinel: Sentinel | None = None

    @functools.cached_property
    def schema(self) -> fy.P4Schema:
        """The schema of P4Info and JSON, read once."""
        return fy.P4Schema(self.p4info, self.json)


class Switch(Tables):
    """A switch with tables, counters and registers by name. Subclasses implement `exchange_many`."""

    def __init__(self, name: str, control: Control) -> None:
        self.name = name
        self.ports = PORTS
        self.lanes = 0
        self.control = control
        self.program: Program

    def load(self, program: Program) -> Switch:
        """Load a program with fresh tables and registers."""
        self.program = program
        self.lanes = program.lanes
        self.schema = program.schema
        self.control.load(self.schema)
        if program.prepare:
            program.prepare(self)
        return self

    def install(self, state: SwitchState) -> None:
        """Write the state that the controller computes for a switch."""
        for entry in state.entries:
            self.insert(entry.table, dict(entry.match), entry.action, dict(entry.params))
        for multicast in state.multicasts:
            self.multicast(multicast.group, sorted(multicast.replicas))

    def uninstall(self, state: SwitchState) -> None:
        """Delete this state. Registers keep their contents."""
        for entry in state.entries:
            self.delete(entry.table, dict(entry.match))
        for multicast in state.multicasts:
            self._write(fy.P4MulticastGroupEntry(multicast.group), p4r.Update.DELETE)

    def entries(self, table: str) -> list[fy.P4TableEntry]:
        return self._read(fy.P4TableEntry(table))

    def direct_counter(self, table: str, key: Mapping[str, Any], priority: int = 0) -> int:
        """Return the number of packets that hit an entry."""
        entry = fy.P4TableEntry(table, match=fy.P4TableMatch(key), priority=priority)
        [found] = self._read(fy.P4DirectCounterEntry(table_entry=entry))
        return int(found.packet_count)

    def action_packets(self, table: str) -> dict[str, int]:
        """Return packets per action of a table with a direct counter. No target counts misses."""
        counts: dict[str, int] = {}
        names = {self._identity(entry): entry.action.name for entry in self.entries(table)}
        for counted in self._read(fy.P4DirectCounterEntry(table_entry=fy.P4TableEntry(table))):
            name = names[self._identity(counted.table_entry)]
            counts[name] = counts.get(name, 0) + int(counted.packet_count)
        return counts

    def counter(self, name: str, index: int) -> int:
        """Return the packets in one cell of an indirect counter."""
        [found] = self._read(fy.P4CounterEntry(name, index=index))
        return int(found.packet_count)

    def register(self, name: str, index: int) -> int:
        [found] = self._read(fy.P4RegisterEntry(name, index=index))
        return int(found.data)

    def exchange(self, port: int, packet: bytes) -> Frames:
        """Send a packet. Return all resulting packets with their ports."""
        return self.exchange_many([(port, packet)])

    def exchange_many(self, packets: Sequence[tuple[int, bytes]]) -> Frames:
        """Send packets in this order. Return all resulting packets, in order per port."""
        raise NotImplementedError

    def _identity(self, entry: fy.P4TableEntry) -> tuple[Any, ...]:
        return tuple(entry.match_dict(self.schema).items()), entry.priority


class WireSwitch(Switch):
    """A target that runs as a process on veth links."""

    def __init__(
        self,
        name: str,
        address: str,
        sockets: Mapping[int, socket.socket],
        namespace: str,
        child: subprocess.Popen[bytes],
    ) -> None:
        super().__init__(name, GrpcControl(address))
        self.address = address
        self.sockets = sockets
        self.namespace = namespace
        self.child = child
        self._tokens = itertools.count(1)

    def exchange_many(self, packets: Sequence[tuple[int, bytes]]) -> Frames:
        self._drain()
        frames: Frames = []
        # Packets to different ports could overtake each other on their way in.
        for port, group in itertools.groupby(packets, lambda packet: packet[0]):
            while burst := list(itertools.islice(group, BURST.get(self.name))):
                for _, packet in burst:
                    self._send(port, packet)
                frames += self.collect(port)
        return frames

    def collect(self, sender: int) -> Frames:
        """Collect the results of packets into a port, until a sentinel has come out of every port.

        The sentinel to the sender's own port goes last and enters by another port. It cannot overtake,
        because the switch has then processed all packets from the sender.
        """
        frames: Frames = []
        others = [port for port in self.ports if port != sender]
        give_up = time.monotonic() + GIVE_UP_S
        frames += self._await_sentinels(sender, others, give_up)
        return frames + self._await_sentinels(others[0], [sender], give_up)

    def _await_sentinels(self, sender: int, to: Sequence[int], give_up: float) -> Frames:
        frames: Frames = []
        token = f"sentinel {next(self._tokens):08}".encode()
        missing = set(to)
        sent_at = 0.0
        while missing and (now := time.monotonic()) < give_up:
            if now - sent_at > ANSWER_S and self.program.sentinel:
                sent_at = now
                for port in missing:
                    self._send(sender, self.program.sentinel(port, token))
            for port, data in self._receive(min(ANSWER_S, give_up - now)):
                if token in data:
                    missing.discard(port)
                elif b"sentinel 0" not in data:
                    frames.append((port, data))
        return frames

    def _send(self, port: int, packet: bytes) -> None:
        select.select([], [self.sockets[port]], [], GIVE_UP_S)
        self.sockets[port].send(packet)

    def _receive(self, timeout_s: float) -> Frames:
        """Return the packets that wait at the ports. If nothing waits, wait for the first packet."""
        ready, _, _ = select.select(list(self.sockets.values()), [], [], timeout_s)
        frames: Frames = []
        for port, raw in self.sockets.items():
            if raw in ready:
                while (data := wire.receive(raw)) is not None:
                    frames.append((port, data))
        return frames

    def _drain(self) -> None:
        while self._receive(0):
            pass


@contextlib.contextmanager
def links(label: str) -> Iterator[tuple[str, dict[int, str], dict[int, socket.socket]]]:
    """Create a namespace with a veth pair per port. Yield its name, switch interfaces, far-end sockets."""
    with ExitStack() as stack:
        name = stack.enter_context(wire.namespace(label))
        interfaces = {port: f"s{port}" for port in PORTS}
        for port, interface in interfaces.items():
            peer = f"h{port}"
            ip = ["-n", name, "link"]
            wire.ip(*ip, "add", interface, "mtu", "9000", "type", "veth", "peer", "name", peer, "mtu", "9000")
            for end in (interface, peer):
                wire.ip(*ip, "set", end, "up")
        sockets = wire.in_namespace(
            name, lambda: {port: wire.packet_socket(f"h{port}") for port in interfaces}
        )
        wire.in_namespace(name, lambda: [wire.cut_in_kernel(i) for i in interfaces.values()])
        for raw in sockets.values():
            stack.enter_context(raw)
        yield name, interfaces, sockets


@contextlib.contextmanager
def running(target: Target, *environment: str) -> Iterator[WireSwitch]:
    """Run a target's process on separate links, with its primary controller."""
    with (
        tempfile.TemporaryDirectory() as folder,
        links(target.name) as (namespace, interfaces, sockets),
    ):
        address, log = f"unix:{folder}/grpc", Path(folder, "log")
        command = ["env", *environment, *target.command(interfaces, address, 1)]
        with process(["ip", "netns", "exec", namespace, *command], log) as child:
            switch = WireSwitch(target.name, address, sockets, namespace, child)
            with contextlib.closing(switch.control):
                yield switch
        assert "Traceback" not in log.read_text(), log.read_text()


@contextlib.contextmanager
def process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child process during the context, which begins when the child prints `ready`.

    The child's standard error goes to `log`.
    """
    command = ["setpriv", "--pdeathsig", "TERM", *command]  # the child ends even if the tests are killed
    with log.open("wb") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as child:
        try:
            assert child.stdout
            ready, _, _ = select.select([child.stdout], [], [], START_S)
            line = child.stdout.readline() if ready else b""
            if not line.startswith(b"ready"):
                raise RuntimeError(f"{command} is not ready: {line!r}\n{log.read_text()}")
            yield child
            child.terminate()
            if child.wait(STOP_S) != 0:
                raise RuntimeError(f"{command} ended with {child.returncode}:\n{log.read_text()}")
        finally:
            child.kill()

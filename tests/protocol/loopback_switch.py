# SPDX-License-Identifier: Apache-2.0
"""A model switch on a UDP socket of this machine, for in-network rails on real sockets."""

from __future__ import annotations

import os
import random
import select
import socket
import threading
from collections import defaultdict

from protocol.switch_model import CONTRIBUTE, SPREAD, Membership, SwitchModel

from railweave._rigs import ina
from railweave.hosts.events import InaGroup

GROUP, SLOTS = 9, 64
LANES = 64  # with fewer, a trial has more packets than Python copies in time on a busy machine
POLL_S = 0.05
MARK = 12  # offset of the mark in a packet


def own_address() -> str:
    """Return this process's loopback address, so that test processes can run at the same time."""
    high, low = divmod(os.getpid() % (240 * 240), 240)
    return f"127.52.{high + 1}.{low + 1}"


ADDRESS = own_address()
PLACE = InaGroup("ina", GROUP, ADDRESS, ina.UDP_PORT, child=0, slots=SLOTS, lanes=LANES, depth=1)


class LoopbackSwitch:
    """A model switch on 127.a.b.c:5257. It learns each child's address from the child's packets.

    It loses one of `refuse_every` packets.
    """

    def __init__(self, address: str, hosts: int, refuse_every: int = 0) -> None:
        self.hosts = hosts
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, ina.UDP_PORT))
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self.services: defaultdict[int, set[int]] = defaultdict(set)  # by kind of packet: types of service
        self.lock = threading.Lock()  # held while a thread reads the socket
        self.restart()
        self.children: dict[int, tuple[str, int]] = {}
        self.refuse_every = refuse_every
        self.stopping = threading.Event()
        self.deaf = threading.Event()  # while it is set, all packets are lost
        self.spoils = False  # whether to change the mark in all contributions of child 1
        self.spoilt = 0  # packets
        self.starved: set[int] = set()  # types of service whose packets are lost
        self.spared: set[int] = set()  # children that get no multicast packets
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def restart(self, *groups: int) -> None:
        """Lose all state, like a switch whose process restarts. Afterwards the switch knows only `groups`.

        Unread packets are lost, too.
        """
        with self.lock:
            while self._next() is not None:
                pass
            known = enumerate(groups or (GROUP,))
            self.model = SwitchModel(
                LANES,
                [Membership(group, self.hosts, SLOTS, base=2 * SLOTS * place) for place, group in known],
            )

    def _next(self) -> tuple[bytes, tuple[str, int]] | None:
        try:
            data, ((_, _, service),), _, sender = self.socket.recvmsg(65536, socket.CMSG_SPACE(1))
        except BlockingIOError:
            return None
        self.services[data[0] & 0xF].add(service[0])
        return (data, sender) if service[0] not in self.starved else None

    def _serve(self) -> None:
        # Losses are random: if packets are resent in a fixed order, every nth could always be the same.
        chance = random.Random(self.refuse_every)
        while not self.stopping.is_set():
            select.select([self.socket], [], [], POLL_S)
            with self.lock:
                packet = self._next()
                if packet is None:
                    continue
                lost = self.refuse_every and chance.randrange(self.refuse_every) == 0
                if not self.deaf.is_set() and not lost:
                    self._process(*packet)

    def _process(self, data: bytes, sender: tuple[str, int]) -> None:
        self.children[data[4]] = sender
        if self.spoils and data[4] == 1 and data[0] & 0xF == CONTRIBUTE:
            self.spoilt += 1
            data = data[:MARK] + bytes([data[MARK] ^ 1]) + data[MARK + 1 :]
        for child, packet in self.model.process(data[4], data):
            if int(child) in self.spared and packet[0] & 0xF == SPREAD:
                continue
            self.socket.sendto(packet, self.children[int(child)])

    def close(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.socket.close()

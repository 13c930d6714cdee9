# SPDX-License-Identifier: Apache-2.0
"""End a queue pair of a host; run in the switch: `python -m railweave.topologies.lab.end_queue_pair`.

Standard input names the switch's interface to the host. The program sends the host a NAK "remote operational
error" for a packet in flight, as the peer's adapter would after a failure. Acknowledgements on that interface
show the queue pair and the packets in flight.
"""

from __future__ import annotations

import socket
import sys
import time

from railweave._native import roce

ALL_PROTOCOLS = 0x0003
DEADLINE_S = 5.0
LEAST_RUN = 8  # acknowledged packets at once from which more data are surely in flight
SILENCE_S = 0.5  # without an acknowledgement: the queue pair has ended. Hosts compute between calls
REMOTE_OPERATIONAL_ERROR = (3, 3, 0)  # kind and code of the AETH, and its message number


def acknowledgement(frame: bytes) -> tuple[int, int] | None:
    """Return queue pair number and PSN of an acknowledgement; None for other frames."""
    fault, _, _, transport = roce.open_frames(frame)[0]
    packet = roce.parse(transport) if fault is roce.FrameFault.NONE else None
    if packet is None or packet["opcode"] != roce.Opcode.ACKNOWLEDGE or packet["aeth"][0] != 0:
        return None
    return packet["qpn"], packet["psn"]


def nak(frame: bytes, qpn: int, psn: int) -> bytes:
    """Return a NAK with the addresses of an acknowledgement."""
    source, peer = (int.from_bytes(frame[at : at + 4]) for at in (26, 30))
    path = roce.Path(frame[6:12], frame[:6], source, peer, int.from_bytes(frame[34:36]))
    transport = roce.build(roce.Opcode.ACKNOWLEDGE, qpn, psn & 0xFFFFFF, aeth=REMOTE_OPERATIONAL_ERROR)
    return roce.seal(path, 0, transport)


def end_one(link: socket.socket) -> bool:
    """End the first queue pair that sends data. Return False if no queue pair sends data.

    A NAK may come too late for its packet. So the function sends NAKs until acknowledgements stop.
    """
    last: dict[int, int] = {}
    ended = 0
    latest = time.monotonic() + DEADLINE_S
    while (left := latest - time.monotonic()) > 0:
        link.settimeout(left)
        try:
            frame, (_, _, direction, *_) = link.recvfrom(65536)
        except TimeoutError:
            break
        found = acknowledgement(frame) if direction == socket.PACKET_OUTGOING else None
        if found is None or ended not in (0, found[0]):
            continue
        number, psn = found
        run = psn - last.get(number, psn)
        last[number] = psn
        if run >= LEAST_RUN:
            link.send(nak(frame, number, psn + run))
            ended, latest = number, time.monotonic() + SILENCE_S
    return ended > 0


def main() -> int:
    """Wait for the interface's name. Without a name, do nothing."""
    interface = sys.stdin.read().strip()
    if not interface:
        return 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as link:
        link.bind((interface, ALL_PROTOCOLS))
        if end_one(link):
            return 0
    sys.stderr.write("no queue pair of the host sends data\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

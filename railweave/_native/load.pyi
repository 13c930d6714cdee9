"""Load on a switch, and on a receiver"""

from collections.abc import Sequence

import railweave._native.collectives


def drive(fds: Sequence[int], lanes: int, segments: int, slots: int, first_round: int, warm_up_s: float, seconds: float, echo: bool = False) -> dict:
    """
    Contribute to group 1 over these connected UDP sockets (one per worker) in a closed loop of `slots` chunks, sent as super-packets of `segments`; counts of right, wrong and repeated contributions. `echo`: right is what comes back as it was sent, as a RESULT
    """

def loop_frame(out: int, into: int, frame: bytes, expected: bytes, window: int, seconds: float) -> dict:
    """
    Send copies of a frame from one packet socket to another one in a closed loop of `window` frames; counts of right, wrong and lost ones
    """

def loop_shared(out: str, into: str, frame: bytes, expected: bytes, window: int, seconds: float) -> dict:
    """The same over two links `shm:NAME`; OSError if one has two ends"""

def packet_socket(interface: str) -> int:
    """
    The descriptor of a packet socket on this interface, for loop_frame; OSError if there is none
    """

def measure_endpoint(dtype: railweave._native.collectives.DType, op: railweave._native.collectives.ReduceOp, lanes: int, slots: int, count: int, rounds: int, sealed: bool) -> dict:
    """
    CPU time of an in-network endpoint alone, in nanoseconds over all chunks.
    """

class Echo:
    """
    The ports of a switch that return UDP packets, as results of the program
    """

    def __init__(self, interfaces: Sequence[tuple[int, str]]) -> None:
        """
        Opens (port, interface name) pairs; OSError names the interface that cannot be opened
        """

    def start(self) -> None: ...

    def stop(self) -> None: ...

def receive_from_memory(kind: str, payload_bytes: int, seconds: float) -> dict:
    """
    Have one rank receive datagrams of kind spread or result that lie in memory; their number, and the nanoseconds that this took on the clock and of the processor. RuntimeError if a byte is not in its place
    """

def receive_from_kernel(kind: str, payload_bytes: int, seconds: float, super_packets: bool, send_on: int) -> dict:
    """
    The same through sockets of 127.0.0.1, with a sender on CPU `send_on`. RuntimeError also if a datagram is lost
    """

def receive_by_workers(kind: str, payload_bytes: int, seconds: float, super_packets: bool | None, cpus: Sequence[int]) -> dict:
    """
    Have datagrams of two groups received by a thread on each of these CPUs, from memory (super_packets None) or out of the queues of sockets that share a port; as above, of the thread that takes longest
    """

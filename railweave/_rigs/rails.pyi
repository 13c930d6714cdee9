"""Rails without an agent, for tests"""

from collections.abc import Sequence
from typing import Annotated

from numpy.typing import NDArray

import railweave._native.agent


class Rails:
    """One rail of each rank, all on one event loop"""

    def __init__(self, world_size: int) -> None: ...

    def open_tcp(self, rank: int, address: str, port: int = 0, beat_s: float = 0.0, interface: str = '') -> int:
        """Listen; the port"""

    def open_rdma(self, rank: int, interface: str, address: str) -> tuple[str, list[int]]:
        """Open; (MAC, queue pair number for each rank)"""

    def open_ina(self, rank: int, address: str, interface: str = '', rate_bps: int = 0, yields: bool = False) -> int:
        """Open an in-network rail with its control; the control's port"""

    def attach(self, rank: int, trees: Sequence[tuple[int, str]], slots: int, lanes: int, cpus: Sequence[int] = []) -> None:
        """
        The trees of an in-network rail: (group, virtual address), and the CPUs of its workers. Children are numbered by rank
        """

    def introduce(self, rank: int, secret: bytes, members: Sequence[tuple[str, int]]) -> None:
        """Say who takes part, without connections: `restart` makes them"""

    def connect_tcp(self, rank: int, secret: bytes, members: Sequence[tuple[str, int]]) -> None: ...

    def connect_rdma(self, rank: int, secret: bytes, members: Sequence[tuple[str, str, Sequence[int]]]) -> None: ...

    def start(self, rank: int, id: int, op_index: int, input: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], output: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu')], op: str = 'sum', part: int = 0) -> None:
        """Begin an all-reduce, of which this is the slice `part`"""

    def halt(self, rank: int) -> None: ...

    def halt_at_next(self, rank: int) -> None:
        """Halt from inside the next report, as an agent might"""

    def restart(self, rank: int, incarnation: int, bases: Sequence[int] = []) -> None: ...

    def ready(self, rank: int) -> bool: ...

    def next_chunks(self, rank: int) -> list[int]: ...

    def close(self, rank: int) -> None: ...

    def turn(self, longest_s: float) -> None:
        """Wait for something to happen, and handle it"""

    def done(self, rank: int) -> list[int]:
        """The slices completed, in order"""

    def failures(self, rank: int) -> list[railweave._native.agent.Failure]: ...

    def stats(self, rank: int) -> railweave._native.agent.RailStats: ...

class StreamReader:
    """What a peer's TCP stream says, as a list of events"""

    def __init__(self, key: bytes) -> None: ...

    def feed(self, bytes: bytes) -> list:
        """
        The events up to a message that begins; ValueError if one waits and its bytes have no room
        """

    def place(self, wanted: bool) -> list:
        """Take or throw away the message that begins; what follows"""

    def discard(self) -> None:
        """Throw away the rest of the message that comes in"""

class Datagrams:
    """A UDP socket as the in-network rail has it, on a port of its own"""

    def __init__(self, address: str) -> None: ...

    def set_remotes(self, remotes: Sequence[tuple[str, int]]) -> None: ...

    def set_super_packets(self, bytes: int) -> None: ...

    def send(self, datagrams: Sequence[bytes]) -> int:
        """To the first remote; how many are gone"""

    @property
    def stats(self) -> railweave._native.agent.RailStats: ...

"""The embedded P4 engine"""

from collections.abc import Sequence


class InvalidPlan(ValueError):
    pass

OPS: dict = ...

ALGORITHMS: list = ...

MATCH_KINDS: list = ['exact', 'lpm', 'ternary']

INPUT_KINDS: list = ...

INTRINSICS: list = ...

CORE_ERRORS: list = ...

TRACE_KINDS: list = ...

TRACE_REASONS: list = ...

PLAN_LAYOUT: dict = ...

MAX_TRACE_PACKETS: int = 1024

PLAN_MAGIC: int = 1381453873

LONG_WORDS: int = 2147483648

NONE: int = 4294967295

GROUP: int = 4294967294

NO_PORT: int = 65536

DROP_PORT: int = 511

class Engine:
    """Runs a plan; see railweave.switch.pipeline for the friendly face"""

    def __init__(self, plan: bytes) -> None: ...

    def source(self) -> str:
        """The plan as C++; empty if it is one that is only interpreted"""

    def use(self, library: str) -> None:
        """
        Run the code of a library that was compiled of it; ValueError if that is another one's
        """

    def inject(self, port: int, packet: bytes, now_us: int = 0, backlog: tuple[int, int] = (0, 0), busy: bool = False) -> list:
        """
        What leaves for this packet. While all ports are `busy`, packets wait for `release`
        """

    def release(self, port: int, now_us: int, busy: bool = False) -> list:
        """
        What leaves for the next packet that waits at a port. Copies wait while all ports are `busy`
        """

    def benchmark(self, packets: Sequence[tuple[int, bytes]], rounds: int) -> tuple[float, int]: ...

    def insert(self, table: int, value: Sequence[int], mask: Sequence[int], ranges: Sequence[tuple[int, int, int, int, int]], priority: int, action: int, parameters: Sequence[int]) -> int: ...

    def modify(self, table: int, handle: int, action: int, parameters: Sequence[int]) -> None: ...

    def remove(self, table: int, handle: int) -> None: ...

    def set_default(self, table: int, action: int, parameters: Sequence[int]) -> None: ...

    def direct_counter(self, arg0: int, arg1: int, /) -> tuple[int, int]: ...

    def set_direct_counter(self, arg0: int, arg1: int, arg2: int, arg3: int, /) -> None: ...

    def set_direct_meter(self, arg0: int, arg1: int, arg2: Sequence[tuple[float, int]], /) -> None: ...

    def counters(self, counter: int, first: int, count: int) -> list[tuple[int, int]]: ...

    def set_counters(self, counter: int, first: int, count: int, packets: int, bytes: int) -> None: ...

    def set_meters(self, meter: int, first: int, count: int, rates: Sequence[tuple[float, int]]) -> None: ...

    def read_registers(self, array: int, first: int, count: int) -> bytes:
        """Cells in a row, whole bytes each, in network order"""

    def write_registers(self, array: int, first: int, cells: bytes) -> None: ...

    def set_multicast(self, arg0: int, arg1: Sequence[tuple[int, int]], /) -> None: ...

    def set_clone_session(self, arg0: int, arg1: Sequence[tuple[int, int]], arg2: int, /) -> None: ...

    def set_group(self, arg0: int, arg1: int, arg2: Sequence[tuple[int, Sequence[int]]], /) -> None: ...

    def set_cpu_port(self, port: int) -> None: ...

    def set_priority_queues(self, count: int) -> None:
        """Of each port: packets with a priority of `count` or more are dropped"""

    def has_notices(self) -> bool: ...

    def take_packets(self) -> list: ...

    def take_digests(self) -> list: ...

    def set_last_hit(self, table: int, handle: int, now_us: int) -> None: ...

    def last_hit_us(self, arg0: int, arg1: int, /) -> int: ...

    def set_start(self, now_us: int) -> None:
        """Programs' timestamps count from here"""

    def uses_clock(self) -> bool:
        """Whether the program looks at the time of each packet"""

    def now_us(self) -> int: ...

    def seed(self, seed: int) -> None: ...

    def set_logging(self, on: bool) -> None: ...

    def take_log(self) -> tuple[list[tuple[int, list[tuple[list[int], bool]]]], int]:
        """
        [(message, [(words, negative)])], and the number of messages that found no room
        """

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def start_trace(self, plan: bytes, port: int | None, packets: int) -> None: ...

    def take_traces(self) -> list[list[tuple[int, int, list[tuple[list[int], bool]]]]]:
        """Of each packet: [(kind, what, [(words, negative)])]"""

    def stop_trace(self) -> bool: ...

    def tracing(self) -> bool: ...

    def statistics(self) -> dict: ...

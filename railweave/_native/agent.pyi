"""The agent of a communicator"""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray

import railweave._native.collectives


class FailureKind(enum.Enum):
    PEER_LOST = 0

    MISMATCH = 1

    RAIL_DOWN = 2

    INTERNAL = 3

    SILENT = 4
    """of a rail: its agent finds out which it is"""

class RdmaPlace(enum.Enum):
    ANY = 0

    DEVICE = 1

    USER_SPACE = 2

class Stall:
    """
    Contributions to a tree are silent; whether probes are answered, and by whom. Or `spoilt`: its switch has a wrong sum
    """

    @property
    def group(self) -> int: ...

    @property
    def first_switch_ok(self) -> bool: ...

    @property
    def root_ok(self) -> bool: ...

    @property
    def spoilt(self) -> bool: ...

class GroupStats:
    """One aggregation tree's counts since it was formed"""

    @property
    def group(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def rtt_ns(self) -> int: ...

    @property
    def contributions(self) -> int: ...

    @property
    def results(self) -> int: ...

    @property
    def retransmissions(self) -> int: ...

    @property
    def early_retransmissions(self) -> int: ...

    @property
    def timeouts(self) -> int: ...

    @property
    def stale(self) -> int: ...

    @property
    def duplicates(self) -> int: ...

    @property
    def mismatches(self) -> int: ...

    @property
    def probes_sent(self) -> int: ...

    @property
    def probes_answered(self) -> int: ...

    @property
    def nonfinite_chunks(self) -> int: ...

    @property
    def moves(self) -> int: ...

    @property
    def error_bound(self) -> float: ...

    @property
    def multicasts(self) -> int: ...

    @property
    def multicast_bytes(self) -> int: ...

    @property
    def fetched_bytes(self) -> int: ...

    @property
    def answered_bytes(self) -> int: ...

    @property
    def refused(self) -> int: ...

class Failure:
    """What has ended a communicator; `rank` is the peer concerned, or -1"""

    def __init__(self, kind: FailureKind, rank: int, message: str, rail: str = '') -> None: ...

    @property
    def kind(self) -> FailureKind: ...

    @property
    def rank(self) -> int: ...

    @property
    def message(self) -> str: ...

    @property
    def rail(self) -> str:
        """where it happened; empty if not on a rail"""

    @property
    def by_peer(self) -> bool:
        """of SILENT: the other end has ended the connection itself"""

class SentBytes:
    """Why bytes were sent; the rest is headers and acknowledgements"""

    @property
    def payload(self) -> int: ...

    @property
    def resends(self) -> int: ...

    @property
    def recovery(self) -> int: ...

    @property
    def heartbeats(self) -> int: ...

    @property
    def control(self) -> int: ...

class RailStats:
    """
    Counts since the rail was opened; `busy_ns` is time with a slice in progress
    """

    @property
    def slices(self) -> int: ...

    @property
    def payload_bytes(self) -> int: ...

    @property
    def bytes_sent(self) -> int: ...

    @property
    def sent(self) -> SentBytes:
        """`bytes_sent` by class"""

    @property
    def bytes_received(self) -> int: ...

    @property
    def packets_sent(self) -> int: ...

    @property
    def packets_received(self) -> int: ...

    @property
    def retransmissions(self) -> int: ...

    @property
    def duplicates(self) -> int: ...

    @property
    def malformed(self) -> int: ...

    @property
    def send_drops(self) -> int: ...

    @property
    def segmentation_refused(self) -> int: ...

    @property
    def multicast_bytes(self) -> int: ...

    @property
    def fetched_bytes(self) -> int: ...

    @property
    def rings(self) -> int: ...

    @property
    def ring_messages(self) -> int: ...

    @property
    def busy_ns(self) -> int: ...

class SliceRecord:
    """One slice as it went; times in nanoseconds of time.monotonic_ns()"""

    @property
    def op_index(self) -> int: ...

    @property
    def rail(self) -> int: ...

    @property
    def start_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...

    @property
    def bytes(self) -> int:
        """of the whole tensor"""

    @property
    def repair(self) -> bool:
        """over TCP on the rail's interface, after a rail has died"""

class Change:
    """From call `from_op` on, the rails that are `alive` carry calls"""

    @property
    def from_op(self) -> int: ...

    @property
    def alive(self) -> list[bool]:
        """by rail"""

    @property
    def reasons(self) -> list[str]:
        """by rail; empty for those that are alive"""

class RailState:
    """What the ranks have agreed about a rail"""

    @property
    def state(self) -> str:
        """up, down, recovering"""

    @property
    def reason(self) -> str:
        """of the last change"""

    @property
    def since_ns(self) -> int:
        """of time.monotonic_ns()"""

    @property
    def epoch(self) -> int:
        """of the last decision"""

    @property
    def incarnation(self) -> int:
        """restarts, failed trials included"""

    @property
    def failures(self) -> int:
        """how often the ranks have agreed to exclude it"""

    @property
    def last_failure(self) -> str:
        """why they did so the last time"""

    @property
    def down_ns(self) -> int:
        """how long they have done so, all in all"""

class Call:
    """A collective call; the agent gives it its index"""

    def __init__(self, dtype: railweave._native.collectives.DType, op: railweave._native.collectives.ReduceOp, count: int, collective: railweave._native.collectives.Collective = railweave._native.collectives.Collective.ALL_REDUCE, root: int = 0, called: railweave._native.collectives.Called = railweave._native.collectives.Called.AS_CARRIED) -> None: ...

    @property
    def count(self) -> int:
        """elements of the tensor, or of one rank's shard"""

class EndpointWork(enum.Enum):
    """The next work of an endpoint's thread"""

    CALL = 0

    RESTART = 1

    HALT = 2

class EndpointRail:
    """The rail of an in-network algorithm, for the thread of its endpoint"""

    def work_descriptor(self) -> int:
        """A descriptor that is readable while there may be work"""

    def take(self) -> list:
        """
        The work since the last call: (kind, incarnation, dtype, op, input, position)
        """

    def reserve(self, incarnation: int, position: int) -> bool:
        """
        Packets before the position are used from now on. False if the rail was halted: send none of them
        """

    def count(self, sent: int, sent_bytes: int, resent: int, resent_bytes: int, received: int, received_bytes: int) -> None:
        """Count datagrams, and their bytes without headers"""

    def finish(self, incarnation: int, result: Annotated[NDArray, dict(order='C', device='cpu', writable=False)]) -> None:
        """Complete the oldest call"""

    def fail(self, incarnation: int, reason: str) -> None:
        """The endpoint cannot go on in this incarnation"""

class Agent:
    """Owns the event loop and the rails of one communicator"""

    def __init__(self, rank: int, world_size: int) -> None: ...

    def set_secret(self, secret: bytes) -> None:
        """
        The job's 32 bytes, by which its ranks know each other: once, before rails are attached or connected. ValueError
        """

    def add_tcp(self, name: str, address: str, interface: str, rate_bps: int = 0, peer_timeout_s: float = 5.0, mptcp: bool = False) -> tuple[int, int]:
        """
        Open a TCP rail that listens on the address; (rail, port). A peer that gives no sign of life for peer_timeout_s is gone; 0: never. An empty interface binds to none, as Multipath TCP wants it
        """

    def connect_tcp(self, rail: int, members: Sequence[tuple[str, int]], timeout_s: float) -> list[int]:
        """
        Connect a tcp rail, or the control of an ina rail, to all ranks' (address, port); the ranks still missing at the end
        """

    def last_refusal(self, rail: int) -> str:
        """
        Why the last dial of a tcp rail, or of the control of an ina rail, failed; '' if none did
        """

    def add_rdma(self, name: str, address: str, interface: str, rate_bps: int = 0, peer_timeout_s: float = 5.0, sums: bool = False, place: RdmaPlace = RdmaPlace.USER_SPACE, traffic_class: int = 0) -> tuple[int, list[int]]:
        """
        Open an RDMA rail on the interface of this address; (rail, queue pair number for each rank). With `sums` it offers connections that a switch may add up
        """

    def rdma_place(self, rail: int) -> tuple[bool, str]:
        """
        Whether an RDMA rail is on a device, and in words: on which, or why on none
        """

    def sum_numbers(self, rail: int) -> tuple[int, int, int]:
        """What an RDMA rail offers for sums: (out, into, alias)"""

    def sum_rdma(self, rail: int, members: Sequence[tuple[int, int, int]], window_packets: int) -> None:
        """
        A switch adds up the connections of all ranks' (out, into, alias): before connect_rdma
        """

    def connect_rdma(self, rail: int, members: Sequence[tuple[str, str, Sequence[int]]], devices: Sequence[int] = []) -> None:
        """
        Join with all ranks' (address, MAC, queue pair numbers); `devices`: the ranks on a device
        """

    def add_ina(self, name: str, address: str, interface: str, rate_bps: int = 0) -> tuple[int, int]:
        """Open an in-network rail on the address; (rail, UDP port)"""

    def attach_ina(self, rail: int, places: Sequence[tuple[int, str, int, int, int]], members: Sequence[tuple[str, int]], roots: int = 0, redo: bool = False) -> None:
        """
        Take the rail's places in its aggregation trees: (group, virtual address, child, slots, lanes), in the order that all ranks share; `members`: all ranks' (address, port) on the rail, or none if nothing is to be multicast; `roots`: how many of them multicast at once in an allgather, 0: all; `redo`: whether somebody moves a tree that has a wrong sum (`Stall.spoilt`), else the rail fails
        """

    def compose_ina(self, rail: int, members: Sequence[Sequence[int]], lanes: int) -> list[int]:
        """
        Form a ring of members, each a list of ranks: racks, whose places `attach_ina` takes, in which ranks count from 0 in this order, and single ranks, which have none; the ranks of the own one. Before `connect_tcp`. ValueError
        """

    def add_algorithm(self, name: str, address: str, interface: str, rate_bps: int = 0) -> int:
        """Add a rail whose slices an endpoint carries, and return its index"""

    def endpoint(self, rail: int) -> EndpointRail:
        """The rail, for the thread of its endpoint"""

    def pause_ina(self, rail: int, group: int) -> int:
        """
        Stop the tree of this group; the lowest chunk without a result since it was formed
        """

    def resume_ina(self, rail: int, group: int, place: tuple[int, str, int, int, int], resume_from: int) -> None:
        """
        The tree of the paused group goes on at another place from that chunk. ValueError if it cannot
        """

    def set_spin(self, seconds: float) -> None:
        """
        How long whoever waits for a small call looks for its end before it sleeps; before the first call
        """

    def progress_on(self, cpus: Sequence[int]) -> None:
        """
        From now on a thread of the agent's own does all the work of calls, on these CPUs alone, and spins as set; whoever waits sleeps. With several CPUs the trees of an ina rail that is attached later get threads beside it, one CPU each. ValueError for CPUs that this process may not use
        """

    def open_control(self, rail: int) -> int:
        """
        Open what recovery needs on a rail, rail by rail; the port to offer, of UDP (control) and TCP (repair)
        """

    def enable_recovery(self, members: Sequence[Sequence[tuple[str, int]]], rates_bps: Sequence[int], peer_timeout_s: float = 5.0, most_kept_bytes: int = 268435456) -> None:
        """
        From now on rails may die and come back. `members`: all ranks' (address, control port), by rail and rank. `rates_bps`, by rail, the same on all ranks, 0 if unknown: how repairs are spread. Once, after all rails are connected and before the first call. A call waits while earlier calls, without the largest of them, keep `most_kept_bytes` for other ranks
        """

    def forgo_recovery(self) -> None:
        """
        Recovery will not be enabled: a rail that fails, or has failed, ends the communicator
        """

    def plan_point(self, timeout_s: float | None = None) -> tuple[int, int]:
        """
        (op index of the next call, number of changes known), to plan it by. Waits while the ranks agree on which rails live, and for earlier calls' memory. TimeoutError
        """

    def changes(self, since: int = 0) -> list[Change]:
        """
        The changes after the first `since`, in order. Forgets the first `since`
        """

    def wait_change(self, since: int, timeout_s: float | None = None) -> bool:
        """
        Wait until there are more than so many changes or everything has ended; False if the time is up
        """

    def set_obstacle(self, rail: int, text: str) -> None:
        """
        Something stands in the way of a rail on this rank, until it is cleared by ''
        """

    def suspect(self, rail: int, reason: str) -> None:
        """
        A rail cannot go on by itself: with recovery, it is excluded until it has been restarted
        """

    def rail_states(self) -> list[RailState]:
        """RailState of every rail"""

    def submit(self, planned_from: tuple[int, int], call: Call, input: Annotated[NDArray, dict(order='C', device='cpu', writable=False)], output: Annotated[NDArray, dict(order='C', device='cpu')], parts: Sequence[tuple[int, int, int]], start_now: bool = True, expected_s: float = 0.0) -> bool:
        """
        Start the next call, planned from (op index, number of changes known), over parts (rail, offset, count), in elements (of a shard for reduce_scatter and all_gather). Keep both arrays alive until it is done. Without start_now it starts with the first wait. A rail that takes much longer than expected_s (0: unknown) counts as dead. False if the ranks have agreed on other rails since, or a plan point would have to be waited for: take that
        """

    def repeat(self, call: Call, op: str, input: Annotated[NDArray, dict(order='C', device='cpu', writable=False)], ways: Sequence[Sequence[tuple[int, int, int]]], expected_s: float, changes: int, most: int) -> None:
        """
        The next `most` calls, if they are all_reduces like this one of `input`, may be made by `again`, each over the parts of the next one of `ways`, while so many changes are known. `op`: the operation's name
        """

    def again(self, x: object | None, op: object | None, out: object | None) -> int | None:
        """
        Make the next call if it is like the one to repeat, and wait for it. None: it is not, nothing has been done. -1: it is complete. Else its op index: it has failed, or has yet to be waited for
        """

    def stop_repeating(self) -> int:
        """End what `repeat` allows; how many calls have been made by it"""

    def next_op(self) -> int:
        """The next call's op index"""

    def wait(self, op_index: int, timeout_s: float | None = None) -> bool:
        """Wait until the call is done or has failed; False if the time is up"""

    def done(self, op_index: int) -> bool: ...

    def lagging(self, op_index: int) -> list[int]:
        """The rails whose parts of a pending call are not complete"""

    def failure_of(self, op_index: int) -> Failure | None:
        """Why this call failed; None if it is done or pending"""

    def failure(self) -> Failure | None:
        """Why the communicator has ended, if so"""

    def fail(self, failure: Failure) -> None:
        """
        End the communicator with this failure, here and, where a rail can notify them, on the peers
        """

    def close(self, linger_s: float = 0.5) -> None:
        """Say goodbye and stop"""

    def stats(self) -> list[RailStats]:
        """RailStats of every rail"""

    def groups(self) -> list[list[GroupStats]]:
        """GroupStats of every rail's trees"""

    def next_stall(self, timeout_s: float) -> tuple[int, Stall] | None:
        """
        (rail, Stall): wait for the next one; None after the timeout, or when the agent is closed
        """

    def drain_records(self) -> list[SliceRecord]:
        """The slices that have ended since the last call"""

    def drain_measurements(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None, 5), order='C', device='cpu')]:
        """
        The same for the striper, whatever others have drained: of each its op index, rail, start and end in ns, and bytes
        """

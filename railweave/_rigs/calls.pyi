"""
The calls of a rank, and how they are cut again after a rail has failed
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

import railweave._native.agent
import railweave._native.collectives
import railweave._rigs.recovery


REPAIR_BYTES: int = 262144

class Slice:
    """
    What a rail would be given; the views show its memory, and do not keep it
    """

    @property
    def id(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def op_index(self) -> int: ...

    @property
    def collective(self) -> railweave._native.collectives.Collective: ...

    @property
    def root(self) -> int: ...

    def input(self, shard: int = 0) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    def output(self, shard: int = 0) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

class Laggard:
    """A piece that is all that its call waits for"""

    @property
    def op_index(self) -> int: ...

    @property
    def others_ns(self) -> int: ...

    @property
    def expected_ns(self) -> int: ...

    @property
    def since_ns(self) -> int: ...

    @property
    def patience_ns(self) -> int: ...

class Front:
    """The piece that a channel's rail carries first"""

    @property
    def op_index(self) -> int: ...

    @property
    def expected_ns(self) -> int: ...

    @property
    def alone(self) -> bool: ...

    @property
    def patience_ns(self) -> int: ...

class Calls:
    """An agent's calls, without an agent"""

    def __init__(self, rank: int, world_size: int, rates: Sequence[int]) -> None:
        """`rates`: of the rails, as enable_recovery takes them"""

    def submit(self, call: railweave._native.agent.Call, input: Annotated[NDArray, dict(order='C', device='cpu', writable=False)], output: Annotated[NDArray, dict(order='C', device='cpu')], parts: Sequence[tuple[int, int, int]], expected_ns: int = 0, now_ns: int = 0) -> int:
        """The call's op index"""

    def take(self, rail: int, repair: bool) -> Slice | None:
        """The channel's next slice"""

    def finish(self, rail: int, repair: bool, id: int, now_ns: int = 0, deliver: bool = True) -> bool:
        """Whether the call's result is there now"""

    def deliver(self, most: int) -> int:
        """
        Copy at most so many bytes of the oldest result to its caller; the call's op index
        """

    @property
    def delivering(self) -> bool: ...

    def laggard(self, rail: int) -> Laggard | None: ...

    def front(self, rail: int, repair: bool) -> Front | None: ...

    def prepare(self, alive: int) -> railweave._rigs.recovery.Position:
        """Begin nothing movable until `apply`; how far this rank is"""

    def apply(self, commit: railweave._rigs.recovery.Commit) -> None: ...

    def release(self, op_index: int) -> None: ...

    @property
    def next(self) -> int: ...

    @property
    def completed(self) -> int: ...

    @property
    def kept_bytes(self) -> int: ...

    @property
    def kept_calls(self) -> int: ...

    def pending(self, op_index: int) -> bool: ...

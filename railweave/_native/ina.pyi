"""In-network aggregation: packets, and limits of the rail"""

import railweave._native.collectives


HEADER_BYTES: int = 16

SEAL_LANES: int = 4

WIDE_LANES: int = 2

LEAST_SPREAD_CHUNKS: int = 16

SPREAD_CODE_BYTES: int = 16

class Header:
    def __init__(self, *, version: int = 1, kind: int = 0, op: int = 0, group: int = 0, child: int = 0, flags: int = 0, slot: int = 0, round: int = 0, mark: int = 0) -> None: ...

    @property
    def version(self) -> int: ...

    @version.setter
    def version(self, arg: int, /) -> None: ...

    @property
    def kind(self) -> int: ...

    @kind.setter
    def kind(self, arg: int, /) -> None: ...

    @property
    def op(self) -> int: ...

    @op.setter
    def op(self, arg: int, /) -> None: ...

    @property
    def group(self) -> int: ...

    @group.setter
    def group(self, arg: int, /) -> None: ...

    @property
    def child(self) -> int: ...

    @child.setter
    def child(self, arg: int, /) -> None: ...

    @property
    def flags(self) -> int: ...

    @flags.setter
    def flags(self, arg: int, /) -> None: ...

    @property
    def slot(self) -> int: ...

    @slot.setter
    def slot(self, arg: int, /) -> None: ...

    @property
    def round(self) -> int: ...

    @round.setter
    def round(self, arg: int, /) -> None: ...

    @property
    def mark(self) -> int: ...

    @mark.setter
    def mark(self, arg: int, /) -> None: ...

    def __eq__(self, arg: Header, /) -> bool: ...

    def encode(self) -> bytes: ...

    @staticmethod
    def decode(arg: bytes, /) -> Header: ...

def exact_lanes(arg: int, /) -> int: ...

def spreads(collective: railweave._native.collectives.Collective, dtype: railweave._native.collectives.DType, count: int, world_size: int, lanes: int, trees: int) -> bool:
    """
    Whether so many elements (of a shard, where there are shards) are multicast on such trees.
    """

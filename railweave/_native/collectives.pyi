"""Collectives, and how rails carry them"""

import enum


class DType(enum.Enum):
    FLOAT32 = 0

    INT32 = 1

    FLOAT16 = 2

    BFLOAT16 = 3

    FLOAT64 = 4

    INT8 = 5

    UINT8 = 6

    INT64 = 7

    def __hash__(self, /):
        """Return hash(self)."""

class ReduceOp(enum.Enum):
    SUM = 0

    MAX = 1

    MIN = 2

    AVG = 3

    PROD = 4

    def __hash__(self, /):
        """Return hash(self)."""

class Collective(enum.Enum):
    ALL_REDUCE = 0

    REDUCE_SCATTER = 1

    ALL_GATHER = 2

    BROADCAST = 3

    def __hash__(self, /):
        """Return hash(self)."""

class Called(enum.Enum):
    AS_CARRIED = 0

    EMPTY = 1

    REDUCE = 2

    EMPTY_REDUCE = 3

    BARRIER = 4

    def __hash__(self, /):
        """Return hash(self)."""

MOST_HOST_SUM_BYTES: int = 4096

def item_size(dtype: DType) -> int:
    """Bytes of an element"""

class Method(enum.Enum):
    RECURSIVE_DOUBLING = 0

    BRUCK = 1

    RING = 2

    BINOMIAL = 3

    CHAIN = 4

def choose_method(collective: Collective, bytes: int, ranks: int, rate_bps: int) -> Method:
    """
    How TCP and RDMA rails carry a tensor of so many bytes; rate 0: unknown
    """

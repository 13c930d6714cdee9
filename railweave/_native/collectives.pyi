"""Reduce kernels and algorithms"""

from collections.abc import Sequence
import enum
from typing import Annotated

from numpy.typing import NDArray


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

class Call:
    """One collective of one rank, or the part (offset, count) of it"""

    def __init__(self, dtype: DType, op: ReduceOp, input: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], output: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu')], collective: Collective = Collective.ALL_REDUCE, root: int = 0, part: tuple[int, int] | None = None) -> None: ...

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

def reduce(dtype: DType, op: ReduceOp, into: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu')], low: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], high: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
    """into = op(low, high), element by element; AVG adds"""

REUSED: int = 238

def simulate(calls: Sequence[Sequence[Sequence[Call]]], seed: int, small_bytes: int, segment_bytes: int, bruck_bytes: int = 0) -> list[tuple[list[int], str | None]]:
    """
    Run calls, by incarnation and rank, over a simulated network; all incarnations but the last are halted at random times, and outputs of what is not done then hold REUSED in every byte. Per rank: the op indices completed, in order, and the failure's message or None
    """

"""Reduce kernels, and collectives over a simulated network"""

from collections.abc import Sequence
from typing import Annotated

from numpy.typing import NDArray

import railweave._native.collectives
from railweave._native.collectives import (
    Called as Called,
    Collective as Collective,
    DType as DType,
    Method as Method,
    ReduceOp as ReduceOp,
    choose_method as choose_method,
    item_size as item_size
)


MOST_HOST_SUM_BYTES: int = 4096

class Call:
    """One collective of one rank, or the part (offset, count) of it"""

    def __init__(self, dtype: railweave._native.collectives.DType, op: railweave._native.collectives.ReduceOp, input: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], output: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu')], collective: railweave._native.collectives.Collective = railweave._native.collectives.Collective.ALL_REDUCE, root: int = 0, part: tuple[int, int] | None = None) -> None: ...

def reduce(dtype: railweave._native.collectives.DType, op: railweave._native.collectives.ReduceOp, into: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu')], low: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], high: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
    """into = op(low, high), element by element; AVG adds"""

REUSED: int = 238

def simulate(calls: Sequence[Sequence[Sequence[Call]]], seed: int, small_bytes: int, segment_bytes: int, bruck_bytes: int = 0) -> list[tuple[list[int], str | None]]:
    """
    Run calls, by incarnation and rank, over a simulated network; all incarnations but the last are halted at random times, and outputs of what is not done then hold REUSED in every byte. Per rank: the op indices completed, in order, and the failure's message or None
    """

"""Allreduces of racks and single ranks, for tests"""

from collections.abc import Sequence

import railweave._rigs.collectives


MOST_COLUMNS: int = 32

def columns_of(members: Sequence[Sequence[int]]) -> int:
    """In how many columns these members share a tensor; 0: in none"""

def simulate(calls: Sequence[Sequence[Sequence[railweave._rigs.collectives.Call]]], members: Sequence[Sequence[int]], seed: int, lanes: int = 8, slots: int = 4, message_bytes: int = 256, piece_bytes: int = 64, narrow_bytes: int = 20480, loss: float = 0.0, duplicate: float = 0.0, late_s: float = 0.001, dies: int = -1) -> tuple[list[tuple[list[int], str | None]], list[tuple[int, int, int]]]:
    """
    Run calls, by incarnation and rank, over simulated racks and a ring of `members`; all incarnations but the last are halted at random times. Per rank: the op indices completed, in order, and the failure's message or None; and per rank how many rings it was in, the messages that it sent in them, and the time in ns at which it completed its last call
    """

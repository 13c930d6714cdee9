"""Allreduces that a switch adds up, for tests"""

from collections.abc import Callable, Sequence

import railweave._rigs.collectives


ALIAS: int = 8388608

def out_number(rank: int) -> int:
    """The queue pair from which a rank WRITEs to the next"""

def into_number(sender: int) -> int:
    """The next rank's end; the sender knows it by ALIAS more"""

def simulate(calls: Sequence[Sequence[Sequence[railweave._rigs.collectives.Call]]], exchange: Callable[[int, bytes, int, int], Sequence[tuple[int, bytes]]], seed: int, first_psns: Sequence[int], path_mtu: int = 256, window_packets: int = 16, in_flight: int = 64, loss: float = 0.0, duplicate: float = 0.0, overtaken: float = 0.0, late_s: float = 0.001, dies: int = -1, ends: bool = False, impatient: bool = False) -> tuple[list[tuple[list[int], str | None]], int, set[str]]:
    """
    Run calls, by incarnation and rank. `exchange(rank, transport, incarnation, first)` is the switch: transport packets for ranks. All incarnations but the last are halted at random times; if `ends`, a queue pair fails in each. Per rank: the op indices completed, in order, and the last failure's message or None; then how many slices the switch was to add, and what went wrong beside them
    """

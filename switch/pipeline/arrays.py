# SPDX-License-Identifier: Apache-2.0
"""Counters, meters and registers."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from railweave._native.engine import Engine
from railweave.switch.pipeline.values import CounterValue, MeterConfig
from railweave.switch.program import ArrayInfo, MeterInfo, Program

_CELLS_AT_ONCE = 16_384  # written with one value: this many need memory


class Arrays:
    """Cells that packets count into, and cells that they read and write."""

    def __init__(self, program: Program, engine: Engine) -> None:
        """Begin with all cells 0 and all meters green."""
        self._program = program
        self._engine = engine
        self._lock = threading.Lock()
        self._meters: dict[str, dict[int, MeterConfig]] = {name: {} for name in program.meters}  # by index

    def counters(self, name: str, cells: range) -> list[CounterValue]:
        """Return cells of an indirect counter, one after the other."""
        number = _number(self._program.counters, name, cells)
        return [CounterValue(*value) for value in self._engine.counters(number, cells.start, len(cells))]

    def set_counters(self, name: str, cells: range, value: CounterValue) -> None:
        """Write the same into cells of an indirect counter."""
        number = _number(self._program.counters, name, cells)
        self._engine.set_counters(number, cells.start, len(cells), value.packets, value.bytes)

    def registers(self, name: str, cells: range) -> bytes:
        """Return cells of a register array, one after the other: whole bytes each, in network order."""
        return self._engine.read_registers(
            _number(self._program.registers, name, cells), cells.start, len(cells)
        )

    def set_registers(self, name: str, cells: range, value: int) -> None:
        """Write the same into cells of a register array; ValueError if the value is too wide."""
        number = _number(self._program.registers, name, cells)
        width = self._program.registers[name].width
        if not 0 <= value < 1 << width:
            raise ValueError(f"register {name!r} holds {width} bits; {value} does not fit")
        cell = value.to_bytes((width + 7) // 8, "big")
        for at in range(cells.start, cells.stop, _CELLS_AT_ONCE):
            self._engine.write_registers(number, at, cell * min(_CELLS_AT_ONCE, cells.stop - at))

    def meters(self, name: str, cells: range) -> list[MeterConfig | None]:
        """Return the configurations of cells of an indirect meter; None: always green."""
        _number(self._program.meters, name, cells)
        with self._lock:
            return [self._meters[name].get(index) for index in cells]

    def set_meters(self, name: str, cells: range, config: MeterConfig | None) -> None:
        """Give cells of an indirect meter the same configuration; None: back to always green."""
        number = _number(self._program.meters, name, cells)
        info = self._program.meters[name]
        if info.table is not None:
            raise ValueError(f"meter {name!r} belongs to the entries of {info.table!r}")
        with self._lock:
            self._engine.set_meters(number, cells.start, len(cells), rates(info, config))
            for index in cells:
                self._meters[name].pop(index, None)
            if config is not None:
                self._meters[name].update(dict.fromkeys(cells, config))


def rates(meter: MeterInfo, config: MeterConfig | None) -> list[tuple[float, int]]:
    """Return (tokens per microsecond, burst), slowest first; nothing for a meter that is always green."""
    if config is None:
        return []
    both = [(config.cir, config.cburst), (config.pir, config.pburst)]
    return [(rate / 1e6, burst) for rate, burst in both[: meter.rates]]


def _number(arrays: Mapping[str, ArrayInfo] | Mapping[str, MeterInfo], name: str, cells: range) -> int:
    if name not in arrays:
        raise ValueError(f"no array {name!r}; the program has {', '.join(sorted(arrays))}")
    size = arrays[name].size
    if not 0 <= cells.start <= cells.stop <= size:
        raise ValueError(f"{name!r} has the indexes 0…{size - 1}, not {cells.start}…{cells.stop - 1}")
    return arrays[name].index

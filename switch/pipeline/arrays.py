# SPDX-License-Identifier: Apache-2.0
"""Counters, meters and registers."""

from __future__ import annotations

from collections.abc import Mapping

from railweave.switch.pipeline.matches import LOW64
from railweave.switch.pipeline.tables import Tables
from railweave.switch.pipeline.values import CounterValue, MeterConfig
from railweave.switch.program import ArrayInfo, MeterInfo, Program


class Arrays(Tables):
    """Cells that packets count into, and cells that they read and write."""

    def __init__(self, program: Program, plan: bytes) -> None:
        """All cells are 0, all meters green."""
        super().__init__(program, plan)
        self._meters: dict[tuple[str, int], MeterConfig] = {}  # by array and index
        self._direct_meters: dict[tuple[str, int], MeterConfig] = {}  # by table and handle

    def counter(self, name: str, index: int) -> CounterValue:
        """A cell of an indirect counter."""
        return CounterValue(*self.native.counter(_index(self.program.counters, name, index), index))

    def set_counter(self, name: str, index: int, value: CounterValue) -> None:
        """Write a cell of an indirect counter."""
        number = _index(self.program.counters, name, index)
        self.native.set_counter(number, index, value.packets, value.bytes)

    def direct_counter(self, table: str, handle: int) -> CounterValue:
        """Packets and bytes that hit an entry."""
        self._counted(table)
        self.entry(table, handle)
        return CounterValue(*self.native.direct_counter(self._table(table).index, handle))

    def set_direct_counter(self, table: str, handle: int, value: CounterValue) -> None:
        """Write an entry's counter."""
        self._counted(table)
        self.entry(table, handle)
        self.native.set_direct_counter(self._table(table).index, handle, value.packets, value.bytes)

    def _counted(self, table: str) -> None:
        if not self._table(table).direct_counter:
            raise ValueError(f"table {table!r} has no direct counter")

    def register(self, name: str, index: int) -> int:
        """A cell of a register array."""
        words = self.native.read_register(_index(self.program.registers, name, index), index)
        return sum(word << (64 * position) for position, word in enumerate(words))

    def set_register(self, name: str, index: int, value: int) -> None:
        """Write a cell of a register array; ValueError if the value is too wide."""
        number = _index(self.program.registers, name, index)
        width = self.program.registers[name].bitwidth
        if not 0 <= value < 1 << width:
            raise ValueError(f"register {name!r} holds {width} bits; {value} does not fit")
        words = [(value >> shift) & LOW64 for shift in range(0, width, 64)]
        self.native.write_register(number, index, words)

    def meter(self, name: str, index: int) -> MeterConfig | None:
        """The configuration of a cell of an indirect meter; None: always green."""
        _index(self.program.meters, name, index)
        with self._lock:
            return self._meters.get((name, index))

    def set_meter(self, name: str, index: int, config: MeterConfig | None) -> None:
        """Configure a cell of an indirect meter; None: back to always green."""
        number = _index(self.program.meters, name, index)
        if self.program.meters[name].table is not None:
            raise ValueError(f"meter {name!r} belongs to the entries of {self.program.meters[name].table!r}")
        with self._lock:
            self.native.set_meter(number, index, _rates(self.program.meters[name], config))
            _remember(self._meters, (name, index), config)

    def direct_meter(self, table: str, handle: int) -> MeterConfig | None:
        """The configuration of an entry's meter; None: always green."""
        self._metered(table)
        self.entry(table, handle)
        with self._lock:
            return self._direct_meters.get((table, handle))

    def set_direct_meter(self, table: str, handle: int, config: MeterConfig | None) -> None:
        """Configure the meter of an entry; None: back to always green."""
        meter = self._metered(table)
        with self._lock:
            self.entry(table, handle)
            self.native.set_direct_meter(self._table(table).index, handle, _rates(meter, config))
            _remember(self._direct_meters, (table, handle), config)

    def delete(self, table: str, handle: int) -> None:
        """Remove an entry, and the configuration of its meter with it."""
        with self._lock:
            super().delete(table, handle)
            self._direct_meters.pop((table, handle), None)

    def _metered(self, table: str) -> MeterInfo:
        meter = self._table(table).direct_meter
        if meter is None:
            raise ValueError(f"table {table!r} has no direct meter")
        return self.program.meters[meter]


def _remember(
    configs: dict[tuple[str, int], MeterConfig], cell: tuple[str, int], config: MeterConfig | None
) -> None:
    if config is None:
        configs.pop(cell, None)
    else:
        configs[cell] = config


def _rates(meter: MeterInfo, config: MeterConfig | None) -> list[tuple[float, int]]:
    """(tokens per microsecond, burst), slowest first; ValueError for rates that BMv2 refuses, too."""
    if config is None:
        return []
    rates = [(config.cir, config.cburst), (config.pir, config.pburst)]
    if any(not 0 <= number < 1 << 63 for rate in rates for number in rate):
        raise ValueError(f"rates and bursts of meter {meter.name!r} are 0 or more, and 63 bits: {config}")
    if config.cir > config.pir:
        raise ValueError(f"meter {meter.name!r}: the peak rate is below the committed one: {config}")
    return [(rate / 1e6, burst) for rate, burst in rates[: meter.rates]]


def _index(arrays: Mapping[str, ArrayInfo] | Mapping[str, MeterInfo], name: str, index: int) -> int:
    if name not in arrays:
        raise ValueError(f"no array {name!r}; the program has {', '.join(sorted(arrays))}")
    if not 0 <= index < arrays[name].size:
        raise ValueError(f"{name!r} has the indexes 0…{arrays[name].size - 1}, not {index}")
    return arrays[name].index

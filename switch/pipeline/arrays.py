# SPDX-License-Identifier: Apache-2.0
"""Counters, meters and registers."""

from __future__ import annotations

from collections.abc import Mapping

from railweave.switch.pipeline.tables import Tables
from railweave.switch.pipeline.values import CounterValue, MeterConfig
from railweave.switch.program import ArrayInfo, MeterInfo, Program


class Arrays(Tables):
    """Cells that packets count into, and cells that they read and write."""

    def __init__(self, program: Program, plan: bytes) -> None:
        """All cells are 0, all meters green."""
        super().__init__(program, plan)
        self._meters: dict[str, dict[int, MeterConfig]] = {name: {} for name in program.meters}  # by index
        self._direct_meters: dict[tuple[str, int], MeterConfig] = {}  # by table and handle

    def counter(self, name: str, index: int) -> CounterValue:
        """A cell of an indirect counter."""
        [value] = self.counters(name, range(index, index + 1))
        return value

    def counters(self, name: str, cells: range) -> list[CounterValue]:
        """Cells of an indirect counter, one after the other."""
        number = _number(self.program.counters, name, cells)
        return [CounterValue(*value) for value in self.native.counters(number, cells.start, len(cells))]

    def set_counter(self, name: str, index: int, value: CounterValue) -> None:
        """Write a cell of an indirect counter."""
        self.set_counters(name, range(index, index + 1), value)

    def set_counters(self, name: str, cells: range, value: CounterValue) -> None:
        """Write the same into cells of an indirect counter."""
        number = _number(self.program.counters, name, cells)
        self.native.set_counters(number, cells.start, len(cells), value.packets, value.bytes)

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
        return int.from_bytes(self.registers(name, range(index, index + 1)), "big")

    def registers(self, name: str, cells: range) -> bytes:
        """Cells of a register array, one after the other: whole bytes each, in network order."""
        return self.native.read_registers(
            _number(self.program.registers, name, cells), cells.start, len(cells)
        )

    def set_register(self, name: str, index: int, value: int) -> None:
        """Write a cell of a register array; ValueError if the value is too wide."""
        self.set_registers(name, range(index, index + 1), value)

    def set_registers(self, name: str, cells: range, value: int) -> None:
        """Write the same into cells of a register array; ValueError if the value is too wide."""
        number = _number(self.program.registers, name, cells)
        width = self.program.registers[name].bitwidth
        if not 0 <= value < 1 << width:
            raise ValueError(f"register {name!r} holds {width} bits; {value} does not fit")
        self.native.write_registers(number, cells.start, value.to_bytes((width + 7) // 8, "big") * len(cells))

    def restore_registers(self, name: str, cells: range, data: bytes) -> None:
        """Write cells as `registers` has given them."""
        self.native.write_registers(_number(self.program.registers, name, cells), cells.start, data)

    def meter(self, name: str, index: int) -> MeterConfig | None:
        """The configuration of a cell of an indirect meter; None: always green."""
        _number(self.program.meters, name, range(index, index + 1))
        with self._lock:
            return self._meters[name].get(index)

    def configured_meters(self, name: str) -> dict[int, MeterConfig]:
        """The cells of an indirect meter that are configured, by index."""
        with self._lock:
            return dict(self._meters[name])

    def set_meter(self, name: str, index: int, config: MeterConfig | None) -> None:
        """Configure a cell of an indirect meter; None: back to always green."""
        self.set_meters(name, range(index, index + 1), config)

    def set_meters(self, name: str, cells: range, config: MeterConfig | None) -> None:
        """Configure cells of an indirect meter alike; None: back to always green."""
        number = _number(self.program.meters, name, cells)
        info = self.program.meters[name]
        if info.table is not None:
            raise ValueError(f"meter {name!r} belongs to the entries of {info.table!r}")
        with self._lock:
            self.native.set_meters(number, cells.start, len(cells), _rates(info, config))
            if config is not None:
                self._meters[name].update(dict.fromkeys(cells, config))
            elif len(cells) == info.size:
                self._meters[name].clear()
            else:
                for index in cells:
                    self._meters[name].pop(index, None)

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
            if config is None:
                self._direct_meters.pop((table, handle), None)
            else:
                self._direct_meters[table, handle] = config

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


def _number(arrays: Mapping[str, ArrayInfo] | Mapping[str, MeterInfo], name: str, cells: range) -> int:
    if name not in arrays:
        raise ValueError(f"no array {name!r}; the program has {', '.join(sorted(arrays))}")
    size = arrays[name].size
    if not 0 <= cells.start <= cells.stop <= size:
        raise ValueError(f"{name!r} has the indexes 0…{size - 1}, not {cells.start}…{cells.stop - 1}")
    return arrays[name].index

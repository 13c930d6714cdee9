# SPDX-License-Identifier: Apache-2.0
"""One measurement of `railweave bench switch`: engine, embedded switch, and the target to compare with."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railweave.experiments.errors import OptionError
from railweave.experiments.switch_speed import alone, loaded
from railweave.experiments.switch_speed.alone import EngineSpeed
from railweave.experiments.switch_speed.loaded import Speed
from railweave.experiments.switch_speed.scenario import Scenario
from railweave.switch.targets import TARGETS

ENGINE_ROUNDS = 30
OTHERS = (loaded.ECHO, *(name for name in TARGETS if name != "embedded"))
FRAME_OVERHEAD = 14 + 20 + 8 + 16  # Ethernet, IPv4, UDP and the aggregation header


@dataclass(frozen=True)
class Options:
    """What to measure."""

    lanes: int
    workers: int
    seconds: float
    versus: str = ""  # others, separated by commas
    engine_only: bool = False
    out: Path = Path("out/bench-switch")  # logs


@dataclass(frozen=True)
class SwitchSpeed:
    """What was measured."""

    options: Options
    engine: tuple[EngineSpeed, ...]  # alone: interpreted, and compiled where there is a compiler
    speeds: tuple[Speed, ...]  # end to end: the embedded switch first
    missing: str = ""  # why the other target could not be measured

    @property
    def bits_per_packet(self) -> int:
        """Of a contribution, from its Ethernet header on."""
        return 8 * (FRAME_OVERHEAD + 4 * self.options.lanes)

    def pps(self, target: str) -> float | None:
        """Contributions per second; None if that target was not measured."""
        return next((speed.pps for speed in self.speeds if speed.target == target), None)

    @property
    def ratio(self) -> float | None:
        """Packets per second of the embedded switch by those of the first other target."""
        return self.ratio_to(self.options.versus.partition(",")[0])

    def ratio_to(self, target: str) -> float | None:
        """Packets per second of the embedded switch by those of this target, if both were measured."""
        other, ours = self.pps(target), self.pps("embedded")
        return ours / other if ours and other else None

    def notes(self) -> list[str]:
        """Return the meaning of the numbers and the conditions of the measurement."""
        lines = []
        for speed in self.speeds[1:]:
            if ratio := self.ratio_to(speed.target):
                times = f"{ratio:.0%} of" if speed.target == loaded.ECHO else f"{ratio:.3g} times"
                lines.append(f"embedded reaches {times} the packets per second of {speed.target}.")
        if self.missing:
            lines.append(self.missing)
        load = os.getloadavg()[0]
        lines.append(
            "packets/s counts contributions whose correct sum came back; the switch sends as many results. "
            "window: chunks in flight per worker; per frame: packets per super-packet. "
            f"{os.cpu_count()} processors, load average {load:.1f}."
        )
        return lines


async def run(options: Options, on_phase: Callable[[str], None]) -> SwitchSpeed:
    """Measure; OptionError for what cannot be measured, WrongResult if the switch computes wrongly."""
    versus = options.versus.split(",") if options.versus else []
    for name in versus:
        if name not in OTHERS:
            raise OptionError(f"--vs {name}", f"one of {', '.join(OTHERS)}", "correct the name")
    scenario = Scenario(options.lanes, options.workers)
    try:
        _ = scenario.program
    except ValueError as error:
        raise OptionError(f"--lanes {options.lanes}: {error}") from None
    logging.getLogger("finsy").setLevel(logging.CRITICAL)  # what goes wrong is raised
    on_phase("measuring the engine alone")
    engine = await asyncio.to_thread(alone.measure, scenario, ENGINE_ROUNDS)
    targets = [] if options.engine_only else ["embedded", *versus]
    missing = ""
    speeds = []
    for target in targets:
        if target in TARGETS and (reason := TARGETS[target].missing()):
            missing = f"{target} was not measured: {reason}"
            continue
        on_phase(f"measuring {target} on veth links with {options.workers} workers")
        speeds.append(await loaded.measure(scenario, target, options.seconds, options.out))
    return SwitchSpeed(options, engine, tuple(speeds), missing)


def as_json(result: SwitchSpeed) -> dict[str, Any]:
    """The result for machines."""
    targets = ["embedded", *OTHERS]
    return {
        "lanes": result.options.lanes,
        "workers": result.options.workers,
        "engine_ns_per_packet": {
            speed.way: {"hot": round(speed.hot_ns, 1), "cold": round(speed.cold_ns, 1)}
            for speed in result.engine
        },
        "pps": {target: _rounded(result.pps(target)) for target in targets},
        "ratio": _rounded(result.ratio, 1),
        "seconds": result.options.seconds,
        "ok": True,  # a wrong sum ends the measurement
        "rows": [
            {
                "target": speed.target,
                "pps": _rounded(speed.pps),
                "window": speed.load.window,
                "segments": speed.load.segments,
                "repeated": speed.repeated,
                "trials": speed.trials,
            }
            for speed in result.speeds
        ],
        "missing": result.missing or None,
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }


def _rounded(value: float | None, digits: int | None = None) -> float | None:
    return None if value is None else round(value, digits)

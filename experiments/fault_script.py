# SPDX-License-Identifier: Apache-2.0
"""Faults at given times, as users write them on a command line.

A script such as `2s: host link down h1 ina; 4s: repair` has entries, separated by semicolons. The time of an
entry counts from the moment when all ranks have met. An entry is a fault with its place, or `repair`. The
word `repair` alone repairs all faults so far. With the words of a fault it repairs only this fault.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from railweave.experiments.errors import OptionError
from railweave.experiments.supervisor import cancel
from railweave.experiments.units import parse_rate
from railweave.quantities import time_s
from railweave.topologies.errors import TopologyError
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.model import Plane, Switch, Topology

REPAIR = "repair"
PREPARE_S = 0.2  # the tools of a fault are started this long before the fault
_ENTRY = re.compile(r"\s*(?P<at>[^:]+):\s*(?P<words>\S.*?)\s*")


@dataclass(frozen=True)
class Entry:
    """One fault. Its times are in seconds after the ranks have met."""

    text: str  # as the user wrote it
    fault: Fault
    begin_s: float
    end_s: float | None = None  # None: until the end of the run


@dataclass(frozen=True)
class _Form:
    """The written form of a kind of fault: its name, followed by words for its place."""

    place: str  # the words for the place, as in the help text
    make: Callable[[Topology, list[str]], Fault]


def _on_host(make: Callable[[Plane, str], Fault]) -> _Form:
    return _Form("HOST PLANE", lambda topology, words: make(topology.plane(words[1]), words[0]))


def _on_switch(make: Callable[[Plane, Switch], Fault]) -> _Form:
    return _Form("SWITCH", lambda topology, words: make(*_switch(topology, words[0])))


def _rate(topology: Topology, words: list[str]) -> Fault:
    return faults.rate_changed(topology.plane(words[1]), parse_rate(words[0]), *words[2:])


FORMS: dict[str, _Form] = {
    "host link down": _on_host(faults.host_down),
    "switch port down": _on_host(faults.port_down),
    "flapping": _on_host(faults.flapping),
    "loss both ways": _on_host(faults.lossy),
    "loss to the switch": _on_host(lambda plane, host: faults.lossy(plane, host, to_host=False)),
    "loss to the host": _on_host(lambda plane, host: faults.lossy(plane, host, to_switch=False)),
    "queue pair ended": _on_host(faults.queue_pair_ended),
    "switch killed": _on_switch(faults.switch_killed),
    "switch frozen": _on_switch(faults.switch_frozen),
    "link cut": _Form("NODE NODE", lambda topology, words: faults.link_cut(topology, words[0], words[1])),
    "rate": _Form("RATE PLANE [HOST]", _rate),
    "controller killed": _Form("", lambda *_: faults.controller_killed()),
}
HELP = "; ".join(f"{name} {form.place}".strip() for name, form in FORMS.items())


def parse(text: str, topology: Topology) -> tuple[Entry, ...]:
    """Read a script. Raise OptionError for a mistake; the message says what was expected."""
    entries: list[Entry] = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        match = _ENTRY.fullmatch(part)
        at_s = time_s(match["at"]) if match else None
        if match is None or at_s is None:
            example = "2s: host link down h1 ina"
            raise OptionError(f"fault {part!r}", f"a time and a fault, as in {example}", "correct the script")
        words = match["words"]
        if words.split()[0] == REPAIR:
            entries = _repaired(entries, words[len(REPAIR) :].strip(), at_s, part)
        else:
            entries.append(Entry(words, fault_of(words, topology), at_s))
    return tuple(entries)


def _repaired(entries: list[Entry], which: str, at_s: float, part: str) -> list[Entry]:
    """Set the end of the faults that a `repair` names."""
    lasting = [entry for entry in entries if entry.end_s is None and entry.begin_s < at_s]
    ended = [entry for entry in lasting if which in ("", entry.text)]
    if not ended:
        raise OptionError(
            f"{part!r} repairs nothing",
            "an earlier fault with these words that is not repaired",
            "correct the script",
        )
    return [
        Entry(entry.text, entry.fault, entry.begin_s, at_s) if entry in ended else entry for entry in entries
    ]


def fault_of(words: str, topology: Topology) -> Fault:
    """Return the fault with this name and place. Raise OptionError for a mistake in them."""
    name = next((name for name in FORMS if f"{words} ".startswith(f"{name} ")), "")
    if not name:
        raise OptionError(f"fault {words!r}", f"one of: {HELP.replace('; ', ' | ')}", "correct the script")
    form, place = FORMS[name], words[len(name) :].split()
    expected = form.place.split()
    least = len([word for word in expected if not word.startswith("[")])
    if not least <= len(place) <= len(expected):
        raise OptionError(f"fault {words!r}", f"{name} {form.place}".strip(), "correct the script")
    try:
        return form.make(topology, place)
    except (KeyError, TopologyError, OptionError) as error:
        raise OptionError(f"{words!r}: {error.args[0]}") from None


def _switch(topology: Topology, name: str) -> tuple[Plane, Switch]:
    known = {switch.name: (plane, switch) for plane in topology.planes for switch in plane.switches}
    if name not in known:
        raise TopologyError(f"switch {name!r}", f"one of {', '.join(known)}", "correct the name")
    return known[name]


async def play(lab: Lab, script: Sequence[Entry], on_event: Callable[[float, str], None]) -> None:
    """Inject and repair faults at their times, counted from now. If cancelled, repair all remaining faults.

    `on_event` gets the time and words of each fault and each repair. Raises LabError if a fault or a repair
    fails.
    """
    start = time.monotonic()

    async def until(at_s: float) -> None:
        await asyncio.sleep(start + at_s - time.monotonic())

    async def carry_out(entry: Entry) -> None:
        await until(entry.begin_s - PREPARE_S)
        async with Injection(lab, entry.fault) as injection:
            await until(entry.begin_s)
            await injection.inject()
            on_event(time.monotonic() - start, entry.text)
            if entry.end_s is None:
                await asyncio.Event().wait()  # until cancelled
            else:
                await until(entry.end_s)
                await injection.repair()
                on_event(time.monotonic() - start, f"{REPAIR} {entry.text}")

    tasks = [asyncio.create_task(carry_out(entry)) for entry in script]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel(*tasks)

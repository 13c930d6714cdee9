# SPDX-License-Identifier: Apache-2.0
"""Make the states of switches, and check them against a program before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import finsy as fy
from finsy.p4schema import P4MatchType, P4Table

from railweave.controller import tables
from railweave.controller.desired import merge
from railweave.controller.routes import routes
from railweave.controller.state import Entry, Multicast, SwitchState, fields
from railweave.controller.tables import ip_number, mac_number
from railweave.p4src.artifacts import Artifact
from railweave.sdk.errors import AlgorithmError
from railweave.sdk.machines import Job
from railweave.topologies.model import Plane

Match = int | tuple[int, int]
DEFAULT_CELLS = 128  # of a job: a window of 64 packets
FIRST_GROUP = 16  # multicast group of job 0; FLOOD_GROUP is 1
PAIRS = {
    P4MatchType.LPM: "value and prefix length",
    P4MatchType.TERNARY: "value and mask",
    P4MatchType.RANGE: "least and greatest value",
}
RANKED = {P4MatchType.TERNARY, P4MatchType.RANGE, P4MatchType.OPTIONAL}  # entries have priorities


def entry(
    table: str,
    match: Mapping[str, Match],
    action: str,
    params: Mapping[str, int] | None = None,
    priority: int = 0,
) -> Entry:
    """Return a table entry.

    A match is a number, or a pair: (value, mask), (value, prefix length) or (low, high). Fields that match
    everything are left out. Ternary, range and optional fields need a priority from 1 on.
    """
    return Entry(table, fields(match), action, fields(params or {}), priority)


def bridge(plane: Plane, switch: str) -> SwitchState:
    """Return the entries for other frames, in programs that include `stages/forward.p4`."""
    way = routes(plane)[switch]
    return SwitchState(way.entries, frozenset({tables.flood(way.nics | way.tree)}))


def cells_of(job: Job) -> int:
    """Return the number of cells that a job has in each register: its option `slots`, a power of two."""
    cells = int(job.options.get("slots", DEFAULT_CELLS))
    if cells < 2 or cells.bit_count() != 1:
        raise AlgorithmError(f"slots is {cells}", "a power of two from 2 on", "correct the option")
    return cells


def one_switch(plane: Plane, jobs: Sequence[Job]) -> Mapping[str, SwitchState]:
    """Return the state of a plane with one switch: its forwarding, and a star of members for each job."""
    _require(
        len(plane.switches) == 1,
        f"plane {plane.name} has {len(plane.switches)} switches",
        "one switch",
        "use the topology planes, or give control.py the entries of several switches",
    )
    [switch] = plane.switches
    states, first_cell = [bridge(plane, switch.name)], 0
    for job in jobs:
        states.append(star(plane, job, first_cell))
        first_cell += cells_of(job)
    return {switch.name: union(*states)}


def star(plane: Plane, job: Job, first_cell: int) -> SwitchState:
    """Return a job's entries in the one switch of its plane, for programs that include `algorithm/switch.p4`.

    The job gets its cells of each register from `first_cell` on.
    """
    cells = cells_of(job)
    group, everybody = FIRST_GROUP + job.number, (1 << job.ranks) - 1
    entries, copies = set(), set()
    for rank, nic in enumerate(plane.nics):
        of_rank = {"rank_bit": 1 << rank, "all_ranks": everybody, "mcast_group": group}
        place = {"first_cell": first_cell, "cell_mask": cells - 1}
        sender = {"ingress_port": nic.port, "source": ip_number(nic.address), "udp_port": job.udp_port}
        entries.add(entry("members", sender, "member", of_rank | place))
        following = plane.nics[(rank + 1) % job.ranks]
        to = {"dst_mac": mac_number(nic.mac), "dst_ip": ip_number(nic.address)}
        to |= {"src_mac": mac_number(following.mac), "src_ip": ip_number(following.address)}
        entries.add(entry("copies", {"udp_port": job.udp_port, "egress_rid": rank + 1}, "copy", to))
        copies.add((nic.port, rank + 1))
    return SwitchState(frozenset(entries), frozenset({Multicast(group, frozenset(copies))}))


def union(*parts: SwitchState) -> SwitchState:
    """Return a state with all entries and groups of several."""
    return merge(parts)


def require_fit(states: Mapping[str, SwitchState], artifact: Artifact, counters: Sequence[str] = ()) -> None:
    """Raise AlgorithmError if the program lacks a table, a field or room that the states need.

    The tables in `counters` must count the packets of their entries.
    """
    schema = fy.P4Schema(artifact.p4info_path, artifact.json_path)
    known = {table.alias: table for table in schema.tables}
    counting = [name for name, table in known.items() if table.direct_counter]
    for name in counters:
        given, expected = f"counters has {name!r}", f"one of {', '.join(counting)}"
        _require(name in counting, given, expected, "correct algorithm.toml")
    for switch, state in states.items():
        used = Counter(one.table for one in state.entries)
        for name, count in used.items():
            where = f"switch {switch}: table {name!r}"
            _require(name in known, where, f"one of {', '.join(known)}", "correct the name in control.py")
            size = known[name].size
            _require(count <= size, f"{where} would have {count} entries", f"at most {size}", "enlarge it")
        keys = Counter(one.key for one in state.entries)
        for table, match in (key for key, count in keys.items() if count > 1):
            where = f"switch {switch}: table {table!r} has several entries for {dict(match)}"
            _require(False, where, "one entry", "remove the others in control.py")
        for one in state.entries:
            _check_entry(switch, one, known[one.table])


def _check_entry(switch: str, one: Entry, table: P4Table) -> None:
    where = f"switch {switch}: table {one.table!r}"
    remedy = "correct the entry in control.py"
    matches = {field.alias: field for field in table.match_fields}
    for name, value in one.match:
        _require(name in matches, f"{where}: field {name!r}", f"one of {', '.join(matches)}", remedy)
        field = matches[name]
        what = f"{where}: field {name!r} is {value!r}"
        if field.match_type in PAIRS:
            wanted = f"a pair of {PAIRS[field.match_type]} that fits {field.bitwidth} bits"
            _require(_is_pair(value, field.match_type, field.bitwidth), what, wanted, remedy)
        else:
            _require(_is_number(value, field.bitwidth), what, f"a number of {field.bitwidth} bits", remedy)
    exact = {name for name, field in matches.items() if field.match_type is P4MatchType.EXACT}
    missing = exact - dict(one.match).keys()
    _require(not missing, f"{where}: no field {', '.join(sorted(missing))}", "all exact fields", remedy)
    ranked = any(field.match_type in RANKED for field in matches.values())
    _require(
        one.priority > 0 if ranked else one.priority == 0,
        f"{where}: priority {one.priority}",
        "1 or more" if ranked else "0",
        remedy,
    )
    actions = {action.alias: action for action in table.actions}
    _require(one.action in actions, f"{where}: action {one.action!r}", f"one of {', '.join(actions)}", remedy)
    params = {param.name: param for param in actions[one.action].params}
    given = dict(one.params)
    _require(
        given.keys() == params.keys(), f"{where}: parameters {', '.join(given)}", ", ".join(params), remedy
    )
    for name, value in given.items():
        what, bits = f"{where}: parameter {name!r} is {value!r}", params[name].bitwidth
        _require(_is_number(value, bits), what, f"a number of {bits} bits", remedy)


def _is_number(value: object, bits: int) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << bits


def _is_pair(pair: object, kind: P4MatchType, bits: int) -> bool:
    """Return whether P4Runtime accepts a pair: canonical, and not everything."""
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(_is_number(each, bits) for each in pair)):
        return False
    first, second = map(int, pair)
    most = (1 << bits) - 1
    if kind is P4MatchType.RANGE:
        return first <= second and pair != (0, most)
    if kind is P4MatchType.LPM:
        second = most ^ most >> second if second <= bits else 0
    return second > 0 and first & ~second == 0


def _require(holds: bool, given: str, expected: str, do: str) -> None:
    if not holds:
        raise AlgorithmError(given, expected, do)

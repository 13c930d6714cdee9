# SPDX-License-Identifier: Apache-2.0
"""Writes random updates to a P4Runtime server and compares its answers and its state with the model.

A seed determines all updates. In tests/, `python -m p4runtime_oracle.session --seeds 0:1000` writes
10^6 updates.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections import Counter
from typing import Any

import grpc
from finsy.proto import p4i, p4r
from p4runtime_clients import ORACLE, SCHEMAS, Client, Config, Server, client, codes
from p4runtime_oracle.model import Model
from p4runtime_oracle.packets import NOTHING, Forwarding, calls, draw, encode, forwarded
from p4runtime_oracle.updates import Updates
from protocol.seeds import main

from railweave.switch.pipeline import Pipeline

UPDATES = 1000
MAX_BATCH = 20
BATCHES_PER_READ = 10
PACKETS = 50
ATOMICITIES = (
    p4r.WriteRequest.CONTINUE_ON_ERROR,
    p4r.WriteRequest.ROLLBACK_ON_ERROR,
    p4r.WriteRequest.DATAPLANE_ATOMIC,
)

ENTRIES = p4r.Entity(
    table_entry=p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
)
KINDS = (
    *("action_profile_member", "action_profile_group", "counter_entry", "meter_entry", "register_entry"),
    *("packet_replication_engine_entry", "value_set_entry", "digest_entry"),
)


def variant(*, strings: bool = False, preinitialized: bool = False, ranges: bool = False) -> p4i.P4Info:
    """Return the P4Info of the program.

    It may have strings for values of 9 and 16 bits where they are allowed. The entries of a table may be
    initial ones instead of constant ones. Value sets may match in other ways than exactly.
    """
    p4info = SCHEMAS[ORACLE].get_pipeline_config().p4info
    for table in p4info.tables:
        table.has_initial_entries = table.is_const_table
        table.is_const_table &= not preinitialized
    if ranges:
        kinds = (p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.LPM)
        parts = (part for one in p4info.value_sets for part in one.match)
        for part, kind in zip(parts, kinds, strict=True):
            part.match_type = kind
    if strings:
        use_strings(p4info)
    return p4info


def use_strings(p4info: p4i.P4Info) -> None:
    """Give values of 9 and 16 bits a type that is translated to strings."""
    owners = (*p4info.actions, *p4info.tables, *p4info.value_sets)
    kinds = ("params", "match_fields", "match")
    parts = [part for owner in owners for kind in kinds for part in getattr(owner, kind, ())]
    for part in parts:
        kind = getattr(part, "match_type", p4i.MatchField.EXACT)
        if part.bitwidth in (9, 16) and kind in (p4i.MatchField.EXACT, p4i.MatchField.OPTIONAL):
            part.type_name.name = f"string{part.bitwidth}_t"
            p4info.type_info.new_types[part.type_name.name].translated_type.sdn_string.SetInParent()
            part.ClearField("bitwidth")


class Session:
    """Updates of one seed, written in batches."""

    def __init__(self, seed: int, updates: int = UPDATES) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._updates = updates
        self._strings = bool(seed & 1)
        self._p4info = variant(strings=self._strings, preinitialized=bool(seed & 2), ranges=bool(seed & 4))
        self._drawn = Updates(self._rng, self._p4info)

    def run(self) -> None:
        """Write all updates. Raise AssertionError for the first difference."""
        try:
            asyncio.run(self._run())
        except grpc.RpcError as error:
            raise AssertionError(f"a Write or Read was refused as a whole: {error}") from error

    async def _run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            server = Server(f"unix:{folder}/grpc")
            async with server, client(server, program=ORACLE) as primary:
                await primary.arbitrate()
                await primary.set_pipeline(Config.VERIFY_AND_COMMIT, p4info=self._p4info)
                model = Model(self._p4info, await primary.read(ENTRIES))
                while self.counts["updates"] < self._updates:
                    await self._write(primary, model)
                    if self.counts["batches"] % BATCHES_PER_READ == 0:
                        await self._compare(primary, model)
                await self._compare(primary, model)
                if not self._strings:
                    self._send(server.pipelines[-1], model)

    async def _write(self, primary: Client, model: Model) -> None:
        [atomicity] = self._rng.choices(ATOMICITIES, (8, 1, 1))
        state = dict(model.state)
        # Updates refer to entities that exist before the batch, and the server keeps their order.
        updates = [self._drawn.draw(state) for _ in range(self._rng.randint(1, MAX_BATCH))]
        answers = codes(await primary.write(*updates, atomicity=atomicity)) or ["OK"] * len(updates)
        self.counts["updates"] += len(updates)
        self.counts["batches"] += 1
        self.counts.update(answers)
        rolled_back = atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR and set(answers) != {"OK"}
        if rolled_back:
            refused = [place for place, code in enumerate(answers) if code != "ABORTED"]
            assert len(refused) == 1, f"one update of an all-or-none batch fails: {answers}"
            updates, answers = updates[: refused[0] + 1], ["OK"] * refused[0] + [answers[refused[0]]]
        for update, answer in zip(updates, answers, strict=True):
            verdict = model.judge(update)
            assert answer in verdict.permitted, f"{answer}, permitted {verdict.permitted}:\n{update}"
            if answer == "OK":
                model.accept(verdict.changes)
        if rolled_back:
            model.state = state

    async def _compare(self, primary: Client, model: Model) -> None:
        self.counts["reads"] += 1
        found = Counter(map(_normal, await primary.read(*self._everything())))
        expected = Counter(map(_normal, model.state.values()))
        assert found == expected, (
            f"read, not written: {found - expected}; written, not read: {expected - found}"
        )

    def _send(self, pipeline: Pipeline, model: Model) -> None:
        """Send packets. Tables and value sets do with them what their entities say."""
        forwarding = Forwarding(self._p4info, model.state)
        packets = [draw(self._rng) for _ in range(PACKETS)]
        plain = [pipeline.inject(1, encode(packet)) for packet in packets]
        pipeline.traces.start(None, PACKETS)
        assert [pipeline.inject(1, encode(packet)) for packet in packets] == plain
        for packet, sent, trace in zip(packets, plain, pipeline.traces.take(), strict=True):
            made = list(calls(trace.events))
            assert len(made) == len(self._p4info.tables)
            for table, call in made:
                permitted = forwarding.permitted(table, packet)
                assert call in permitted, f"{packet} in {table}: {call}, permitted {permitted}"
                self.counts["calls"] += call != NOTHING
            assert sent == forwarded(packet, [call for _, call in made])
            known = any(event.kind == "state" and event.name == "known" for event in trace.events)
            assert known == forwarding.known(packet), f"{packet} is in a value set: {known}"
            self.counts["known packets"] += known

    def _everything(self) -> list[p4r.Entity]:
        patterns = [ENTRIES]
        for table in self._p4info.tables:
            if not table.implementation_id:
                default = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
                patterns.append(p4r.Entity(table_entry=default))
        patterns += [p4r.Entity(**{kind: {}}) for kind in KINDS]
        return patterns


def _normal(message: Any) -> str:
    """Return a text that is the same for every order of repeated fields."""
    parts = []
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            text = repr(value)
        elif field.is_repeated:
            text = repr(sorted(map(_normal, value)))
        else:
            text = _normal(value)
        parts.append(f"{field.name}={text}")
    return f"({' '.join(parts)})"


if __name__ == "__main__":
    sys.exit(main(Session, __doc__))

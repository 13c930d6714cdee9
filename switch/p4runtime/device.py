# SPDX-License-Identifier: Apache-2.0
"""A loaded pipeline as P4Runtime sees it: entities that can be written and read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from finsy.proto import p4i, p4r
from railweave.switch.errors import DuplicateEntry, ImmutableTable, TableFull, UnknownEntry
from railweave.switch.p4runtime.arrays import Counters, Registers
from railweave.switch.p4runtime.errors import Code, Refused, invalid, unimplemented
from railweave.switch.p4runtime.replication import Replication
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.p4runtime.tables import Tables
from railweave.switch.pipeline import Pipeline


@dataclass(frozen=True)
class Device:
    """One committed pipeline config and the state behind it."""

    config: p4r.ForwardingPipelineConfig
    pipeline: Pipeline
    tables: Tables
    counters: Counters
    registers: Registers
    replication: Replication

    @classmethod
    def of(cls, config: p4r.ForwardingPipelineConfig, pipeline: Pipeline) -> Device:
        """Serve a pipeline under its P4Info; Refused if they do not fit."""
        p4info = p4i.P4Info()
        p4info.CopyFrom(config.p4info)
        schema = Schema.of(p4info, pipeline.program)
        return cls(
            config=config,
            pipeline=pipeline,
            tables=Tables(schema, pipeline),
            counters=Counters(schema, pipeline),
            registers=Registers(schema, pipeline),
            replication=Replication(pipeline),
        )

    def write(self, update: p4r.Update) -> None:
        """Carry out one update, or be Refused."""
        try:
            self._write(update)
        except UnknownEntry as error:
            raise Refused(Code.NOT_FOUND, str(error)) from None
        except DuplicateEntry as error:
            raise Refused(Code.ALREADY_EXISTS, str(error)) from None
        except TableFull as error:
            raise Refused(Code.RESOURCE_EXHAUSTED, str(error)) from None
        except ImmutableTable as error:
            raise Refused(Code.PERMISSION_DENIED, str(error)) from None

    def _write(self, update: p4r.Update) -> None:
        kind, entity = update.type, update.entity
        if kind == p4r.Update.UNSPECIFIED:
            raise invalid("an update is INSERT, MODIFY or DELETE")
        match entity.WhichOneof("entity"):
            case "table_entry":
                self.tables.write(kind, entity.table_entry)
            case "direct_counter_entry":
                self.tables.write_direct_counter(kind, entity.direct_counter_entry)
            case "counter_entry":
                self.counters.write(kind, entity.counter_entry)
            case "register_entry":
                self.registers.write(kind, entity.register_entry)
            case "packet_replication_engine_entry":
                self.replication.write(kind, entity.packet_replication_engine_entry)
            case None:
                raise invalid("the update names no entity")
            case other:
                raise unimplemented(f"{other} is not supported by this target")

    def read(self, pattern: p4r.Entity) -> Iterator[p4r.Entity]:
        """Everything that fits a pattern."""
        match pattern.WhichOneof("entity"):
            case "table_entry":
                return self.tables.read(pattern.table_entry)
            case "direct_counter_entry":
                return self.tables.read_direct_counter(pattern.direct_counter_entry)
            case "counter_entry":
                return self.counters.read(pattern.counter_entry)
            case "register_entry":
                return self.registers.read(pattern.register_entry)
            case "packet_replication_engine_entry":
                return self.replication.read(pattern.packet_replication_engine_entry)
            case "action_profile_member" | "action_profile_group":
                return iter(())  # none can be written; clients that wipe a switch ask for them all the same
            case None:
                raise invalid("the request names no entity")
            case other:
                raise unimplemented(f"{other} is not supported by this target")

    def written(self) -> Iterator[p4r.Entity]:
        """What controllers wrote, to be written into the pipeline that replaces this one."""
        yield from self.tables.written()
        yield from self.replication.written()

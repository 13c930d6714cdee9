# SPDX-License-Identifier: Apache-2.0
"""The real BMv2 as a target. P4Runtime sets it up, and packets use its gRPC data plane.

The data plane (`--dp-grpc-server-addr`) needs no interface and no root, and carries packets of any size. For
every packet that leaves, it names the packet that caused it. It ends a stream when no packet is left inside.
"""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import finsy as fy
import grpc
import pytest
from dataplane.control import GrpcControl
from finsy.proto import p4r
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from vectors.steps import Controlled, Frames, Packet

PROGRAM = "simple_switch_grpc"
ALONE = pytest.mark.xdist_group("bmv2")  # one at a time: BMv2 built with Thrift listens on port 9090
DEVICE = 1
START_S = 20.0
PACKETS_S = 20.0
DIGEST_S = 2.0
# BMv2's queues hold 64 packets per port and lose all others. A packet may have copies.
BURST = 24
# BMv2's data plane starts in a separate thread after a program is loaded. Before, it says UNAVAILABLE.
BACKOFF = {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "3s", "backoffMultiplier": 3}
RETRY = {
    "methodConfig": [{"name": [{}], "retryPolicy": {**BACKOFF, "retryableStatusCodes": ["UNAVAILABLE"]}}]
}


class SwitchFailed(Exception):
    """BMv2 has ended, refuses a step, or does not finish a packet in time."""


def missing() -> str | None:
    """Return the reason why BMv2 cannot run here, or None."""
    absent = [name for name in (PROGRAM, "p4c-bm2-ss") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not on PATH" if absent else None


def _message(name: str) -> Any:
    """Return the class of a message of p4.bm. Stream requests and responses have the same fields."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="railweave/bmv2_packets.proto", package="p4.bm")
    message = file.message_type.add(name=name)
    members = {"id": "UINT64", "device_id": "UINT64", "port": "UINT32", "packet": "BYTES"}
    for number, (member, kind) in enumerate(members.items(), start=1):
        message.field.add(name=member, number=number, type=kinds.Type.Value(f"TYPE_{kind}"), label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p4.bm.{name}"))


PacketMessage = _message("PacketStreamRequest")


class Bmv2(Controlled):
    """A running BMv2 with a program."""

    def __init__(self, control: GrpcControl, packets: grpc.Channel, p4info: Path, json: Path) -> None:
        """Load the program."""
        super().__init__(fy.P4Schema(p4info, json), control)
        self._stream = control.stream
        self._packets = packets.stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream",
            request_serializer=PacketMessage.SerializeToString,
            response_deserializer=PacketMessage.FromString,
        )
        self._messages: queue.Queue[p4r.StreamMessageResponse] = queue.Queue()
        control.load(self.schema)
        threading.Thread(target=self._listen, daemon=True).start()
        for digest in self.schema.digests:
            self._write(fy.P4DigestEntry(digest.alias, max_list_size=1, ack_timeout_ns=0))

    def _listen(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for message in self._stream:
                self._messages.put(message)

    def packets(self, batch: Sequence[Packet]) -> list[Frames]:
        """Send packets. Return the output of each, sorted by port. Raise SwitchFailed after a time-out."""
        results: list[Frames] = []
        for first in range(0, len(batch), BURST):
            results += self._burst(batch[first : first + BURST])
        return results

    def _burst(self, batch: Sequence[Packet]) -> list[Frames]:
        requests = [
            PacketMessage(id=number, device_id=DEVICE, port=p.port, packet=bytes.fromhex(p.data))
            for number, p in enumerate(batch, start=1)
        ]
        results: list[Frames] = [[] for _ in batch]
        try:
            for response in self._packets(iter(requests), timeout=PACKETS_S, wait_for_ready=True):
                results[response.id - 1].append((response.port, response.packet.hex()))
        except grpc.RpcError as error:
            raise SwitchFailed(f"BMv2 and the packets {batch}: {error}") from error
        return [sorted(frames, key=lambda frame: frame[0]) for frames in results]

    def digests(self, name: str) -> list[list[str]]:
        """Return all digests until a pause of DIGEST_S, because BMv2 sends them at any time."""
        wanted = self.schema.digests[name].id
        result: list[list[str]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._messages.get(timeout=DIGEST_S)
                if message.digest.digest_id == wanted:
                    result += [bitstrings(item) for item in message.digest.data]
        return result

    def _write(self, entity: Any, kind: p4r.Update.Type.ValueType = p4r.Update.INSERT) -> None:
        try:
            super()._write(entity, kind)
        except grpc.RpcError as error:
            details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
            raise SwitchFailed(f"BMv2 refuses {entity}: {error.code()} {details!r}") from error


def bitstrings(data: Any) -> list[str]:
    """Return the members of a P4Data message, as numbers in hex."""
    if data.WhichOneof("data") == "bitstring":
        return [f"{int.from_bytes(data.bitstring, 'big'):x}"]
    if data.WhichOneof("data") == "bool":
        return [f"{int(data.bool):x}"]
    members = data.struct.members if data.WhichOneof("data") == "struct" else data.tuple.members
    return [number for member in members for number in bitstrings(member)]


@contextlib.contextmanager
def running(p4info: Path, json: Path) -> Iterator[Bmv2]:
    """Run a separate BMv2 with the program."""
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("wb+") as log:
        command = ["setpriv", "--pdeathsig", "KILL", PROGRAM, "--no-p4", "--device-id", str(DEVICE), "--"]
        command += ["--grpc-server-addr", f"unix:{folder}/p4runtime"]
        command += ["--dp-grpc-server-addr", f"unix:{folder}/packets"]
        with subprocess.Popen(command, stdout=log, stderr=log) as child:
            try:
                yield _connect(folder, p4info, json)
            except Exception as error:
                log.seek(0)
                said = log.read()[-2000:].decode(errors="replace")
                error.add_note(f"{PROGRAM} (status {child.poll()}) said: {said or 'nothing'}")
                raise
            finally:
                child.kill()


def _connect(folder: str, p4info: Path, program: Path) -> Bmv2:
    packets = grpc.insecure_channel(f"unix:{folder}/packets", [("grpc.service_config", json.dumps(RETRY))])
    grpc.channel_ready_future(packets).result(START_S)
    return Bmv2(GrpcControl(f"unix:{folder}/p4runtime"), packets, p4info, program)

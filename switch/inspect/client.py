# SPDX-License-Identifier: Apache-2.0
"""A client of a switch that reads, impairs links and traces packets. It writes no entries."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r, p4r_grpc, stratum
from google.protobuf.any_pb2 import Any as PackedAny

from railweave.errors import explain
from railweave.switch.errors import NoAnswer, SwitchError
from railweave.switch.options import Tls, read_file
from railweave.switch.p4runtime.roles import OPERATOR
from railweave.v1 import switch_pb2, switch_pb2_grpc

_MAX_MESSAGE_BYTES = 64 << 20
_ANSWER_S = 30.0  # until a response is complete


class Unsupported(SwitchError):
    """This switch does not offer the request."""


class NoProgram(SwitchError):
    """Nothing has been loaded into the switch."""


class SwitchClient(contextlib.AbstractContextManager["SwitchClient"]):
    """Reads from one device at one address. It connects at the first request."""

    def __init__(self, address: str, device_id: int, ca: Path | None = None, tls: Tls | None = None) -> None:
        """Prepare a connection, with TLS if `ca` or `tls` is given.

        `ca` signed the switch's certificate. `tls` has the client's certificate, if the switch asks for one.
        """
        self._address = address
        self._device_id = device_id
        options = [("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES)]
        if ca is None and tls is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            files = (ca, *((tls.key, tls.certificate) if tls else (None, None)))
            contents = [read_file(path) if path else None for path in files]
            credentials = grpc.ssl_channel_credentials(*contents)
            self._channel = grpc.secure_channel(address, credentials, options)
        self._p4runtime = p4r_grpc.P4RuntimeStub(self._channel)
        self._switch: Any = switch_pb2_grpc.SwitchStub(self._channel)  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self._channel.close()

    def p4info(self) -> p4i.P4Info:
        """Return the P4Info of the running program; SwitchError without a program."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._device_id, response_type=p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
        )
        with self._explained():
            config = self._p4runtime.GetForwardingPipelineConfig(request, timeout=_ANSWER_S).config
        if not config.HasField("p4info"):
            raise self._no_program()
        return config.p4info

    def read(self, patterns: Iterable[p4r.Entity]) -> Iterator[p4r.Entity]:
        """Yield all entities that fit a pattern; Unsupported if the switch cannot read such entities."""
        request = p4r.ReadRequest(device_id=self._device_id, entities=patterns)
        with self._explained():
            for reply in self._p4runtime.Read(request, timeout=_ANSWER_S):
                yield from reply.entities

    def ports(self) -> switch_pb2.GetPortsResponse:
        """Read the counters of ports; Unsupported by other switches than the embedded one."""
        with self._explained():
            return self._switch.GetPorts(switch_pb2.GetPortsRequest(), timeout=_ANSWER_S)  # type: ignore[no-any-return]

    def log(self) -> switch_pb2.GetLogResponse:
        """Read the program's latest messages; Unsupported by other switches than the embedded one."""
        with self._explained():
            return self._switch.GetLog(switch_pb2.GetLogRequest(), timeout=_ANSWER_S)  # type: ignore[no-any-return]

    def impair(self, bad: Sequence[str], good: Sequence[str]) -> None:
        """Impair links (`bad`), or remove impairments (`good`); Unsupported except by the embedded switch."""
        with self._explained(), self._operator(_ANSWER_S) as primary:
            request = switch_pb2.SetImpairmentsRequest(bad=bad, good=good, primary=primary)
            self._switch.SetImpairments(request, timeout=_ANSWER_S)

    def trace(self, port: int | None, count: int, timeout_s: float) -> Iterator[dict[str, Any]]:
        """Yield traces of the next packets, as in `railweave.switch.trace`; end early after `timeout_s`."""
        try:
            with self._operator(timeout_s + _ANSWER_S) as primary:
                request = switch_pb2.TraceRequest(port=port, count=count, primary=primary)
                for packet in self._switch.Trace(request, timeout=timeout_s):
                    yield json.loads(packet.json)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                return
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise SwitchError(
                    error.details() or explain("no trace", "a switch with a program", "try again")
                ) from None
            with self._explained():
                raise

    @contextlib.contextmanager
    def _operator(self, timeout_s: float) -> Iterator[switch_pb2.Primary]:
        """Be the primary of the operator's role, which writes no entries and gets no packets."""
        device_id = self.ports().device_id  # other switches refuse this request
        election_id = time.time_ns()  # the latest operator is primary
        config = PackedAny()
        config.Pack(stratum.P4RoleConfig())
        update = p4r.MasterArbitrationUpdate(
            device_id=device_id,
            role=p4r.Role(name=OPERATOR, config=config),
            election_id=p4r.Uint128(low=election_id),
        )
        ended = threading.Event()

        def requests() -> Iterator[p4r.StreamMessageRequest]:
            yield p4r.StreamMessageRequest(arbitration=update)
            ended.wait()

        stream = self._p4runtime.StreamChannel(requests(), timeout=timeout_s)
        try:
            next(stream)
            yield switch_pb2.Primary(role=OPERATOR, election_id_low=election_id)
        finally:
            ended.set()
            stream.cancel()

    def _no_program(self) -> NoProgram:
        return NoProgram(
            f"device {self._device_id} at {self._address} has no program yet",
            "a program",
            "push one with a controller, or start the switch with --program and --p4info",
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn gRPC's errors into messages for users."""
        try:
            yield
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
            match code:
                case grpc.StatusCode.UNAVAILABLE:
                    raise NoAnswer(
                        f"no switch answers at {self._address}",
                        "a P4Runtime server there",
                        "correct --grpc, and --tls-ca if it speaks TLS",
                    ) from None
                case grpc.StatusCode.NOT_FOUND if "device" in details.lower():
                    raise SwitchError(
                        details.partition("; ")[0], "the switch's device id", "correct --device-id"
                    ) from None
                case grpc.StatusCode.FAILED_PRECONDITION:
                    raise self._no_program() from None
                case grpc.StatusCode.INVALID_ARGUMENT:
                    raise SwitchError(details) from None
                case grpc.StatusCode.UNIMPLEMENTED:
                    raise Unsupported(
                        details or "not served", "a switch that serves it", "use --target embedded"
                    ) from None
                case grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise NoAnswer(
                        f"no answer from {self._address} within {_ANSWER_S:g} s",
                        "an answer",
                        "read the switch's log",
                    ) from None
            raise SwitchError(
                f"{self._address}: {code.name}: {details}", "an answer", "read the switch's log"
            ) from None

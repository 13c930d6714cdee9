from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SetImpairmentsRequest(_message.Message):
    __slots__ = ("bad", "good")
    BAD_FIELD_NUMBER: _ClassVar[int]
    GOOD_FIELD_NUMBER: _ClassVar[int]
    bad: _containers.RepeatedScalarFieldContainer[str]
    good: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bad: _Optional[_Iterable[str]] = ..., good: _Optional[_Iterable[str]] = ...) -> None: ...

class SetImpairmentsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TraceRequest(_message.Message):
    __slots__ = ("port", "count")
    PORT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    port: int
    count: int
    def __init__(self, port: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class TracedPacket(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetPortsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPortsResponse(_message.Message):
    __slots__ = ("ports", "pipeline", "time_ns", "impairments")
    PORTS_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    IMPAIRMENTS_FIELD_NUMBER: _ClassVar[int]
    ports: _containers.RepeatedCompositeFieldContainer[PortStatus]
    pipeline: PipelineStatus
    time_ns: int
    impairments: _containers.RepeatedCompositeFieldContainer[ImpairmentStatus]
    def __init__(self, ports: _Optional[_Iterable[_Union[PortStatus, _Mapping]]] = ..., pipeline: _Optional[_Union[PipelineStatus, _Mapping]] = ..., time_ns: _Optional[int] = ..., impairments: _Optional[_Iterable[_Union[ImpairmentStatus, _Mapping]]] = ...) -> None: ...

class PortStatus(_message.Message):
    __slots__ = ("port", "interface", "up", "rx_packets", "rx_bytes", "rx_frames", "rx_missed", "rx_refused", "tx_packets", "tx_bytes", "tx_frames", "tx_dropped", "tx_refused", "tx_rewritten")
    PORT_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    RX_PACKETS_FIELD_NUMBER: _ClassVar[int]
    RX_BYTES_FIELD_NUMBER: _ClassVar[int]
    RX_FRAMES_FIELD_NUMBER: _ClassVar[int]
    RX_MISSED_FIELD_NUMBER: _ClassVar[int]
    RX_REFUSED_FIELD_NUMBER: _ClassVar[int]
    TX_PACKETS_FIELD_NUMBER: _ClassVar[int]
    TX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TX_FRAMES_FIELD_NUMBER: _ClassVar[int]
    TX_DROPPED_FIELD_NUMBER: _ClassVar[int]
    TX_REFUSED_FIELD_NUMBER: _ClassVar[int]
    TX_REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    port: int
    interface: str
    up: bool
    rx_packets: int
    rx_bytes: int
    rx_frames: int
    rx_missed: int
    rx_refused: int
    tx_packets: int
    tx_bytes: int
    tx_frames: int
    tx_dropped: int
    tx_refused: int
    tx_rewritten: int
    def __init__(self, port: _Optional[int] = ..., interface: _Optional[str] = ..., up: _Optional[bool] = ..., rx_packets: _Optional[int] = ..., rx_bytes: _Optional[int] = ..., rx_frames: _Optional[int] = ..., rx_missed: _Optional[int] = ..., rx_refused: _Optional[int] = ..., tx_packets: _Optional[int] = ..., tx_bytes: _Optional[int] = ..., tx_frames: _Optional[int] = ..., tx_dropped: _Optional[int] = ..., tx_refused: _Optional[int] = ..., tx_rewritten: _Optional[int] = ...) -> None: ...

class ImpairmentStatus(_message.Message):
    __slots__ = ("port", "direction", "packets", "lost", "duplicated", "reordered", "corrupted", "overflowed")
    PORT_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    DUPLICATED_FIELD_NUMBER: _ClassVar[int]
    REORDERED_FIELD_NUMBER: _ClassVar[int]
    CORRUPTED_FIELD_NUMBER: _ClassVar[int]
    OVERFLOWED_FIELD_NUMBER: _ClassVar[int]
    port: int
    direction: str
    packets: int
    lost: int
    duplicated: int
    reordered: int
    corrupted: int
    overflowed: int
    def __init__(self, port: _Optional[int] = ..., direction: _Optional[str] = ..., packets: _Optional[int] = ..., lost: _Optional[int] = ..., duplicated: _Optional[int] = ..., reordered: _Optional[int] = ..., corrupted: _Optional[int] = ..., overflowed: _Optional[int] = ...) -> None: ...

class PipelineStatus(_message.Message):
    __slots__ = ("program", "received", "emitted", "dropped", "aborted", "execution", "scalar")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    program: str
    received: int
    emitted: int
    dropped: int
    aborted: int
    execution: str
    scalar: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, program: _Optional[str] = ..., received: _Optional[int] = ..., emitted: _Optional[int] = ..., dropped: _Optional[int] = ..., aborted: _Optional[int] = ..., execution: _Optional[str] = ..., scalar: _Optional[_Iterable[str]] = ...) -> None: ...

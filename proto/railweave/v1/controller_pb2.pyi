from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RailOffer(_message.Message):
    __slots__ = ("name", "kind", "plane", "address", "mac", "port", "queue_pairs", "rate_bps")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PLANE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_PAIRS_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    plane: str
    address: str
    mac: str
    port: int
    queue_pairs: _containers.RepeatedScalarFieldContainer[int]
    rate_bps: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., plane: _Optional[str] = ..., address: _Optional[str] = ..., mac: _Optional[str] = ..., port: _Optional[int] = ..., queue_pairs: _Optional[_Iterable[int]] = ..., rate_bps: _Optional[int] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("job", "rank", "size", "rails", "deadline_s")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RAILS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    size: int
    rails: _containers.RepeatedCompositeFieldContainer[RailOffer]
    deadline_s: float
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., size: _Optional[int] = ..., rails: _Optional[_Iterable[_Union[RailOffer, _Mapping]]] = ..., deadline_s: _Optional[float] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("rank", "rails")
    RANK_FIELD_NUMBER: _ClassVar[int]
    RAILS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    rails: _containers.RepeatedCompositeFieldContainer[RailOffer]
    def __init__(self, rank: _Optional[int] = ..., rails: _Optional[_Iterable[_Union[RailOffer, _Mapping]]] = ...) -> None: ...

class InaGroup(_message.Message):
    __slots__ = ("rail", "group", "virtual_address", "udp_port", "child", "slots", "lanes", "depth")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    rail: str
    group: int
    virtual_address: str
    udp_port: int
    child: int
    slots: int
    lanes: int
    depth: int
    def __init__(self, rail: _Optional[str] = ..., group: _Optional[int] = ..., virtual_address: _Optional[str] = ..., udp_port: _Optional[int] = ..., child: _Optional[int] = ..., slots: _Optional[int] = ..., lanes: _Optional[int] = ..., depth: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("rail", "reason")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rail: str
    reason: str
    def __init__(self, rail: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class JoinGroupResponse(_message.Message):
    __slots__ = ("lease", "lease_s", "members", "ina", "refusals")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    INA_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    lease: int
    lease_s: float
    members: _containers.RepeatedCompositeFieldContainer[Member]
    ina: _containers.RepeatedCompositeFieldContainer[InaGroup]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, lease: _Optional[int] = ..., lease_s: _Optional[float] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., ina: _Optional[_Iterable[_Union[InaGroup, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    def __init__(self, lease: _Optional[int] = ...) -> None: ...

class LeaveGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("lease", "resume")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    lease: int
    resume: Resume
    def __init__(self, lease: _Optional[int] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("job", "rank", "size", "rails", "ina")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RAILS_FIELD_NUMBER: _ClassVar[int]
    INA_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    size: int
    rails: _containers.RepeatedCompositeFieldContainer[RailOffer]
    ina: _containers.RepeatedCompositeFieldContainer[InaGroup]
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., size: _Optional[int] = ..., rails: _Optional[_Iterable[_Union[RailOffer, _Mapping]]] = ..., ina: _Optional[_Iterable[_Union[InaGroup, _Mapping]]] = ...) -> None: ...

class MemberLost(_message.Message):
    __slots__ = ("rank", "reason")
    RANK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rank: int
    reason: str
    def __init__(self, rank: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class MemberLeft(_message.Message):
    __slots__ = ("rank",)
    RANK_FIELD_NUMBER: _ClassVar[int]
    rank: int
    def __init__(self, rank: _Optional[int] = ...) -> None: ...

class PlaneDown(_message.Message):
    __slots__ = ("plane", "reason")
    PLANE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    plane: str
    reason: str
    def __init__(self, plane: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PlaneUp(_message.Message):
    __slots__ = ("plane",)
    PLANE_FIELD_NUMBER: _ClassVar[int]
    plane: str
    def __init__(self, plane: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("member_lost", "plane_down", "plane_up", "member_left")
    MEMBER_LOST_FIELD_NUMBER: _ClassVar[int]
    PLANE_DOWN_FIELD_NUMBER: _ClassVar[int]
    PLANE_UP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_LEFT_FIELD_NUMBER: _ClassVar[int]
    member_lost: MemberLost
    plane_down: PlaneDown
    plane_up: PlaneUp
    member_left: MemberLeft
    def __init__(self, member_lost: _Optional[_Union[MemberLost, _Mapping]] = ..., plane_down: _Optional[_Union[PlaneDown, _Mapping]] = ..., plane_up: _Optional[_Union[PlaneUp, _Mapping]] = ..., member_left: _Optional[_Union[MemberLeft, _Mapping]] = ...) -> None: ...

class SwitchCountersRequest(_message.Message):
    __slots__ = ("plane",)
    PLANE_FIELD_NUMBER: _ClassVar[int]
    plane: str
    def __init__(self, plane: _Optional[str] = ...) -> None: ...

class SwitchCounters(_message.Message):
    __slots__ = ("plane", "name", "packets")
    class PacketsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PLANE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    plane: str
    name: str
    packets: _containers.ScalarMap[str, int]
    def __init__(self, plane: _Optional[str] = ..., name: _Optional[str] = ..., packets: _Optional[_Mapping[str, int]] = ...) -> None: ...

class SwitchCountersResponse(_message.Message):
    __slots__ = ("switches",)
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[SwitchCounters]
    def __init__(self, switches: _Optional[_Iterable[_Union[SwitchCounters, _Mapping]]] = ...) -> None: ...

class SetLossRequest(_message.Message):
    __slots__ = ("plane", "switch_name", "port", "direction", "probability")
    PLANE_FIELD_NUMBER: _ClassVar[int]
    SWITCH_NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    plane: str
    switch_name: str
    port: int
    direction: str
    probability: float
    def __init__(self, plane: _Optional[str] = ..., switch_name: _Optional[str] = ..., port: _Optional[int] = ..., direction: _Optional[str] = ..., probability: _Optional[float] = ...) -> None: ...

class SetLossResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

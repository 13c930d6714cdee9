from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RailOffer(_message.Message):
    __slots__ = ("name", "kind", "plane", "address", "mac", "port", "queue_pairs", "rate_bps", "control_port", "sum_queue_pairs", "device")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PLANE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_PAIRS_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_PORT_FIELD_NUMBER: _ClassVar[int]
    SUM_QUEUE_PAIRS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    plane: str
    address: str
    mac: str
    port: int
    queue_pairs: _containers.RepeatedScalarFieldContainer[int]
    rate_bps: int
    control_port: int
    sum_queue_pairs: _containers.RepeatedScalarFieldContainer[int]
    device: bool
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., plane: _Optional[str] = ..., address: _Optional[str] = ..., mac: _Optional[str] = ..., port: _Optional[int] = ..., queue_pairs: _Optional[_Iterable[int]] = ..., rate_bps: _Optional[int] = ..., control_port: _Optional[int] = ..., sum_queue_pairs: _Optional[_Iterable[int]] = ..., device: _Optional[bool] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("job", "rank", "size", "rails", "deadline_s", "protocol")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RAILS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    size: int
    rails: _containers.RepeatedCompositeFieldContainer[RailOffer]
    deadline_s: float
    protocol: int
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., size: _Optional[int] = ..., rails: _Optional[_Iterable[_Union[RailOffer, _Mapping]]] = ..., deadline_s: _Optional[float] = ..., protocol: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("rank", "rails")
    RANK_FIELD_NUMBER: _ClassVar[int]
    RAILS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    rails: _containers.RepeatedCompositeFieldContainer[RailOffer]
    def __init__(self, rank: _Optional[int] = ..., rails: _Optional[_Iterable[_Union[RailOffer, _Mapping]]] = ...) -> None: ...

class InaGroup(_message.Message):
    __slots__ = ("rail", "group", "virtual_address", "udp_port", "child", "slots", "lanes", "depth", "tree")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    rail: str
    group: int
    virtual_address: str
    udp_port: int
    child: int
    slots: int
    lanes: int
    depth: int
    tree: int
    def __init__(self, rail: _Optional[str] = ..., group: _Optional[int] = ..., virtual_address: _Optional[str] = ..., udp_port: _Optional[int] = ..., child: _Optional[int] = ..., slots: _Optional[int] = ..., lanes: _Optional[int] = ..., depth: _Optional[int] = ..., tree: _Optional[int] = ...) -> None: ...

class RingMember(_message.Message):
    __slots__ = ("ranks", "reason")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    def __init__(self, ranks: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ...) -> None: ...

class Ring(_message.Message):
    __slots__ = ("rail", "lanes", "members")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    rail: str
    lanes: int
    members: _containers.RepeatedCompositeFieldContainer[RingMember]
    def __init__(self, rail: _Optional[str] = ..., lanes: _Optional[int] = ..., members: _Optional[_Iterable[_Union[RingMember, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("rail", "reason")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rail: str
    reason: str
    def __init__(self, rail: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Sums(_message.Message):
    __slots__ = ("rail", "window_packets", "reason")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_PACKETS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rail: str
    window_packets: int
    reason: str
    def __init__(self, rail: _Optional[str] = ..., window_packets: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class JoinGroupResponse(_message.Message):
    __slots__ = ("lease", "lease_s", "members", "ina", "refusals", "rings", "sums", "secret")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    INA_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    RINGS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    lease: int
    lease_s: float
    members: _containers.RepeatedCompositeFieldContainer[Member]
    ina: _containers.RepeatedCompositeFieldContainer[InaGroup]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    rings: _containers.RepeatedCompositeFieldContainer[Ring]
    sums: _containers.RepeatedCompositeFieldContainer[Sums]
    secret: bytes
    def __init__(self, lease: _Optional[int] = ..., lease_s: _Optional[float] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., ina: _Optional[_Iterable[_Union[InaGroup, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., rings: _Optional[_Iterable[_Union[Ring, _Mapping]]] = ..., sums: _Optional[_Iterable[_Union[Sums, _Mapping]]] = ..., secret: _Optional[bytes] = ...) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    def __init__(self, lease: _Optional[int] = ...) -> None: ...

class LeaveGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("lease", "resume", "decisions", "acknowledged")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    lease: int
    resume: Resume
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    acknowledged: int
    def __init__(self, lease: _Optional[int] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("rail", "collective", "dtype", "op", "size_class", "used", "reason", "detail", "calls")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    SIZE_CLASS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    rail: str
    collective: str
    dtype: str
    op: str
    size_class: int
    used: bool
    reason: str
    detail: str
    calls: int
    def __init__(self, rail: _Optional[str] = ..., collective: _Optional[str] = ..., dtype: _Optional[str] = ..., op: _Optional[str] = ..., size_class: _Optional[int] = ..., used: _Optional[bool] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., calls: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("job", "rank", "size", "rails", "ina", "paused", "rings")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RAILS_FIELD_NUMBER: _ClassVar[int]
    INA_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    RINGS_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    size: int
    rails: _containers.RepeatedCompositeFieldContainer[RailOffer]
    ina: _containers.RepeatedCompositeFieldContainer[InaGroup]
    paused: _containers.RepeatedScalarFieldContainer[int]
    rings: _containers.RepeatedCompositeFieldContainer[Ring]
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., size: _Optional[int] = ..., rails: _Optional[_Iterable[_Union[RailOffer, _Mapping]]] = ..., ina: _Optional[_Iterable[_Union[InaGroup, _Mapping]]] = ..., paused: _Optional[_Iterable[int]] = ..., rings: _Optional[_Iterable[_Union[Ring, _Mapping]]] = ...) -> None: ...

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

class GroupPaused(_message.Message):
    __slots__ = ("rail", "tree", "group", "reason")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rail: str
    tree: int
    group: int
    reason: str
    def __init__(self, rail: _Optional[str] = ..., tree: _Optional[int] = ..., group: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class GroupMoved(_message.Message):
    __slots__ = ("group", "place", "resume_from")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FROM_FIELD_NUMBER: _ClassVar[int]
    group: int
    place: InaGroup
    resume_from: int
    def __init__(self, group: _Optional[int] = ..., place: _Optional[_Union[InaGroup, _Mapping]] = ..., resume_from: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("member_lost", "plane_down", "plane_up", "member_left", "group_paused", "group_moved", "sequence")
    MEMBER_LOST_FIELD_NUMBER: _ClassVar[int]
    PLANE_DOWN_FIELD_NUMBER: _ClassVar[int]
    PLANE_UP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_LEFT_FIELD_NUMBER: _ClassVar[int]
    GROUP_PAUSED_FIELD_NUMBER: _ClassVar[int]
    GROUP_MOVED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    member_lost: MemberLost
    plane_down: PlaneDown
    plane_up: PlaneUp
    member_left: MemberLeft
    group_paused: GroupPaused
    group_moved: GroupMoved
    sequence: int
    def __init__(self, member_lost: _Optional[_Union[MemberLost, _Mapping]] = ..., plane_down: _Optional[_Union[PlaneDown, _Mapping]] = ..., plane_up: _Optional[_Union[PlaneUp, _Mapping]] = ..., member_left: _Optional[_Union[MemberLeft, _Mapping]] = ..., group_paused: _Optional[_Union[GroupPaused, _Mapping]] = ..., group_moved: _Optional[_Union[GroupMoved, _Mapping]] = ..., sequence: _Optional[int] = ...) -> None: ...

class ReportPositionRequest(_message.Message):
    __slots__ = ("lease", "group", "position")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    lease: int
    group: int
    position: int
    def __init__(self, lease: _Optional[int] = ..., group: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class ReportPositionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportStallRequest(_message.Message):
    __slots__ = ("lease", "group", "first_switch_ok", "root_ok", "spoilt")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FIRST_SWITCH_OK_FIELD_NUMBER: _ClassVar[int]
    ROOT_OK_FIELD_NUMBER: _ClassVar[int]
    SPOILT_FIELD_NUMBER: _ClassVar[int]
    lease: int
    group: int
    first_switch_ok: bool
    root_ok: bool
    spoilt: bool
    def __init__(self, lease: _Optional[int] = ..., group: _Optional[int] = ..., first_switch_ok: _Optional[bool] = ..., root_ok: _Optional[bool] = ..., spoilt: _Optional[bool] = ...) -> None: ...

class ReportStallResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class TreeReport(_message.Message):
    __slots__ = ("tree", "group", "root", "switches", "slots", "moves", "paused")
    TREE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    tree: int
    group: int
    root: str
    switches: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    moves: int
    paused: str
    def __init__(self, tree: _Optional[int] = ..., group: _Optional[int] = ..., root: _Optional[str] = ..., switches: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., moves: _Optional[int] = ..., paused: _Optional[str] = ...) -> None: ...

class RailReport(_message.Message):
    __slots__ = ("rail", "kind", "plane", "refusal", "trees", "ring", "sums", "adders")
    RAIL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PLANE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    RING_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    ADDERS_FIELD_NUMBER: _ClassVar[int]
    rail: str
    kind: str
    plane: str
    refusal: str
    trees: _containers.RepeatedCompositeFieldContainer[TreeReport]
    ring: _containers.RepeatedCompositeFieldContainer[RingMember]
    sums: Sums
    adders: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rail: _Optional[str] = ..., kind: _Optional[str] = ..., plane: _Optional[str] = ..., refusal: _Optional[str] = ..., trees: _Optional[_Iterable[_Union[TreeReport, _Mapping]]] = ..., ring: _Optional[_Iterable[_Union[RingMember, _Mapping]]] = ..., sums: _Optional[_Union[Sums, _Mapping]] = ..., adders: _Optional[_Iterable[str]] = ...) -> None: ...

class RankReport(_message.Message):
    __slots__ = ("rank", "decisions")
    RANK_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    def __init__(self, rank: _Optional[int] = ..., decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ...) -> None: ...

class JobReport(_message.Message):
    __slots__ = ("job", "size", "rails", "ranks")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RAILS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    job: str
    size: int
    rails: _containers.RepeatedCompositeFieldContainer[RailReport]
    ranks: _containers.RepeatedCompositeFieldContainer[RankReport]
    def __init__(self, job: _Optional[str] = ..., size: _Optional[int] = ..., rails: _Optional[_Iterable[_Union[RailReport, _Mapping]]] = ..., ranks: _Optional[_Iterable[_Union[RankReport, _Mapping]]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("jobs", "time_s")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobReport]
    time_s: float
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobReport, _Mapping]]] = ..., time_s: _Optional[float] = ...) -> None: ...

class SwitchCountersRequest(_message.Message):
    __slots__ = ("plane",)
    PLANE_FIELD_NUMBER: _ClassVar[int]
    plane: str
    def __init__(self, plane: _Optional[str] = ...) -> None: ...

class SwitchCounters(_message.Message):
    __slots__ = ("plane", "name", "packets", "groups", "slots", "slots_used", "problem")
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
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_USED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    plane: str
    name: str
    packets: _containers.ScalarMap[str, int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupCounters]
    slots: int
    slots_used: int
    problem: str
    def __init__(self, plane: _Optional[str] = ..., name: _Optional[str] = ..., packets: _Optional[_Mapping[str, int]] = ..., groups: _Optional[_Iterable[_Union[GroupCounters, _Mapping]]] = ..., slots: _Optional[int] = ..., slots_used: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class GroupCounters(_message.Message):
    __slots__ = ("job", "rail", "tree", "group", "slots", "packets")
    class PacketsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    RAIL_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    job: str
    rail: str
    tree: int
    group: int
    slots: int
    packets: _containers.ScalarMap[str, int]
    def __init__(self, job: _Optional[str] = ..., rail: _Optional[str] = ..., tree: _Optional[int] = ..., group: _Optional[int] = ..., slots: _Optional[int] = ..., packets: _Optional[_Mapping[str, int]] = ...) -> None: ...

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

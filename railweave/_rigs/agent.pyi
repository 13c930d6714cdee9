"""An agent with rails that throw"""

import railweave._native.agent
from railweave._native.agent import (
    Agent as Agent,
    Call as Call,
    Change as Change,
    EndpointRail as EndpointRail,
    EndpointWork as EndpointWork,
    Failure as Failure,
    FailureKind as FailureKind,
    GroupStats as GroupStats,
    RailState as RailState,
    RailStats as RailStats,
    RdmaPlace as RdmaPlace,
    SentBytes as SentBytes,
    SliceRecord as SliceRecord,
    Stall as Stall
)


class BreakingAgent(railweave._native.agent.Agent):
    def __init__(self, rank: int, world_size: int) -> None: ...

    def add_breaking_tcp(self, name: str, address: str, interface: str, peer_timeout_s: float = 5.0) -> tuple[int, int]:
        """A TCP rail that `break_at` breaks"""

    def break_at(self, rail: int, where: str, times: int = 1) -> None:
        """The next calls of this function of a breaking rail throw"""

# SPDX-License-Identifier: Apache-2.0
"""Counters of a running switch, and their rates per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from railweave.switch.inspect.client import SwitchClient, Unsupported
from railweave.switch.inspect.tables import action_counts
from railweave.v1 import switch_pb2

Row = dict[str, Any]
_RATES = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")


def stats(client: SwitchClient, interval_s: float, sleep: Callable[[float], None] = time.sleep) -> Row:
    """Return {"ports", "impairments", "pipeline", "actions"}; null for parts that the switch does not report.

    With an interval, ports have rates per second (`rx_packets_per_s` …) and actions have `packets_per_s`.
    """
    before, counted, begin = _ports(client), action_counts(client), time.monotonic()
    if interval_s <= 0:
        return _result(before, counted)
    sleep(interval_s)
    after, again, end = _ports(client), action_counts(client), time.monotonic()
    result = _result(after, again)
    if before is not None and after is not None:
        seconds = (after.time_ns - before.time_ns) / 1e9
        earlier = {port.port: port for port in before.ports}
        for row in result["ports"]:
            for name in _RATES:
                row[f"{name}_per_s"] = (row[name] - getattr(earlier[row["port"]], name)) / seconds
    known = {(row["table"], row["action"]): row["packets"] for row in counted}
    for row in result["actions"]:
        row["packets_per_s"] = (row["packets"] - known.get((row["table"], row["action"]), 0)) / (end - begin)
    return result


def _ports(client: SwitchClient) -> switch_pb2.GetPortsResponse | None:
    try:
        return client.ports()
    except Unsupported:
        return None


def _result(answer: switch_pb2.GetPortsResponse | None, actions: list[Row]) -> Row:
    ports = pipeline = None
    impairments: list[Row] = []
    if answer is not None:
        ports = list(map(_row, answer.ports))
        pipeline = _row(answer.pipeline) | {"scalar": list(answer.pipeline.scalar)}
        impairments = list(map(_row, answer.impairments))
    return {"ports": ports, "impairments": impairments, "pipeline": pipeline, "actions": actions}


def _row(message: Message) -> Row:
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}

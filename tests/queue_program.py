# SPDX-License-Identifier: Apache-2.0
"""Programs that show queues."""

from __future__ import annotations

import json

from vectors.case import case

FORWARD = 0  # id of the action of the table `hosts`


def queue_program(port: int, **looks: str) -> bytes:
    """Return BMv2 JSON that sends packets of kind 10 to a port.

    Before egress it copies standard metadata into header fields: `looks` names a source for each field.
    """
    root = json.loads(case("control").json.read_text())
    primitives = [
        {
            "op": "assign",
            "parameters": [
                {"type": "field", "value": ["h", member]},
                {"type": "field", "value": ["standard_metadata", source]},
            ],
        }
        for member, source in looks.items()
    ]
    root["actions"].append({"name": "look", "id": 99, "runtime_data": [], "primitives": primitives})
    [egress] = [item for item in root["pipelines"] if item["name"] == "egress"]
    egress["action_calls"] = [{"name": "look", "action_id": 99, "next_node": egress["init_table"]}]
    egress["init_table"] = "look"
    [hosts] = [table for item in root["pipelines"] for table in item["tables"] if table["name"] == "hosts"]
    hosts["default_entry"].update(action_id=FORWARD, action_data=[hex(port)])
    return json.dumps(root).encode()


def priority_program(port: int) -> bytes:
    """Return BMv2 JSON that sends all packets to a port. The second byte of a packet is its priority."""
    root = json.loads(case("cpu").json.read_bytes())
    [forward] = [action["id"] for action in root["actions"] if action["name"] == "I.forward"]
    [hosts] = [table for table in root["pipelines"][0]["tables"] if table["name"] == "I.hosts"]
    hosts["default_entry"].update(action_id=forward, action_data=[hex(port)])
    return json.dumps(root).encode()

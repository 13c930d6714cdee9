# SPDX-License-Identifier: Apache-2.0
"""The Wireshark dissector shows the fields of docs/reference/wire-format.md."""

import shutil
import struct
from pathlib import Path

import pytest
from commands import ROOT, run
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

DISSECTOR = ROOT / "docs" / "reference" / "railweave.lua"
HEADER = ("version", "kind", "op", "group", "child", "flags")
OF_A_SLOT = ("slot", "slot.copy", "round", "mark", "lane")
OF_A_SHARD = ("rank", "chunk", "task", "payload", "origin", "chunks", "sender", "number", "code")
CODE = bytes(range(16))
PACKETS = {  # header, then payload; the fields that must be shown, in this order, and a summary
    "result": (
        (0x11, 1, 7, 2, 0x08, 5, 9, 0xDEADBEEF, struct.pack(">2i", 1, -2)),
        ["1", "1", "1", "7", "2", "0x08", "5", "1", "9", "0xdeadbeef", "1,-2", *[""] * 9],
        "RESULT group 7 child 2 slot 5 round 9 MAX, 2 lanes",
    ),
    "spread": (
        (0x13, 0, 7, 2, 0, 3, 9, 17, b"abc" + CODE),
        ["1", "3", "0", "7", "2", "0x00", *[""] * 5, "3", "9", "17", "616263", *[""] * 4, CODE.hex()],
        "SPREAD group 7 child 2 of rank 3 chunk 9, 3 bytes",
    ),
    "fetch": (
        (0x14, 0, 7, 2, 0, 3, 9, 17, struct.pack(">HHHQ", 5, 100, 4, 33) + CODE),
        ["1", "4", "0", "7", "2", "0x00", *[""] * 5, "3", "9", "17", "", "5", "100", "4", "33", CODE.hex()],
        "FETCH group 7 child 2 of rank 3 chunk 9, 100 chunks for rank 5",
    ),
}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark: not on PATH")
@pytest.mark.parametrize("kind", PACKETS)
def test_dissector_reads_every_field(kind: str, tmp_path: Path) -> None:
    (*fields, payload), shown, summary = PACKETS[kind]
    packet = Ether() / IP() / UDP(sport=5257, dport=40000) / (struct.pack(">BBHBBHII", *fields) + payload)
    capture = tmp_path / "ina.pcap"
    wrpcap(str(capture), [packet])

    names = [f"ina.{name}" for name in (*HEADER, *OF_A_SLOT, *OF_A_SHARD)]
    wanted = [argument for name in (*names, "_ws.col.Info") for argument in ("-e", name)]
    line = run("tshark", "-X", f"lua_script:{DISSECTOR}", "-r", capture, "-T", "fields", *wanted).stdout
    assert line.rstrip("\n").split("\t") == [*shown, summary]

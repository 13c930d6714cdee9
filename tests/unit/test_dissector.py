# SPDX-License-Identifier: Apache-2.0
"""The Wireshark dissector shows the fields of docs/wire-format.md."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

DISSECTOR = Path(__file__).parents[2] / "docs" / "railweave.lua"
FIELDS = ("version", "kind", "op", "group", "child", "flags", "slot", "slot.copy", "round", "mark", "lane")


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark: not on PATH")
def test_dissector_reads_every_field(tmp_path: Path) -> None:
    header = struct.pack(">BBHBBHII", 0x11, 1, 7, 2, 0x08, 5, 9, 0xDEADBEEF)
    packet = Ether() / IP() / UDP(sport=5257, dport=40000) / (header + struct.pack(">2i", 1, -2))
    capture = tmp_path / "ina.pcap"
    wrpcap(str(capture), [packet])

    wanted = [argument for field in FIELDS for argument in ("-e", f"ina.{field}")]
    command = ["tshark", "-X", f"lua_script:{DISSECTOR}", "-r", str(capture), "-T", "fields", *wanted]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    assert shown.strip().split("\t") == ["1", "1", "1", "7", "2", "0x08", "5", "1", "9", "0xdeadbeef", "1,-2"]

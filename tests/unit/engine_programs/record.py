# SPDX-License-Identifier: Apache-2.0
"""Records what the real BMv2 does: `python record.py [NAME…]`; p4c-bm2-ss, simple_switch_grpc on PATH.

For every program here: compile NAME.p4 to NAME.json, run BMv2 on packets of a fixed seed (through pcap files,
so no interface and no root is needed), and write NAME.vectors in hex: `<` packets in, then `>` packets out.
The last ones out may be missing: BMv2 writes its files through a buffer. The order matters: registers keep
state from one packet to the next.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
MAGIC = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
TAG_BYTES = 4
GAP_S = 0.01


def compile_program(source: Path, to: Path) -> None:
    """p4c."""
    command = ["p4c-bm2-ss", source.name, "-o", to.name]  # relative, as the names go into the JSON
    include = os.environ.get("P4C_INCLUDE")
    subprocess.run(
        command + (["-I", include] if include else []), check=True, capture_output=True, cwd=source.parent
    )


def feed(pipe: Path, packets: list[bytes]) -> None:
    """Packets one by one into a named pipe that BMv2 reads as a pcap file.

    (It would replay a complete file in one burst, and lose what its queues do not hold.)
    """
    with pipe.open("wb", buffering=0) as file:
        file.write(MAGIC)
        time.sleep(2)  # BMv2 opens its files long before it reads packets
        for number, packet in enumerate(packets):
            file.write(struct.pack("<IIII", *divmod(number, 1_000_000), len(packet), len(packet)) + packet)
            time.sleep(GAP_S)


def read_pcap(path: Path) -> list[bytes]:
    """Complete packets of a pcap file that may still be growing."""
    data = path.read_bytes() if path.exists() else b""
    packets, at = [], 24
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        if at + 16 + length > len(data):
            break
        packets.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return packets


def run_bmv2(program: Path, packets: list[bytes]) -> list[bytes]:
    """All that BMv2 emits on port 1 for packets on port 1, but for the last few kilobytes."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "p"
        os.mkfifo(f"{base}_in.pcap")
        command = ["simple_switch_grpc", "-i", f"1@{base}", "--use-files", "1", str(program)]
        command += ["--", "--grpc-server-addr", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                feed(Path(f"{base}_in.pcap"), packets)
                time.sleep(1)
            finally:
                process.kill()
        return read_pcap(Path(f"{base}_out.pcap"))


# Packets.


def some_bytes(rng: random.Random, count: int) -> bytes:
    """Random bytes with many 0x00 and 0xff, where arithmetic has its edges."""
    mode = rng.random()
    if mode < 0.2:
        return bytes(rng.choice((0, 0xFF, 0x80, 0x7F, 1)) for _ in range(count))
    return rng.randbytes(count)


def arithmetic(rng: random.Random) -> bytes:
    """Operands and space for results."""
    operands = b"".join(some_bytes(rng, size) for size in (2, 8, 16, 32, 10))
    if rng.random() < 0.2:
        operands = operands[:10] + operands[10:18] * 2 + operands[26:42] * 2 + operands[58:]
    return operands + bytes(6 + 32 + 48 + 112 + 4 + 16 + 2)


def parsing(rng: random.Random) -> bytes:
    """Headers of the kinds that the parser tells apart, sometimes cut short."""
    kind = rng.choice((1, 1, 2, 3, 5, 0x10, 0x11, 0x12, 0x14, 0x80, 0x81, 0x82, rng.randrange(256)))
    magic = rng.choice((0xAA, 0xAA, 0xA0, 0xA1, 0, rng.randrange(256)))
    packet = bytes([kind, magic, 0, 0, rng.randrange(6), 0, 0, 0])
    for number in range(rng.randrange(7)):
        bottom = rng.random() < 0.3 or number == 5
        packet += ((rng.randrange(1 << 23) << 9) | (bottom << 8) | rng.randrange(256)).to_bytes(4, "big")
        if bottom:
            break
    packet += bytes([rng.choice((0x70, 0x60, 0x00)) | rng.randrange(16)]) + some_bytes(rng, 1)
    packet += bytes(range(1, 13)) if rng.random() < 0.3 else some_bytes(rng, 12)
    packet += some_bytes(rng, rng.randrange(12))
    return packet[: rng.randrange(len(packet) + 1)] if rng.random() < 0.3 else packet


def tables(rng: random.Random) -> bytes:
    """Keys near those of the entries."""
    exact1 = rng.choice((1, 1, 1, 2, 3, 7, 8, 9))
    exact2 = rng.choice((1, 2, 3, 0xFFFF))
    prefix = rng.choice((0x0A0B0C0D, 0x0A0B0C0E, 0x0A0B0000, 0x0A000001, 0x0B000000))
    pattern = rng.choice((0x1234, 0x1200, 0x5534, 0xFFFF, 0))
    number = rng.choice((0, 9, 10, 49, 50, 99, 100, 1000, 1001, 0xFFEF, 0xFFF0, 0xFFFF))
    maybe = rng.choice((7, 8, 9))
    wide = rng.choice((bytes(range(1, 13)), bytes(12), bytes(range(1, 12)) + b"\x0d"))
    key = struct.pack(">BHIHHB", exact1, exact2, prefix, pattern, number, maybe) + wide
    return key + (bytes(8) if rng.random() < 0.8 else b"") + bytes(rng.randrange(3))


def state(rng: random.Random) -> bytes:
    """IPv4 headers, half of them with a correct checksum."""
    ttl, protocol = rng.choice((3, 64, 1, 0)), rng.choice((17, 6, 200, 201))
    header = struct.pack(
        ">BBHHHBBHII", 0x45, rng.randrange(256), rng.randrange(1 << 16), rng.randrange(1 << 16),
        rng.randrange(1 << 16), ttl, protocol, 0, rng.randrange(1 << 32), rng.randrange(4),
    )  # fmt: skip
    total = sum(struct.unpack(">10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    checksum = 0xFFFF ^ total ^ (rng.random() < 0.5)
    header = header[:10] + checksum.to_bytes(2, "big") + header[12:]
    index = rng.choice((0, 1, 7, 8, 255))
    out = bytes(49 - 1) + bytes([index])
    return header + (out if rng.random() < 0.95 else out[:9]) + rng.randbytes(rng.randrange(9))


GENERATORS: dict[str, Callable[[random.Random], bytes]] = {
    "arithmetic": arithmetic,
    "parsing": parsing,
    "tables": tables,
    "state": state,
}


def packets_of(name: str, count: int, seed: int = 1) -> list[bytes]:
    """The packets of a program, each with a number at its end."""
    rng = random.Random(seed)
    return [GENERATORS[name](rng) + number.to_bytes(TAG_BYTES, "big") for number in range(count)]


def main(names: list[str], count: int = 120) -> None:
    """Compile, run, write."""
    for name in names or list(GENERATORS):
        program = HERE / f"{name}.json"
        compile_program(HERE / f"{name}.p4", program)
        packets = packets_of(name, count)
        outputs = run_bmv2(program, packets)
        lines = [f"< {packet.hex()}" for packet in packets] + [f"> {packet.hex()}" for packet in outputs]
        (HERE / f"{name}.vectors").write_text("\n".join(lines) + "\n")
        sys.stdout.write(f"{name}: {len(packets)} packets in, {len(outputs)} out\n")


if __name__ == "__main__":
    main(sys.argv[1:])

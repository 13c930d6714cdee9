# SPDX-License-Identifier: Apache-2.0
"""Commands refuse senseless input in one line, which says what they expect."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from railweave.topologies.planes import planes
from railweave.topologies.serialize import to_yaml


def railweave(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "railweave", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("demo", "--rails", "ina,ib"), "rail 'ib': expected one of ina, tcp, rdma"),
        (("demo", "--rate", "fast"), "rate 'fast'"),
        (("demo", "--hosts", "40"), "40 hosts: expected 1 to 31"),
        (("demo", "--hosts", "1"), "at least 2"),
        (("demo", "--steps", "0"), "--steps 0"),
        (("demo", "--shares", "1,2"), "2 numbers: expected 3, one per rail"),
        (("demo", "--loss", "2"), "loss '2'"),
        (("demo", "--switch", "asic"), "switch target 'asic': expected one of embedded, bmv2"),
        (("bench", "all-reduce", "--sizes", "5M:1M"), "swap them"),
        (("bench", "all-reduce", "--sizes", "3"), "multiple of 4 bytes"),
        (("bench", "all-reduce", "--topology", "torus"), "topology 'torus': expected planes"),
        (("bench", "all-reduce", "--dtype", "float64"), "dtype 'float64': expected one of float32, int32"),
        (("bench", "all-reduce", "--op", "prod"), "op 'prod'"),
        (("bench", "all-reduce", "--iters", "0"), "iterations is 0: expected at least 1"),
        (("bench", "all-reduce", "--rate", "0", "--control"), "some rates cannot be halved"),
        (("bench", "all-reduce", "--compare", "nccl"), "baseline 'nccl'"),
        (("bench", "jobs", "--jobs", "0"), "--jobs 0"),
        (("bench", "jobs", "--seconds", "1"), "--seconds 1"),
        (("bench", "jobs", "--size", "1K,2K"), "size '1K,2K'"),
        (("bench", "loss", "--losses", "1.5"), "--losses 1.5"),
        (("bench", "loss", "--duplicate", "7"), "--duplicate 7"),
        (("bench", "loss", "--reorder", "-1"), "--reorder -1"),
        (("bench", "loss", "--chunks", "0"), "--chunks 0"),
        (("bench", "loss", "--size", "1K,2K"), "size '1K,2K'"),
        (("bench", "scaling", "--hosts", "2,many"), "--hosts '2,many'"),
        (("bench", "scaling", "--plot", "curve.gif"), "--plot curve.gif"),
        (("run", "--hosts", "2"), "no program"),
        (("topo", "planes", "--save", "net.gif"), "cannot draw to 'net.gif'"),
        (("topo", "file", "absent.yaml"), "absent.yaml"),
    ],
)
def test_refused_in_one_line(arguments: tuple[str, ...], expected: str) -> None:
    code, complaint = railweave(*arguments)
    assert code == 2
    assert expected in complaint
    assert complaint.startswith("railweave: ")
    assert len(complaint.strip().splitlines()) == 1


def link_tools(folder: Path) -> None:
    for tool in ("ip", "tc", "nft", "setpriv"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)


def test_a_machine_that_lets_nobody_make_namespaces_is_named(tmp_path: Path) -> None:
    link_tools(tmp_path)
    refusing = tmp_path / "mnexec"
    refusing.write_text("#!/bin/sh\necho 'unshare: not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    code, complaint = railweave("demo", "--rails", "tcp", PATH=str(tmp_path))
    assert code == 3
    assert "cannot make network namespaces" in complaint
    assert "unshare: not permitted" in complaint


def test_a_missing_tool_is_named_with_its_package(tmp_path: Path) -> None:
    link_tools(tmp_path)
    code, complaint = railweave("demo", "--rails", "tcp", PATH=str(tmp_path))
    assert code == 3
    assert complaint.splitlines()[-1] == (
        "railweave: mnexec is missing: expected the package mininet; install it: apt-get install mininet"
    )


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(to_yaml(planes(2, ("tcp",))))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, complaint = railweave("controller", "--topology", str(path), "--listen", f"127.0.0.1:{port}")
    assert code == 2
    assert str(port) in complaint
    assert len(complaint.strip().splitlines()) == 1


def test_without_root_nothing_is_tried() -> None:
    script = """
import os
from railweave.topologies.lab.namespaces import require_tools
os.setuid(65534)
require_tools()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "expected root, which network namespaces need; run the command again with sudo" in done.stderr


def test_doctor_says_what_there_is() -> None:
    code, _ = railweave("doctor")
    assert code == 0

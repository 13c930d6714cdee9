# SPDX-License-Identifier: Apache-2.0
"""The committed gRPC code matches the .proto files."""

from __future__ import annotations

from pathlib import Path

import pytest

PROTO = Path(__file__).parents[2] / "proto"


def compile_to(folder: Path, name: str) -> None:
    """Run protoc as CONTRIBUTING says."""
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    assert protoc.main(["protoc", f"-I{PROTO}", *outputs, f"railweave/v1/{name}.proto"]) == 0


@pytest.mark.parametrize("name", ["controller", "switch"])
def test_the_code_is_generated_from_the_proto_file(tmp_path: Path, name: str) -> None:
    """All lines are equal, except lines that depend on the generator's version."""
    compile_to(tmp_path, name)
    for suffix in ("pb2.py", "pb2.pyi", "pb2_grpc.py"):
        file = f"railweave/v1/{name}_{suffix}"
        assert _significant(PROTO / file) == _significant(tmp_path / file)


def _significant(path: Path) -> list[str]:
    """Return the lines with messages and methods. Comments, imports and checks contain the version."""
    lines = path.read_text().splitlines()
    if path.suffix == ".pyi":
        return [line for line in lines if "import" not in line]
    if path.stem.endswith("_pb2"):
        return [line for line in lines if "AddSerializedFile" in line]
    return [line for line in lines if "/railweave.v1." in line or "__pb2." in line]

# SPDX-License-Identifier: Apache-2.0
"""The committed gRPC code is what the .proto files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from railweave.v1 import controller_pb2, controller_pb2_grpc

PROTO = Path(__file__).parents[2] / "proto"
SOURCE = "railweave/v1/controller.proto"


def compile_to(folder: Path) -> None:
    """Run protoc as CONTRIBUTING says."""
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    assert protoc.main(["protoc", f"-I{PROTO}", *outputs, SOURCE]) == 0


@pytest.mark.parametrize("suffix", ["pb2.py", "pb2.pyi", "pb2_grpc.py"])
def test_the_code_is_generated_from_the_proto_file(tmp_path: Path, suffix: str) -> None:
    """Line by line, but for those that name the generator's version."""
    compile_to(tmp_path)
    fresh, committed = (
        _significant(root / f"railweave/v1/controller_{suffix}") for root in (tmp_path, PROTO)
    )
    assert committed == fresh


def _significant(path: Path) -> list[str]:
    """The lines with the messages and methods: the version stands in comments, imports and checks of it."""
    lines = path.read_text().splitlines()
    if path.suffix == ".pyi":
        return [line for line in lines if "import" not in line]
    if path.stem.endswith("_pb2"):
        return [line for line in lines if "AddSerializedFile" in line]
    return [line for line in lines if "/railweave.v1." in line or "controller__pb2." in line]


def test_the_service_has_every_method() -> None:
    service = controller_pb2.DESCRIPTOR.services_by_name["Controller"]
    for method in service.methods:
        assert callable(getattr(controller_pb2_grpc.ControllerServicer, method.name))

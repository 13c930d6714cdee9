# SPDX-License-Identifier: Apache-2.0
"""Stratum's message BfPipelineConfig, as its bf.proto describes it, read with protobuf's own parser."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto


def _message_type() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="bf.proto", package="bf", syntax="proto3")
    config = file.message_type.add(name="BfPipelineConfig")
    profile = config.nested_type.add(name="Profile")
    kinds = {"string": _Field.TYPE_STRING, "bytes": _Field.TYPE_BYTES, "uint32": _Field.TYPE_UINT32}
    for message, fields in (
        (profile, "string profile_name; bytes context; bytes binary; repeated uint32 pipe_scope"),
        (config, "string p4_name; bytes bfruntime_info; repeated Profile profiles"),
    ):
        for number, declared in enumerate(fields.split("; "), 1):
            *repeated, kind, name = declared.split()
            field = message.field.add(name=name, number=number, label=3 if repeated else 1)
            if kind in kinds:
                field.type = kinds[kind]
            else:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".bf.BfPipelineConfig.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bf.BfPipelineConfig"))


BfPipelineConfig = _message_type()

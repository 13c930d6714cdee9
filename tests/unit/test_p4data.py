# SPDX-License-Identifier: Apache-2.0
"""Values as P4Runtime encodes them: the specification's examples, and numbers in registers and digests."""

from __future__ import annotations

import pytest
from finsy.proto import p4d, p4i, p4r
from hypothesis import given
from hypothesis import strategies as st
from p4runtime_clients import ENTITIES, SCHEMAS, device

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused
from railweave.switch.pipeline import Digest

SIZES, LEARNED = SCHEMAS[ENTITIES].registers["sizes"].id, SCHEMAS[ENTITIES].digests["learned_t"].id
VALID = [  # the specification's table of valid encodings: signed, bits, value, encoding, canonical
    (False, 8, 99, b"\x63", True),
    (False, 16, 99, b"\x00\x63", False),
    (False, 16, 12388, b"\x30\x64", True),
    (False, 16, 12388, b"\x00\x30\x64", False),
    (False, 12, 99, b"\x63", True),
    (False, 12, 99, b"\x00\x00\x63", False),
    (True, 8, 99, b"\x63", True),
    (True, 8, -99, b"\x9d", True),
    (True, 8, -99, b"\xff\x9d", False),
    (True, 12, -739, b"\xfd\x1d", True),
    (True, 16, 0, b"\x00\x00", False),
    (True, 16, 0, b"\x00", True),
]
INVALID = [  # and its table of invalid encodings
    (False, 8, b"\x01\x63"),
    (False, 8, b""),
    (False, 16, b"\x01\x00\x63"),
    (False, 12, b"\x10\x63"),
    (False, 12, b"\x01\x00\x63"),
    (False, 12, b"\x00\x40\x63"),
    (True, 8, b"\x00\x9d"),
    (True, 12, b"\x8d\x1d"),
    (True, 16, b""),
]


@pytest.mark.parametrize(("signed", "bits", "value", "data", "canonical"), VALID)
def test_valid_encodings_of_the_specification(
    signed: bool, bits: int, value: int, data: bytes, canonical: bool
) -> None:
    assert bytestrings.decode(data, bits, "it", signed=signed) == value
    assert (bytestrings.encode(value, signed=signed) == data) is canonical


@pytest.mark.parametrize(("signed", "bits", "data"), INVALID)
def test_invalid_encodings_of_the_specification(signed: bool, bits: int, data: bytes) -> None:
    with pytest.raises(Refused) as refused:
        bytestrings.decode(data, bits, "it", signed=signed)
    assert refused.value.code is Code.OUT_OF_RANGE


@given(st.booleans(), st.integers(1, 130), st.data())
def test_every_number_has_one_shortest_encoding(signed: bool, bits: int, data: st.DataObject) -> None:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    value = data.draw(st.integers(low, high))
    encoded = bytestrings.encode(value, signed=signed)
    filler = b"\xff" if value < 0 else b"\0"
    for sent in (encoded, filler + encoded):
        assert bytestrings.decode(sent, bits, "it", signed=signed) == value
    if len(encoded) > 1:  # without its first byte it is another number
        assert int.from_bytes(encoded[1:], "big", signed=signed) != value
    for beyond in (low - 1, high + 1):
        if signed or beyond >= 0:
            with pytest.raises(Refused):
                bytestrings.decode(bytestrings.encode(beyond, signed=signed), bits, "it", signed=signed)


def bits(width: int, *, signed: bool = False) -> p4i.P4Info:
    """Return the P4Info of `entities`, whose register and digest hold int<W> or bit<W>."""
    p4info = p4i.P4Info()
    p4info.CopyFrom(SCHEMAS[ENTITIES].p4info)
    ports = p4info.type_info.structs["learned_t"].members[1].type_spec
    for spec, bitwidth in ((p4info.registers[0].type_spec, width), (ports, 9)):
        spec.Clear()
        (spec.bitstring.int if signed else spec.bitstring.bit).bitwidth = bitwidth
    return p4info


def set_register(to: Device, data: p4d.P4Data, index: int = 1) -> None:
    entry = p4r.RegisterEntry(register_id=SIZES, index=p4r.Index(index=index), data=data)
    to.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(register_entry=entry)))


def get_register(of: Device, index: int = 1) -> p4d.P4Data:
    entry = p4r.RegisterEntry(register_id=SIZES, index=p4r.Index(index=index))
    [entity] = of.read(p4r.Entity(register_entry=entry))
    return entity.register_entry.data


@pytest.mark.parametrize(
    ("sent", "cell", "read"),
    [
        (b"\xff", 0xFFFFFFFF, b"\xff"),
        (b"\xff\xff\xff\xff\xff\xff", 0xFFFFFFFF, b"\xff"),
        (b"\0\x80", 0x80, b"\0\x80"),
        (b"\0\0\x7f", 0x7F, b"\x7f"),
        (b"\x80\0\0\0", 0x80000000, b"\x80\0\0\0"),
    ],
)
def test_signed_registers(sent: bytes, cell: int, read: bytes) -> None:
    one = device(ENTITIES, bits(32, signed=True))
    set_register(one, p4d.P4Data(bitstring=sent))
    assert one.pipeline.arrays.registers("EntitiesIngress.sizes", range(1, 2)) == cell.to_bytes(4, "big")
    assert get_register(one).bitstring == read
    for wide in (b"\0\x80\0\0\0", b"\xff\x7f\xff\xff\xff"):
        with pytest.raises(Refused) as refused:
            set_register(one, p4d.P4Data(bitstring=wide))
        assert refused.value.code is Code.OUT_OF_RANGE
    assert get_register(one).bitstring == read


@pytest.mark.parametrize("data", [p4d.P4Data(), p4d.P4Data(bool=True), p4d.P4Data(varbit=p4d.P4Varbit())])
def test_data_of_another_type_is_refused(data: p4d.P4Data) -> None:
    with pytest.raises(Refused) as refused:
        set_register(device(ENTITIES, bits(32)), data)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_the_program_limits_registers_of_a_translated_type() -> None:
    p4info = bits(32)
    p4info.type_info.new_types["wide_t"].translated_type.sdn_bitwidth = 48
    p4info.registers[0].type_spec.new_type.name = "wide_t"
    one = device(ENTITIES, p4info)
    set_register(one, p4d.P4Data(bitstring=b"\xff" * 4))
    with pytest.raises(Refused) as refused:
        set_register(one, p4d.P4Data(bitstring=b"\1" + bytes(4)))
    assert refused.value.code is Code.OUT_OF_RANGE


def test_types_without_an_encoding_are_refused_by_name() -> None:
    for kind in ("header_stack", "header_union", "header_union_stack"):
        p4info = bits(32)
        spec = p4info.type_info.structs["learned_t"].members[1].type_spec
        spec.Clear()
        getattr(spec, kind).SetInParent()
        with pytest.raises(Refused, match=kind) as refused:
            device(ENTITIES, p4info)
        assert refused.value.code is Code.UNIMPLEMENTED


def learned(p4info: p4i.P4Info, *numbers: int) -> list[p4d.P4Data]:
    """Return the second member of digests with these numbers."""
    one = device(ENTITIES, p4info)
    config = p4r.DigestEntry.Config(max_list_size=len(numbers))
    enable = p4r.DigestEntry(digest_id=LEARNED, config=config)
    one.write(p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(digest_entry=enable)))
    for number in numbers:
        one.digests.take(Digest("learned_t", (7, number)), 0)
    [found] = one.digests.due(0)
    return [data.struct.members[1] for data in found.data]


def test_signed_digests() -> None:
    found = learned(bits(32, signed=True), 0x1FF, 0x100, 0x80)
    assert [data.bitstring for data in found] == [b"\xff", b"\xff\0", b"\0\x80"]


def test_enums_and_errors_in_digests_have_names() -> None:
    p4info = bits(32)
    spec = p4info.type_info.structs["learned_t"].members[1].type_spec
    spec.enum.name = "color_t"
    for name in ("RED", "GREEN"):
        p4info.type_info.enums["color_t"].members.add(name=name)
    p4info.type_info.error.members.extend(["NoError", "NoMatch"])
    assert [data.enum for data in learned(p4info, 0, 1, 2)] == ["RED", "GREEN", ""]
    spec.error.SetInParent()
    assert [data.error for data in learned(p4info, 1, 0)] == ["NoMatch", "NoError"]

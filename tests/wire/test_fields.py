"""A declaration is read as it is written."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest

from moq.wire import PACKETS, Packet, PublishExtension, Register, Subscribe, Will
from moq.wire._mmqp import DECODERS, ENCODERS
from moq.wire.fields import (
    U8,
    U16,
    Bits,
    ControlBits,
    Counted,
    Field,
    Nested,
    Number,
    OneOf,
    Present,
    Repeated,
    Rest,
    RestOfPacket,
    ShortString,
    Sized,
    ToEnd,
    When,
    control_flags,
    flag_bits,
    has_flag_byte,
    layout,
    reserved_mask,
)


@dataclass
class Inner:
    number: U8


@dataclass
class First:
    TAG: ClassVar[int] = 0
    alias: U16


@dataclass
class Second:
    TAG: ClassVar[int] = 1
    alias: U16


Either = First | Second


@dataclass
class Declared:
    CONTROL: ClassVar[int] = 0b01

    resume: Annotated[bool, ControlBits(1, 1, "RES", 1)]
    qos: Annotated[int, Bits(5, 4, "QoS", 2)]
    number: U16
    maybe: Annotated[U8 | None, Present(7, "MAY")]
    waited: Annotated[U8 | None, When("qos", 2)]
    inner: Inner
    names: Counted[ShortString]
    either: Annotated[ToEnd[Either] | None, Present(0, "ALL")]
    payload: RestOfPacket


STRING = Sized("short string", Number("u8", "B", 1), is_text=True)


def test_annotations_are_the_layout() -> None:
    assert layout(Declared) == (
        Field("resume", ControlBits(1, 1, "RES", 1), None),
        Field("qos", Bits(5, 4, "QoS", 2), None),
        Field("number", Number("u16", "H", 2), None),
        Field("maybe", Number("u8", "B", 1), Present(7, "MAY")),
        Field("waited", Number("u8", "B", 1), When("qos", 2)),
        Field("inner", Nested(Inner), None),
        Field("names", Repeated(STRING, is_counted=True), None),
        Field("either", Repeated(OneOf((First, Second)), is_counted=False), Present(0, "ALL")),
        Field("payload", Rest(), None),
    )


def test_flag_bits_are_those_of_the_flag_byte_alone() -> None:
    bits = {field.name: flag_bits(field) for field in layout(Declared)}
    assert {name for name, taken in bits.items() if taken is not None} == {"qos", "maybe", "either"}


def test_a_bit_nobody_declared_is_reserved() -> None:
    assert reserved_mask(Declared) == 0b0100_1110
    assert reserved_mask(Will) == 0b0000_0111
    assert reserved_mask(Register) == 0b0000_0001
    assert reserved_mask(Subscribe) == 0
    assert reserved_mask(PublishExtension) == 0


def test_a_structure_has_a_flag_byte_if_a_field_or_its_union_needs_one() -> None:
    assert has_flag_byte(Declared)
    assert has_flag_byte(First)
    assert not has_flag_byte(Inner)


def test_control_flags_are_the_constant_ones_with_every_value_of_the_others() -> None:
    assert list(control_flags(Declared)) == [0b01, 0b11]


@pytest.mark.parametrize("packet", PACKETS, ids=lambda packet: packet.__name__)
def test_every_packet_has_an_encoder_and_a_decoder_for_each_of_its_control_bytes(packet: type[Packet]) -> None:
    assert packet in ENCODERS
    for flags in control_flags(packet):
        assert DECODERS[packet.TYPE << 4 | flags].__name__ == f"decode_{packet.__name__.lower()}"

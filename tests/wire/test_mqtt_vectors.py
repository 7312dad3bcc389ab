"""The standards' examples, byte for byte: whole, byte by byte, and with another packet behind."""

import pytest

from moq.wire import mqtt
from moq.wire.mqtt.properties import DECLARED, Properties
from tests.vectors.mqtt import VECTORS, Vector

NEXT = mqtt.PubAck(1)
NEXT_BYTES = bytes.fromhex("40 02 0001")

each_vector = pytest.mark.parametrize("vector", VECTORS, ids=str)

IN_ANOTHER_ORDER = {"CONNACK with every property"}
"""Properties may come in any order; ours is that of their identifiers, the repeated ones together."""


def reader(vector: Vector) -> mqtt.MQTTFrameReader:
    first_tells = isinstance(vector.packet, mqtt.Connect)
    return mqtt.MQTTFrameReader(1 << 20, version=0 if first_tells else vector.version)


@each_vector
def test_the_packet_encodes_to_the_bytes_of_the_example(vector: Vector) -> None:
    data = mqtt.encode(vector.packet, vector.version)
    if vector.says in IN_ANOTHER_ORDER:
        assert sorted(data) == sorted(vector.data)
    else:
        assert data == vector.data


@each_vector
def test_the_bytes_of_the_example_decode_whole(vector: Vector) -> None:
    frames = reader(vector)
    assert list(frames.feed(vector.data)) == [vector.packet]
    assert not frames.mid_packet
    assert frames.version == vector.version


@each_vector
def test_the_bytes_of_the_example_decode_byte_by_byte(vector: Vector) -> None:
    frames = reader(vector)
    items: list[mqtt.Item] = []
    for position in range(len(vector.data)):
        items += frames.feed(vector.data[position : position + 1])
    assert items == [vector.packet]
    assert not frames.mid_packet


@each_vector
def test_the_bytes_of_the_example_decode_with_another_packet_behind(vector: Vector) -> None:
    frames = reader(vector)
    assert list(frames.feed(vector.data + NEXT_BYTES)) == [vector.packet, NEXT]
    assert list(frames.feed(vector.data + NEXT_BYTES[:1])) == [vector.packet]
    assert frames.mid_packet
    assert list(frames.feed(NEXT_BYTES[1:])) == [NEXT]


def test_every_packet_of_both_versions_has_a_vector() -> None:
    for version in (4, 5):
        seen = {type(vector.packet) for vector in VECTORS if vector.version == version}
        assert seen >= {packet for packet in mqtt.PACKETS if getattr(packet, "SINCE", 0) <= version} - {
            mqtt.PingReq,
            mqtt.PingResp,
        }


def test_every_property_has_a_vector() -> None:
    seen = set()
    for vector in VECTORS:
        will = getattr(vector.packet, "will", None)
        for properties in (getattr(vector.packet, "properties", None), getattr(will, "properties", None)):
            if isinstance(properties, Properties):
                seen |= {d.name for d in DECLARED if getattr(properties, d.name) is not None}
    assert seen == {declared.name for declared in DECLARED}


TABLE_2_4 = {
    0x01: "PUBLISH WILL",
    0x02: "PUBLISH WILL",
    0x03: "PUBLISH WILL",
    0x08: "PUBLISH WILL",
    0x09: "PUBLISH WILL",
    0x0B: "PUBLISH SUBSCRIBE",
    0x11: "CONNECT CONNACK DISCONNECT",
    0x12: "CONNACK",
    0x13: "CONNACK",
    0x15: "CONNECT CONNACK AUTH",
    0x16: "CONNECT CONNACK AUTH",
    0x17: "CONNECT",
    0x18: "WILL",
    0x19: "CONNECT",
    0x1A: "CONNACK",
    0x1C: "CONNACK DISCONNECT",
    0x1F: "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH",
    0x21: "CONNECT CONNACK",
    0x22: "CONNECT CONNACK",
    0x23: "PUBLISH",
    0x24: "CONNACK",
    0x25: "CONNACK",
    0x26: "CONNECT CONNACK PUBLISH WILL PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK DISCONNECT"
    " AUTH",
    0x27: "CONNECT CONNACK",
    0x28: "CONNACK",
    0x29: "CONNACK",
    0x2A: "CONNACK",
}


def test_the_properties_are_those_of_table_2_4() -> None:
    assert {declared.property.identifier: declared.property.scopes for declared in DECLARED} == TABLE_2_4

"""Every packet survives the wire, every fault has its own error, in both directions."""

import pytest
from hypothesis import given

from moq.errors import (
    LocalProtocolError,
    MalformedPacket,
    NotShortest,
    PacketTooLarge,
    ProtocolError,
    RemoteProtocolError,
    ReservedBits,
    TrailingBytes,
    Truncated,
    UnknownPacketType,
)
from moq.reasons import Reason
from moq.wire import (
    MAX_FIELDS_BYTES,
    Authen,
    Authentication,
    ConAck,
    ConEnd,
    Confirmation,
    ConfirmSyn,
    ConReq,
    FrameReader,
    Packet,
    Property,
    PubAck,
    PublishExtension,
    PubReq,
    PubSyn,
    PubType,
    Query,
    QueryAck,
    Register,
    Settings,
    Subscribe,
    SubscribeExtension,
    TopAck,
    TopReq,
    TypeReq,
    Unsubscribe,
    Will,
    encode,
)
from moq.wire.header import fixed_header
from tests.strategies import any_packet


def decode(data: bytes) -> list[Packet]:
    packets = [item for item in FrameReader(1 << 20).feed(data) if isinstance(item, Packet)]
    assert len(packets) == 1
    return packets


def publish(**changes: object) -> PubReq:
    packet = PubReq(0, False, False, 0, 0, 1, None, None, None, b"")
    for name, value in changes.items():
        setattr(packet, name, value)
    return packet


@given(any_packet)
def test_every_packet_survives_the_wire(packet: Packet) -> None:
    assert decode(encode(packet)) == [packet]


@given(any_packet)
def test_a_packet_has_one_encoding(packet: Packet) -> None:
    data = encode(packet)
    assert encode(decode(data)[0]) == data


def test_a_property_may_have_the_longest_value() -> None:
    packet = publish(extension=PublishExtension(properties=[Property("n", "v" * 0xFFFF)]))
    assert decode(encode(packet)) == [packet]


def test_the_longest_strings_and_lists_fit() -> None:
    longest = "é" * 127 + "x"
    extension = PublishExtension(subscribers=[longest] * 255, properties=[Property(longest, "v" * 0xF000)])
    packet = publish(topic=longest, extension=extension, payload=b"p")
    assert decode(encode(packet)) == [packet]


def test_a_section_may_have_none_of_its_options() -> None:
    subscribe = Subscribe(0, False, 1, extension=SubscribeExtension())
    will = Will(0, False, "t", b"")
    packets: list[Packet] = [
        TopReq(1, [subscribe, Register(0, False, 1), Unsubscribe(False, 1)]),
        ConReq(authentication=Authentication(), settings=Settings(), initial_will=will, last_will=will),
        publish(extension=PublishExtension()),
    ]
    for packet in packets:
        assert decode(encode(packet)) == [packet]


def test_an_unknown_protocol_version_is_decoded_so_that_it_can_be_answered() -> None:
    assert decode(bytes.fromhex("10 07 04 4d4d5150 07 00")) == [ConReq(version=7)]


MALFORMED: dict[str, tuple[str, type[ProtocolError], str]] = {
    "type 0": ("00 00", UnknownPacketType, "type 0 and flags 00"),
    "type 13": ("d0 00", UnknownPacketType, "type 13 and flags 00"),
    "type 15 announced by a long header": ("fc 01000000", UnknownPacketType, "type 15 and flags 00"),
    "an unknown type whose body has not arrived": ("e0 05", UnknownPacketType, "type 14 and flags 00"),
    "flags no CONREQ has": ("11 07 04 4d4d5150 ff 00", UnknownPacketType, "type 1 and flags 01"),
    "PUBREQ of kind 3": ("73 05 00 0001 0001", UnknownPacketType, "type 7 and flags 11"),
    "an unknown type with a long length": ("07 0001 00", UnknownPacketType, "type 0 and flags 11"),
    "two bytes of length for 255": ("74 00ff", NotShortest, "length of 255 takes 2 bytes"),
    "three bytes of length for 65535": ("78 00ffff", NotShortest, "length of 65535 takes 3 bytes"),
    "four bytes of length for 1": ("7c 00000001", NotShortest, "length of 1 takes 4 bytes"),
    "reserved bits of PUBREQ": ("70 05 01 0000 0001", ReservedBits, "PubReq.flags is 0x01; bits 0x03"),
    "reserved bits of CONREQ": ("10 07 04 4d4d5150 ff 01", ReservedBits, "ConReq.flags is 0x01"),
    "reserved bits of CONACK": ("20 02 01 00", ReservedBits, "ConAck.flags is 0x01"),
    "reserved bits of AUTH": ("10 08 04 4d4d5150 ff 80 01", ReservedBits, "Authentication.flags is 0x01"),
    "reserved bits of SET": ("10 08 04 4d4d5150 ff 40 10", ReservedBits, "Settings.flags is 0x10"),
    "reserved bits of a will": ("10 08 04 4d4d5150 ff 20 01", ReservedBits, "Will.flags is 0x01"),
    "reserved bit of REGISTER": ("50 05 0001 41 0001", ReservedBits, "Register.flags is 0x41; bits 0x01"),
    "reserved bits of UNSUBSCRIBE": ("50 05 0001 90 0001", ReservedBits, "Unsubscribe.flags is 0x90"),
    "reserved bits of QUERY": ("50 05 0001 c4 0001", ReservedBits, "Query.flags is 0xc4"),
    "reserved bits of SUBSCRIBE's EXT": ("50 06 0001 01 0001 01", ReservedBits, "SubscribeExtension.flags is 0x01"),
    "reserved bits of PUBTYPE": ("c0 07 20 0000 00 00 0000", ReservedBits, "PubType.flags is 0x20"),
    "trailing bytes of CONSYN": ("30 01 00", TrailingBytes, "ConSyn is followed by 1 bytes"),
    "trailing bytes of CONACK": ("20 03 00 00 00", TrailingBytes, "ConAck is followed by 1 bytes"),
    "trailing bytes of CONEND": ("40 02 00 00", TrailingBytes, "ConEnd is followed by 1 bytes"),
    "trailing bytes of CONREQ": ("10 09 04 4d4d5150 ff 00 0000", TrailingBytes, "ConReq is followed by 2 bytes"),
    "trailing bytes of PUBACK": ("90 04 0001 00 00", TrailingBytes, "PubAck is followed by 1 bytes"),
    "trailing bytes of PUBSYN": ("80 04 0001 00 00", TrailingBytes, "PubSyn is followed by 1 bytes"),
    "trailing bytes of TYPEREQ": ("b0 05 0001 01 61 00", TrailingBytes, "TypeReq is followed by 1 bytes"),
    "a will of QoS 3": ("10 0a 04 4d4d5150 ff 20 30 00 00", MalformedPacket, "Will.qos is 3; expected 0 to 2"),
    "retention mode 3": ("50 05 0001 70 0001", MalformedPacket, "Register.mode is 3; expected 0 to 2"),
    "a topic that is not UTF-8": ("70 07 08 0000 0001 01 ff", MalformedPacket, "PubReq.topic is b'\\xff'"),
    "a topic with a zero": ("70 07 08 0000 0001 01 00", MalformedPacket, "PubReq.topic is '\\x00'"),
}

BROKEN_RULES: dict[str, tuple[str, Reason, str]] = {
    "another protocol": ("10 07 04 4d515454 05 00", Reason.UNSUPPORTED_PROTOCOL_VERSION, "b'\\x04MQTT'"),
    "another protocol, shorter": ("10 03 00 05 00", Reason.UNSUPPORTED_PROTOCOL_VERSION, "protocol name is"),
    "QoS 0 with a packet identifier": ("70 05 00 0001 0001", Reason.PROTOCOL_ERROR, "PubReq.packet_id is 1"),
    "QoS 0 with DUP": ("70 05 40 0000 0001", Reason.PROTOCOL_ERROR, "PubReq.dup is set with qos 0"),
    "QoS 1 without a packet identifier": ("70 05 10 0000 0001", Reason.PROTOCOL_ERROR, "kind 0 with qos 1 needs one"),
    "REQUEST without a packet identifier": ("71 05 00 0000 0001", Reason.PROTOCOL_ERROR, "kind 1 with qos 0 needs one"),
    "RESPONSE without a packet identifier": (
        "72 05 00 0000 0001",
        Reason.PROTOCOL_ERROR,
        "kind 2 with qos 0 needs one",
    ),
    "TOPREQ without a packet identifier": ("50 05 0000 00 0001", Reason.PROTOCOL_ERROR, "TopReq.packet_id is 0"),
    "TOPREQ without a request": ("50 02 0001", Reason.PROTOCOL_ERROR, "TopReq.requests is empty"),
    "QUERY in company": ("50 08 0001 c0 0001 00 0002", Reason.PROTOCOL_ERROR, "QUERY among 2"),
    "TOPACK without a reason": ("60 02 0001", Reason.PROTOCOL_ERROR, "TopAck.reasons is empty"),
    "a group without a name": ("50 06 0001 02 0001 00", Reason.PROTOCOL_ERROR, "Subscribe.group is empty"),
    "CONREQ with no topic requests after TOP": ("10 08 04 4d4d5150 ff 08 00", Reason.PROTOCOL_ERROR, "topics is empty"),
    "QUERY in CONREQ": ("10 0b 04 4d4d5150 ff 08 01 c0 0001", Reason.PROTOCOL_ERROR, "ConReq.topics contains QUERY"),
}


@pytest.mark.parametrize(("data", "error", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_bytes_have_an_error_of_their_kind(data: str, error: type[ProtocolError], message: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        decode(bytes.fromhex(data))
    assert type(raised.value) is error
    assert raised.value.reason is Reason.MALFORMED_PACKET
    assert message in str(raised.value)


@pytest.mark.parametrize(("data", "reason", "message"), BROKEN_RULES.values(), ids=BROKEN_RULES.keys())
def test_a_broken_rule_names_the_field_and_the_rule(data: str, reason: Reason, message: str) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        decode(bytes.fromhex(data))
    assert raised.value.reason is reason
    assert message in str(raised.value)


FULL: dict[str, tuple[Packet, set[int]]] = {
    "CONREQ": (
        ConReq(
            True,
            255,
            Authentication("user", b"password", "method", b"data"),
            Settings(True, 1, 2),
            Will(1, True, "topic", b"payload", 1, 2),
            Will(1, True, "topic", b"payload", 1, 2),
            [
                Subscribe(1, True, 1, "topic", "group", SubscribeExtension(1, True, 2, 3)),
                Register(1, True, 2, "topic", 3),
                Unsubscribe(True, 1, "topic"),
            ],
            "client",
        ),
        set(),
    ),
    "CONACK": (ConAck(True, 0, "client"), set()),
    "CONEND": (ConEnd(0), set()),
    "TOPREQ": (TopReq(1, [Query(1, "topic")]), {2}),
    "TOPACK": (TopAck(1, b"\0"), {2}),
    "TOPACK of QUERY": (QueryAck(1, 0, ["subscriber"]), {3}),
    "PUBREQ": (
        PubReq(
            0,
            True,
            True,
            3,
            1,
            2,
            "topic",
            3,
            PublishExtension(1, 2, ["one", "two"], True, True, 3, 4, [Property("name", "value")]),
            b"",
        ),
        set(),
    ),
    "PUBSYN": (PubSyn(0, 1, 0), set()),
    "PUBSYN of TYPE 3": (ConfirmSyn(1, 0, [Confirmation("client", 2, b"reply")]), {3}),
    "PUBACK": (PubAck(0, 1, 0), set()),
    "AUTHEN": (Authen(0, "method", b""), set()),
    "TYPEREQ": (TypeReq(1, "topic"), set()),
    "PUBTYPE": (PubType(True, True, 1, 2, 3, 4, "topic", "media", b""), set()),
}
"""A packet with every field, and the sizes at which a list up to the end is merely empty."""


@pytest.mark.parametrize(("packet", "between_fields"), FULL.values(), ids=FULL.keys())
def test_a_packet_cut_short_inside_a_field_is_truncated(packet: Packet, between_fields: set[int]) -> None:
    data = encode(packet)
    fields = data[2:]
    for size in set(range(len(fields))) - between_fields:
        with pytest.raises(RemoteProtocolError, match=r"takes \d+ bytes; the packet ends after \d+ of them") as raised:
            decode(data[:1] + bytes((size,)) + fields[:size])
        assert type(raised.value) is Truncated


def test_a_cut_names_the_field_it_is_in() -> None:
    with pytest.raises(Truncated, match=r"PubReq\.alias takes 2 bytes; the packet ends after 1 of them"):
        decode(bytes.fromhex("70 04 00 0000 00"))


def test_a_subscription_may_be_cut_between_its_requests_and_says_so() -> None:
    with pytest.raises(Truncated, match=r"ConReq\.topics takes 1 bytes"):
        decode(bytes.fromhex("10 0b 04 4d4d5150 ff 08 02 00 0001"))


UNSENDABLE: dict[str, tuple[Packet, str]] = {
    "a long topic": (publish(topic="t" * 256), "PubReq.topic has a length of 256"),
    "a topic with a zero": (publish(topic="\0"), "PubReq.topic is '\\x00'"),
    "a topic that is no text": (publish(topic="\ud800"), "PubReq.topic is '\\ud800'"),
    "a kind above 2": (publish(kind=3, packet_id=1), "PubReq.kind is 3; expected 0 to 2"),
    "a kind of PUBSYN above 2": (PubSyn(3, 1, 0), "PubSyn.kind is 3"),
    "a kind of PUBACK above 2": (PubAck(3, 1, 0), "PubAck.kind is 3"),
    "a QoS above 3": (publish(qos=4, packet_id=1), "PubReq.qos is 4; expected 0 to 3"),
    "QoS 0 with a packet identifier": (publish(packet_id=1), "PubReq.packet_id is 1"),
    "QoS 1 without a packet identifier": (publish(qos=1), "PubReq.packet_id is 0"),
    "QoS 3 without a number to wait for": (publish(qos=3, packet_id=1), "PubReq.waited is None"),
    "a number to wait for without QoS 3": (publish(qos=1, packet_id=1, waited=1), "PubReq.waited is 1"),
    "an alias of 17 bits": (publish(alias=0x10000), "PubReq.alias is 65536; expected 0 to 65535"),
    "a negative reason": (ConEnd(-1), "ConEnd.reason is -1; expected 0 to 255"),
    "a number too large in a structure": (
        publish(extension=PublishExtension(ttl_ms=1 << 32)),
        "PublishExtension.ttl_ms is 4294967296",
    ),
    "a number too large in a list": (TopReq(1, [Subscribe(0, False, -1)]), "Subscribe.alias is -1"),
    "something that is no flag": (publish(retain=2), "PubReq: "),
    "a will of QoS 3": (ConReq(last_will=Will(3, False, "t", b"")), "Will.qos is 3; expected 0 to 2"),
    "a subscription of QoS 4": (TopReq(1, [Subscribe(4, False, 1)]), "Subscribe.qos is 4"),
    "a retention mode of 3": (TopReq(1, [Register(3, False, 1)]), "Register.mode is 3"),
    "a group without a name": (TopReq(1, [Subscribe(0, False, 1, None, "")]), "Subscribe.group is empty"),
    "no request": (TopReq(1, []), "TopReq.requests is empty"),
    "no topic request in CONREQ": (ConReq(topics=[]), "ConReq.topics is empty"),
    "no reason": (TopAck(1, b""), "TopAck.reasons is empty"),
    "a long property": (
        publish(extension=PublishExtension(properties=[Property("n", "v" * 0x10000)])),
        "Property.value has 65536 bytes",
    ),
    "too many subscribers": (
        publish(extension=PublishExtension(subscribers=["s"] * 256)),
        "PublishExtension.subscribers has a length of 256",
    ),
    "fields beyond the bound": (
        publish(extension=PublishExtension(properties=[Property("n", "v" * 0xFFFF)] * 2)),
        f"at most {MAX_FIELDS_BYTES} may be",
    ),
    "a schema beyond the bound": (
        PubType(False, False, 0, 0, 0, 0, "t", "m", b"s" * MAX_FIELDS_BYTES),
        f"at most {MAX_FIELDS_BYTES} may be",
    ),
}


@pytest.mark.parametrize(("packet", "message"), UNSENDABLE.values(), ids=UNSENDABLE.keys())
def test_what_the_protocol_does_not_allow_is_not_sent(packet: Packet, message: str) -> None:
    with pytest.raises(LocalProtocolError) as raised:
        encode(packet)
    assert message in str(raised.value)


def test_a_payload_of_four_gibibytes_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="remaining length of 4294967296"):
        fixed_header(0x70, 5, (1 << 32) - 5)


def test_the_longest_remaining_length_is_sent_in_four_bytes() -> None:
    assert fixed_header(0x70, 5, (1 << 32) - 6) == bytes.fromhex("7c ffffffff")


def test_fields_beyond_the_bound_are_refused_however_the_packet_arrives() -> None:
    value = b"v" * 0xFFFF
    properties = (b"\x01n\xff\xff" + value) * 2
    body = bytes.fromhex("04 0000 0001 01 02") + properties
    packet = bytes((0x78,)) + len(body).to_bytes(3, "big") + body
    with pytest.raises(PacketTooLarge, match="type 7 has more than"):
        list(FrameReader(1 << 20).feed(packet))

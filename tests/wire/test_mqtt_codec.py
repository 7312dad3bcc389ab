"""Every MQTT packet survives the wire in both versions; what a version does not allow is not sent."""

import copy
import dataclasses
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.errors import LocalProtocolError, RemoteProtocolError, Truncated
from moq.reasons import Reason
from moq.wire import mqtt
from moq.wire.fields import Bits, Field, Number, PropertyList, Rest, control_flags, layout
from moq.wire.mqtt import _mqtt4, _mqtt5
from moq.wire.mqtt.header import fixed_header, put_variable, take_variable
from moq.wire.mqtt.packets import Packet
from tests.strategies import any_mqtt_packet, mqtt_packets_of

VERSIONS = (mqtt.VERSION_3_1_1, mqtt.VERSION_5)
each_version = pytest.mark.parametrize("version", VERSIONS)

versioned_packet = st.sampled_from(VERSIONS).flatmap(
    lambda version: st.tuples(st.just(version), any_mqtt_packet[version])
)


def decode(data: bytes, version: int) -> Packet:
    (packet,) = mqtt.MQTTFrameReader(1 << 20, version=version).feed(data)
    assert isinstance(packet, Packet)
    return packet


def publish(**changes: object) -> mqtt.Publish:
    packet = mqtt.Publish(False, 0, False, "a/b", 0, None, b"")
    for name, value in changes.items():
        setattr(packet, name, value)
    return packet


@given(versioned_packet)
def test_every_packet_survives_the_wire(drawn: tuple[int, Packet]) -> None:
    version, packet = drawn
    assert decode(mqtt.encode(packet, version), version) == packet


@pytest.mark.parametrize(("version", "tables"), [(4, _mqtt4), (5, _mqtt5)])
def test_every_packet_has_an_encoder_and_a_decoder_for_each_of_its_control_bytes(version: int, tables: object) -> None:
    decoders, encoders = tables.DECODERS, tables.ENCODERS  # type: ignore[attr-defined]
    expected = {packet.TYPE << 4 | flags for packet in mqtt_packets_of(version) for flags in control_flags(packet)}
    assert set(decoders) == expected
    assert set(encoders) == set(mqtt_packets_of(version))


def test_the_control_bytes_of_publish_are_those_of_qos_0_to_2() -> None:
    assert set(control_flags(mqtt.Publish)) == {flags for flags in range(16) if flags >> 1 & 3 != 3}


@each_version
@pytest.mark.parametrize("size", [0, 1, 118, 119, 120, 16_373, 16_374, 16_375, 16_376, 16_377, 70_000])
def test_a_publish_of_any_size_survives_by_the_short_route_and_the_long_one(version: int, size: int) -> None:
    plain = publish(payload=b"p" * size)
    retained = publish(payload=b"p" * size, retain=True)
    plain_bytes, retained_bytes = mqtt.encode(plain, version), mqtt.encode(retained, version)
    assert plain_bytes[1:] == retained_bytes[1:]
    assert decode(plain_bytes, version) == plain
    assert decode(retained_bytes, version) == retained


@each_version
def test_the_longest_fields_of_a_connect_fit(version: int) -> None:
    longest = "é" * 32_767
    will = mqtt.Will(None, longest, b"w" * 0xFFFF)
    packet = mqtt.Connect(version, client_id=longest, will=will, user_name=longest, password=b"p" * 0xFFFF)
    assert decode(mqtt.encode(packet, version), version) == packet


def test_properties_without_a_property_are_read_as_none() -> None:
    for empty in (mqtt.Properties(), mqtt.Properties(user_properties=[], subscription_identifiers=[])):
        assert decode(mqtt.encode(publish(properties=empty), 5), 5) == publish()


def test_an_acknowledgement_may_say_success_in_two_three_or_four_bytes() -> None:
    for data in ("40 02 0001", "40 03 0001 00", "40 04 0001 00 00"):
        assert decode(bytes.fromhex(data), 5) == mqtt.PubAck(1)


def test_acknowledgements_of_success_are_as_short_as_can_be() -> None:
    assert mqtt.encode(mqtt.PubAck(1), 5) == bytes.fromhex("40 02 0001")
    assert mqtt.encode(mqtt.PubAck(1, 0x10), 5) == bytes.fromhex("40 03 0001 10")
    assert mqtt.encode(mqtt.Disconnect(), 5) == bytes.fromhex("e0 00")
    assert mqtt.encode(mqtt.Auth(), 5) == bytes.fromhex("f0 00")


def test_a_string_may_begin_with_a_byte_order_mark_which_is_kept() -> None:
    packet = publish(topic="\ufeffa/\uffff")
    data = mqtt.encode(packet, 4)
    assert b"\xef\xbb\xbfa/" in data
    assert decode(data, 4) == packet


def test_user_properties_keep_their_order_and_their_repetitions() -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]
    packet = publish(properties=mqtt.Properties(user_properties=pairs, subscription_identifiers=[3, 1, 268_435_455]))
    decoded = decode(mqtt.encode(packet, 5), 5)
    assert decoded == packet


FULL_5: dict[str, tuple[Packet, set[int]]] = {
    "CONNECT": (
        mqtt.Connect(
            5,
            True,
            1,
            True,
            60,
            mqtt.Properties(session_expiry_interval=1, receive_maximum=2, user_properties=[("a", "b")]),
            "client",
            mqtt.Will(mqtt.Properties(will_delay_interval=1), "topic", b"payload"),
            "user",
            b"password",
        ),
        set(),
    ),
    "CONNACK": (mqtt.ConnAck(True, 0, mqtt.Properties(maximum_qos=1)), set()),
    "PUBLISH": (publish(qos=1, packet_id=1, properties=mqtt.Properties(topic_alias=1)), set()),
    "PUBACK": (mqtt.PubAck(1, 0x80, mqtt.Properties(reason_string="r")), {2, 3}),
    "PUBREC": (mqtt.PubRec(1, 0x80, mqtt.Properties(reason_string="r")), {2, 3}),
    "PUBREL": (mqtt.PubRel(1, 0x80, mqtt.Properties(reason_string="r")), {2, 3}),
    "PUBCOMP": (mqtt.PubComp(1, 0x80, mqtt.Properties(reason_string="r")), {2, 3}),
    "SUBSCRIBE": (
        mqtt.Subscribe(1, mqtt.Properties(subscription_identifiers=[300]), [mqtt.Subscription("a", 1)]),
        {6},
    ),
    "SUBACK": (mqtt.SubAck(1, mqtt.Properties(reason_string="r"), b""), set()),
    "UNSUBSCRIBE": (mqtt.Unsubscribe(1, None, ["a"]), {3}),
    "UNSUBACK": (mqtt.UnsubAck(1, mqtt.Properties(reason_string="r"), b""), set()),
    "DISCONNECT": (mqtt.Disconnect(4, mqtt.Properties(session_expiry_interval=1)), {0, 1}),
    "AUTH": (mqtt.Auth(0x18, mqtt.Properties(authentication_method="m", authentication_data=b"d")), {0, 1}),
}

FULL_4: dict[str, tuple[Packet, set[int]]] = {
    "CONNECT": (
        mqtt.Connect(4, True, 1, True, 60, None, "client", mqtt.Will(None, "topic", b"payload"), "user", b"password"),
        set(),
    ),
    "CONNACK": (mqtt.ConnAck(True, 0), set()),
    "PUBLISH": (publish(qos=1, packet_id=1), set()),
    "PUBACK": (mqtt.PubAck(1), set()),
    "PUBREC": (mqtt.PubRec(1), set()),
    "PUBREL": (mqtt.PubRel(1), set()),
    "PUBCOMP": (mqtt.PubComp(1), set()),
    "SUBSCRIBE": (mqtt.Subscribe(1, None, [mqtt.Subscription("a", 1)]), {2}),
    "SUBACK": (mqtt.SubAck(1, None, b""), set()),
    "UNSUBSCRIBE": (mqtt.Unsubscribe(1, None, ["a"]), {2}),
    "UNSUBACK": (mqtt.UnsubAck(1), set()),
}
"""A packet with every kind of field, and the sizes at which it is merely shorter."""


each_full = pytest.mark.parametrize(
    ("version", "packet", "between_fields"),
    [
        pytest.param(version, *full, id=f"{name} {version}")
        for version, packets in ((4, FULL_4), (5, FULL_5))
        for name, full in packets.items()
    ],
)


@each_full
def test_a_packet_cut_short_inside_a_field_is_truncated(version: int, packet: Packet, between_fields: set[int]) -> None:
    data = mqtt.encode(packet, version)
    fields = data[2:]
    assert len(fields) < 0x80
    for size in set(range(len(fields))) - between_fields:
        with pytest.raises(RemoteProtocolError, match=r"takes \d+ bytes; the packet ends after \d+ of them") as raised:
            decode(data[:1] + bytes((size,)) + fields[:size], version)
        assert type(raised.value) is Truncated


FROM_A_SERVER: dict[str, tuple[str, str, Reason, str]] = {
    "CONNACK with reserved flags": ("20 02 02 00", "20 03 02 00 00", Reason.MALFORMED_PACKET, "ConnAck.flags is 0x02"),
    "CONNACK with bytes behind": ("20 03 00 00 00", "20 04 00 00 00 00", Reason.MALFORMED_PACKET, "is followed by 1"),
    "a refusal with a session": ("20 02 01 05", "20 03 01 87 00", Reason.PROTOCOL_ERROR, "session_present is set"),
    "SUBACK of nothing": ("90 03 0000 00", "90 04 0000 00 00", Reason.PROTOCOL_ERROR, "SubAck.packet_id is 0"),
    "UNSUBACK of nothing": ("b0 02 0000", "b0 04 0000 00 00", Reason.PROTOCOL_ERROR, "UnsubAck.packet_id is 0"),
    "PINGRESP with bytes behind": ("d0 01 00", "d0 01 00", Reason.MALFORMED_PACKET, "PingResp is followed by 1"),
    "UNSUBACK or AUTH with bytes behind": (
        "b0 03 0001 00",
        "f0 07 00 04 15 0001 61 00",
        Reason.MALFORMED_PACKET,
        "is followed by 1",
    ),
}


@pytest.mark.parametrize(("old", "new", "reason", "message"), FROM_A_SERVER.values(), ids=FROM_A_SERVER.keys())
def test_what_a_server_may_not_send_is_refused_too(old: str, new: str, reason: Reason, message: str) -> None:
    for version, data in ((4, old), (5, new)):
        with pytest.raises(RemoteProtocolError, match=re.escape(message)) as raised:
            decode(bytes.fromhex(data), version)
        assert raised.value.reason is reason


def has_young_fields() -> Iterator[tuple[type, Field]]:
    for struct in (mqtt.Will, mqtt.Subscription, *mqtt_packets_of(4)):
        for field in layout(struct):
            if field.since is not None:
                yield struct, field


@pytest.mark.parametrize(
    ("struct", "field"),
    [pytest.param(*young, id=f"{young[0].__name__}.{young[1].name}") for young in has_young_fields()],
)
def test_a_field_that_came_with_mqtt_5_is_not_sent_in_3_1_1(struct: type, field: Field) -> None:
    packets = [copy.deepcopy(packet) for packet, _ in FULL_4.values()] + [mqtt.Disconnect()]
    parts = {type(part): (packet, part) for packet in packets for part in (packet, *parts_of(packet))}
    packet, part = parts[struct]
    young: dict[type, object] = {PropertyList: mqtt.Properties(), Rest: b"\0", Bits: 1, Number: 1}
    setattr(part, field.name, young[type(field.kind)])
    with pytest.raises(LocalProtocolError, match=f"{struct.__name__}.{field.name} is .*no such field before version 5"):
        mqtt.encode(packet, 4)


def parts_of(packet: Packet) -> list[object]:
    """The structures inside a packet."""
    match packet:
        case mqtt.Connect():
            return [packet.will]
        case mqtt.Subscribe():
            return [*packet.subscriptions]
    return []


BOTH = (4, 5)

UNSENDABLE: dict[str, tuple[Packet, tuple[int, ...], str]] = {
    "a long topic": (publish(topic="t" * 0x10000), BOTH, "Publish.topic has 65536 bytes"),
    "a topic with a zero": (publish(topic="\0"), BOTH, "Publish.topic is '\\x00'"),
    "a topic that is no text": (publish(topic="\ud800"), BOTH, "Publish.topic is '\\ud800'"),
    "no topic": (publish(topic=""), BOTH, "Publish.topic is empty"),
    "QoS 3": (publish(qos=3, packet_id=1), BOTH, "Publish.qos is 3; expected 0 to 2"),
    "QoS 0 with a packet identifier": (publish(packet_id=1), BOTH, "Publish.packet_id is 1 with qos 0"),
    "QoS 1 without a packet identifier": (publish(qos=1), BOTH, "Publish.packet_id is 0 with qos 1"),
    "a repetition of QoS 0": (publish(dup=True), BOTH, "Publish.dup is set with qos 0"),
    "a packet identifier of 17 bits": (
        publish(qos=1, packet_id=0x10000),
        BOTH,
        "Publish.packet_id is 65536; expected 0 to 65535",
    ),
    "something that is no flag": (mqtt.Connect(5, 500, properties=mqtt.Properties()), (5,), "Connect: "),  # type: ignore[arg-type]
    "a keep alive of 17 bits": (mqtt.Connect(5, keep_alive=0x10000), (5,), "Connect.keep_alive is 65536"),
    "PUBACK of nothing": (mqtt.PubAck(0), BOTH, "PubAck.packet_id is 0"),
    "PUBREC of nothing": (mqtt.PubRec(0), BOTH, "PubRec.packet_id is 0"),
    "PUBREL of nothing": (mqtt.PubRel(0), BOTH, "PubRel.packet_id is 0"),
    "PUBCOMP of nothing": (mqtt.PubComp(0), BOTH, "PubComp.packet_id is 0"),
    "SUBACK of nothing": (mqtt.SubAck(0, None, b"\0"), BOTH, "SubAck.packet_id is 0"),
    "UNSUBACK of nothing": (mqtt.UnsubAck(0), BOTH, "UnsubAck.packet_id is 0"),
    "a will's QoS above 2 in 3.1.1": (
        mqtt.Connect(4, will_qos=3, will=mqtt.Will(None, "t", b"")),
        (4,),
        "Connect.will_qos is 3",
    ),
    "AUTH in 3.1.1": (mqtt.Auth(), (4,), "Auth is no packet of version 4"),
    "version 3": (mqtt.PingReq(), (3,), "version is 3; expected 4"),
    "a CONNECT of the other version": (mqtt.Connect(4), (5,), "Connect.version is 4"),
    "a will's QoS above 2": (
        mqtt.Connect(5, will_qos=3, will=mqtt.Will(None, "t", b"")),
        (5,),
        "Connect.will_qos is 3",
    ),
    "a will's QoS without a will": (mqtt.Connect(5, will_qos=1), (5,), "Connect.will_qos or will_retain is set"),
    "a password without a user name in 3.1.1": (mqtt.Connect(4, password=b""), (4,), "Connect.password is given"),
    "authentication data alone": (
        mqtt.Connect(5, properties=mqtt.Properties(authentication_data=b"")),
        (5,),
        "authentication_data is given without authentication_method",
    ),
    "a refusal with a session": (mqtt.ConnAck(True, 0x80), BOTH, "ConnAck.session_present is set"),
    "a subscription of QoS 3": (mqtt.Subscribe(1, None, [mqtt.Subscription("a", 3)]), BOTH, "Subscription.qos is 3"),
    "a subscription of QoS 4": (mqtt.Subscribe(1, None, [mqtt.Subscription("a", 4)]), BOTH, "Subscription.qos is 4"),
    "retain handling 3": (
        mqtt.Subscribe(1, None, [mqtt.Subscription("a", 0, False, False, 3)]),
        (5,),
        "Subscription.retain_handling is 3",
    ),
    "retain handling 4": (
        mqtt.Subscribe(1, None, [mqtt.Subscription("a", 0, False, False, 4)]),
        (5,),
        "Subscription.retain_handling is 4",
    ),
    "no subscription": (mqtt.Subscribe(1, None, []), BOTH, "Subscribe.subscriptions is empty"),
    "no filter": (mqtt.Unsubscribe(1, None, []), BOTH, "Unsubscribe.filters is empty"),
    "a step of authentication without a method": (mqtt.Auth(0x18), (5,), "Auth.properties is None with reason 0x18"),
    "authentication properties without a method": (
        mqtt.Auth(0x18, mqtt.Properties(reason_string="r")),
        (5,),
        "without authentication_method",
    ),
    "a property where it may not be": (
        mqtt.PubAck(1, 0, mqtt.Properties(content_type="t")),
        (5,),
        "PUBACK has content_type",
    ),
    "two subscription identifiers": (
        mqtt.Subscribe(1, mqtt.Properties(subscription_identifiers=[1, 2]), [mqtt.Subscription("a", 0)]),
        (5,),
        "SUBSCRIBE has subscription_identifiers more than once",
    ),
    "a topic alias of 0": (publish(properties=mqtt.Properties(topic_alias=0)), (5,), "topic_alias is 0"),
    "a topic alias of 17 bits": (
        publish(properties=mqtt.Properties(topic_alias=0x10000)),
        (5,),
        "topic_alias is 65536; expected 0 to 65535",
    ),
    "a subscription identifier of 29 bits": (
        publish(properties=mqtt.Properties(subscription_identifiers=[1 << 28])),
        (5,),
        "subscription_identifiers is 268435456",
    ),
    "a payload format of 2": (
        publish(properties=mqtt.Properties(payload_format_indicator=2)),
        (5,),
        "payload_format_indicator is 2; expected 0 to 1",
    ),
    "fields beyond the bound": (
        mqtt.Unsubscribe(1, None, ["f" * 0xFFFF] * 9),
        BOTH,
        f"at most {mqtt.MAX_FIELDS_BYTES} may be",
    ),
}


@pytest.mark.parametrize(("packet", "versions", "message"), UNSENDABLE.values(), ids=UNSENDABLE.keys())
def test_what_the_protocol_does_not_allow_is_not_sent(packet: Packet, versions: tuple[int, ...], message: str) -> None:
    for version in versions:
        with pytest.raises(LocalProtocolError, match=re.escape(message)):
            mqtt.encode(packet, version)


def test_a_payload_of_a_quarter_gibibyte_is_not_sent() -> None:
    assert fixed_header(0x30, 10, mqtt.MAX_REMAINING - 10) == bytes.fromhex("30 ffffff7f")
    with pytest.raises(LocalProtocolError, match="remaining length is 268435456"):
        fixed_header(0x30, 10, mqtt.MAX_REMAINING - 9)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_a_variable_byte_integer_has_the_bytes_of_table_1_1(value: int, data: str) -> None:
    encoded = bytes.fromhex(data)
    assert put_variable(value, "value") == encoded
    assert take_variable(encoded, 0, len(encoded), "value") == (value, len(encoded))
    for size in range(len(encoded)):
        with pytest.raises(Truncated):
            take_variable(encoded, 0, size, "value")


def test_packets_are_slotted_and_have_no_other_attributes() -> None:
    for packet in (*mqtt.PACKETS, mqtt.Subscription, mqtt.Will, mqtt.Properties):
        assert dataclasses.is_dataclass(packet)
        assert "__slots__" in vars(packet)

"""Bytes of MQTT packets with what they stand for: examples of the standards, and what common clients send.

Where an example leaves a field open (client identifiers, payloads, packet identifiers) the value is ours. `source`
names the figure or section of the standard (3.1.1 or 5.0), or the client whose defaults give these bytes. They were
derived by hand from those, not taken from a recording.
"""

from dataclasses import dataclass

from moq.wire import mqtt


@dataclass(frozen=True)
class Vector:
    source: str
    says: str
    version: int
    data: bytes
    packet: mqtt.Packet

    def __str__(self) -> str:
        return f"{self.source}: {self.says}"


def _vector(source: str, says: str, version: int, *parts: str | bytes, packet: mqtt.Packet) -> Vector:
    """Text parts are hexadecimal, byte parts are as they are."""
    data = b"".join(part if isinstance(part, bytes) else bytes.fromhex(part) for part in parts)
    return Vector(source, says, version, data, packet)


def _publish(topic: str, payload: bytes, qos: int = 0, packet_id: int = 0) -> mqtt.Publish:
    return mqtt.Publish(False, qos, False, topic, packet_id, None, payload)


MQTT_3_1_1 = (
    _vector(
        "3.1.1 figure 3.6", "CONNECT with everything but will retain", 4,
        "10 24", "0004 4d515454 04 ce 000a", "0001", b"c", "0006", b"will/t", "0004", b"gone", "0001", b"u",
        "0004", b"pass",
        packet=mqtt.Connect(4, True, 1, False, 10, None, "c", mqtt.Will(None, "will/t", b"gone"), "u", b"pass"),
    ),
    _vector("3.1.1 figure 3.8", "CONNACK with a session", 4, "20 02 01 00", packet=mqtt.ConnAck(True, 0)),
    _vector("3.1.1 table 3.1", "CONNACK: not authorized", 4, "20 02 00 05", packet=mqtt.ConnAck(False, 5)),
    _vector(
        "3.1.1 figure 3.11", "PUBLISH on a/b with packet identifier 10", 4,
        "32 09", "0003", b"a/b", "000a", b"hi",
        packet=_publish("a/b", b"hi", 1, 10),
    ),
    _vector(
        "3.1.1 figure 1.2", "the string A and U+2A6D4", 4, "30 07", "0005 41 f0aa9b94",
        packet=_publish("A\U0002a6d4", b""),
    ),
    _vector(
        "3.1.1 section 2.2.3", "a remaining length of 64", 4, "30 40", "0001", b"t", b"p" * 61,
        packet=_publish("t", b"p" * 61),
    ),
    _vector(
        "3.1.1 section 2.2.3", "a remaining length of 321", 4, "30 c102", "0001", b"t", b"p" * 318,
        packet=_publish("t", b"p" * 318),
    ),
    _vector("3.1.1 figure 3.13", "PUBACK", 4, "40 02 000a", packet=mqtt.PubAck(10)),
    _vector("3.1.1 figure 3.15", "PUBREC", 4, "50 02 000a", packet=mqtt.PubRec(10)),
    _vector("3.1.1 figure 3.16", "PUBREL", 4, "62 02 000a", packet=mqtt.PubRel(10)),
    _vector("3.1.1 figure 3.18", "PUBCOMP", 4, "70 02 000a", packet=mqtt.PubComp(10)),
    _vector(
        "3.1.1 figure 3.23", "SUBSCRIBE to a/b with QoS 1 and c/d with QoS 2", 4,
        "82 0e", "000a", "0003", b"a/b", "01", "0003", b"c/d", "02",
        packet=mqtt.Subscribe(10, None, [mqtt.Subscription("a/b", 1), mqtt.Subscription("c/d", 2)]),
    ),
    _vector(
        "3.1.1 figure 3.27", "SUBACK: QoS 0, QoS 2, failure", 4, "90 05", "000a", "00 02 80",
        packet=mqtt.SubAck(10, None, b"\x00\x02\x80"),
    ),
    _vector(
        "3.1.1 figure 3.30", "UNSUBSCRIBE from a/b and c/d", 4, "a2 0c", "000a", "0003", b"a/b", "0003", b"c/d",
        packet=mqtt.Unsubscribe(10, None, ["a/b", "c/d"]),
    ),
    _vector("3.1.1 figure 3.31", "UNSUBACK", 4, "b0 02 000a", packet=mqtt.UnsubAck(10)),
    _vector("3.1.1 figure 3.33", "PINGREQ", 4, "c0 00", packet=mqtt.PingReq()),
    _vector("3.1.1 figure 3.34", "PINGRESP", 4, "d0 00", packet=mqtt.PingResp()),
    _vector("3.1.1 figure 3.35", "DISCONNECT", 4, "e0 00", packet=mqtt.Disconnect()),
)  # fmt: skip

MQTT_5 = (
    _vector(
        "5.0 figure 3-6", "CONNECT with a session expiry of 10 seconds", 5,
        "10 2b", "0004 4d515454 05 ce 000a", "05 11 0000000a", "0001", b"c",
        "00 0006", b"will/t", "0004", b"gone", "0001", b"u", "0004", b"pass",
        packet=mqtt.Connect(
            5, True, 1, False, 10, mqtt.Properties(session_expiry_interval=10), "c",
            mqtt.Will(None, "will/t", b"gone"), "u", b"pass",
        ),
    ),
    _vector(
        "5.0 section 3.1.3.2", "a will with every property", 5,
        "10 48", "0004 4d515454 05 26 003c", "00", "0000",
        "2f", "01 01", "02 0000003c", "03 000a", b"text/plain", "08 0003", b"r/t", "09 0002 0102", "18 0000000a",
        "26 0001", b"k", "0005", b"value",
        "0004", b"will", "0003", b"bye",
        packet=mqtt.Connect(
            5, True, 0, True, 60, None, "",
            mqtt.Will(
                mqtt.Properties(
                    payload_format_indicator=1, message_expiry_interval=60, content_type="text/plain",
                    response_topic="r/t", correlation_data=b"\1\2", will_delay_interval=10,
                    user_properties=[("k", "value")],
                ),
                "will", b"bye",
            ),
        ),
    ),
    _vector(
        "5.0 section 3.1.2.11", "CONNECT with every property", 5,
        "10 31", "0004 4d515454 05 00 0000",
        "23", "11 ffffffff", "15 0001", b"m", "16 0001", b"d", "17 00", "19 01", "21 000a", "22 0005",
        "26 0001", b"k", "0001", b"v", "27 00010000",
        "0001", b"c",
        packet=mqtt.Connect(
            5, False, 0, False, 0,
            mqtt.Properties(
                session_expiry_interval=0xFFFFFFFF, authentication_method="m", authentication_data=b"d",
                request_problem_information=False, request_response_information=True, receive_maximum=10,
                topic_alias_maximum=5, user_properties=[("k", "v")], maximum_packet_size=65536,
            ),
            "c",
        ),
    ),
    _vector(
        "5.0 section 3.2.2.3", "CONNACK with every property", 5,
        "20 46", "00 00", "43",
        "11 00000001", "12 0001", b"i", "13 000a", "15 0001", b"m", "16 0001", b"d", "1a 0001", b"r", "1c 0001", b"s",
        "1f 0001", b"w", "21 0001", "22 0002", "24 01", "25 01", "26 0001", b"k", "0001", b"v", "27 00000064",
        "28 01", "29 00", "2a 01", "26 0001", b"k", "0001", b"v",
        packet=mqtt.ConnAck(
            False, 0,
            mqtt.Properties(
                session_expiry_interval=1, assigned_client_identifier="i", server_keep_alive=10,
                authentication_method="m", authentication_data=b"d", response_information="r", server_reference="s",
                reason_string="w", receive_maximum=1, topic_alias_maximum=2, maximum_qos=1, retain_available=True,
                user_properties=[("k", "v"), ("k", "v")], maximum_packet_size=100,
                wildcard_subscription_available=True, subscription_identifiers_available=False,
                shared_subscription_available=True,
            ),
        ),
    ),
    _vector(
        "5.0 figure 3-9", "PUBLISH on a/b with packet identifier 10", 5,
        "32 0a", "0003", b"a/b", "000a", "00", b"hi",
        packet=_publish("a/b", b"hi", 1, 10),
    ),
    _vector(
        "5.0 section 3.3.2.3", "PUBLISH with every property", 5,
        "3d 29", "0000", "000b", "22",
        "01 00", "02 00000001", "03 0001", b"t", "08 0001", b"r", "09 0001", b"c", "0b 01", "0b c102", "23 0007",
        "26 0001", b"k", "0001", b"v", b"hi",
        packet=mqtt.Publish(
            True, 2, True, "", 11,
            mqtt.Properties(
                payload_format_indicator=0, message_expiry_interval=1, content_type="t", response_topic="r",
                correlation_data=b"c", subscription_identifiers=[1, 321], topic_alias=7, user_properties=[("k", "v")],
            ),
            b"hi",
        ),
    ),
    _vector("5.0 figure 3-10", "PUBACK of success", 5, "40 02 000a", packet=mqtt.PubAck(10)),
    _vector("5.0 table 3-4", "PUBACK: no matching subscribers", 5, "40 03 000a 10", packet=mqtt.PubAck(10, 0x10)),
    _vector(
        "5.0 section 3.5.2", "PUBREC: quota exceeded, in words", 5, "50 0b 000a 97 07 1f 0004", b"full",
        packet=mqtt.PubRec(10, 0x97, mqtt.Properties(reason_string="full")),
    ),
    _vector("5.0 table 3-6", "PUBREL: identifier not found", 5, "62 03 000a 92", packet=mqtt.PubRel(10, 0x92)),
    _vector("5.0 section 3.7.2", "PUBCOMP", 5, "70 02 000a", packet=mqtt.PubComp(10)),
    _vector(
        "5.0 figure 3-20", "SUBSCRIBE to a/b with QoS 1 and c/d with QoS 2", 5,
        "82 0f", "000a", "00", "0003", b"a/b", "01", "0003", b"c/d", "02",
        packet=mqtt.Subscribe(10, None, [mqtt.Subscription("a/b", 1), mqtt.Subscription("c/d", 2)]),
    ),
    _vector(
        "5.0 section 3.8.3.1", "SUBSCRIBE with every option", 5,
        "82 0b", "000a", "02 0b 07", "0003", b"a/#", "2e",
        packet=mqtt.Subscribe(
            10, mqtt.Properties(subscription_identifiers=[7]), [mqtt.Subscription("a/#", 2, True, True, 2)]
        ),
    ),
    _vector(
        "5.0 section 3.9.3", "SUBACK: QoS 0, QoS 2, shared subscriptions not supported", 5,
        "90 06", "000a", "00", "00 02 9e",
        packet=mqtt.SubAck(10, None, b"\x00\x02\x9e"),
    ),
    _vector(
        "5.0 figure 3-28", "UNSUBSCRIBE from a/b and c/d", 5, "a2 0d", "000a", "00", "0003", b"a/b", "0003", b"c/d",
        packet=mqtt.Unsubscribe(10, None, ["a/b", "c/d"]),
    ),
    _vector(
        "5.0 section 3.11.3", "UNSUBACK: success, no subscription existed", 5, "b0 05", "000a", "00", "00 11",
        packet=mqtt.UnsubAck(10, None, b"\x00\x11"),
    ),
    _vector("5.0 section 3.14.2.1", "DISCONNECT of success", 5, "e0 00", packet=mqtt.Disconnect()),
    _vector(
        "5.0 figure 3-24", "DISCONNECT with a session expiry of 0", 5, "e0 07 00 05 11 00000000",
        packet=mqtt.Disconnect(0, mqtt.Properties(session_expiry_interval=0)),
    ),
    _vector(
        "5.0 section 4.12", "AUTH: go on", 5, "f0 13 18 11 15 0005", b"SCRAM", "16 0006", b"client",
        packet=mqtt.Auth(0x18, mqtt.Properties(authentication_method="SCRAM", authentication_data=b"client")),
    ),
    _vector("5.0 section 3.15.2.1", "AUTH of success", 5, "f0 00", packet=mqtt.Auth()),
)  # fmt: skip

CLIENTS = (
    _vector(
        "paho-mqtt", "connect() with a clean session", 4, "10 0f 0004 4d515454 04 02 003c 0003", b"abc",
        packet=mqtt.Connect(4, True, keep_alive=60, client_id="abc"),
    ),
    _vector(
        "paho-mqtt", "connect() with MQTT 5", 5, "10 10 0004 4d515454 05 02 003c 00 0003", b"abc",
        packet=mqtt.Connect(5, True, keep_alive=60, client_id="abc"),
    ),
    _vector(
        "paho-mqtt", "publish(retain=True) with MQTT 5", 5, "31 08", "0003", b"a/b", "00", b"on",
        packet=mqtt.Publish(False, 0, True, "a/b", 0, None, b"on"),
    ),
    _vector(
        "mosquitto_sub", "-t '#'", 4, "82 06 0001 0001", b"#", "00",
        packet=mqtt.Subscribe(1, None, [mqtt.Subscription("#", 0)]),
    ),
    _vector(
        "mosquitto_pub", "-r -n, which forgets a retained message", 4, "31 05", "0003", b"a/b",
        packet=mqtt.Publish(False, 0, True, "a/b", 0, None, b""),
    ),
    _vector(
        "mqtt.js", "connect() without a client identifier", 4, "10 0c 0004 4d515454 04 02 003c 0000",
        packet=mqtt.Connect(4, True, keep_alive=60),
    ),
)  # fmt: skip

VECTORS = (*MQTT_3_1_1, *MQTT_5, *CLIENTS)

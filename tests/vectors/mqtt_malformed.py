"""Packets no MQTT client may send, each with the reason code and the clause of the standard that refuses it.

A case that is not a CONNECT is sent on an open connection of its version. MQTT 3.1.1 has no reason codes: there the
connection is closed and the reason is the one MQTT 5 would give, for the log. A clause in brackets is a normative
statement, one without is a section.
"""

from dataclasses import dataclass

from moq.reasons import Reason

MALFORMED = Reason.MALFORMED_PACKET
PROTOCOL = Reason.PROTOCOL_ERROR
VERSION = Reason.UNSUPPORTED_PROTOCOL_VERSION
ALIAS = Reason.TOPIC_ALIAS_INVALID


@dataclass(frozen=True)
class Malformed:
    name: str
    version: int
    data: bytes
    reason: Reason
    clause: str

    @property
    def is_connect(self) -> bool:
        """True if it is the first packet of its connection."""
        return self.data[0] >> 4 == 1

    def __str__(self) -> str:
        return f"type {self.data[0] >> 4}: {self.name} (MQTT {'3.1.1' if self.version == 4 else 5}) {self.clause}"


def packet(control: int, *parts: str | bytes) -> bytes:
    """A packet of less than 128 bytes with its remaining length; text parts are hexadecimal."""
    body = b"".join(part if isinstance(part, bytes) else bytes.fromhex(part) for part in parts)
    assert len(body) < 0x80
    return bytes((control, len(body))) + body


def connect(version: int, flags: str, properties: str = "00", payload: str = "0001 63") -> bytes:
    """A CONNECT with the client identifier `c`."""
    return packet(0x10, "0004 4d515454", f"{version:02x}", flags, "003c", properties if version == 5 else "", payload)


def _raw(data: str) -> bytes:
    return bytes.fromhex(data)


A_B = "0003 612f62"
"""The topic `a/b`."""

USER_PROPERTY = "26 0001 61 0001 62"


def _both(name: str, data: bytes, reason: Reason, clause_4: str, clause_5: str) -> list[Malformed]:
    """A case whose bytes are the same in both versions."""
    return [Malformed(name, 4, data, reason, clause_4), Malformed(name, 5, data, reason, clause_5)]


def _flags(name: str, control: int, body: str, clause_5: str) -> list[Malformed]:
    return _both(f"{name} with flags {control & 15:04b}", packet(control, body), MALFORMED, "[MQTT-2.2.2-2]", clause_5)


FIXED_HEADERS = [
    *_both("packet type 0", packet(0x00), MALFORMED, "2.2.1", "2.1.2"),
    Malformed("AUTH, which 3.1.1 does not have", 4, packet(0xF0), MALFORMED, "2.2.1"),
    *_flags("PUBACK", 0x41, "0001", "[MQTT-2.1.3-1]"),
    *_flags("PUBREC", 0x52, "0001", "[MQTT-2.1.3-1]"),
    *_flags("PUBREL", 0x60, "0001", "[MQTT-3.6.1-1]"),
    *_flags("PUBCOMP", 0x78, "0001", "[MQTT-2.1.3-1]"),
    *_flags("SUBSCRIBE", 0x80, "0001 0001 61 00", "[MQTT-3.8.1-1]"),
    *_flags("UNSUBSCRIBE", 0xA3, "0001 0001 61", "[MQTT-3.10.1-1]"),
    *_flags("PINGREQ", 0xC1, "", "[MQTT-2.1.3-1]"),
    *_flags("DISCONNECT", 0xE1, "", "[MQTT-3.14.1-1]"),
    Malformed("AUTH with flags 0001", 5, packet(0xF1), MALFORMED, "[MQTT-3.15.1-1]"),
    *_both("a remaining length of five bytes", _raw("30 8080808001"), MALFORMED, "2.2.3", "1.5.5"),
    Malformed("a padded remaining length", 5, _raw("c0 8000"), MALFORMED, "[MQTT-1.5.5-1]"),
    *_both("PINGREQ with a payload", packet(0xC0, "00"), MALFORMED, "3.12.3", "3.12.3"),
]

CONNECTS = [
    Malformed("flags of the fixed header", 4, b"\x11" + connect(4, "02")[1:], MALFORMED, "[MQTT-2.2.2-2]"),
    Malformed("flags of the fixed header", 5, b"\x11" + connect(5, "02")[1:], MALFORMED, "[MQTT-2.1.3-1]"),
    Malformed("the reserved flag", 4, connect(4, "03"), MALFORMED, "[MQTT-3.1.2-3]"),
    Malformed("the reserved flag", 5, connect(5, "03"), MALFORMED, "[MQTT-3.1.2-3]"),
    Malformed("another protocol name", 4, packet(0x10, "0004 4d515458 04 02 003c 0000"), VERSION, "[MQTT-3.1.2-1]"),
    Malformed("another protocol name", 5, packet(0x10, "0004 4d515458 05 02 003c 00 0000"), VERSION, "[MQTT-3.1.2-1]"),
    Malformed("MQTT 3.1", 4, packet(0x10, "0006", b"MQIsdp", "03 02 003c 0001 63"), VERSION, "[MQTT-3.1.2-2]"),
    Malformed("version 6", 5, connect(6, "02"), VERSION, "[MQTT-3.1.2-2]"),
    Malformed("version 3 of MQTT", 4, connect(3, "02"), VERSION, "[MQTT-3.1.2-2]"),
    Malformed("the end before the version", 5, packet(0x10, "0004 4d515454"), MALFORMED, "4.13"),
    Malformed("the end inside the protocol name", 5, packet(0x10, "0004 4d51"), MALFORMED, "4.13"),
    Malformed("will QoS without a will", 4, connect(4, "0a"), MALFORMED, "[MQTT-3.1.2-13]"),
    Malformed("will QoS without a will", 5, connect(5, "0a"), MALFORMED, "[MQTT-3.1.2-11]"),
    Malformed("will retain without a will", 4, connect(4, "22"), MALFORMED, "[MQTT-3.1.2-15]"),
    Malformed("will retain without a will", 5, connect(5, "22"), MALFORMED, "[MQTT-3.1.2-13]"),
    Malformed("will QoS 3", 4, connect(4, "1e", payload="0001 63 0001 74 0000"), MALFORMED, "[MQTT-3.1.2-14]"),
    Malformed("will QoS 3", 5, connect(5, "1e", payload="0001 63 00 0001 74 0000"), MALFORMED, "[MQTT-3.1.2-12]"),
    Malformed("a will that is not there", 4, connect(4, "06"), MALFORMED, "[MQTT-3.1.2-9]"),
    Malformed("a will that is not there", 5, connect(5, "06"), MALFORMED, "[MQTT-3.1.2-9]"),
    Malformed("a password without a user name", 4, connect(4, "42", payload="0001 63 0001 70"), MALFORMED,
              "[MQTT-3.1.2-22]"),
    Malformed("a user name that is not there", 4, connect(4, "82"), MALFORMED, "[MQTT-3.1.2-19]"),
    Malformed("a user name that is not there", 5, connect(5, "82"), MALFORMED, "[MQTT-3.1.2-17]"),
    Malformed("no client identifier", 4, connect(4, "02", payload=""), MALFORMED, "[MQTT-3.1.3-3]"),
    Malformed("no client identifier", 5, connect(5, "02", payload=""), MALFORMED, "[MQTT-3.1.3-3]"),
    Malformed("a client identifier that is not UTF-8", 4, connect(4, "02", payload="0001 ff"), MALFORMED,
              "[MQTT-1.5.3-1]"),
    Malformed("a client identifier that is not UTF-8", 5, connect(5, "02", payload="0001 ff"), MALFORMED,
              "[MQTT-1.5.4-1]"),
    Malformed("bytes after the payload", 4, connect(4, "02", payload="0001 63 00"), MALFORMED, "[MQTT-3.1.3-1]"),
    Malformed("bytes after the payload", 5, connect(5, "02", payload="0001 63 00"), MALFORMED, "[MQTT-3.1.3-1]"),
    Malformed("a property of PUBLISH", 5, connect(5, "02", "05 02 00000001"), MALFORMED, "2.2.2.2"),
    Malformed("a property of CONNACK", 5, connect(5, "02", "02 24 01"), MALFORMED, "2.2.2.2"),
    Malformed("an unknown property", 5, connect(5, "02", "02 7f 01"), MALFORMED, "2.2.2.2"),
    Malformed("a property length beyond the packet", 5, connect(5, "02", "7f"), MALFORMED, "2.2.2.1"),
    Malformed("a property length inside a property", 5, connect(5, "02", "03 11 00000001"), MALFORMED, "2.2.2.1"),
    Malformed("a padded property length", 5, connect(5, "02", "8000"), MALFORMED, "[MQTT-1.5.5-1]"),
    Malformed("a property length of five bytes", 5, connect(5, "02", "8080808001"), MALFORMED, "1.5.5"),
    Malformed("session expiry twice", 5, connect(5, "02", "0a 11 00000001 11 00000001"), PROTOCOL, "3.1.2.11.2"),
    Malformed("receive maximum 0", 5, connect(5, "02", "03 21 0000"), PROTOCOL, "3.1.2.11.3"),
    Malformed("receive maximum twice", 5, connect(5, "02", "06 21 0001 21 0001"), PROTOCOL, "3.1.2.11.3"),
    Malformed("maximum packet size 0", 5, connect(5, "02", "05 27 00000000"), PROTOCOL, "3.1.2.11.4"),
    Malformed("maximum packet size twice", 5, connect(5, "02", "0a 27 00000001 27 00000001"), PROTOCOL, "3.1.2.11.4"),
    Malformed("topic alias maximum twice", 5, connect(5, "02", "06 22 0001 22 0001"), PROTOCOL, "3.1.2.11.5"),
    Malformed("request response information 2", 5, connect(5, "02", "02 19 02"), PROTOCOL, "3.1.2.11.6"),
    Malformed("request response information twice", 5, connect(5, "02", "04 19 01 19 01"), PROTOCOL, "3.1.2.11.6"),
    Malformed("request problem information 2", 5, connect(5, "02", "02 17 02"), PROTOCOL, "3.1.2.11.7"),
    Malformed("request problem information twice", 5, connect(5, "02", "04 17 01 17 01"), PROTOCOL, "3.1.2.11.7"),
    Malformed("authentication method twice", 5, connect(5, "02", "08 15 0001 61 15 0001 61"), PROTOCOL, "3.1.2.11.9"),
    Malformed("authentication data alone", 5, connect(5, "02", "04 16 0001 61"), PROTOCOL, "3.1.2.11.10"),
    Malformed("authentication data twice", 5, connect(5, "02", "0c 15 0001 61 16 0001 61 16 0001 61"), PROTOCOL,
              "3.1.2.11.10"),
    Malformed("a user property of ill-formed UTF-8", 5, connect(5, "02", "07 26 0001 ff 0001 62"), MALFORMED,
              "[MQTT-1.5.7-1]"),
    Malformed("will delay twice", 5,
              connect(5, "06", payload="0001 63 0a 18 00000001 18 00000001 0001 74 0000"), PROTOCOL, "3.1.3.2.2"),
    Malformed("payload format of a will twice", 5,
              connect(5, "06", payload="0001 63 04 01 01 01 01 0001 74 0000"), PROTOCOL, "3.1.3.2.3"),
    Malformed("a topic alias in a will", 5, connect(5, "06", payload="0001 63 03 23 0001 0001 74 0000"), MALFORMED,
              "2.2.2.2"),
    Malformed("a will topic of ill-formed UTF-8", 5, connect(5, "06", payload="0001 63 00 0001 ff 0000"), MALFORMED,
              "[MQTT-3.1.3-11]"),
]  # fmt: skip

PUBLISHES = [
    *_both("QoS 3", packet(0x36, A_B, "0001 00"), MALFORMED, "[MQTT-3.3.1-4]", "[MQTT-3.3.1-4]"),
    *_both("DUP with QoS 0", packet(0x38, A_B, "00"), MALFORMED, "[MQTT-3.3.1-2]", "[MQTT-3.3.1-2]"),
    *_both("packet identifier 0", packet(0x32, A_B, "0000 00"), PROTOCOL, "[MQTT-2.3.1-1]", "[MQTT-2.2.1-3]"),
    *_both("packet identifier cut short", packet(0x32, A_B, "00"), MALFORMED, "4.8", "4.13"),
    *_both("no topic", packet(0x30), MALFORMED, "[MQTT-3.3.2-1]", "[MQTT-3.3.2-1]"),
    *_both("a topic beyond the packet", packet(0x30, "0009 61"), MALFORMED, "4.8", "4.13"),
    *_both("an empty topic", packet(0x30, "0000 00"), PROTOCOL, "[MQTT-4.7.3-1]", "3.3.2.1"),
    *_both("ill-formed UTF-8", packet(0x30, "0002 c328 00"), MALFORMED, "[MQTT-1.5.3-1]", "[MQTT-1.5.4-1]"),
    *_both("overlong UTF-8", packet(0x30, "0002 c0af 00"), MALFORMED, "[MQTT-1.5.3-1]", "[MQTT-1.5.4-1]"),
    *_both("a surrogate", packet(0x30, "0003 eda080 00"), MALFORMED, "[MQTT-1.5.3-1]", "[MQTT-1.5.4-1]"),
    *_both("U+0000", packet(0x30, "0003 610062 00"), MALFORMED, "[MQTT-1.5.3-2]", "[MQTT-1.5.4-2]"),
    Malformed("no property length", 5, packet(0x30, A_B), MALFORMED, "[MQTT-2.2.2-1]"),
    Malformed("a property length beyond the packet", 5, packet(0x30, A_B, "05 01"), MALFORMED, "2.2.2.1"),
    Malformed("a property without its value", 5, packet(0x30, A_B, "01 01"), MALFORMED, "2.2.2.1"),
    Malformed("a property of CONNECT", 5, packet(0x30, A_B, "05 11 00000001"), MALFORMED, "2.2.2.2"),
    Malformed("a property identifier of two bytes", 5, packet(0x30, A_B, "03 8100 01"), MALFORMED, "[MQTT-1.5.5-1]"),
    Malformed("payload format indicator 2", 5, packet(0x30, A_B, "02 01 02"), PROTOCOL, "3.3.2.3.2"),
    Malformed("payload format indicator twice", 5, packet(0x30, A_B, "04 01 01 01 01"), PROTOCOL, "3.3.2.3.2"),
    Malformed("message expiry twice", 5, packet(0x30, A_B, "0a 02 00000001 02 00000001"), PROTOCOL, "3.3.2.3.3"),
    Malformed("topic alias 0", 5, packet(0x30, A_B, "03 23 0000"), ALIAS, "[MQTT-3.3.2-8]"),
    Malformed("topic alias twice", 5, packet(0x30, A_B, "06 23 0001 23 0001"), PROTOCOL, "3.3.2.3.4"),
    Malformed("response topic twice", 5, packet(0x30, A_B, "08 08 0001 61 08 0001 61"), PROTOCOL, "3.3.2.3.5"),
    Malformed("a response topic of ill-formed UTF-8", 5, packet(0x30, A_B, "04 08 0001 ff"), MALFORMED,
              "[MQTT-3.3.2-13]"),
    Malformed("correlation data twice", 5, packet(0x30, A_B, "08 09 0001 61 09 0001 61"), PROTOCOL, "3.3.2.3.6"),
    Malformed("subscription identifier 0", 5, packet(0x30, A_B, "02 0b 00"), PROTOCOL, "3.3.2.3.8"),
    Malformed("a padded subscription identifier", 5, packet(0x30, A_B, "03 0b 8100"), MALFORMED, "[MQTT-1.5.5-1]"),
    Malformed("content type twice", 5, packet(0x30, A_B, "08 03 0001 61 03 0001 61"), PROTOCOL, "3.3.2.3.9"),
    Malformed("a content type of ill-formed UTF-8", 5, packet(0x30, A_B, "04 03 0001 ff"), MALFORMED,
              "[MQTT-3.3.2-19]"),
]  # fmt: skip


def _acknowledgements(name: str, control: int, section: str) -> list[Malformed]:
    return [
        *_both(f"{name} without a packet identifier", packet(control), MALFORMED, section, section),
        *_both(f"{name} with packet identifier 0", packet(control, "0000"), PROTOCOL, "[MQTT-2.3.1-1]", "2.2.1"),
        Malformed(f"{name} with a reason", 4, packet(control, "0001 00"), MALFORMED, section),
        Malformed(f"{name} with bytes behind", 5, packet(control, "0001 00 00 00"), MALFORMED, section),
        Malformed(f"{name} with a property of PUBLISH", 5, packet(control, "0001 00 02 01 01"), MALFORMED, "2.2.2.2"),
        Malformed(
            f"{name} with two reason strings",
            5,
            packet(control, "0001 00 08 1f 0001 61 1f 0001 61"),
            PROTOCOL,
            f"{section}.2.2",
        ),
    ]


ACKNOWLEDGEMENTS = [
    *_acknowledgements("PUBACK", 0x40, "3.4.2"),
    *_acknowledgements("PUBREC", 0x50, "3.5.2"),
    *_acknowledgements("PUBREL", 0x62, "3.6.2"),
    *_acknowledgements("PUBCOMP", 0x70, "3.7.2"),
]

SUBSCRIBES = [
    Malformed("SUBSCRIBE with packet identifier 0", 4, packet(0x82, "0000 0001 61 00"), PROTOCOL, "[MQTT-2.3.1-1]"),
    Malformed("SUBSCRIBE with packet identifier 0", 5, packet(0x82, "0000 00 0001 61 00"), PROTOCOL, "[MQTT-2.2.1-3]"),
    Malformed("SUBSCRIBE without a filter", 4, packet(0x82, "0001"), PROTOCOL, "[MQTT-3.8.3-3]"),
    Malformed("SUBSCRIBE without a filter", 5, packet(0x82, "0001 00"), PROTOCOL, "[MQTT-3.8.3-2]"),
    Malformed("SUBSCRIBE without options", 4, packet(0x82, "0001 0001 61"), MALFORMED, "4.8"),
    Malformed("SUBSCRIBE without options", 5, packet(0x82, "0001 00 0001 61"), MALFORMED, "4.13"),
    Malformed("SUBSCRIBE with reserved bits", 4, packet(0x82, "0001 0001 61 04"), MALFORMED, "[MQTT-3-8.3-4]"),
    Malformed("SUBSCRIBE with reserved bits", 5, packet(0x82, "0001 00 0001 61 40"), MALFORMED, "[MQTT-3.8.3-5]"),
    Malformed("SUBSCRIBE with QoS 3", 4, packet(0x82, "0001 0001 61 03"), PROTOCOL, "[MQTT-3-8.3-4]"),
    Malformed("SUBSCRIBE with QoS 3", 5, packet(0x82, "0001 00 0001 61 03"), PROTOCOL, "3.8.3.1"),
    Malformed("SUBSCRIBE with retain handling 3", 5, packet(0x82, "0001 00 0001 61 30"), PROTOCOL, "3.8.3.1"),
    Malformed("SUBSCRIBE with a filter of ill-formed UTF-8", 4, packet(0x82, "0001 0001 ff 00"), MALFORMED,
              "[MQTT-3.8.3-1]"),
    Malformed("SUBSCRIBE with a filter of ill-formed UTF-8", 5, packet(0x82, "0001 00 0001 ff 00"), MALFORMED,
              "[MQTT-3.8.3-1]"),
    Malformed("SUBSCRIBE with subscription identifier 0", 5, packet(0x82, "0001 02 0b 00 0001 61 00"), PROTOCOL,
              "3.8.2.1.2"),
    Malformed("SUBSCRIBE with two subscription identifiers", 5, packet(0x82, "0001 04 0b 01 0b 02 0001 61 00"),
              PROTOCOL, "3.8.2.1.2"),
    Malformed("SUBSCRIBE with a reason string", 5, packet(0x82, "0001 04 1f 0001 61 0001 61 00"), MALFORMED, "2.2.2.2"),
    Malformed("UNSUBSCRIBE with packet identifier 0", 4, packet(0xA2, "0000 0001 61"), PROTOCOL, "[MQTT-2.3.1-1]"),
    Malformed("UNSUBSCRIBE with packet identifier 0", 5, packet(0xA2, "0000 00 0001 61"), PROTOCOL, "[MQTT-2.2.1-3]"),
    Malformed("UNSUBSCRIBE without a filter", 4, packet(0xA2, "0001"), PROTOCOL, "[MQTT-3.10.3-2]"),
    Malformed("UNSUBSCRIBE without a filter", 5, packet(0xA2, "0001 00"), PROTOCOL, "[MQTT-3.10.3-2]"),
    Malformed("UNSUBSCRIBE with a filter of ill-formed UTF-8", 5, packet(0xA2, "0001 00 0001 ff"), MALFORMED,
              "[MQTT-3.10.3-1]"),
    Malformed("UNSUBSCRIBE with a subscription identifier", 5, packet(0xA2, "0001 02 0b 01 0001 61"), MALFORMED,
              "2.2.2.2"),
]  # fmt: skip

ENDS = [
    Malformed("DISCONNECT with a reason", 4, packet(0xE0, "00"), MALFORMED, "3.14.1"),
    Malformed("DISCONNECT with bytes behind", 5, packet(0xE0, "00 00 00"), MALFORMED, "3.14.2"),
    Malformed("DISCONNECT with session expiry twice", 5, packet(0xE0, "00 0a 11 00000001 11 00000001"), PROTOCOL,
              "3.14.2.2.2"),
    Malformed("DISCONNECT with a property of PUBLISH", 5, packet(0xE0, "00 02 01 01"), MALFORMED, "2.2.2.2"),
    Malformed("DISCONNECT with two reason strings", 5, packet(0xE0, "00 08 1f 0001 61 1f 0001 61"), PROTOCOL,
              "3.14.2.2.3"),
    Malformed("AUTH without properties", 5, packet(0xF0, "18"), PROTOCOL, "3.15.2.2.2"),
    Malformed("AUTH without a method", 5, packet(0xF0, "18 07", USER_PROPERTY), PROTOCOL, "3.15.2.2.2"),
    Malformed("AUTH with two methods", 5, packet(0xF0, "18 08 15 0001 61 15 0001 61"), PROTOCOL, "3.15.2.2.2"),
    Malformed("AUTH with a property of CONNECT", 5, packet(0xF0, "18 05 11 00000001"), MALFORMED, "2.2.2.2"),
]  # fmt: skip

MALFORMED_PACKETS = (*FIXED_HEADERS, *CONNECTS, *PUBLISHES, *ACKNOWLEDGEMENTS, *SUBSCRIBES, *ENDS)

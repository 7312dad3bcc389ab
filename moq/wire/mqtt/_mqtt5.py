"""Encoders and decoders of version 5 of moq.wire.mqtt.packets, straight-line: written by scripts/generate.py."""

# ruff: noqa: A001  (locals have the names of the fields)

from collections.abc import Callable
from struct import Struct

from moq.errors import LocalProtocolError, MalformedPacket, RemoteProtocolError
from moq.wire.codec import (
    above,
    put_long_binary,
    put_long_string,
    reserved,
    take_long_binary,
    take_long_string,
    trailing,
    truncated,
    unfit,
)
from moq.wire.mqtt.header import fixed_header, take_preamble
from moq.wire.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from moq.wire.mqtt.properties import Properties, put_properties, take_properties

_B = Struct(">B")
_BB = Struct(">BB")
_BBH = Struct(">BBH")
_H = Struct(">H")


def _decode_will(buf: bytes, pos: int, end: int) -> tuple[Will, int]:
    """Read Will."""
    properties, pos = take_properties(buf, pos, end, "WILL")
    topic, pos = take_long_string(buf, pos, end, "Will.topic")
    payload, pos = take_long_binary(buf, pos, end, "Will.payload")
    return Will(properties, topic, payload), pos


def _encode_will(part: Will) -> bytes:
    """Write Will."""
    tail = put_properties(part.properties, "WILL")
    tail += put_long_string(part.topic, "Will.topic")
    tail += put_long_binary(part.payload, "Will.payload")
    return tail


def _decode_subscription(buf: bytes, pos: int, end: int) -> tuple[Subscription, int]:
    """Read Subscription."""
    filter, pos = take_long_string(buf, pos, end, "Subscription.filter")
    if pos + 1 > end:
        raise truncated((("Subscription.flags", 1),), end - pos)
    flags = buf[pos]
    if flags & 0xC0:
        raise reserved("Subscription.flags", flags, 0xC0)
    qos = flags & 3
    retain_handling = flags >> 4 & 3
    pos += 1
    part = Subscription(filter, qos, flags & 0x04 != 0, flags & 0x08 != 0, retain_handling)
    if rule := part.broken_rule():
        raise RemoteProtocolError(rule)
    return part, pos


def _encode_subscription(part: Subscription) -> bytes:
    """Write Subscription."""
    if not 0 <= part.qos <= 3:
        raise unfit("Subscription.qos", part.qos, 3)
    if not 0 <= part.retain_handling <= 3:
        raise unfit("Subscription.retain_handling", part.retain_handling, 3)
    if rule := part.broken_rule():
        raise LocalProtocolError(rule)
    flags = part.qos | part.no_local << 2 | part.retain_as_published << 3 | part.retain_handling << 4
    tail = put_long_string(part.filter, "Subscription.filter")
    tail += _B.pack(flags)
    return tail


def decode_connect(buf: bytes, pos: int, end: int, control: int) -> Connect:
    """Read Connect."""
    pos = take_preamble(buf, pos, end)
    if pos + 4 > end:
        raise truncated((("Connect.version", 1), ("Connect.flags", 1), ("Connect.keep_alive", 2)), end - pos)
    version, flags, keep_alive = _BBH.unpack_from(buf, pos)
    if flags & 0x01:
        raise reserved("Connect.flags", flags, 0x01)
    will_qos = flags >> 3 & 3
    if will_qos > 2:
        raise above("Connect.will_qos", will_qos, 2)
    pos += 4
    properties, pos = take_properties(buf, pos, end, "CONNECT")
    client_id, pos = take_long_string(buf, pos, end, "Connect.client_id")
    will: Will | None = None
    if flags & 0x04:
        will, pos = _decode_will(buf, pos, end)
    user_name: str | None = None
    if flags & 0x80:
        user_name, pos = take_long_string(buf, pos, end, "Connect.user_name")
    password: bytes | None = None
    if flags & 0x40:
        password, pos = take_long_binary(buf, pos, end, "Connect.password")
    if pos != end:
        raise trailing("Connect", end - pos)
    packet = Connect(
        version,
        flags & 0x02 != 0,
        will_qos,
        flags & 0x20 != 0,
        keep_alive,
        properties,
        client_id,
        will,
        user_name,
        password,
    )
    if rule := packet.broken_form():
        raise MalformedPacket(rule)
    return packet


def encode_connect(packet: Connect) -> bytes:
    """Write Connect."""
    if not 0 <= packet.will_qos <= 2:
        raise unfit("Connect.will_qos", packet.will_qos, 2)
    if rule := packet.broken_form():
        raise LocalProtocolError(rule)
    flags = packet.clean_start << 1 | packet.will_qos << 3 | packet.will_retain << 5
    tail = put_properties(packet.properties, "CONNECT")
    tail += put_long_string(packet.client_id, "Connect.client_id")
    if packet.will is not None:
        flags |= 0x04
        tail += _encode_will(packet.will)
    if packet.user_name is not None:
        flags |= 0x80
        tail += put_long_string(packet.user_name, "Connect.user_name")
    if packet.password is not None:
        flags |= 0x40
        tail += put_long_binary(packet.password, "Connect.password")
    fields = b"\x00\x04MQTT" + _BBH.pack(packet.version, flags, packet.keep_alive) + tail
    return fixed_header(0x10, len(fields)) + fields


def decode_connack(buf: bytes, pos: int, end: int, control: int) -> ConnAck:
    """Read ConnAck."""
    if pos + 2 > end:
        raise truncated((("ConnAck.flags", 1), ("ConnAck.reason", 1)), end - pos)
    flags, reason = _BB.unpack_from(buf, pos)
    if flags & 0xFE:
        raise reserved("ConnAck.flags", flags, 0xFE)
    pos += 2
    properties, pos = take_properties(buf, pos, end, "CONNACK")
    if pos != end:
        raise trailing("ConnAck", end - pos)
    packet = ConnAck(flags & 0x01 != 0, reason, properties)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_connack(packet: ConnAck) -> bytes:
    """Write ConnAck."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    flags = packet.session_present
    tail = put_properties(packet.properties, "CONNACK")
    fields = _BB.pack(flags, packet.reason) + tail
    return fixed_header(0x20, len(fields)) + fields


def decode_publish(buf: bytes, pos: int, end: int, control: int) -> Publish:
    """Read Publish."""
    topic, pos = take_long_string(buf, pos, end, "Publish.topic")
    packet_id: int = 0
    if control & 0x06:
        if pos + 2 > end:
            raise truncated((("Publish.packet_id", 2),), end - pos)
        packet_id = _H.unpack_from(buf, pos)[0]
        pos += 2
    properties, pos = take_properties(buf, pos, end, "PUBLISH")
    packet = Publish(
        control & 0x08 != 0, (control & 6) >> 1, control & 0x01 != 0, topic, packet_id, properties, buf[pos:end]
    )
    if rule := packet.broken_form():
        raise MalformedPacket(rule)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_publish(packet: Publish) -> bytes:
    """Write Publish."""
    if not 0 <= packet.qos <= 2:
        raise unfit("Publish.qos", packet.qos, 2)
    if rule := packet.broken_form():
        raise LocalProtocolError(rule)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = put_long_string(packet.topic, "Publish.topic")
    if packet.qos:
        tail += _H.pack(packet.packet_id)
    tail += put_properties(packet.properties, "PUBLISH")
    fields = tail
    return b"".join(
        (
            fixed_header(0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain, len(fields), len(packet.payload)),
            fields,
            packet.payload,
        )
    )


def decode_puback(buf: bytes, pos: int, end: int, control: int) -> PubAck:
    """Read PubAck."""
    if pos + 2 > end:
        raise truncated((("PubAck.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    reason: int = 0
    if pos < end:
        reason = buf[pos]
        pos += 1
    properties: Properties | None = None
    if pos < end:
        properties, pos = take_properties(buf, pos, end, "PUBACK")
    if pos != end:
        raise trailing("PubAck", end - pos)
    packet = PubAck(packet_id, reason, properties)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_puback(packet: PubAck) -> bytes:
    """Write PubAck."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = b""
    if packet.reason or packet.properties is not None:
        tail += _B.pack(packet.reason)
    if packet.properties is not None:
        tail += put_properties(packet.properties, "PUBACK")
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0x40, len(fields)) + fields


def decode_pubrec(buf: bytes, pos: int, end: int, control: int) -> PubRec:
    """Read PubRec."""
    if pos + 2 > end:
        raise truncated((("PubRec.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    reason: int = 0
    if pos < end:
        reason = buf[pos]
        pos += 1
    properties: Properties | None = None
    if pos < end:
        properties, pos = take_properties(buf, pos, end, "PUBREC")
    if pos != end:
        raise trailing("PubRec", end - pos)
    packet = PubRec(packet_id, reason, properties)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_pubrec(packet: PubRec) -> bytes:
    """Write PubRec."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = b""
    if packet.reason or packet.properties is not None:
        tail += _B.pack(packet.reason)
    if packet.properties is not None:
        tail += put_properties(packet.properties, "PUBREC")
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0x50, len(fields)) + fields


def decode_pubrel(buf: bytes, pos: int, end: int, control: int) -> PubRel:
    """Read PubRel."""
    if pos + 2 > end:
        raise truncated((("PubRel.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    reason: int = 0
    if pos < end:
        reason = buf[pos]
        pos += 1
    properties: Properties | None = None
    if pos < end:
        properties, pos = take_properties(buf, pos, end, "PUBREL")
    if pos != end:
        raise trailing("PubRel", end - pos)
    packet = PubRel(packet_id, reason, properties)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_pubrel(packet: PubRel) -> bytes:
    """Write PubRel."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = b""
    if packet.reason or packet.properties is not None:
        tail += _B.pack(packet.reason)
    if packet.properties is not None:
        tail += put_properties(packet.properties, "PUBREL")
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0x62, len(fields)) + fields


def decode_pubcomp(buf: bytes, pos: int, end: int, control: int) -> PubComp:
    """Read PubComp."""
    if pos + 2 > end:
        raise truncated((("PubComp.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    reason: int = 0
    if pos < end:
        reason = buf[pos]
        pos += 1
    properties: Properties | None = None
    if pos < end:
        properties, pos = take_properties(buf, pos, end, "PUBCOMP")
    if pos != end:
        raise trailing("PubComp", end - pos)
    packet = PubComp(packet_id, reason, properties)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_pubcomp(packet: PubComp) -> bytes:
    """Write PubComp."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = b""
    if packet.reason or packet.properties is not None:
        tail += _B.pack(packet.reason)
    if packet.properties is not None:
        tail += put_properties(packet.properties, "PUBCOMP")
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0x70, len(fields)) + fields


def decode_subscribe(buf: bytes, pos: int, end: int, control: int) -> Subscribe:
    """Read Subscribe."""
    if pos + 2 > end:
        raise truncated((("Subscribe.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    properties, pos = take_properties(buf, pos, end, "SUBSCRIBE")
    subscriptions: list[Subscription] = []
    while pos < end:
        subscriptions_item, pos = _decode_subscription(buf, pos, end)
        subscriptions.append(subscriptions_item)
    packet = Subscribe(packet_id, properties, subscriptions)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_subscribe(packet: Subscribe) -> bytes:
    """Write Subscribe."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = put_properties(packet.properties, "SUBSCRIBE")
    tail += b"".join([_encode_subscription(item) for item in packet.subscriptions])
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0x82, len(fields)) + fields


def decode_suback(buf: bytes, pos: int, end: int, control: int) -> SubAck:
    """Read SubAck."""
    if pos + 2 > end:
        raise truncated((("SubAck.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    properties, pos = take_properties(buf, pos, end, "SUBACK")
    packet = SubAck(packet_id, properties, buf[pos:end])
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_suback(packet: SubAck) -> bytes:
    """Write SubAck."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = put_properties(packet.properties, "SUBACK")
    fields = _H.pack(packet.packet_id) + tail
    return b"".join((fixed_header(0x90, len(fields) + len(packet.reasons)), fields, packet.reasons))


def decode_unsubscribe(buf: bytes, pos: int, end: int, control: int) -> Unsubscribe:
    """Read Unsubscribe."""
    if pos + 2 > end:
        raise truncated((("Unsubscribe.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    properties, pos = take_properties(buf, pos, end, "UNSUBSCRIBE")
    filters: list[str] = []
    while pos < end:
        filters_item, pos = take_long_string(buf, pos, end, "Unsubscribe.filters")
        filters.append(filters_item)
    packet = Unsubscribe(packet_id, properties, filters)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_unsubscribe(packet: Unsubscribe) -> bytes:
    """Write Unsubscribe."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = put_properties(packet.properties, "UNSUBSCRIBE")
    tail += b"".join([put_long_string(item, "Unsubscribe.filters") for item in packet.filters])
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0xA2, len(fields)) + fields


def decode_unsuback(buf: bytes, pos: int, end: int, control: int) -> UnsubAck:
    """Read UnsubAck."""
    if pos + 2 > end:
        raise truncated((("UnsubAck.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    properties, pos = take_properties(buf, pos, end, "UNSUBACK")
    packet = UnsubAck(packet_id, properties, buf[pos:end])
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_unsuback(packet: UnsubAck) -> bytes:
    """Write UnsubAck."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = put_properties(packet.properties, "UNSUBACK")
    fields = _H.pack(packet.packet_id) + tail
    return b"".join((fixed_header(0xB0, len(fields) + len(packet.reasons)), fields, packet.reasons))


def decode_pingreq(buf: bytes, pos: int, end: int, control: int) -> PingReq:
    """Read PingReq."""
    if pos != end:
        raise trailing("PingReq", end - pos)
    return PingReq()


def encode_pingreq(packet: PingReq) -> bytes:
    """Write PingReq."""
    return fixed_header(0xC0, 0)


def decode_pingresp(buf: bytes, pos: int, end: int, control: int) -> PingResp:
    """Read PingResp."""
    if pos != end:
        raise trailing("PingResp", end - pos)
    return PingResp()


def encode_pingresp(packet: PingResp) -> bytes:
    """Write PingResp."""
    return fixed_header(0xD0, 0)


def decode_disconnect(buf: bytes, pos: int, end: int, control: int) -> Disconnect:
    """Read Disconnect."""
    reason: int = 0
    if pos < end:
        reason = buf[pos]
        pos += 1
    properties: Properties | None = None
    if pos < end:
        properties, pos = take_properties(buf, pos, end, "DISCONNECT")
    if pos != end:
        raise trailing("Disconnect", end - pos)
    return Disconnect(reason, properties)


def encode_disconnect(packet: Disconnect) -> bytes:
    """Write Disconnect."""
    tail = b""
    if packet.reason or packet.properties is not None:
        tail += _B.pack(packet.reason)
    if packet.properties is not None:
        tail += put_properties(packet.properties, "DISCONNECT")
    fields = tail
    return fixed_header(0xE0, len(fields)) + fields


def decode_auth(buf: bytes, pos: int, end: int, control: int) -> Auth:
    """Read Auth."""
    reason: int = 0
    if pos < end:
        reason = buf[pos]
        pos += 1
    properties: Properties | None = None
    if pos < end:
        properties, pos = take_properties(buf, pos, end, "AUTH")
    if pos != end:
        raise trailing("Auth", end - pos)
    packet = Auth(reason, properties)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_auth(packet: Auth) -> bytes:
    """Write Auth."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = b""
    if packet.reason or packet.properties is not None:
        tail += _B.pack(packet.reason)
    if packet.properties is not None:
        tail += put_properties(packet.properties, "AUTH")
    fields = tail
    return fixed_header(0xF0, len(fields)) + fields


Decoder = Callable[[bytes, int, int, int], Packet]

DECODERS: dict[int, Decoder] = {
    0x10: decode_connect,
    0x20: decode_connack,
    0x30: decode_publish,
    0x31: decode_publish,
    0x32: decode_publish,
    0x33: decode_publish,
    0x34: decode_publish,
    0x35: decode_publish,
    0x38: decode_publish,
    0x39: decode_publish,
    0x3A: decode_publish,
    0x3B: decode_publish,
    0x3C: decode_publish,
    0x3D: decode_publish,
    0x40: decode_puback,
    0x50: decode_pubrec,
    0x62: decode_pubrel,
    0x70: decode_pubcomp,
    0x82: decode_subscribe,
    0x90: decode_suback,
    0xA2: decode_unsubscribe,
    0xB0: decode_unsuback,
    0xC0: decode_pingreq,
    0xD0: decode_pingresp,
    0xE0: decode_disconnect,
    0xF0: decode_auth,
}
"""By control byte, of which only type and flags are set."""

ENCODERS: dict[type[Packet], Callable[..., bytes]] = {
    Connect: encode_connect,
    ConnAck: encode_connack,
    Publish: encode_publish,
    PubAck: encode_puback,
    PubRec: encode_pubrec,
    PubRel: encode_pubrel,
    PubComp: encode_pubcomp,
    Subscribe: encode_subscribe,
    SubAck: encode_suback,
    Unsubscribe: encode_unsubscribe,
    UnsubAck: encode_unsuback,
    PingReq: encode_pingreq,
    PingResp: encode_pingresp,
    Disconnect: encode_disconnect,
    Auth: encode_auth,
}

STREAMED = frozenset({0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x38, 0x39, 0x3A, 0x3B, 0x3C, 0x3D})
"""Control bytes, likewise, of the packets whose payload may be larger than memory."""

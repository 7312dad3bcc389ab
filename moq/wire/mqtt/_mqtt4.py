"""Encoders and decoders of version 4 of moq.wire.mqtt.packets, straight-line: written by scripts/generate.py."""

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
    too_young,
    trailing,
    truncated,
    unfit,
)
from moq.wire.mqtt.header import fixed_header, take_preamble
from moq.wire.mqtt.packets import (
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

_B = Struct(">B")
_BB = Struct(">BB")
_BBH = Struct(">BBH")
_H = Struct(">H")


def _decode_will(buf: bytes, pos: int, end: int) -> tuple[Will, int]:
    """Read Will."""
    topic, pos = take_long_string(buf, pos, end, "Will.topic")
    payload, pos = take_long_binary(buf, pos, end, "Will.payload")
    return Will(None, topic, payload), pos


def _encode_will(part: Will) -> bytes:
    """Write Will."""
    if part.properties is not None:
        raise too_young("Will.properties", part.properties, 5)
    tail = put_long_string(part.topic, "Will.topic")
    tail += put_long_binary(part.payload, "Will.payload")
    return tail


def _decode_subscription(buf: bytes, pos: int, end: int) -> tuple[Subscription, int]:
    """Read Subscription."""
    filter, pos = take_long_string(buf, pos, end, "Subscription.filter")
    if pos + 1 > end:
        raise truncated((("Subscription.flags", 1),), end - pos)
    flags = buf[pos]
    if flags & 0xFC:
        raise reserved("Subscription.flags", flags, 0xFC)
    qos = flags & 3
    pos += 1
    part = Subscription(filter, qos, False, False, 0)
    if rule := part.broken_rule():
        raise RemoteProtocolError(rule)
    return part, pos


def _encode_subscription(part: Subscription) -> bytes:
    """Write Subscription."""
    if not 0 <= part.qos <= 3:
        raise unfit("Subscription.qos", part.qos, 3)
    if part.no_local:
        raise too_young("Subscription.no_local", part.no_local, 5)
    if part.retain_as_published:
        raise too_young("Subscription.retain_as_published", part.retain_as_published, 5)
    if part.retain_handling:
        raise too_young("Subscription.retain_handling", part.retain_handling, 5)
    if rule := part.broken_rule():
        raise LocalProtocolError(rule)
    flags = part.qos
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
        version, flags & 0x02 != 0, will_qos, flags & 0x20 != 0, keep_alive, None, client_id, will, user_name, password
    )
    if rule := packet.broken_form():
        raise MalformedPacket(rule)
    return packet


def encode_connect(packet: Connect) -> bytes:
    """Write Connect."""
    if not 0 <= packet.will_qos <= 2:
        raise unfit("Connect.will_qos", packet.will_qos, 2)
    if packet.properties is not None:
        raise too_young("Connect.properties", packet.properties, 5)
    if rule := packet.broken_form():
        raise LocalProtocolError(rule)
    flags = packet.clean_start << 1 | packet.will_qos << 3 | packet.will_retain << 5
    tail = put_long_string(packet.client_id, "Connect.client_id")
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
    if pos != end:
        raise trailing("ConnAck", end - pos)
    packet = ConnAck(flags & 0x01 != 0, reason, None)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_connack(packet: ConnAck) -> bytes:
    """Write ConnAck."""
    if packet.properties is not None:
        raise too_young("ConnAck.properties", packet.properties, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    flags = packet.session_present
    fields = _BB.pack(flags, packet.reason)
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
    packet = Publish(control & 0x08 != 0, (control & 6) >> 1, control & 0x01 != 0, topic, packet_id, None, buf[pos:end])
    if rule := packet.broken_form():
        raise MalformedPacket(rule)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_publish(packet: Publish) -> bytes:
    """Write Publish."""
    if not 0 <= packet.qos <= 2:
        raise unfit("Publish.qos", packet.qos, 2)
    if packet.properties is not None:
        raise too_young("Publish.properties", packet.properties, 5)
    if rule := packet.broken_form():
        raise LocalProtocolError(rule)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = put_long_string(packet.topic, "Publish.topic")
    if packet.qos:
        tail += _H.pack(packet.packet_id)
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
    if pos != end:
        raise trailing("PubAck", end - pos)
    packet = PubAck(packet_id, 0, None)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_puback(packet: PubAck) -> bytes:
    """Write PubAck."""
    if packet.reason:
        raise too_young("PubAck.reason", packet.reason, 5)
    if packet.properties is not None:
        raise too_young("PubAck.properties", packet.properties, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    fields = _H.pack(packet.packet_id)
    return fixed_header(0x40, len(fields)) + fields


def decode_pubrec(buf: bytes, pos: int, end: int, control: int) -> PubRec:
    """Read PubRec."""
    if pos + 2 > end:
        raise truncated((("PubRec.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    if pos != end:
        raise trailing("PubRec", end - pos)
    packet = PubRec(packet_id, 0, None)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_pubrec(packet: PubRec) -> bytes:
    """Write PubRec."""
    if packet.reason:
        raise too_young("PubRec.reason", packet.reason, 5)
    if packet.properties is not None:
        raise too_young("PubRec.properties", packet.properties, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    fields = _H.pack(packet.packet_id)
    return fixed_header(0x50, len(fields)) + fields


def decode_pubrel(buf: bytes, pos: int, end: int, control: int) -> PubRel:
    """Read PubRel."""
    if pos + 2 > end:
        raise truncated((("PubRel.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    if pos != end:
        raise trailing("PubRel", end - pos)
    packet = PubRel(packet_id, 0, None)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_pubrel(packet: PubRel) -> bytes:
    """Write PubRel."""
    if packet.reason:
        raise too_young("PubRel.reason", packet.reason, 5)
    if packet.properties is not None:
        raise too_young("PubRel.properties", packet.properties, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    fields = _H.pack(packet.packet_id)
    return fixed_header(0x62, len(fields)) + fields


def decode_pubcomp(buf: bytes, pos: int, end: int, control: int) -> PubComp:
    """Read PubComp."""
    if pos + 2 > end:
        raise truncated((("PubComp.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    if pos != end:
        raise trailing("PubComp", end - pos)
    packet = PubComp(packet_id, 0, None)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_pubcomp(packet: PubComp) -> bytes:
    """Write PubComp."""
    if packet.reason:
        raise too_young("PubComp.reason", packet.reason, 5)
    if packet.properties is not None:
        raise too_young("PubComp.properties", packet.properties, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    fields = _H.pack(packet.packet_id)
    return fixed_header(0x70, len(fields)) + fields


def decode_subscribe(buf: bytes, pos: int, end: int, control: int) -> Subscribe:
    """Read Subscribe."""
    if pos + 2 > end:
        raise truncated((("Subscribe.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    subscriptions: list[Subscription] = []
    while pos < end:
        subscriptions_item, pos = _decode_subscription(buf, pos, end)
        subscriptions.append(subscriptions_item)
    packet = Subscribe(packet_id, None, subscriptions)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_subscribe(packet: Subscribe) -> bytes:
    """Write Subscribe."""
    if packet.properties is not None:
        raise too_young("Subscribe.properties", packet.properties, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = b"".join([_encode_subscription(item) for item in packet.subscriptions])
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0x82, len(fields)) + fields


def decode_suback(buf: bytes, pos: int, end: int, control: int) -> SubAck:
    """Read SubAck."""
    if pos + 2 > end:
        raise truncated((("SubAck.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    packet = SubAck(packet_id, None, buf[pos:end])
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_suback(packet: SubAck) -> bytes:
    """Write SubAck."""
    if packet.properties is not None:
        raise too_young("SubAck.properties", packet.properties, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    fields = _H.pack(packet.packet_id)
    return b"".join((fixed_header(0x90, len(fields) + len(packet.reasons)), fields, packet.reasons))


def decode_unsubscribe(buf: bytes, pos: int, end: int, control: int) -> Unsubscribe:
    """Read Unsubscribe."""
    if pos + 2 > end:
        raise truncated((("Unsubscribe.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    filters: list[str] = []
    while pos < end:
        filters_item, pos = take_long_string(buf, pos, end, "Unsubscribe.filters")
        filters.append(filters_item)
    packet = Unsubscribe(packet_id, None, filters)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_unsubscribe(packet: Unsubscribe) -> bytes:
    """Write Unsubscribe."""
    if packet.properties is not None:
        raise too_young("Unsubscribe.properties", packet.properties, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = b"".join([put_long_string(item, "Unsubscribe.filters") for item in packet.filters])
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0xA2, len(fields)) + fields


def decode_unsuback(buf: bytes, pos: int, end: int, control: int) -> UnsubAck:
    """Read UnsubAck."""
    if pos + 2 > end:
        raise truncated((("UnsubAck.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    if pos != end:
        raise trailing("UnsubAck", end - pos)
    packet = UnsubAck(packet_id, None, b"")
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_unsuback(packet: UnsubAck) -> bytes:
    """Write UnsubAck."""
    if packet.properties is not None:
        raise too_young("UnsubAck.properties", packet.properties, 5)
    if packet.reasons:
        raise too_young("UnsubAck.reasons", packet.reasons, 5)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    fields = _H.pack(packet.packet_id)
    return fixed_header(0xB0, len(fields)) + fields


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
    if pos != end:
        raise trailing("Disconnect", end - pos)
    return Disconnect(0, None)


def encode_disconnect(packet: Disconnect) -> bytes:
    """Write Disconnect."""
    if packet.reason:
        raise too_young("Disconnect.reason", packet.reason, 5)
    if packet.properties is not None:
        raise too_young("Disconnect.properties", packet.properties, 5)
    return fixed_header(0xE0, 0)


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
}

STREAMED = frozenset({0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x38, 0x39, 0x3A, 0x3B, 0x3C, 0x3D})
"""Control bytes, likewise, of the packets whose payload may be larger than memory."""

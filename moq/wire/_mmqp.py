"""Encoders and decoders of moq.wire.mmqp, straight-line: written by scripts/generate.py."""

# ruff: noqa: A001  (locals have the names of the fields)

from collections.abc import Callable
from struct import Struct

from moq.errors import LocalProtocolError, RemoteProtocolError
from moq.wire.codec import (
    above,
    put_binary,
    put_long_string,
    put_string,
    reserved,
    short_length,
    take_binary,
    take_long_string,
    take_string,
    trailing,
    truncated,
    unfit,
)
from moq.wire.header import fixed_header, take_preamble
from moq.wire.mmqp import (
    Authen,
    Authentication,
    ConAck,
    ConEnd,
    Confirmation,
    ConfirmSyn,
    ConReq,
    ConSyn,
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
    TopicRequest,
    TopReq,
    TypeReq,
    Unsubscribe,
    Will,
)

_B = Struct(">B")
_BB = Struct(">BB")
_BBBHH = Struct(">BBBHH")
_BH = Struct(">BH")
_BHBBH = Struct(">BHBBH")
_BHBHH = Struct(">BHBHH")
_BHH = Struct(">BHH")
_H = Struct(">H")
_HB = Struct(">HB")
_I = Struct(">I")
_Q = Struct(">Q")

SHORTEST = 0x70
"""The control byte of the commonest packet, which has routes of its own."""


def _decode_authentication(buf: bytes, pos: int, end: int) -> tuple[Authentication, int]:
    """Read Authentication."""
    if pos + 1 > end:
        raise truncated((("Authentication.flags", 1),), end - pos)
    flags = buf[pos]
    if flags & 0x0F:
        raise reserved("Authentication.flags", flags, 0x0F)
    pos += 1
    user_name: str | None = None
    if flags & 0x80:
        user_name, pos = take_string(buf, pos, end, "Authentication.user_name")
    password: bytes | None = None
    if flags & 0x40:
        password, pos = take_binary(buf, pos, end, "Authentication.password")
    method: str | None = None
    if flags & 0x20:
        method, pos = take_string(buf, pos, end, "Authentication.method")
    data: bytes | None = None
    if flags & 0x10:
        data, pos = take_binary(buf, pos, end, "Authentication.data")
    return Authentication(user_name, password, method, data), pos


def _encode_authentication(part: Authentication) -> bytes:
    """Write Authentication."""
    flags = 0
    tail = b""
    if part.user_name is not None:
        flags |= 0x80
        tail += put_string(part.user_name, "Authentication.user_name")
    if part.password is not None:
        flags |= 0x40
        tail += put_binary(part.password, "Authentication.password")
    if part.method is not None:
        flags |= 0x20
        tail += put_string(part.method, "Authentication.method")
    if part.data is not None:
        flags |= 0x10
        tail += put_binary(part.data, "Authentication.data")
    return _B.pack(flags) + tail


def _decode_settings(buf: bytes, pos: int, end: int) -> tuple[Settings, int]:
    """Read Settings."""
    if pos + 1 > end:
        raise truncated((("Settings.flags", 1),), end - pos)
    flags = buf[pos]
    if flags & 0x1F:
        raise reserved("Settings.flags", flags, 0x1F)
    pos += 1
    keep_alive_s: int | None = None
    if flags & 0x40:
        if pos + 2 > end:
            raise truncated((("Settings.keep_alive_s", 2),), end - pos)
        keep_alive_s = _H.unpack_from(buf, pos)[0]
        pos += 2
    expiry_s: int | None = None
    if flags & 0x20:
        if pos + 2 > end:
            raise truncated((("Settings.expiry_s", 2),), end - pos)
        expiry_s = _H.unpack_from(buf, pos)[0]
        pos += 2
    return Settings(flags & 0x80 != 0, keep_alive_s, expiry_s), pos


def _encode_settings(part: Settings) -> bytes:
    """Write Settings."""
    flags = part.persistent << 7
    tail = b""
    if part.keep_alive_s is not None:
        flags |= 0x40
        tail += _H.pack(part.keep_alive_s)
    if part.expiry_s is not None:
        flags |= 0x20
        tail += _H.pack(part.expiry_s)
    return _B.pack(flags) + tail


def _decode_will(buf: bytes, pos: int, end: int) -> tuple[Will, int]:
    """Read Will."""
    if pos + 1 > end:
        raise truncated((("Will.flags", 1),), end - pos)
    flags = buf[pos]
    if flags & 0x07:
        raise reserved("Will.flags", flags, 0x07)
    qos = flags >> 4 & 3
    if qos > 2:
        raise above("Will.qos", qos, 2)
    pos += 1
    topic, pos = take_string(buf, pos, end, "Will.topic")
    payload, pos = take_binary(buf, pos, end, "Will.payload")
    expiry_s: int | None = None
    if flags & 0x80:
        if pos + 2 > end:
            raise truncated((("Will.expiry_s", 2),), end - pos)
        expiry_s = _H.unpack_from(buf, pos)[0]
        pos += 2
    delay_s: int | None = None
    if flags & 0x40:
        if pos + 2 > end:
            raise truncated((("Will.delay_s", 2),), end - pos)
        delay_s = _H.unpack_from(buf, pos)[0]
        pos += 2
    return Will(qos, flags & 0x08 != 0, topic, payload, expiry_s, delay_s), pos


def _encode_will(part: Will) -> bytes:
    """Write Will."""
    if not 0 <= part.qos <= 2:
        raise unfit("Will.qos", part.qos, 2)
    flags = part.qos << 4 | part.retain << 3
    tail = put_string(part.topic, "Will.topic")
    tail += put_binary(part.payload, "Will.payload")
    if part.expiry_s is not None:
        flags |= 0x80
        tail += _H.pack(part.expiry_s)
    if part.delay_s is not None:
        flags |= 0x40
        tail += _H.pack(part.delay_s)
    return _B.pack(flags) + tail


def _decode_subscribe_extension(buf: bytes, pos: int, end: int) -> tuple[SubscribeExtension, int]:
    """Read SubscribeExtension."""
    if pos + 1 > end:
        raise truncated((("SubscribeExtension.flags", 1),), end - pos)
    flags = buf[pos]
    if flags & 0x0F:
        raise reserved("SubscribeExtension.flags", flags, 0x0F)
    pos += 1
    period: int | None = None
    if flags & 0x80:
        if pos + 2 > end:
            raise truncated((("SubscribeExtension.period", 2),), end - pos)
        period = _H.unpack_from(buf, pos)[0]
        pos += 2
    priority: int | None = None
    if flags & 0x20:
        if pos + 1 > end:
            raise truncated((("SubscribeExtension.priority", 1),), end - pos)
        priority = buf[pos]
        pos += 1
    deadline: int | None = None
    if flags & 0x10:
        if pos + 2 > end:
            raise truncated((("SubscribeExtension.deadline", 2),), end - pos)
        deadline = _H.unpack_from(buf, pos)[0]
        pos += 2
    return SubscribeExtension(period, flags & 0x40 != 0, priority, deadline), pos


def _encode_subscribe_extension(part: SubscribeExtension) -> bytes:
    """Write SubscribeExtension."""
    flags = part.repeat_name << 6
    tail = b""
    if part.period is not None:
        flags |= 0x80
        tail += _H.pack(part.period)
    if part.priority is not None:
        flags |= 0x20
        tail += _B.pack(part.priority)
    if part.deadline is not None:
        flags |= 0x10
        tail += _H.pack(part.deadline)
    return _B.pack(flags) + tail


def _decode_subscribe(buf: bytes, pos: int, end: int) -> tuple[Subscribe, int]:
    """Read Subscribe."""
    if pos + 3 > end:
        raise truncated((("Subscribe.flags", 1), ("Subscribe.alias", 2)), end - pos)
    flags, alias = _BH.unpack_from(buf, pos)
    qos = flags >> 4 & 3
    pos += 3
    topic: str | None = None
    if flags & 0x08:
        topic, pos = take_string(buf, pos, end, "Subscribe.topic")
    group: str | None = None
    if flags & 0x02:
        group, pos = take_string(buf, pos, end, "Subscribe.group")
    extension: SubscribeExtension | None = None
    if flags & 0x01:
        extension, pos = _decode_subscribe_extension(buf, pos, end)
    part = Subscribe(qos, flags & 0x04 != 0, alias, topic, group, extension)
    if rule := part.broken_rule():
        raise RemoteProtocolError(rule)
    return part, pos


def _encode_subscribe(part: Subscribe) -> bytes:
    """Write Subscribe."""
    if not 0 <= part.qos <= 3:
        raise unfit("Subscribe.qos", part.qos, 3)
    if rule := part.broken_rule():
        raise LocalProtocolError(rule)
    flags = part.qos << 4 | part.accepts_requests << 2
    tail = b""
    if part.topic is not None:
        flags |= 0x08
        tail += put_string(part.topic, "Subscribe.topic")
    if part.group is not None:
        flags |= 0x02
        tail += put_string(part.group, "Subscribe.group")
    if part.extension is not None:
        flags |= 0x01
        tail += _encode_subscribe_extension(part.extension)
    return _BH.pack(flags, part.alias) + tail


def _decode_register(buf: bytes, pos: int, end: int) -> tuple[Register, int]:
    """Read Register."""
    if pos + 3 > end:
        raise truncated((("Register.flags", 1), ("Register.alias", 2)), end - pos)
    flags, alias = _BH.unpack_from(buf, pos)
    if flags & 0x01:
        raise reserved("Register.flags", flags, 0x01)
    mode = flags >> 4 & 3
    if mode > 2:
        raise above("Register.mode", mode, 2)
    pos += 3
    topic: str | None = None
    if flags & 0x08:
        topic, pos = take_string(buf, pos, end, "Register.topic")
    expiry_s: int | None = None
    if flags & 0x02:
        if pos + 2 > end:
            raise truncated((("Register.expiry_s", 2),), end - pos)
        expiry_s = _H.unpack_from(buf, pos)[0]
        pos += 2
    return Register(mode, flags & 0x04 != 0, alias, topic, expiry_s), pos


def _encode_register(part: Register) -> bytes:
    """Write Register."""
    if not 0 <= part.mode <= 2:
        raise unfit("Register.mode", part.mode, 2)
    flags = 0x40 | part.mode << 4 | part.sends_requests << 2
    tail = b""
    if part.topic is not None:
        flags |= 0x08
        tail += put_string(part.topic, "Register.topic")
    if part.expiry_s is not None:
        flags |= 0x02
        tail += _H.pack(part.expiry_s)
    return _BH.pack(flags, part.alias) + tail


def _decode_unsubscribe(buf: bytes, pos: int, end: int) -> tuple[Unsubscribe, int]:
    """Read Unsubscribe."""
    if pos + 3 > end:
        raise truncated((("Unsubscribe.flags", 1), ("Unsubscribe.alias", 2)), end - pos)
    flags, alias = _BH.unpack_from(buf, pos)
    if flags & 0x33:
        raise reserved("Unsubscribe.flags", flags, 0x33)
    pos += 3
    topic: str | None = None
    if flags & 0x08:
        topic, pos = take_string(buf, pos, end, "Unsubscribe.topic")
    return Unsubscribe(flags & 0x04 != 0, alias, topic), pos


def _encode_unsubscribe(part: Unsubscribe) -> bytes:
    """Write Unsubscribe."""
    flags = 0x80 | part.registration << 2
    tail = b""
    if part.topic is not None:
        flags |= 0x08
        tail += put_string(part.topic, "Unsubscribe.topic")
    return _BH.pack(flags, part.alias) + tail


def _decode_query(buf: bytes, pos: int, end: int) -> tuple[Query, int]:
    """Read Query."""
    if pos + 3 > end:
        raise truncated((("Query.flags", 1), ("Query.alias", 2)), end - pos)
    flags, alias = _BH.unpack_from(buf, pos)
    if flags & 0x37:
        raise reserved("Query.flags", flags, 0x37)
    pos += 3
    topic: str | None = None
    if flags & 0x08:
        topic, pos = take_string(buf, pos, end, "Query.topic")
    return Query(alias, topic), pos


def _encode_query(part: Query) -> bytes:
    """Write Query."""
    flags = 0xC0
    tail = b""
    if part.topic is not None:
        flags |= 0x08
        tail += put_string(part.topic, "Query.topic")
    return _BH.pack(flags, part.alias) + tail


def _decode_property(buf: bytes, pos: int, end: int) -> tuple[Property, int]:
    """Read Property."""
    name, pos = take_string(buf, pos, end, "Property.name")
    value, pos = take_long_string(buf, pos, end, "Property.value")
    return Property(name, value), pos


def _encode_property(part: Property) -> bytes:
    """Write Property."""
    tail = put_string(part.name, "Property.name")
    tail += put_long_string(part.value, "Property.value")
    return tail


def _decode_publish_extension(buf: bytes, pos: int, end: int) -> tuple[PublishExtension, int]:
    """Read PublishExtension."""
    if pos + 1 > end:
        raise truncated((("PublishExtension.flags", 1),), end - pos)
    flags = buf[pos]
    pos += 1
    ttl_ms: int | None = None
    if flags & 0x80:
        if pos + 4 > end:
            raise truncated((("PublishExtension.ttl_ms", 4),), end - pos)
        ttl_ms = _I.unpack_from(buf, pos)[0]
        pos += 4
    timestamp_ns: int | None = None
    if flags & 0x40:
        if pos + 8 > end:
            raise truncated((("PublishExtension.timestamp_ns", 8),), end - pos)
        timestamp_ns = _Q.unpack_from(buf, pos)[0]
        pos += 8
    subscribers: list[str] | None = None
    if flags & 0x20:
        if pos + 1 > end:
            raise truncated((("PublishExtension.subscribers", 1),), end - pos)
        count = buf[pos]
        pos += 1
        subscribers = []
        for _ in range(count):
            subscribers_item, pos = take_string(buf, pos, end, "PublishExtension.subscribers")
            subscribers.append(subscribers_item)
    type_id: int | None = None
    if flags & 0x04:
        if pos + 2 > end:
            raise truncated((("PublishExtension.type_id", 2),), end - pos)
        type_id = _H.unpack_from(buf, pos)[0]
        pos += 2
    deadline_ms: int | None = None
    if flags & 0x02:
        if pos + 4 > end:
            raise truncated((("PublishExtension.deadline_ms", 4),), end - pos)
        deadline_ms = _I.unpack_from(buf, pos)[0]
        pos += 4
    properties: list[Property] | None = None
    if flags & 0x01:
        if pos + 1 > end:
            raise truncated((("PublishExtension.properties", 1),), end - pos)
        count = buf[pos]
        pos += 1
        properties = []
        for _ in range(count):
            properties_item, pos = _decode_property(buf, pos, end)
            properties.append(properties_item)
    return PublishExtension(
        ttl_ms, timestamp_ns, subscribers, flags & 0x10 != 0, flags & 0x08 != 0, type_id, deadline_ms, properties
    ), pos


def _encode_publish_extension(part: PublishExtension) -> bytes:
    """Write PublishExtension."""
    flags = part.group_start << 4 | part.encrypted << 3
    tail = b""
    if part.ttl_ms is not None:
        flags |= 0x80
        tail += _I.pack(part.ttl_ms)
    if part.timestamp_ns is not None:
        flags |= 0x40
        tail += _Q.pack(part.timestamp_ns)
    if part.subscribers is not None:
        flags |= 0x20
        tail += short_length(part.subscribers, "PublishExtension.subscribers") + b"".join(
            [put_string(item, "PublishExtension.subscribers") for item in part.subscribers]
        )
    if part.type_id is not None:
        flags |= 0x04
        tail += _H.pack(part.type_id)
    if part.deadline_ms is not None:
        flags |= 0x02
        tail += _I.pack(part.deadline_ms)
    if part.properties is not None:
        flags |= 0x01
        tail += short_length(part.properties, "PublishExtension.properties") + b"".join(
            [_encode_property(item) for item in part.properties]
        )
    return _B.pack(flags) + tail


def _decode_confirmation(buf: bytes, pos: int, end: int) -> tuple[Confirmation, int]:
    """Read Confirmation."""
    if pos + 1 > end:
        raise truncated((("Confirmation.flags", 1),), end - pos)
    flags = buf[pos]
    if flags & 0x1F:
        raise reserved("Confirmation.flags", flags, 0x1F)
    pos += 1
    client_id: str | None = None
    if flags & 0x80:
        client_id, pos = take_string(buf, pos, end, "Confirmation.client_id")
    after_ms: int | None = None
    if flags & 0x40:
        if pos + 4 > end:
            raise truncated((("Confirmation.after_ms", 4),), end - pos)
        after_ms = _I.unpack_from(buf, pos)[0]
        pos += 4
    reply: bytes | None = None
    if flags & 0x20:
        reply, pos = take_binary(buf, pos, end, "Confirmation.reply")
    return Confirmation(client_id, after_ms, reply), pos


def _encode_confirmation(part: Confirmation) -> bytes:
    """Write Confirmation."""
    flags = 0
    tail = b""
    if part.client_id is not None:
        flags |= 0x80
        tail += put_string(part.client_id, "Confirmation.client_id")
    if part.after_ms is not None:
        flags |= 0x40
        tail += _I.pack(part.after_ms)
    if part.reply is not None:
        flags |= 0x20
        tail += put_binary(part.reply, "Confirmation.reply")
    return _B.pack(flags) + tail


_TOPIC_REQUEST_DECODERS: tuple[Callable[[bytes, int, int], tuple[TopicRequest, int]], ...] = (
    _decode_subscribe,
    _decode_register,
    _decode_unsubscribe,
    _decode_query,
)


_TOPIC_REQUEST_ENCODERS: dict[type[TopicRequest], Callable[..., bytes]] = {
    Subscribe: _encode_subscribe,
    Register: _encode_register,
    Unsubscribe: _encode_unsubscribe,
    Query: _encode_query,
}


def decode_conreq(buf: bytes, pos: int, end: int, control: int) -> ConReq:
    """Read ConReq."""
    pos = take_preamble(buf, pos, end)
    if pos + 2 > end:
        raise truncated((("ConReq.version", 1), ("ConReq.flags", 1)), end - pos)
    version, flags = _BB.unpack_from(buf, pos)
    if flags & 0x03:
        raise reserved("ConReq.flags", flags, 0x03)
    pos += 2
    authentication: Authentication | None = None
    if flags & 0x80:
        authentication, pos = _decode_authentication(buf, pos, end)
    settings: Settings | None = None
    if flags & 0x40:
        settings, pos = _decode_settings(buf, pos, end)
    initial_will: Will | None = None
    if flags & 0x20:
        initial_will, pos = _decode_will(buf, pos, end)
    last_will: Will | None = None
    if flags & 0x10:
        last_will, pos = _decode_will(buf, pos, end)
    topics: list[TopicRequest] | None = None
    if flags & 0x08:
        if pos + 1 > end:
            raise truncated((("ConReq.topics", 1),), end - pos)
        count = buf[pos]
        pos += 1
        topics = []
        for _ in range(count):
            if pos >= end:
                raise truncated((("ConReq.topics", 1),), 0)
            topics_item, pos = _TOPIC_REQUEST_DECODERS[buf[pos] >> 6](buf, pos, end)
            topics.append(topics_item)
    client_id: str | None = None
    if flags & 0x04:
        client_id, pos = take_string(buf, pos, end, "ConReq.client_id")
    if pos != end:
        raise trailing("ConReq", end - pos)
    packet = ConReq(control & 0x02 != 0, version, authentication, settings, initial_will, last_will, topics, client_id)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_conreq(packet: ConReq) -> bytes:
    """Write ConReq."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    flags = 0
    tail = b""
    if packet.authentication is not None:
        flags |= 0x80
        tail += _encode_authentication(packet.authentication)
    if packet.settings is not None:
        flags |= 0x40
        tail += _encode_settings(packet.settings)
    if packet.initial_will is not None:
        flags |= 0x20
        tail += _encode_will(packet.initial_will)
    if packet.last_will is not None:
        flags |= 0x10
        tail += _encode_will(packet.last_will)
    if packet.topics is not None:
        flags |= 0x08
        tail += short_length(packet.topics, "ConReq.topics") + b"".join(
            [_TOPIC_REQUEST_ENCODERS[type(item)](item) for item in packet.topics]
        )
    if packet.client_id is not None:
        flags |= 0x04
        tail += put_string(packet.client_id, "ConReq.client_id")
    fields = b"\x04MMQP" + _BB.pack(packet.version, flags) + tail
    return fixed_header(0x10 | packet.resume << 1, len(fields)) + fields


def decode_conack(buf: bytes, pos: int, end: int, control: int) -> ConAck:
    """Read ConAck."""
    if pos + 2 > end:
        raise truncated((("ConAck.flags", 1), ("ConAck.reason", 1)), end - pos)
    flags, reason = _BB.unpack_from(buf, pos)
    if flags & 0x3F:
        raise reserved("ConAck.flags", flags, 0x3F)
    pos += 2
    client_id: str | None = None
    if flags & 0x40:
        client_id, pos = take_string(buf, pos, end, "ConAck.client_id")
    if pos != end:
        raise trailing("ConAck", end - pos)
    return ConAck(flags & 0x80 != 0, reason, client_id)


def encode_conack(packet: ConAck) -> bytes:
    """Write ConAck."""
    flags = packet.session_present << 7
    tail = b""
    if packet.client_id is not None:
        flags |= 0x40
        tail += put_string(packet.client_id, "ConAck.client_id")
    fields = _BB.pack(flags, packet.reason) + tail
    return fixed_header(0x20, len(fields)) + fields


def decode_consyn(buf: bytes, pos: int, end: int, control: int) -> ConSyn:
    """Read ConSyn."""
    if pos != end:
        raise trailing("ConSyn", end - pos)
    return ConSyn()


def encode_consyn(packet: ConSyn) -> bytes:
    """Write ConSyn."""
    return fixed_header(0x30, 0)


def decode_conend(buf: bytes, pos: int, end: int, control: int) -> ConEnd:
    """Read ConEnd."""
    if pos + 1 > end:
        raise truncated((("ConEnd.reason", 1),), end - pos)
    reason = buf[pos]
    pos += 1
    if pos != end:
        raise trailing("ConEnd", end - pos)
    return ConEnd(reason)


def encode_conend(packet: ConEnd) -> bytes:
    """Write ConEnd."""
    fields = _B.pack(packet.reason)
    return fixed_header(0x40, len(fields)) + fields


def decode_topreq(buf: bytes, pos: int, end: int, control: int) -> TopReq:
    """Read TopReq."""
    if pos + 2 > end:
        raise truncated((("TopReq.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    requests: list[TopicRequest] = []
    while pos < end:
        requests_item, pos = _TOPIC_REQUEST_DECODERS[buf[pos] >> 6](buf, pos, end)
        requests.append(requests_item)
    packet = TopReq(packet_id, requests)
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_topreq(packet: TopReq) -> bytes:
    """Write TopReq."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    tail = b"".join([_TOPIC_REQUEST_ENCODERS[type(item)](item) for item in packet.requests])
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0x50, len(fields)) + fields


def decode_topack(buf: bytes, pos: int, end: int, control: int) -> TopAck:
    """Read TopAck."""
    if pos + 2 > end:
        raise truncated((("TopAck.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    packet = TopAck(packet_id, buf[pos:end])
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_topack(packet: TopAck) -> bytes:
    """Write TopAck."""
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    fields = _H.pack(packet.packet_id)
    return b"".join((fixed_header(0x60, len(fields) + len(packet.reasons)), fields, packet.reasons))


def decode_queryack(buf: bytes, pos: int, end: int, control: int) -> QueryAck:
    """Read QueryAck."""
    if pos + 3 > end:
        raise truncated((("QueryAck.packet_id", 2), ("QueryAck.reason", 1)), end - pos)
    packet_id, reason = _HB.unpack_from(buf, pos)
    pos += 3
    subscribers: list[str] = []
    while pos < end:
        subscribers_item, pos = take_string(buf, pos, end, "QueryAck.subscribers")
        subscribers.append(subscribers_item)
    return QueryAck(packet_id, reason, subscribers)


def encode_queryack(packet: QueryAck) -> bytes:
    """Write QueryAck."""
    tail = b"".join([put_string(item, "QueryAck.subscribers") for item in packet.subscribers])
    fields = _HB.pack(packet.packet_id, packet.reason) + tail
    return fixed_header(0x61, len(fields)) + fields


def decode_pubreq(buf: bytes, pos: int, end: int, control: int) -> PubReq:
    """Read PubReq."""
    if pos + 5 > end:
        raise truncated((("PubReq.flags", 1), ("PubReq.packet_id", 2), ("PubReq.alias", 2)), end - pos)
    flags, packet_id, alias = _BHH.unpack_from(buf, pos)
    if not (flags or control & 3 or packet_id):
        return PubReq(0, False, False, 0, 0, alias, None, None, None, buf[pos + 5 : end])
    if flags & 0x03:
        raise reserved("PubReq.flags", flags, 0x03)
    qos = flags >> 4 & 3
    pos += 5
    topic: str | None = None
    if flags & 0x08:
        topic, pos = take_string(buf, pos, end, "PubReq.topic")
    waited: int | None = None
    if qos == 3:
        if pos + 2 > end:
            raise truncated((("PubReq.waited", 2),), end - pos)
        waited = _H.unpack_from(buf, pos)[0]
        pos += 2
    extension: PublishExtension | None = None
    if flags & 0x04:
        extension, pos = _decode_publish_extension(buf, pos, end)
    packet = PubReq(
        control & 3, flags & 0x80 != 0, flags & 0x40 != 0, qos, packet_id, alias, topic, waited, extension, buf[pos:end]
    )
    if rule := packet.broken_rule():
        raise RemoteProtocolError(rule)
    return packet


def encode_pubreq(packet: PubReq) -> bytes:
    """Write PubReq."""
    payload = packet.payload
    size = len(payload) + 5
    if (
        size <= 0xFF
        and packet.topic is None
        and packet.waited is None
        and packet.extension is None
        and not (packet.kind or packet.retain or packet.dup or packet.qos or packet.packet_id)
    ):
        return _BBBHH.pack(SHORTEST, size, 0, 0, packet.alias) + payload
    if not 0 <= packet.kind <= 2:
        raise unfit("PubReq.kind", packet.kind, 2)
    if not 0 <= packet.qos <= 3:
        raise unfit("PubReq.qos", packet.qos, 3)
    if rule := packet.broken_rule():
        raise LocalProtocolError(rule)
    flags = packet.retain << 7 | packet.dup << 6 | packet.qos << 4
    if packet.topic is None and packet.waited is None and packet.extension is None:
        if size <= 0xFF:
            return _BBBHH.pack(0x70 | packet.kind, size, flags, packet.packet_id, packet.alias) + payload
        if size <= 0xFFFF:
            return _BHBHH.pack(0x04 | 0x70 | packet.kind, size, flags, packet.packet_id, packet.alias) + payload
    tail = b""
    if packet.topic is not None:
        flags |= 0x08
        tail += put_string(packet.topic, "PubReq.topic")
    if packet.waited is not None:
        tail += _H.pack(packet.waited)
    if packet.extension is not None:
        flags |= 0x04
        tail += _encode_publish_extension(packet.extension)
    fields = _BHH.pack(flags, packet.packet_id, packet.alias) + tail
    return b"".join((fixed_header(0x70 | packet.kind, len(fields), len(packet.payload)), fields, packet.payload))


def decode_pubsyn(buf: bytes, pos: int, end: int, control: int) -> PubSyn:
    """Read PubSyn."""
    if pos + 3 > end:
        raise truncated((("PubSyn.packet_id", 2), ("PubSyn.reason", 1)), end - pos)
    packet_id, reason = _HB.unpack_from(buf, pos)
    pos += 3
    if pos != end:
        raise trailing("PubSyn", end - pos)
    return PubSyn(control & 3, packet_id, reason)


def encode_pubsyn(packet: PubSyn) -> bytes:
    """Write PubSyn."""
    if not 0 <= packet.kind <= 2:
        raise unfit("PubSyn.kind", packet.kind, 2)
    fields = _HB.pack(packet.packet_id, packet.reason)
    return fixed_header(0x80 | packet.kind, len(fields)) + fields


def decode_confirmsyn(buf: bytes, pos: int, end: int, control: int) -> ConfirmSyn:
    """Read ConfirmSyn."""
    if pos + 3 > end:
        raise truncated((("ConfirmSyn.packet_id", 2), ("ConfirmSyn.reason", 1)), end - pos)
    packet_id, reason = _HB.unpack_from(buf, pos)
    pos += 3
    confirmations: list[Confirmation] = []
    while pos < end:
        confirmations_item, pos = _decode_confirmation(buf, pos, end)
        confirmations.append(confirmations_item)
    return ConfirmSyn(packet_id, reason, confirmations)


def encode_confirmsyn(packet: ConfirmSyn) -> bytes:
    """Write ConfirmSyn."""
    tail = b"".join([_encode_confirmation(item) for item in packet.confirmations])
    fields = _HB.pack(packet.packet_id, packet.reason) + tail
    return fixed_header(0x83, len(fields)) + fields


def decode_puback(buf: bytes, pos: int, end: int, control: int) -> PubAck:
    """Read PubAck."""
    if pos + 3 > end:
        raise truncated((("PubAck.packet_id", 2), ("PubAck.reason", 1)), end - pos)
    packet_id, reason = _HB.unpack_from(buf, pos)
    pos += 3
    if pos != end:
        raise trailing("PubAck", end - pos)
    return PubAck(control & 3, packet_id, reason)


def encode_puback(packet: PubAck) -> bytes:
    """Write PubAck."""
    if not 0 <= packet.kind <= 2:
        raise unfit("PubAck.kind", packet.kind, 2)
    fields = _HB.pack(packet.packet_id, packet.reason)
    return fixed_header(0x90 | packet.kind, len(fields)) + fields


def decode_authen(buf: bytes, pos: int, end: int, control: int) -> Authen:
    """Read Authen."""
    if pos + 1 > end:
        raise truncated((("Authen.reason", 1),), end - pos)
    reason = buf[pos]
    pos += 1
    method, pos = take_string(buf, pos, end, "Authen.method")
    return Authen(reason, method, buf[pos:end])


def encode_authen(packet: Authen) -> bytes:
    """Write Authen."""
    tail = put_string(packet.method, "Authen.method")
    fields = _B.pack(packet.reason) + tail
    return b"".join((fixed_header(0xA0, len(fields) + len(packet.data)), fields, packet.data))


def decode_typereq(buf: bytes, pos: int, end: int, control: int) -> TypeReq:
    """Read TypeReq."""
    if pos + 2 > end:
        raise truncated((("TypeReq.packet_id", 2),), end - pos)
    (packet_id,) = _H.unpack_from(buf, pos)
    pos += 2
    topic, pos = take_string(buf, pos, end, "TypeReq.topic")
    if pos != end:
        raise trailing("TypeReq", end - pos)
    return TypeReq(packet_id, topic)


def encode_typereq(packet: TypeReq) -> bytes:
    """Write TypeReq."""
    tail = put_string(packet.topic, "TypeReq.topic")
    fields = _H.pack(packet.packet_id) + tail
    return fixed_header(0xB0, len(fields)) + fields


def decode_pubtype(buf: bytes, pos: int, end: int, control: int) -> PubType:
    """Read PubType."""
    if pos + 7 > end:
        raise truncated(
            (
                ("PubType.flags", 1),
                ("PubType.packet_id", 2),
                ("PubType.reason", 1),
                ("PubType.format", 1),
                ("PubType.type_id", 2),
            ),
            end - pos,
        )
    flags, packet_id, reason, format, type_id = _BHBBH.unpack_from(buf, pos)
    if flags & 0x3F:
        raise reserved("PubType.flags", flags, 0x3F)
    pos += 7
    topic, pos = take_string(buf, pos, end, "PubType.topic")
    media_type, pos = take_string(buf, pos, end, "PubType.media_type")
    return PubType(
        flags & 0x80 != 0, flags & 0x40 != 0, packet_id, reason, format, type_id, topic, media_type, buf[pos:end]
    )


def encode_pubtype(packet: PubType) -> bytes:
    """Write PubType."""
    flags = packet.more << 7 | packet.answer << 6
    tail = put_string(packet.topic, "PubType.topic")
    tail += put_string(packet.media_type, "PubType.media_type")
    fields = _BHBBH.pack(flags, packet.packet_id, packet.reason, packet.format, packet.type_id) + tail
    return b"".join((fixed_header(0xC0, len(fields) + len(packet.schema)), fields, packet.schema))


def cut_shortest(buf: bytes, pos: int, append: Callable[[Packet], None]) -> int:
    """Read PubReq packets of the shortest form as long as there are; return where they end."""
    size = len(buf)
    last = size - 7
    while pos <= last:
        control, remaining, flags, packet_id, alias = _BBBHH.unpack_from(buf, pos)
        end = pos + 2 + remaining
        if control != SHORTEST or flags or packet_id or remaining < 5 or end > size:
            break
        append(PubReq(0, False, False, 0, 0, alias, None, None, None, buf[pos + 7 : end]))
        pos = end
    return pos


Decoder = Callable[[bytes, int, int, int], Packet]

DECODERS: dict[int, Decoder] = {
    0x10: decode_conreq,
    0x12: decode_conreq,
    0x20: decode_conack,
    0x30: decode_consyn,
    0x40: decode_conend,
    0x50: decode_topreq,
    0x60: decode_topack,
    0x61: decode_queryack,
    0x70: decode_pubreq,
    0x71: decode_pubreq,
    0x72: decode_pubreq,
    0x80: decode_pubsyn,
    0x81: decode_pubsyn,
    0x82: decode_pubsyn,
    0x83: decode_confirmsyn,
    0x90: decode_puback,
    0x91: decode_puback,
    0x92: decode_puback,
    0xA0: decode_authen,
    0xB0: decode_typereq,
    0xC0: decode_pubtype,
}
"""By control byte, of which only type and flags are set."""

ENCODERS: dict[type[Packet], Callable[..., bytes]] = {
    ConReq: encode_conreq,
    ConAck: encode_conack,
    ConSyn: encode_consyn,
    ConEnd: encode_conend,
    TopReq: encode_topreq,
    TopAck: encode_topack,
    QueryAck: encode_queryack,
    PubReq: encode_pubreq,
    PubSyn: encode_pubsyn,
    ConfirmSyn: encode_confirmsyn,
    PubAck: encode_puback,
    Authen: encode_authen,
    TypeReq: encode_typereq,
    PubType: encode_pubtype,
}

STREAMED = frozenset({0x70, 0x71, 0x72})
"""Control bytes, likewise, of the packets whose payload may be larger than memory."""

"""Every MMQP packet, declared once: annotations are the layout, attribute order is wire order.

The encoders and decoders (`_mmqp.py`), the tables of `docs/protocol.md` and the test strategies are all derived from
these declarations, the comments beside the fields included. Rules that span fields are `broken_rule` methods, asked
by both directions; whether a topic is well formed is for the dialect to judge.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, ClassVar, Final

from moq.wire.fields import (
    U8,
    U16,
    U32,
    U64,
    Bits,
    ControlBits,
    Counted,
    LongString,
    Present,
    RestOfPacket,
    ShortBinary,
    ShortString,
    ToEnd,
    When,
)

PROTOCOL_NAME: Final = "MMQP"
VERSION_MOQ_1: Final = 255

FIRST_BROKER_ALIAS: Final = 0x8000
"""Clients choose topic aliases below it, the broker from here on; 0 is no alias."""

NEVER: Final = 0xFFFF
"""An expiry that never comes."""


class PublishKind(IntEnum):
    """The TYPE bits of PUBREQ, PUBSYN and PUBACK."""

    PUBLISH = 0
    REQUEST = 1
    RESPONSE = 2


class RetentionMode(IntEnum):
    """How a topic keeps its retained messages."""

    OVERRIDE = 0
    FIFO = 1
    LIFO = 2


class TypeFormat(IntEnum):
    """The language a topic's type is described in."""

    OPAQUE = 0
    JSON_SCHEMA = 1
    PROTOBUF = 2
    AVRO = 3
    OMG_IDL = 4


# --- sections of CONREQ -------------------------------------------------------------------------------


@dataclass(slots=True)
class Authentication:
    """The AUTH section: who connects, and the proof."""

    user_name: Annotated[ShortString | None, Present(7, "USER")] = None
    password: Annotated[ShortBinary | None, Present(6, "PWD")] = None
    method: Annotated[ShortString | None, Present(5, "MTHD")] = None
    data: Annotated[ShortBinary | None, Present(4, "DATA")] = None


@dataclass(slots=True)
class Settings:
    """The SET section: what the client asks of its session."""

    persistent: Annotated[bool, Bits(7, 7, "PER", 1)] = False  # the session survives a restart of the broker
    keep_alive_s: Annotated[U16 | None, Present(6, "KPAL")] = None  # seconds
    expiry_s: Annotated[U16 | None, Present(5, "EXP")] = None  # seconds; 0xFFFF: never


@dataclass(slots=True)
class Will:
    """The IWM and LWM sections: a message published when the client appears, or vanishes."""

    qos: Annotated[int, Bits(5, 4, "QoS", 2)]  # 0 to 2
    retain: Annotated[bool, Bits(3, 3, "RET", 1)]
    topic: ShortString
    payload: ShortBinary
    expiry_s: Annotated[U16 | None, Present(7, "EXP")] = None  # seconds; 0xFFFF: never
    delay_s: Annotated[U16 | None, Present(6, "DLY")] = None  # seconds


# --- topic requests -----------------------------------------------------------------------------------


@dataclass(slots=True)
class SubscribeExtension:
    """The extension of SUBSCRIBE."""

    period: Annotated[U16 | None, Present(7, "MRP")] = None  # at most one message per period, units of 10 ms
    repeat_name: Annotated[bool, Bits(6, 6, "RPT", 1)] = False  # results are named after topics, not the operator
    priority: Annotated[U8 | None, Present(5, "PRI")] = None  # lower goes first
    deadline: Annotated[U16 | None, Present(4, "DDL")] = None  # later than this is not sent, units of 10 ms


@dataclass(slots=True)
class Subscribe:
    """Send me what is published on this topic."""

    TAG: ClassVar[int] = 0

    qos: Annotated[int, Bits(5, 4, "QoS", 3)]
    accepts_requests: Annotated[bool, Bits(2, 2, "REQ", 1)]  # forward REQUEST messages to me
    alias: U16
    topic: Annotated[ShortString | None, Present(3, "TOP")] = None
    group: Annotated[ShortString | None, Present(1, "GRP")] = None  # one member of the group receives; not empty
    extension: Annotated[SubscribeExtension | None, Present(0, "EXT")] = None

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        return "Subscribe.group is empty; a group has a name" if self.group == "" else None


@dataclass(slots=True)
class Register:
    """I will publish on this topic; keep its messages like this."""

    TAG: ClassVar[int] = 1

    mode: Annotated[int, Bits(5, 4, "QoS", 2)]  # retention: 0 OVERRIDE, 1 FIFO, 2 LIFO
    sends_requests: Annotated[bool, Bits(2, 2, "REQ", 1)]
    alias: U16
    topic: Annotated[ShortString | None, Present(3, "TOP")] = None
    expiry_s: Annotated[U16 | None, Present(1, "EXP")] = None  # of retained messages, seconds; 0xFFFF: never


@dataclass(slots=True)
class Unsubscribe:
    """Undo a subscription, or a registration."""

    TAG: ClassVar[int] = 2

    registration: Annotated[bool, Bits(2, 2, "REG", 1)]  # drops the registration instead
    alias: U16
    topic: Annotated[ShortString | None, Present(3, "TOP")] = None


@dataclass(slots=True)
class Query:
    """Ask for the identifiers of a topic's subscribers; alone in its TOPREQ, answered by TOPACK with LST."""

    TAG: ClassVar[int] = 3

    alias: U16
    topic: Annotated[ShortString | None, Present(3, "TOP")] = None


TopicRequest = Subscribe | Register | Unsubscribe | Query


# --- packets ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ConReq:
    """CONREQ opens a session: client to broker, the first packet of every connection."""

    TYPE: ClassVar[int] = 1
    PREAMBLE: ClassVar[bytes] = b"\x04" + PROTOCOL_NAME.encode()

    resume: Annotated[bool, ControlBits(1, 1, "RES", 1)] = False  # go on with the session of this client identifier
    version: U8 = VERSION_MOQ_1  # 255: MoQ 1
    authentication: Annotated[Authentication | None, Present(7, "AUTH")] = None
    settings: Annotated[Settings | None, Present(6, "SET")] = None
    initial_will: Annotated[Will | None, Present(5, "IWM")] = None
    last_will: Annotated[Will | None, Present(4, "LWM")] = None
    topics: Annotated[Counted[TopicRequest] | None, Present(3, "TOP")] = None  # at least one; no QUERY
    client_id: Annotated[ShortString | None, Present(2, "CID")] = None  # without it the broker assigns one

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if self.topics is None:
            return None
        if not self.topics:
            return "ConReq.topics is empty; TOP announces at least one topic request"
        if any(type(request) is Query for request in self.topics):
            return "ConReq.topics contains QUERY; it is asked for in a TOPREQ of its own"
        return None


@dataclass(slots=True)
class ConAck:
    """CONACK answers CONREQ: broker to client."""

    TYPE: ClassVar[int] = 2

    session_present: Annotated[bool, Bits(7, 7, "SP", 1)]  # the session asked for by RES was found
    reason: U8
    client_id: Annotated[ShortString | None, Present(6, "CID")] = None  # the identifier the broker assigned


@dataclass(slots=True)
class ConSyn:
    """CONSYN asks "are you there?" and answers "I am here": both ways."""

    TYPE: ClassVar[int] = 3


@dataclass(slots=True)
class ConEnd:
    """CONEND ends the connection and says why: both ways."""

    TYPE: ClassVar[int] = 4

    reason: U8


@dataclass(slots=True)
class TopReq:
    """TOPREQ carries topic requests: client to broker."""

    TYPE: ClassVar[int] = 5

    packet_id: U16  # not 0
    requests: ToEnd[TopicRequest]  # at least one; a QUERY is alone

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if self.packet_id == 0:
            return "TopReq.packet_id is 0; TOPACK needs one to answer"
        if not self.requests:
            return "TopReq.requests is empty; at least one is expected"
        if len(self.requests) > 1 and any(type(request) is Query for request in self.requests):
            return f"TopReq.requests has QUERY among {len(self.requests)}; it must be alone"
        return None


@dataclass(slots=True)
class TopAck:
    """TOPACK answers TOPREQ with one reason per request, in order: broker to client."""

    TYPE: ClassVar[int] = 6

    packet_id: U16  # 0 answers the topic requests of CONREQ
    reasons: RestOfPacket  # one byte each, at least one

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        return None if self.reasons else "TopAck.reasons is empty; every request has one"


@dataclass(slots=True)
class QueryAck:
    """TOPACK with LST, bit 0 of its control byte, answers QUERY: broker to client."""

    TYPE: ClassVar[int] = 6
    CONTROL: ClassVar[int] = 0b01

    packet_id: U16
    reason: U8
    subscribers: ToEnd[ShortString]  # client identifiers


@dataclass(slots=True)
class Property:
    """One user property."""

    name: ShortString
    value: LongString


@dataclass(slots=True)
class PublishExtension:
    """The extension of PUBREQ."""

    ttl_ms: Annotated[U32 | None, Present(7, "TTL")] = None  # how long the value is of use, milliseconds
    timestamp_ns: Annotated[U64 | None, Present(6, "TIME")] = None  # sent at, nanoseconds since 1970
    subscribers: Annotated[Counted[ShortString] | None, Present(5, "IDS")] = None  # whose confirmations count
    group_start: Annotated[bool, Bits(4, 4, "GRP", 1)] = False  # a late joiner may begin here
    encrypted: Annotated[bool, Bits(3, 3, "ENC", 1)] = False  # end to end: the broker cannot read the payload
    type_id: Annotated[U16 | None, Present(2, "TYP")] = None  # the PUBTYPE this payload follows
    deadline_ms: Annotated[U32 | None, Present(1, "DDL")] = None  # when a request or a QoS 3 collection ends
    properties: Annotated[Counted[Property] | None, Present(0, "PRP")] = None


@dataclass(slots=True)
class PubReq:
    """PUBREQ carries one message: both ways."""

    TYPE: ClassVar[int] = 7
    STREAMED: ClassVar[bool] = True
    """The payload may be larger than memory: a frame reader hands it on in chunks."""
    SHORTEST: ClassVar[dict[str, int]] = {"kind": 0, "packet_id": 0}
    """The commonest form, which has routes of its own: these fields and the flag byte zero, so no rule to check."""

    kind: Annotated[int, ControlBits(1, 0, "TYPE", 2)]  # 0 PUBLISH, 1 REQUEST, 2 RESPONSE
    retain: Annotated[bool, Bits(7, 7, "RET", 1)]
    dup: Annotated[bool, Bits(6, 6, "DUP", 1)]  # sent before, on an earlier connection; not with QoS 0
    qos: Annotated[int, Bits(5, 4, "QoS", 3)]
    packet_id: U16  # 0 exactly when a PUBLISH has QoS 0
    alias: U16  # 0: none
    topic: Annotated[ShortString | None, Present(3, "TOP")]
    waited: Annotated[U16 | None, When("qos", 3)]  # confirmations to wait for; 0: the first, asynchronously
    extension: Annotated[PublishExtension | None, Present(2, "EXT")]
    payload: RestOfPacket

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if self.qos == 0:
            if self.dup:
                return "PubReq.dup is set with qos 0; only acknowledged messages are repeated"
            if self.kind == 0 and self.packet_id:
                return f"PubReq.packet_id is {self.packet_id}; a PUBLISH of qos 0 has 0"
        if self.packet_id == 0 and (self.qos or self.kind):
            return f"PubReq.packet_id is 0; kind {self.kind} with qos {self.qos} needs one"
        if (self.waited is None) is (self.qos == 3):
            return f"PubReq.waited is {self.waited}; it is given exactly when qos is 3, which is {self.qos}"
        return None


@dataclass(slots=True)
class PubSyn:
    """PUBSYN moves an exchange on: SUCCESS "received", RELEASE "let go", 0x80 and above "refused"; both ways."""

    TYPE: ClassVar[int] = 8

    kind: Annotated[int, ControlBits(1, 0, "TYPE", 2)]
    packet_id: U16
    reason: U8


@dataclass(slots=True)
class Confirmation:
    """That one subscriber has a message of QoS 3."""

    client_id: Annotated[ShortString | None, Present(7, "ID")] = None  # not from a subscriber, whom the broker knows
    after_ms: Annotated[U32 | None, Present(6, "TIME")] = None  # since the broker took the message
    reply: Annotated[ShortBinary | None, Present(5, "RPL")] = None  # the subscriber's words for the publisher


@dataclass(slots=True)
class ConfirmSyn:
    """PUBSYN with TYPE 3 confirms a message of QoS 3: subscriber to broker for itself, broker to publisher for all."""

    TYPE: ClassVar[int] = 8
    CONTROL: ClassVar[int] = 0b11

    packet_id: U16
    reason: U8
    confirmations: ToEnd[Confirmation]  # a subscriber's own is one


@dataclass(slots=True)
class PubAck:
    """PUBACK ends the exchange of its packet identifier: both ways."""

    TYPE: ClassVar[int] = 9

    kind: Annotated[int, ControlBits(1, 0, "TYPE", 2)]
    packet_id: U16
    reason: U8


@dataclass(slots=True)
class Authen:
    """AUTHEN carries one step of an authentication: both ways."""

    TYPE: ClassVar[int] = 10

    reason: U8  # SUCCESS, CONTINUE_AUTHENTICATION or REAUTHENTICATE
    method: ShortString
    data: RestOfPacket


@dataclass(slots=True)
class TypeReq:
    """TYPEREQ asks what is published on these topics: both ways."""

    TYPE: ClassVar[int] = 11

    packet_id: U16
    topic: ShortString  # a topic filter


@dataclass(slots=True)
class PubType:
    """PUBTYPE says what is published on a topic: both ways."""

    TYPE: ClassVar[int] = 12

    more: Annotated[bool, Bits(7, 7, "MORE", 1)]  # further PUBTYPE packets of the same answer follow
    answer: Annotated[bool, Bits(6, 6, "ANS", 1)]  # answers the TYPEREQ of this packet identifier; else announces
    packet_id: U16
    reason: U8
    format: U8  # 0 OPAQUE, 1 JSON_SCHEMA, 2 PROTOBUF, 3 AVRO, 4 OMG_IDL
    type_id: U16
    topic: ShortString
    media_type: ShortString
    schema: RestOfPacket = field(default=b"")


Packet = (
    ConReq
    | ConAck
    | ConSyn
    | ConEnd
    | TopReq
    | TopAck
    | QueryAck
    | PubReq
    | PubSyn
    | ConfirmSyn
    | PubAck
    | Authen
    | TypeReq
    | PubType
)

PACKETS: Final[tuple[type[Packet], ...]] = (
    ConReq,
    ConAck,
    ConSyn,
    ConEnd,
    TopReq,
    TopAck,
    QueryAck,
    PubReq,
    PubSyn,
    ConfirmSyn,
    PubAck,
    Authen,
    TypeReq,
    PubType,
)

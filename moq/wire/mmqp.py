"""Every MMQP packet, declared once: attributes in wire order.

The encoders and decoders, the tables of `docs/protocol.md` and the test strategies are all derived from these
declarations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

PROTOCOL_NAME = "MMQP"
VERSION_MOQ_1 = 255

FIRST_BROKER_ALIAS = 0x8000


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
    """AUTH section. Flag byte USER(7) PWD(6) MTHD(5) DATA(4), then the fields present, in this order."""

    user_name: str | None = None  # short string
    password: bytes | None = None  # short binary
    method: str | None = None  # short string
    data: bytes | None = None  # short binary


@dataclass(slots=True)
class Settings:
    """SET section. Flag byte PER(7) KPAL(6) EXP(5)."""

    persistent: bool = False
    keep_alive_s: int | None = None  # u16
    expiry_s: int | None = None  # u16; 0xFFFF: never


@dataclass(slots=True)
class Will:
    """IWM and LWM sections. Flag byte EXP(7) DLY(6) QoS(5-4) RET(3)."""

    qos: int
    retain: bool
    topic: str  # short string
    payload: bytes  # short binary
    expiry_s: int | None = None  # u16, present if EXP
    delay_s: int | None = None  # u16, present if DLY


# --- topic requests -----------------------------------------------------------------------------------


@dataclass(slots=True)
class SubscribeExtension:
    """EXT byte of SUBSCRIBE: MRP(7) RPT(6) PRI(5) DDL(4), rest zero."""

    period: int | None = None  # u16, units of 10 ms
    repeat_name: bool = False  # RPT: name results after the topics, not after the operator
    priority: int | None = None  # u8
    deadline: int | None = None  # u16, units of 10 ms


@dataclass(slots=True)
class Subscribe:
    """Type bits 0. Flag byte TYPE(7-6)=0 QoS(5-4) TOP(3) REQ(2) GRP(1) EXT(0)."""

    qos: int
    accepts_requests: bool
    alias: int  # u16
    topic: str | None = None  # short string if TOP
    group: str | None = None  # short string if GRP
    extension: SubscribeExtension | None = None  # if EXT


@dataclass(slots=True)
class Register:
    """Type bits 1. Flag byte TYPE(7-6)=1 MODE(5-4) TOP(3) REQ(2) EXP(1) 0."""

    mode: int  # RetentionMode; 3 is malformed
    sends_requests: bool
    alias: int
    topic: str | None = None
    expiry_s: int | None = None  # u16 if EXP


@dataclass(slots=True)
class Unsubscribe:
    """Type bits 2. Flag byte TYPE(7-6)=2 00 TOP(3) REG(2) 00. REG drops the registration instead."""

    registration: bool
    alias: int
    topic: str | None = None


@dataclass(slots=True)
class Query:
    """Type bits 3. Flag byte TYPE(7-6)=3 00 TOP(3) 000. Asks for a topic's subscriber ids; alone in its TOPREQ."""

    alias: int
    topic: str | None = None


TopicRequest = Subscribe | Register | Unsubscribe | Query


# --- packets ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ConReq:
    """Type 1; control flags RES(1) 0. Then 04 "MMQP", version, session flags AUTH SET IWM LWM TOP CID 0 0, sections."""

    resume: bool = False
    version: int = VERSION_MOQ_1
    authentication: Authentication | None = None
    settings: Settings | None = None
    initial_will: Will | None = None
    last_will: Will | None = None
    topics: list[TopicRequest] | None = None  # count byte, then the requests
    client_id: str | None = None  # short string


@dataclass(slots=True)
class ConAck:
    """Type 2. Byte 3: SP(7) CID(6) 0...; byte 4: reason; then the assigned identifier if CID."""

    session_present: bool
    reason: int
    client_id: str | None = None


@dataclass(slots=True)
class ConSyn:
    """Type 3, empty: are you there / I am here."""


@dataclass(slots=True)
class ConEnd:
    """Type 4: this connection ends, and why."""

    reason: int


@dataclass(slots=True)
class TopReq:
    """Type 5: packet identifier, then one or more topic requests up to the end."""

    packet_id: int
    requests: list[TopicRequest]


@dataclass(slots=True)
class TopAck:
    """Type 6, control flags 0 0: one reason per request, in order. Packet identifier 0 answers CONREQ's requests."""

    packet_id: int
    reasons: bytes


@dataclass(slots=True)
class QueryAck:
    """Type 6, control flags 0 1: the answer to QUERY: a reason, then short strings up to the end."""

    packet_id: int
    reason: int
    subscribers: list[str]


@dataclass(slots=True)
class Property:
    """One user property: short string, then a value with a two-byte length."""

    name: str
    value: str


@dataclass(slots=True)
class PublishExtension:
    """EXT byte of PUBREQ: TTL(7) TIME(6) IDS(5) GRP(4) ENC(3) TYP(2) DDL(1) PRP(0)."""

    ttl_ms: int | None = None  # u32
    timestamp_ns: int | None = None  # u64, nanoseconds since 1970
    subscribers: list[str] | None = None  # count byte, short strings (QoS 3)
    group_start: bool = False
    encrypted: bool = False
    type_id: int | None = None  # u16
    deadline_ms: int | None = None  # u32: when a request or a QoS 3 collection ends
    properties: list[Property] | None = None  # count byte, then name and value each


@dataclass(slots=True)
class PubReq:
    """Type 7; control flags TYPE. Flag byte RET(7) DUP(6) QoS(5-4) TOP(3) EXT(2) 0 0, then the fields."""

    kind: int
    retain: bool
    dup: bool
    qos: int
    packet_id: int  # u16
    alias: int  # u16
    topic: str | None  # short string if TOP
    waited: int | None  # u16, present exactly when qos is 3
    extension: PublishExtension | None  # if EXT
    payload: bytes  # the rest


@dataclass(slots=True)
class PubSyn:
    """Type 8; control flags TYPE. SUCCESS: received; RELEASE: let go; 0x80 and above: refused."""

    kind: int
    packet_id: int
    reason: int


@dataclass(slots=True)
class PubAck:
    """Type 9; control flags TYPE: the exchange of this packet identifier is over."""

    kind: int
    packet_id: int
    reason: int


@dataclass(slots=True)
class Authen:
    """Type 10: reason (SUCCESS, CONTINUE_AUTHENTICATION or REAUTHENTICATE), method, data up to the end."""

    reason: int
    method: str
    data: bytes


@dataclass(slots=True)
class TypeReq:
    """Type 11: what is published on these topics? Packet identifier, topic filter (short string)."""

    packet_id: int
    topic: str


@dataclass(slots=True)
class PubType:
    """Type 12: a topic's type. Flag byte MORE(7) ANS(6) 0..., then the fields."""

    more: bool  # further PUBTYPE packets of the same answer follow
    answer: bool  # answers the TYPEREQ of this packet identifier; otherwise announces
    packet_id: int
    reason: int
    format: int  # TypeFormat
    type_id: int  # u16
    topic: str  # short string
    media_type: str  # short string
    schema: bytes = field(default=b"")  # the rest


Packet = (
    ConReq | ConAck | ConSyn | ConEnd | TopReq | TopAck | QueryAck | PubReq | PubSyn | PubAck | Authen | TypeReq | PubType
)

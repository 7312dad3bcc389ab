"""Every MQTT packet, declared once for 3.1.1 and 5: annotations are the layout, attribute order is wire order.

What MQTT 5 added is marked `Since(5, ...)` with the value it has in 3.1.1: `properties` is None there, and None in
MQTT 5 when there are none. The encoders and decoders of each version (`_mqtt4.py`, `_mqtt5.py`) and the test
strategies are derived from these declarations. Rules that span fields are asked by both directions: `broken_form`
makes a packet malformed (0x81), `broken_rule` a protocol error (0x82). Whether a topic is well formed, and what needs
the state of a session, is for the dialect to judge.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from moq.wire.fields import (
    U8,
    U16,
    Bits,
    ControlBits,
    IfMore,
    LongBinary,
    LongString,
    Present,
    PropertyList,
    RestOfPacket,
    Since,
    ToEnd,
    Unless,
)
from moq.wire.mqtt.header import PREAMBLE, VERSION_3_1_1, VERSION_5
from moq.wire.mqtt.properties import Properties


class _Identified:
    """A packet with an identifier, which is never 0 [MQTT-2.2.1-3]."""

    __slots__ = ()
    packet_id: int

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        return None if self.packet_id else f"{type(self).__name__}.packet_id is 0; identifiers begin with 1"


@dataclass(slots=True)
class Will:
    """The message published when the client vanishes; its QoS and RETAIN are among the flags of CONNECT."""

    properties: Annotated[Properties | None, PropertyList("WILL"), Since(5, None)]
    topic: LongString
    payload: LongBinary


@dataclass(slots=True)
class Connect:
    """CONNECT opens a session: client to server, the first packet of every connection."""

    TYPE: ClassVar[int] = 1
    PREAMBLE: ClassVar[bytes] = PREAMBLE

    version: U8  # 4: MQTT 3.1.1, 5: MQTT 5
    clean_start: Annotated[bool, Bits(1, 1, "Clean Start", 1)] = True  # Clean Session in 3.1.1
    will_qos: Annotated[int, Bits(4, 3, "Will QoS", 2)] = 0
    will_retain: Annotated[bool, Bits(5, 5, "Will Retain", 1)] = False
    keep_alive: U16 = 0  # seconds; 0: none
    properties: Annotated[Properties | None, PropertyList("CONNECT"), Since(5, None)] = None
    client_id: LongString = ""  # empty: the server assigns one
    will: Annotated[Will | None, Present(2, "Will")] = None
    user_name: Annotated[LongString | None, Present(7, "User Name")] = None
    password: Annotated[LongBinary | None, Present(6, "Password")] = None

    def broken_form(self) -> str | None:
        """Say what makes the packet malformed, or None."""
        if self.will is None and (self.will_qos or self.will_retain):
            return "Connect.will_qos or will_retain is set without a will [MQTT-3.1.2-11], [MQTT-3.1.2-13]"
        if self.version == VERSION_3_1_1 and self.password is not None and self.user_name is None:
            return "Connect.password is given without a user name, which MQTT 3.1.1 forbids [MQTT-3.1.2-22]"
        return None


@dataclass(slots=True)
class ConnAck:
    """CONNACK answers CONNECT: server to client."""

    TYPE: ClassVar[int] = 2

    session_present: Annotated[bool, Bits(0, 0, "Session Present", 1)]
    reason: U8  # a Connect Return code in 3.1.1
    properties: Annotated[Properties | None, PropertyList("CONNACK"), Since(5, None)] = None

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if self.session_present and self.reason:
            return f"ConnAck.session_present is set with reason 0x{self.reason:02x}; a refusal has none [MQTT-3.2.2-6]"
        return None


@dataclass(slots=True)
class Publish:
    """PUBLISH carries one message: both ways."""

    TYPE: ClassVar[int] = 3
    STREAMED: ClassVar[bool] = True
    """The payload may be larger than memory: a frame reader hands it on in chunks."""

    dup: Annotated[bool, ControlBits(3, 3, "DUP", 1)]  # sent before; not with QoS 0
    qos: Annotated[int, ControlBits(2, 1, "QoS", 2)]
    retain: Annotated[bool, ControlBits(0, 0, "RETAIN", 1)]
    topic: LongString  # empty: the one of the topic alias
    packet_id: Annotated[U16, Unless("qos", 0, 0)]  # 0 exactly when QoS is 0
    properties: Annotated[Properties | None, PropertyList("PUBLISH"), Since(5, None)]
    payload: RestOfPacket

    def broken_form(self) -> str | None:
        """Say what makes the packet malformed, or None."""
        return "Publish.dup is set with qos 0 [MQTT-3.3.1-2]" if self.dup and not self.qos else None

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if (self.packet_id == 0) is (self.qos != 0):
            return f"Publish.packet_id is {self.packet_id} with qos {self.qos}; it is 0 exactly when qos is"
        if not self.topic and (self.properties is None or self.properties.topic_alias is None):
            return "Publish.topic is empty without a topic alias (3.3.2.1)"
        return None


@dataclass(slots=True)
class PubAck(_Identified):
    """PUBACK answers a PUBLISH of QoS 1: both ways."""

    TYPE: ClassVar[int] = 4

    packet_id: U16
    reason: Annotated[U8, IfMore(0), Since(5, 0)] = 0
    properties: Annotated[Properties | None, PropertyList("PUBACK"), IfMore(None), Since(5, None)] = None


@dataclass(slots=True)
class PubRec(_Identified):
    """PUBREC answers a PUBLISH of QoS 2: both ways."""

    TYPE: ClassVar[int] = 5

    packet_id: U16
    reason: Annotated[U8, IfMore(0), Since(5, 0)] = 0
    properties: Annotated[Properties | None, PropertyList("PUBREC"), IfMore(None), Since(5, None)] = None


@dataclass(slots=True)
class PubRel(_Identified):
    """PUBREL answers PUBREC: both ways."""

    TYPE: ClassVar[int] = 6
    CONTROL: ClassVar[int] = 0b0010

    packet_id: U16
    reason: Annotated[U8, IfMore(0), Since(5, 0)] = 0
    properties: Annotated[Properties | None, PropertyList("PUBREL"), IfMore(None), Since(5, None)] = None


@dataclass(slots=True)
class PubComp(_Identified):
    """PUBCOMP answers PUBREL and ends the exchange: both ways."""

    TYPE: ClassVar[int] = 7

    packet_id: U16
    reason: Annotated[U8, IfMore(0), Since(5, 0)] = 0
    properties: Annotated[Properties | None, PropertyList("PUBCOMP"), IfMore(None), Since(5, None)] = None


@dataclass(slots=True)
class Subscription:
    """One topic filter of SUBSCRIBE with its options."""

    filter: LongString
    qos: Annotated[int, Bits(1, 0, "QoS", 3)]  # at most this; 0 to 2
    no_local: Annotated[bool, Bits(2, 2, "NL", 1), Since(5, False)] = False  # not what this client published itself
    retain_as_published: Annotated[bool, Bits(3, 3, "RAP", 1), Since(5, False)] = False
    retain_handling: Annotated[int, Bits(5, 4, "Retain Handling", 3), Since(5, 0)] = 0  # 0 to 2

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if self.qos > 2:
            return f"Subscription.qos is {self.qos}; expected 0 to 2 (3.8.3.1)"
        if self.retain_handling > 2:
            return f"Subscription.retain_handling is {self.retain_handling}; expected 0 to 2 (3.8.3.1)"
        return None


@dataclass(slots=True)
class Subscribe(_Identified):
    """SUBSCRIBE asks for what is published on these topics: client to server."""

    TYPE: ClassVar[int] = 8
    CONTROL: ClassVar[int] = 0b0010

    packet_id: U16
    properties: Annotated[Properties | None, PropertyList("SUBSCRIBE"), Since(5, None)]
    subscriptions: ToEnd[Subscription]  # at least one

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if not self.subscriptions:
            return "Subscribe.subscriptions is empty; at least one is expected [MQTT-3.8.3-2]"
        return _Identified.broken_rule(self)


@dataclass(slots=True)
class SubAck(_Identified):
    """SUBACK answers SUBSCRIBE with one reason per topic filter, in order: server to client."""

    TYPE: ClassVar[int] = 9

    packet_id: U16
    properties: Annotated[Properties | None, PropertyList("SUBACK"), Since(5, None)]
    reasons: RestOfPacket  # one byte each: the QoS granted, or 0x80 and above


@dataclass(slots=True)
class Unsubscribe(_Identified):
    """UNSUBSCRIBE undoes subscriptions: client to server."""

    TYPE: ClassVar[int] = 10
    CONTROL: ClassVar[int] = 0b0010

    packet_id: U16
    properties: Annotated[Properties | None, PropertyList("UNSUBSCRIBE"), Since(5, None)]
    filters: ToEnd[LongString]  # at least one

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if not self.filters:
            return "Unsubscribe.filters is empty; at least one is expected [MQTT-3.10.3-2]"
        return _Identified.broken_rule(self)


@dataclass(slots=True)
class UnsubAck(_Identified):
    """UNSUBACK answers UNSUBSCRIBE: server to client."""

    TYPE: ClassVar[int] = 11

    packet_id: U16
    properties: Annotated[Properties | None, PropertyList("UNSUBACK"), Since(5, None)] = None
    reasons: Annotated[RestOfPacket, Since(5, b"")] = b""  # one byte each


@dataclass(slots=True)
class PingReq:
    """PINGREQ asks "are you there?": client to server."""

    TYPE: ClassVar[int] = 12


@dataclass(slots=True)
class PingResp:
    """PINGRESP answers PINGREQ: server to client."""

    TYPE: ClassVar[int] = 13


@dataclass(slots=True)
class Disconnect:
    """DISCONNECT ends the connection: client to server, in MQTT 5 both ways and with a reason."""

    TYPE: ClassVar[int] = 14

    reason: Annotated[U8, IfMore(0), Since(5, 0)] = 0
    properties: Annotated[Properties | None, PropertyList("DISCONNECT"), IfMore(None), Since(5, None)] = None


@dataclass(slots=True)
class Auth:
    """AUTH carries one step of an authentication: both ways, MQTT 5 alone."""

    TYPE: ClassVar[int] = 15
    SINCE: ClassVar[int] = VERSION_5

    reason: Annotated[U8, IfMore(0)] = 0  # SUCCESS, CONTINUE_AUTHENTICATION or REAUTHENTICATE
    properties: Annotated[Properties | None, PropertyList("AUTH"), IfMore(None)] = None

    def broken_rule(self) -> str | None:
        """Say which rule across fields is broken, or None."""
        if self.properties is None:
            return f"Auth.properties is None with reason 0x{self.reason:02x} (3.15.2.1)" if self.reason else None
        if self.properties.authentication_method is None:
            return "Auth has properties without authentication_method (3.15.2.2.2)"
        return None


Packet = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)

PACKETS: Final[tuple[type[Packet], ...]] = (
    Connect,
    ConnAck,
    Publish,
    PubAck,
    PubRec,
    PubRel,
    PubComp,
    Subscribe,
    SubAck,
    Unsubscribe,
    UnsubAck,
    PingReq,
    PingResp,
    Disconnect,
    Auth,
)

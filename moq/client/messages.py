"""What a program sends and receives: messages, requests, wills and topic types.

These are the words of the client's users; the packets they travel in stay inside the core.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from moq.client.confirming import MAX_REPLY_BYTES
from moq.client.typed import from_json
from moq.errors import LocalProtocolError
from moq.wire.mmqp import TypeFormat
from moq.wire.mmqp import Will as WillSection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from moq.client.payloads import Payload

T = TypeVar("T")

MAX_WILL_BYTES = 255
"""A will's payload is a short binary of CONREQ."""


@dataclass(slots=True)
class Message:
    """One message as it arrived."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    """True if the broker had kept it: it is older than the subscription."""
    dup: bool = False
    """True if it was sent before on an earlier connection; a QoS 1 message may then have been seen already."""
    timestamp_ns: int | None = None
    """When its publisher says it was made, in nanoseconds since 1970."""
    properties: Mapping[str, str] = field(default_factory=dict)
    type_id: int | None = None
    group_start: bool = False
    encrypted: bool = False
    waited: int | None = None
    """QoS 3: how many confirmations its publisher waits for."""
    packet_id: int = field(default=0, repr=False, compare=False)
    replier: Callable[[Message, bytes], None] | None = field(default=None, repr=False, compare=False)

    def reply(self, payload: str | bytes = b"") -> None:
        """Confirm a message of QoS 3 and say something to its publisher, at most 255 bytes.

        For subscriptions with `replies`, before the next message is taken: that confirms it without a reply.

        Raises:
            LocalProtocolError: nobody waits for a reply to this message, or not any more.
        """
        if self.replier is None:
            raise LocalProtocolError(
                f"the message on {self.topic!r} has QoS {self.qos}; replies are for messages of QoS 3 to subscriptions "
                "with replies=True"
            )
        said = payload.encode() if isinstance(payload, str) else bytes(payload)
        if len(said) > MAX_REPLY_BYTES:
            raise LocalProtocolError(f"a reply has {len(said)} bytes; at most {MAX_REPLY_BYTES} fit in PUBSYN")
        self.replier(self, said)

    @property
    def timestamp(self) -> float | None:
        """`timestamp_ns` in seconds."""
        return None if self.timestamp_ns is None else self.timestamp_ns / 1e9

    @property
    def text(self) -> str:
        """The payload as text; raises UnicodeDecodeError if it is not UTF-8."""
        return self.payload.decode()

    def json(self) -> object:
        """The payload as a JSON document; raises ValueError if it is none."""
        return json.loads(self.payload)

    def as_(self, type_: type[T]) -> T:
        """The payload as an instance of a dataclass.

        Raises:
            PayloadError: the payload is not JSON, or not of that shape.
        """
        return from_json(type_, self.payload)


@dataclass(slots=True)
class Request(Message):
    """A message whose sender waits for one answer: call `respond` once."""

    packet_id: int = 0
    alias: int = 0
    connection: int = 0
    """Which connection of the session it came on: the broker takes an answer on no other."""
    responder: Callable[[Request, Payload, int], Awaitable[None]] | None = field(default=None, repr=False)

    async def respond(self, payload: Payload, qos: int | None = None) -> None:
        """Answer the requester, and nobody else; the QoS is that of the request unless told otherwise.

        Raises:
            RequestRefused: the requester no longer waits (QoS 1 and 2 only).
        """
        if self.responder is None:
            raise LocalProtocolError(f"the request on {self.topic!r} does not come from a client's subscription")
        await self.responder(self, payload, self.qos if qos is None else qos)


@dataclass(frozen=True, slots=True)
class Will:
    """A message the broker publishes for a client, when it connects (initial) or vanishes (last)."""

    topic: str
    payload: str | bytes
    qos: int = 0
    retain: bool = False
    expiry_s: int | None = None
    delay_s: int | None = None

    def to_section(self) -> WillSection:
        """The will as CONREQ carries it."""
        payload = self.payload.encode() if isinstance(self.payload, str) else self.payload
        if len(payload) > MAX_WILL_BYTES:
            raise LocalProtocolError(
                f"the will on {self.topic!r} has {len(payload)} bytes; at most {MAX_WILL_BYTES} fit in CONREQ"
            )
        return WillSection(self.qos, self.retain, self.topic, payload, self.expiry_s, self.delay_s)


@dataclass(frozen=True, slots=True)
class TopicType:
    """What is published on a topic."""

    topic: str
    schema: bytes = b""
    format: TypeFormat = TypeFormat.JSON_SCHEMA
    media_type: str = "application/json"
    type_id: int = 0

    def json_schema(self) -> object:
        """The schema as a JSON document; raises ValueError if it is none."""
        return json.loads(self.schema)

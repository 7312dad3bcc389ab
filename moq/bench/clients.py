"""One client of the broker under test, behind an interface small enough for any protocol or library.

`LinkClient` speaks a protocol over a link of ours; rivals with a library of their own bring a client for it. Whoever
receives says so through `Ears`, with the time at which the bytes came.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from moq.bench.dialects import BODY
from moq.bench.flows import LAST_PACKET_ID
from moq.bench.load import Connection
from moq.bench.speech import ANSWER, PUBLISH, REPLIES, REQUEST, RESPONSE, STAMP, Template
from moq.broker.link import CONTROL
from moq.errors import ConnectionLost, MoqError
from moq.trace.clock import EPOCH_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from moq.bench.scenarios import FlowPlan
    from moq.bench.speech import Packet, Speech
    from moq.broker.link import Link


@dataclass(slots=True)
class Ears:
    """Who hears what comes to one client."""

    delivered: Callable[[int, int, int, int, int], None]
    """A message: flow, sequence number, due at, now (both nanoseconds), size of the payload."""
    acknowledged: Callable[[int, int], None]
    """The broker is done with a message of this client: due at, now."""


class Client(Protocol):
    """A publisher, a subscriber, or somebody who answers requests."""

    @property
    def unsent(self) -> int:
        """Bytes that the network has not taken."""

    @property
    def unanswered(self) -> int:
        """Messages of this client that are not acknowledged and wait for it."""

    @property
    def lanes(self) -> int:
        """Streams on which messages came."""

    @property
    def failure(self) -> Exception | None:
        """Why it cannot go on, if so."""

    async def announce(self, flows: Sequence[FlowPlan]) -> None:
        """Say what will be published; where it has requests, be ready for their responses."""

    async def subscribe(self, flows: Sequence[FlowPlan]) -> None:
        """Ask for these flows, and answer those of them that are requests."""

    def start(self) -> None:
        """All are here: messages may come."""

    def publish(self, flow: FlowPlan, seq: int, due_ns: int) -> None:
        """Send a message now."""

    def close(self) -> None:
        """Leave without a word."""


def make_payload(index: int, seq: int, due_ns: int, size: int) -> bytes:
    """What every message says of itself; the rest is zeros."""
    return BODY.pack(index, seq, due_ns) + bytes(size - BODY.size)


class LinkClient(Connection):
    """A client over a link: MMQP or MQTT, on whatever carries it."""

    def __init__(self, speech: Speech, link: Link, ears: Ears) -> None:
        super().__init__(speech, link)
        self._speech = speech
        self._ears = ears
        self._buffers: dict[int, bytearray] = {}
        self._message_lanes: set[int] = set()
        self._templates: dict[tuple[int, int, int], Template] = {}
        self._next_packet_id = 1
        self._due_ns: dict[int, int] = {}
        """Of messages above QoS 0, by packet identifier, until they are acknowledged; of requests until their
        response."""
        self._answers_requests = False
        """By messages of its own, where requests are messages like others."""
        self.failure: Exception | None = None

    @property
    def dialect_name(self) -> str:
        """As traces call it."""
        return "mmqp" if self._speech.has_requests else "mqtt3"

    @property
    def unsent(self) -> int:
        """Bytes that the network has not taken."""
        return self.link.unsent

    @property
    def unanswered(self) -> int:
        """Packet identifiers in use."""
        return len(self._due_ns)

    @property
    def lanes(self) -> int:
        """Streams on which messages came."""
        return len(self._message_lanes)

    # --- before the run -----------------------------------------------------------------------------------

    async def announce(self, flows: Sequence[FlowPlan]) -> None:
        """REGISTER, and a subscription to the responses where those are messages like others."""
        for is_request in (False, True):
            if indexes := [flow.index for flow in flows if flow.is_request is is_request]:
                await self.ask(self._speech.announce(indexes, is_request=is_request))
        if not self._speech.has_requests:
            replies = [flow.index + REPLIES for flow in flows if flow.is_request]
            await self.ask(self._speech.ask_for(replies, 0, is_request=False) if replies else b"")

    async def subscribe(self, flows: Sequence[FlowPlan]) -> None:
        """SUBSCRIBE; the QoS of a subscription is that of its messages."""
        for qos, is_request in sorted({(flow.qos, flow.is_request) for flow in flows}):
            alike = [flow.index for flow in flows if (flow.qos, flow.is_request) == (qos, is_request)]
            await self.ask(self._speech.ask_for(alike, qos, is_request=is_request))
        self._answers_requests = any(flow.is_request for flow in flows) and not self._speech.has_requests

    # --- sending ------------------------------------------------------------------------------------------

    def publish(self, flow: FlowPlan, seq: int, due_ns: int) -> None:
        """Copy the frame of a message of this size, with its numbers in it, into the flow's lane."""
        size = flow.size(seq)
        template = self._template(flow.index, flow.qos, size, REQUEST if flow.is_request else PUBLISH)
        data = bytearray(template.data)
        BODY.pack_into(data, template.body_at, flow.index, seq, due_ns)
        if template.stamp_at is not None:
            STAMP.pack_into(data, template.stamp_at, due_ns + EPOCH_NS)
        if template.packet_id_at is not None:
            packet_id = self._take_packet_id()
            self._due_ns[packet_id] = due_ns
            data[template.packet_id_at : template.packet_id_at + 2] = packet_id.to_bytes(2, "big")
        self.link.lane(flow.index + 1).write(bytes(data))

    def _take_packet_id(self) -> int:
        packet_id = self._next_packet_id
        while packet_id in self._due_ns:
            packet_id = packet_id % LAST_PACKET_ID + 1
        self._next_packet_id = packet_id % LAST_PACKET_ID + 1
        return packet_id

    def _template(self, index: int, qos: int, size: int, kind: int) -> Template:
        key = (index, size, kind)
        template = self._templates.get(key)
        if template is None:
            asked = kind if self._speech.has_requests or kind == RESPONSE else PUBLISH
            template = self._templates[key] = self._speech.template(index, qos, size, asked)
        return template

    # --- receiving ----------------------------------------------------------------------------------------

    def messages_received(self, lane_id: int, data: bytes) -> None:
        """Tell of all messages that are whole, and answer what asks for it, on the lane it came on."""
        try:
            self._hear(lane_id, data, time.perf_counter_ns())
        except MoqError as error:
            self.failure = error
            self.link.abort()

    def _hear(self, lane_id: int, data: bytes, now_ns: int) -> None:
        buf = self._buffers.get(lane_id)
        if buf is None:
            buf = self._buffers[lane_id] = bytearray()
        buf += data
        done = 0
        replies: list[bytes] = []
        for packet in self._speech.packets(buf):
            done = packet[4]
            if packet[0] == ANSWER:
                self._on_answer(bytes(buf[packet[3] : done]), packet[2], now_ns, replies)
            else:
                self._message_lanes.add(lane_id)
                self._on_message(buf, packet, now_ns, replies)
        if done:
            del buf[:done]
        if replies:
            self.link.reply_lane(lane_id).write(b"".join(replies))

    def _on_answer(self, packet: bytes, packet_id: int, now_ns: int, replies: list[bytes]) -> None:
        reply = self.dialect.next_answer(packet)
        if reply is not None:
            replies.append(reply)
        elif (due_ns := self._due_ns.pop(packet_id, None)) is not None:
            self._ears.acknowledged(due_ns, now_ns)

    def _on_message(self, buf: bytearray, packet: Packet, now_ns: int, replies: list[bytes]) -> None:
        kind, qos, packet_id, at, end = packet
        index, seq, due_ns = BODY.unpack_from(buf, at)
        if qos:
            replies.append(self._speech.first_answer(qos, packet_id))
        if kind == REQUEST or self._answers_requests:
            self._respond(index, seq, due_ns, packet_id, end - at)
            return
        if kind == RESPONSE:
            self._due_ns.pop(packet_id, None)
        self._ears.delivered(index, seq, due_ns, now_ns, end - at)

    def _respond(self, index: int, seq: int, due_ns: int, packet_id: int, size: int) -> None:
        """Say the same back: to the requester, or on the topic of responses."""
        template = self._template(index, 0, size, RESPONSE)
        data = bytearray(template.data)
        BODY.pack_into(data, template.body_at, index, seq, due_ns)
        if template.packet_id_at is not None:
            data[template.packet_id_at : template.packet_id_at + 2] = packet_id.to_bytes(2, "big")
        self.link.lane(index + 1).write(bytes(data))

    # --- the end ------------------------------------------------------------------------------------------

    def lane_finished(self, lane_id: int) -> None:
        """Nothing more will come there."""
        if lane_id != CONTROL:
            self._buffers.pop(lane_id, None)

    def closed(self, reason: int | None, message: str) -> None:
        """Whoever drives the load looks at `failure`."""
        self.failure = self.failure or ConnectionLost(f"a connection of the load generator ended: {message}", reason)
        super().closed(reason, message)

    def close(self) -> None:
        """Leave without a word."""
        self.link.abort()

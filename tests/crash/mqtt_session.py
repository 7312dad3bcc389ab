"""MQTT 3.1.1 and 5 as the load speaks it: a session that outlives its connections, over any of our transports.

The rules that make QoS 1 and 2 survive a broker's crash, from the client's side: an identifier belongs to its message
until the exchange is over; after a reconnect everything unfinished is sent again in its first order (4.4), PUBLISH
with DUP or PUBREL; a QoS 2 message that arrives under an identifier not yet released is a repetition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.broker.link import CONTROL
from moq.errors import ProtocolError
from moq.wire import mqtt

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.link import Lane, Link

MAX_PACKET_BYTES: Final = 1 << 20
LAST_PACKET_ID: Final = 0xFFFF
FIRST_REFUSAL: Final = 0x80
SESSION_EXPIRY_S: Final = 100_000
SUBSCRIBE_ID: Final = LAST_PACKET_ID
"""Messages never reach it: windows are far smaller, and their identifiers begin again at 1 as soon as they can."""


@dataclass(slots=True)
class Outgoing:
    """A message with packets still to come."""

    packet: mqtt.Publish
    on_done: Callable[[int], None]
    was_sent: bool = False
    is_released: bool = False


class MQTTSession:
    """One client identifier: all that is kept from one connection to the next."""

    def __init__(self, client_id: str, version: int, filter_: str | None, on_message: Callable[[bytes], None]) -> None:
        self.client_id = client_id
        self.version = version
        self.is_established = False
        self.times_forgotten = 0
        """Connections on which the broker had lost the session."""
        self._filter = filter_
        self._on_message = on_message
        self._outgoing: dict[int, Outgoing] = {}
        self._received: set[int] = set()
        self._last_id = 0
        self._write: Callable[[bytes], None] | None = None

    @property
    def is_open(self) -> bool:
        """True while messages can be sent."""
        return self._write is not None

    @property
    def unfinished(self) -> int:
        """Messages whose exchange is under way."""
        return len(self._outgoing)

    def publish(self, topic: str, payload: bytes, qos: int, on_done: Callable[[int], None]) -> None:
        """Send a message now if there is a connection, else on the next; `on_done` gets the reason of its end."""
        packet = mqtt.Publish(False, qos, False, topic, self._free_id(), None, payload)
        outgoing = self._outgoing[packet.packet_id] = Outgoing(packet, on_done)
        if self._write is not None:
            self._send_message(outgoing, self._write)

    # --- the connection -----------------------------------------------------------------------------------

    def hello(self) -> bytes:
        """CONNECT that resumes the session."""
        properties = mqtt.Properties(session_expiry_interval=SESSION_EXPIRY_S) if self.version == 5 else None
        return mqtt.encode(
            mqtt.Connect(self.version, clean_start=False, properties=properties, client_id=self.client_id), self.version
        )

    def opened(self, session_present: bool, write: Callable[[bytes], None]) -> None:
        """CONNACK arrived: go on where the last connection stopped."""
        if not session_present:
            self.times_forgotten += self.is_established
            self._received.clear()
            if self._filter is not None:
                subscription = mqtt.Subscription(self._filter, 2)
                write(mqtt.encode(mqtt.Subscribe(SUBSCRIBE_ID, None, [subscription]), self.version))
        if self._filter is None or session_present:
            self.is_established = True
        self._write = write
        for packet_id, outgoing in self._outgoing.items():
            if outgoing.is_released:
                write(mqtt.encode(mqtt.PubRel(packet_id), self.version))
            else:
                self._send_message(outgoing, write)

    def closed(self) -> None:
        """The connection is gone."""
        self._write = None

    def received(self, packet: mqtt.Item) -> None:
        """One packet of the broker, after CONNACK."""
        match packet:
            case mqtt.Publish():
                self._on_publish(packet)
            case mqtt.PubAck():
                self._end(packet.packet_id, packet.reason)
            case mqtt.PubRec():
                self._on_received(packet)
            case mqtt.PubRel():
                self._received.discard(packet.packet_id)
                self._send(mqtt.PubComp(packet.packet_id))
            case mqtt.PubComp():
                self._end(packet.packet_id, 0)  # "not found" only says that the broker let go first
            case mqtt.SubAck():
                assert packet.reasons == b"\x02", f"SUBSCRIBE of {self.client_id} was answered {packet.reasons.hex()}"
                self.is_established = True
            case _:
                pass

    # --- inside -------------------------------------------------------------------------------------------

    def _send_message(self, outgoing: Outgoing, write: Callable[[bytes], None]) -> None:
        outgoing.packet.dup = outgoing.was_sent
        outgoing.was_sent = True
        write(mqtt.encode(outgoing.packet, self.version))

    def _on_publish(self, packet: mqtt.Publish) -> None:
        if packet.qos == 1:
            self._on_message(packet.payload)
            self._send(mqtt.PubAck(packet.packet_id))
        elif packet.qos == 2:
            if packet.packet_id not in self._received:
                self._received.add(packet.packet_id)
                self._on_message(packet.payload)
            self._send(mqtt.PubRec(packet.packet_id))

    def _on_received(self, packet: mqtt.PubRec) -> None:
        outgoing = self._outgoing.get(packet.packet_id)
        if outgoing is not None and packet.reason >= FIRST_REFUSAL:
            self._end(packet.packet_id, packet.reason)
            return
        if outgoing is not None:
            outgoing.is_released = True
        self._send(mqtt.PubRel(packet.packet_id))

    def _end(self, packet_id: int, reason: int) -> None:
        outgoing = self._outgoing.pop(packet_id, None)
        if outgoing is not None:
            outgoing.on_done(reason)

    def _send(self, packet: mqtt.Packet) -> None:
        if self._write is not None:
            self._write(mqtt.encode(packet, self.version))

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % (SUBSCRIBE_ID - 1) + 1
            if self._last_id not in self._outgoing:
                return self._last_id


class MQTTConnection:
    """One link of a session, as the transport calls it."""

    def __init__(self, session: MQTTSession, link: Link, on_closed: Callable[[str], None]) -> None:
        self.link = link
        self._session = session
        self._on_closed = on_closed
        self._reader = mqtt.MQTTFrameReader(MAX_PACKET_BYTES, MAX_PACKET_BYTES, session.version)
        self._is_accepted = False
        self.fault: str | None = None
        """What the broker sent that is no MQTT."""
        self.heard = 0
        """Grows with everything that arrives, so that silence can be noticed."""

    def start(self) -> None:
        """The link is up: ask for the session."""
        self.link.control.write(self._session.hello())

    def ping(self) -> None:
        """Ask the broker whether it is there."""
        self.link.control.write(mqtt.encode(mqtt.PingReq(), self._session.version))

    def data_received(self, lane_id: int, data: bytes) -> None:
        self.heard += 1
        try:
            for packet in self._reader.feed(data):
                self._received(packet)
        except ProtocolError as error:
            self.fault = f"the broker broke the protocol towards {self._session.client_id} with {data[:32]!r}: {error}"
            self.link.abort()

    def _received(self, packet: mqtt.Item) -> None:
        if self._is_accepted:
            self._session.received(packet)
        elif isinstance(packet, mqtt.ConnAck) and packet.reason == 0:
            self._is_accepted = True
            self._session.opened(packet.session_present, self.link.control.write)
        else:
            self.link.abort()

    def lane_finished(self, lane_id: int) -> None:
        if lane_id == CONTROL:
            self.link.abort()

    def lane_reset(self, lane_id: int, reason: int) -> None:
        pass

    def lane_writable(self, lane: Lane) -> None:
        pass

    def closed(self, reason: int | None, message: str) -> None:
        self._session.closed()
        self._on_closed(message)

"""A client core and a broker played by the test, over a memory link: packets in, packets out, time a variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from moq.client.core import ClientCore
from moq.client.session import ClientSession, SessionOptions
from moq.reasons import Reason
from moq.wire import ConAck, FrameReader, Packet, PubReq, TopAck, TopReq, encode
from transports.memory import MemoryLink, MemoryNetwork

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link
    from moq.client.pending import Pending
    from moq.errors import ConnectionLost
    from moq.wire import Item
    from transports.options import TransportOptions

P = TypeVar("P")


class ScriptedBroker:
    """Notes what the client sends, with the lane it came on, and sends what the test says."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.received: list[tuple[int, Item]] = []
        self.end: tuple[int | None, str] | None = None
        self._readers: dict[int, FrameReader] = {}

    def send(self, packet: Packet, lane: int | None = None) -> None:
        (self.link.control if lane is None else self.link.lane(lane)).write(encode(packet))

    def next(self, kind: type[P]) -> P:
        """The oldest packet not looked at yet, which must be of this kind."""
        assert self.received, f"nothing more was received; expected {kind.__name__}"
        _, item = self.received.pop(0)
        assert isinstance(item, kind), f"received {item}; expected {kind.__name__}"
        return item

    def lanes_used(self) -> list[int]:
        return [lane_id for lane_id, _ in self.received]

    def data_received(self, lane_id: int, data: bytes) -> None:
        reader = self._readers.setdefault(lane_id, FrameReader(1 << 24, 1 << 24))
        self.received.extend((lane_id, item) for item in reader.feed(data))

    def lane_finished(self, lane_id: int) -> None: ...

    def lane_reset(self, lane_id: int, reason: int) -> None: ...

    def lane_writable(self, lane: Lane) -> None: ...

    def closed(self, reason: int | None, message: str) -> None:
        self.end = (reason, message)


class Owner:
    """Notes what the core reports."""

    def __init__(self) -> None:
        self.is_open = False
        self.error: ConnectionLost | None = None
        self.is_gone = False

    def opened(self, core: ClientCore) -> None:
        self.is_open = True

    def ended(self, core: ClientCore, error: ConnectionLost) -> None:
        assert self.error is None, "a connection ends once"
        self.error = error

    def gone(self, core: ClientCore) -> None:
        self.is_gone = True


class Pair:
    """One session, its present connection, and the broker at the other end of it."""

    core: ClientCore
    broker: ScriptedBroker
    link: MemoryLink
    owner: Owner

    def __init__(
        self,
        options: SessionOptions | None = None,
        session: ClientSession | None = None,
        *,
        has_lanes: bool = True,
        transport: TransportOptions | None = None,
    ) -> None:
        self.now = 1000.0
        self.options = options or SessionOptions()
        self.session = session or ClientSession("me")
        self.network = (
            MemoryNetwork(has_lanes=has_lanes, options=transport) if transport else MemoryNetwork(has_lanes=has_lanes)
        )

    def link_up(self) -> None:
        """A new link and a core for it, not started."""
        self.owner = Owner()

        def make_core(link: Link) -> ClientCore:
            self.core = ClientCore(self.session, link, lambda: self.now, self.options, self.owner)
            return self.core

        def accept(link: Link) -> ScriptedBroker:
            self.broker = ScriptedBroker(link)
            return self.broker

        self.link, _ = self.network.connect(accept, make_core)

    def connect(self, *, session_present: bool = False) -> None:
        """A new connection, accepted; what CONREQ brought along is granted and CONREQ itself dropped."""
        self.link_up()
        self.core.start()
        self.deliver()
        _, conreq = self.broker.received.pop(0)
        self.broker.send(ConAck(session_present, Reason.SUCCESS))
        inline = getattr(conreq, "topics", None)
        if inline:
            self.broker.send(TopAck(0, bytes(len(inline))))
        self.deliver()

    def lose(self) -> None:
        self.network.lose(self.link)
        self.deliver()

    def deliver(self) -> None:
        self.network.deliver()

    def receive(self, packet: Packet, lane: int | None = None) -> None:
        """The broker sends a packet and it arrives."""
        self.broker.send(packet, lane)
        self.deliver()

    def answer_topics(self, reason: int = Reason.SUCCESS) -> list[TopReq]:
        """The broker answers every TOPREQ it has received, whatever else there is."""
        self.deliver()
        asked = [item for _, item in self.broker.received if isinstance(item, TopReq)]
        self.broker.received = [(lane, item) for lane, item in self.broker.received if not isinstance(item, TopReq)]
        for packet in asked:
            self.broker.send(TopAck(packet.packet_id, bytes([reason]) * len(packet.requests)))
        self.deliver()
        return asked


def settled(pending: Pending) -> bool:
    """Whether an outcome is known by now; a call, so that a type checker does not take the answer for final."""
    return pending.is_settled


def message(
    payload: bytes = b"",
    *,
    topic: str | None = None,
    alias: int = 0,
    qos: int = 0,
    packet_id: int = 0,
    dup: bool = False,
    kind: int = 0,
) -> PubReq:
    """A PUBREQ from the broker."""
    return PubReq(kind, False, dup, qos, packet_id, alias, topic, None, None, payload)

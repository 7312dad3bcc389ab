"""A broker on a desk: scripted clients over fake links, time as a variable, a store that commits when told to.

    desk = Desk()                                   one broker, at time 0
    alice = desk.connect("alice")                   CONREQ sent, CONACK read
    alice.subscribe("room/#", qos=1)                TOPREQ sent, every reason checked
    alice.messages()                                what arrived since the last look, lane by lane

Everything a client sends and receives is bytes of the wire: the broker is driven as a socket would drive it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from moq.broker.core import Broker
from moq.broker.dialects.connection import State
from moq.broker.dialects.mmqp import Connection
from moq.broker.environment import Environment
from moq.broker.link import CONTROL
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import (
    ConAck,
    ConReq,
    FrameReader,
    PayloadChunk,
    PayloadEnded,
    PayloadStarted,
    PubAck,
    PublishExtension,
    PublishKind,
    PubReq,
    PubSyn,
    Query,
    QueryAck,
    Register,
    RetentionMode,
    Settings,
    Subscribe,
    TopAck,
    TopReq,
    Unsubscribe,
    Will,
    encode,
)
from tests.broker.stores import CommitStore

if TYPE_CHECKING:
    from moq.broker.access import Access
    from moq.broker.link import Lane, LinkState
    from moq.wire import Packet, SubscribeExtension, TopicRequest

P = TypeVar("P")

LONG = Settings(expiry_s=3600)
"""The session outlives its connection."""

PERSISTENT = Settings(persistent=True, expiry_s=3600)
"""And the broker."""


class DeskLane:
    """Collects what the broker writes until the client reads it."""

    def __init__(self, high_water: int | None, stream_id: int = CONTROL) -> None:
        self.stream_id = stream_id
        self.congested = False
        self.is_stalled = False
        self.is_closed = False
        self.priority = 0
        self.most_unsent = 0
        self._high_water = high_water
        self._data = bytearray()

    @property
    def unsent(self) -> int:
        return len(self._data)

    def write(self, data: bytes) -> None:
        if self.is_closed:
            return
        self._data += data
        self.most_unsent = max(self.most_unsent, len(self._data))
        if self._high_water is not None and len(self._data) > self._high_water:
            self.congested = True

    def read(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data

    def finish(self) -> None:
        self.is_closed = True

    def reset(self, reason: int) -> None:
        self.is_closed = True


class DeskLink:
    """The broker's end of a connection."""

    def __init__(self, *, has_lanes: bool, high_water: int | None) -> None:
        self.transport = "memory"
        self.alpn = ""
        self.peer = "desk"
        self.has_lanes = has_lanes
        self.control: Lane = DeskLane(high_water)
        self.lanes: dict[int, DeskLane] = {}
        self.paused: set[int] = set()
        self.closed_with: int | None = None
        self.network: LinkState | None = None
        self._high_water = high_water

    @property
    def unsent(self) -> int:
        return sum(lane.unsent for lane in self.all_lanes())

    @property
    def outgoing_streams(self) -> int:
        return len(self.all_lanes())

    def all_lanes(self) -> list[DeskLane]:
        assert isinstance(self.control, DeskLane)
        return [self.control, *self.lanes.values()]

    def lane(self, key: int, priority: int = 128) -> Lane:
        if not self.has_lanes:
            return self.control
        lane = self.lanes.get(key)
        if lane is None or lane.is_closed:
            lane = self.lanes[key] = DeskLane(self._high_water, key)
            lane.priority = priority
        return lane

    def reply_lane(self, lane_id: int) -> Lane:
        return self.control

    def pause_reading(self, lane_id: int) -> None:
        self.paused.add(lane_id)

    def resume_reading(self, lane_id: int) -> None:
        self.paused.discard(lane_id)

    def close(self, reason: int, message: str = "") -> None:
        assert self.closed_with is None, "a link is closed once"
        self.closed_with = reason
        for lane in self.all_lanes():
            lane.is_closed = True

    def abort(self) -> None:
        raise AssertionError("the core never aborts a link")

    def state(self) -> LinkState | None:
        return self.network


@dataclass(slots=True)
class Received:
    """One message as a client got it."""

    topic: str
    payload: bytes
    packet: PubReq

    @property
    def id(self) -> int:
        return self.packet.packet_id


class Client:
    """A scripted client: sends packets, collects packets, does nothing by itself."""

    def __init__(self, desk: Desk, *, has_lanes: bool, high_water: int | None) -> None:
        self.link = DeskLink(has_lanes=has_lanes, high_water=high_water)
        self.connection = Connection(desk.broker, self.link, desk.new_client_id, desk.now)
        self.connack: ConAck | None = None
        self.aliases: dict[int, str] = {}
        self._desk = desk
        self._readers: dict[DeskLane, FrameReader] = {}
        self._announced: dict[tuple[DeskLane, int], str] = {}
        self._inbox: list[Packet | Received] = []
        self._last_packet_id = 0

    # --- sending --------------------------------------------------------------------------------------

    def send(self, *packets: Packet, lane: int = CONTROL) -> None:
        self.send_bytes(b"".join(encode(packet) for packet in packets), lane)

    def send_bytes(self, data: bytes, lane: int = CONTROL) -> None:
        self.connection.receive_data(lane, data, self._desk.now)

    def lost(self) -> None:
        """The connection breaks."""
        self.link.closed_with = 0
        self.connection.closed(self._desk.now)

    def ask(self, *requests: TopicRequest) -> list[int]:
        """Send topic requests and return the reasons of their TOPACK."""
        self._last_packet_id += 1
        for request in requests:
            if request.topic is not None and request.alias:
                self.aliases[request.alias] = request.topic
        self.send(TopReq(self._last_packet_id, list(requests)))
        (answer,) = self.take(TopAck)
        assert answer.packet_id == self._last_packet_id
        return list(answer.reasons)

    def subscribe(
        self,
        topic: str | None,
        *,
        alias: int = 0,
        qos: int = 0,
        group: str | None = None,
        requests: bool = False,
        extension: SubscribeExtension | None = None,
    ) -> None:
        assert self.ask(Subscribe(qos, requests, alias, topic, group, extension)) == [Reason.SUCCESS]

    def register(
        self, topic: str, *, alias: int = 0, mode: int = RetentionMode.OVERRIDE, expiry_s: int | None = None
    ) -> None:
        assert self.ask(Register(mode, False, alias, topic, expiry_s)) == [Reason.SUCCESS]

    def unsubscribe(self, topic: str, *, registration: bool = False) -> int:
        return self.ask(Unsubscribe(registration, 0, topic))[0]

    def query(self, topic: str) -> QueryAck:
        self.send(TopReq(9, [Query(0, topic)]))
        (answer,) = self.take(QueryAck)
        return answer

    def publish(
        self,
        topic: str | int,
        payload: bytes = b"",
        *,
        qos: int = 0,
        id: int = 0,  # noqa: A002 - the word of the packets
        retain: bool = False,
        dup: bool = False,
        kind: int = PublishKind.PUBLISH,
        extension: PublishExtension | None = None,
        lane: int = CONTROL,
    ) -> None:
        """Send a PUBREQ; the topic is an alias or, under a wildcard registration, spelt out."""
        alias, name = (topic, None) if isinstance(topic, int) else (0, topic)
        self.send(PubReq(kind, retain, dup, qos, id, alias, name, None, extension, payload), lane=lane)

    def request(
        self,
        topic: str | int,
        payload: bytes = b"",
        *,
        qos: int = 0,
        id: int,  # noqa: A002
        dup: bool = False,
        deadline_ms: int | None = None,
    ) -> None:
        extension = PublishExtension(deadline_ms=deadline_ms) if deadline_ms is not None else None
        self.publish(topic, payload, qos=qos, id=id, dup=dup, kind=PublishKind.REQUEST, extension=extension)

    def respond(self, id: int, payload: bytes = b"", *, qos: int = 0, dup: bool = False) -> None:  # noqa: A002
        self.send(PubReq(PublishKind.RESPONSE, False, dup, qos, id, 0, None, None, None, payload))

    def puback(self, id: int, reason: int = 0, kind: int = PublishKind.PUBLISH) -> None:  # noqa: A002
        self.send(PubAck(kind, id, reason))

    def pubsyn(self, id: int, reason: int = 0, kind: int = PublishKind.PUBLISH) -> None:  # noqa: A002
        self.send(PubSyn(kind, id, reason))

    # --- receiving ------------------------------------------------------------------------------------

    def read(self) -> list[Packet | Received]:
        """Everything that arrived and was not taken yet; reading makes room on the lanes."""
        for lane in self.link.all_lanes():
            while not lane.is_stalled and lane.unsent:
                self._decode(lane, lane.read())
                if lane.congested:
                    lane.congested = False
                    self.connection.lane_writable(lane, self._desk.now)
        inbox, self._inbox = self._inbox, []
        return inbox

    def take(self, kind: type[P]) -> list[P]:
        """The packets of one kind that arrived; others stay for later."""
        everything = self.read()
        self._inbox = [item for item in everything if not isinstance(item, kind)]
        return [item for item in everything if isinstance(item, kind)]

    def messages(self) -> list[Received]:
        return self.take(Received)

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages()]

    def _decode(self, lane: DeskLane, data: bytes) -> None:
        reader = self._readers.setdefault(lane, FrameReader(1 << 30, chunk_bytes=1 << 20))
        large: PubReq | None = None
        chunks: list[bytes] = []
        for item in reader.feed(data):
            match item:
                case PayloadStarted():
                    large, chunks = item.packet, []
                case PayloadChunk():
                    chunks.append(item.data)
                case PayloadEnded():
                    assert large is not None
                    large.payload = b"".join(chunks)
                    self._inbox.append(self._received(lane, large))
                case PubReq():
                    self._inbox.append(self._received(lane, item))
                case _:
                    self._inbox.append(item)

    def _received(self, lane: DeskLane, packet: PubReq) -> Received:
        """A message with its topic: an alias means what was said on the same lane, or what this client said."""
        if packet.topic is not None:
            self._announced[lane, packet.alias] = packet.topic
            return Received(packet.topic, packet.payload, packet)
        topic = self._announced.get((lane, packet.alias)) or self.aliases[packet.alias]
        return Received(topic, packet.payload, packet)

    # --- the link -------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self.link.closed_with is not None

    def stall(self, alias: int | None = None) -> None:
        """The network takes nothing more from a lane (the control lane if no alias is given)."""
        lane = self._lane(alias)
        lane.is_stalled = lane.congested = True

    def drain(self, alias: int | None = None) -> None:
        """The lane has room again."""
        lane = self._lane(alias)
        lane.is_stalled = lane.congested = False
        self.connection.lane_writable(lane, self._desk.now)

    def close_lane(self, alias: int) -> None:
        """The transport has ended an outgoing lane, and says so."""
        lane = self._lane(alias)
        lane.is_closed = True
        self.connection.lane_writable(lane, self._desk.now)

    def finish_lane(self, lane: int) -> None:
        """This client ends one of its own lanes."""
        self.connection.lane_finished(lane, self._desk.now)

    def _lane(self, alias: int | None) -> DeskLane:
        lane = self.link.control if alias is None else self.link.lane(alias)
        assert isinstance(lane, DeskLane)
        return lane


class Desk:
    """One broker and its clients."""

    def __init__(
        self,
        limits: Limits | None = None,
        access: Access | None = None,
        store: CommitStore | None = None,
        now: float = 0.0,
        queue_policy: str = "drop-oldest",
    ) -> None:
        self.store = store or CommitStore(commits_itself=True)
        environment = Environment(
            limits=limits or Limits(), store=self.store, queue_policy=queue_policy, epoch=1_000_000.0, now=now
        )
        if access is not None:
            environment.access = access
        self.now = now
        self.broker = Broker(environment, now)
        self.figures = self.broker.figures
        self.aliases: dict[str, dict[int, str]] = {}  # what each client calls its topics
        self._assigned = 0

    def new_client_id(self) -> str:
        self._assigned += 1
        return f"assigned-{self._assigned}"

    def client(self, *, has_lanes: bool = True, high_water: int | None = None) -> Client:
        """A connection that has said nothing yet."""
        return Client(self, has_lanes=has_lanes, high_water=high_water)

    def connect(
        self,
        client_id: str | None = None,
        *,
        resume: bool = False,
        settings: Settings | None = None,
        initial_will: Will | None = None,
        last_will: Will | None = None,
        topics: list[TopicRequest] | None = None,
        has_lanes: bool = True,
        high_water: int | None = None,
    ) -> Client:
        """A client that was accepted."""
        client = self.client(has_lanes=has_lanes, high_water=high_water)
        if client_id is not None:
            client.aliases = self.aliases.setdefault(client_id, client.aliases)
        client.aliases |= {request.alias: request.topic for request in topics or () if request.topic is not None}
        client.send(ConReq(resume, 255, None, settings, initial_will, last_will, topics, client_id))
        (client.connack,) = client.take(ConAck)
        assert client.connack.reason == Reason.SUCCESS
        assert client.connection.state is State.OPEN
        return client

    def advance(self, seconds: float) -> None:
        """Let time pass; every deadline on the way is kept at its own time."""
        end = self.now + seconds
        while (when := self.broker.next_timeout()) is not None and when <= end:
            self.now = max(when, self.now)
            self.broker.handle_timeout(self.now)
        self.now = end

    def hold_commits(self) -> None:
        """From now on nothing is durable before `commit`."""
        self.store.commit()
        self.store.commits_itself = False

    def commit(self) -> None:
        self.store.commit()
        self.broker.on_durable(self.now)

    def restarted(self, after_s: float = 0.0) -> Desk:
        """A new broker with what this one's store has committed; its clients have to connect again."""
        store = CommitStore(self.store.safe, commits_itself=True)
        policy = self.broker.environment.queue_policy
        desk = Desk(self.broker.limits, store=store, now=self.now + after_s, queue_policy=policy)
        desk.aliases = self.aliases
        return desk

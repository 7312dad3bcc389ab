"""The load: publishers that keep a window full or a rate, subscribers that check all they get.

Closed loop (no rate): a publisher has at most `window` messages on their way and sends a block whenever everybody has
got one, so nothing overflows and the rate is the most the broker sustains. Open loop (a rate): message number n is due
at a time fixed before the run, and its latency counts from there whether or not it could be sent in time; a broker
that stalls pays for every message it held up.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from moq.bench.dialects import check_payload_bytes
from moq.bench.flows import LAST_PACKET_ID, Block, ComparingReader, Flow, Place, Tally, WalkingReader
from moq.bench.latencies import Latencies
from moq.broker.link import CONTROL
from moq.errors import ConfigError, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from moq.bench.dialects import Dialect
    from moq.broker.link import Lane, Link, LinkHandler

    Connect = Callable[[Callable[[Link], LinkHandler]], Awaitable[Link]]

HANDSHAKE_TIMEOUT_S: Final = 20.0
STALL_S: Final = 2.0
"""With no delivery for this long what is missing is lost."""
DRAIN_STEP_S: Final = 0.05
MAX_BACKLOG_BYTES: Final = 16 * 1024 * 1024
"""A rate beyond what the broker takes piles up in the generator; past this the run ends as overloaded."""
MAX_UNANSWERED: Final = LAST_PACKET_ID // 2
"""The same above QoS 0: a packet identifier is not used again before its answer has come."""
CLOSED_LOOP_BYTES: Final = 256 * 1024
"""The default window: well under what the broker holds for one subscriber before it drops at QoS 0."""
ACKNOWLEDGED_MESSAGES: Final = 400
"""The default window above QoS 0: well under the thousand that brokers let one client have unacknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one run consists of."""

    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    """For each publisher; messages go to them in turn, a block each."""
    payload_bytes: int = 100
    qos: int = 0
    rate: float | None = None
    """Messages per second of all publishers together; None: as many as the broker sustains."""
    window: int | None = None
    """Messages on their way, of all publishers together; None: a default by size and QoS."""
    block: int | None = None
    """Messages sent in one write; None: an eighth of a publisher's window."""
    is_persistent: bool = False
    """Whether the sessions of the subscribers outlive their connections."""

    def __post_init__(self) -> None:
        """Refuse what makes no run."""
        check_payload_bytes(self.payload_bytes)
        for name in ("publishers", "subscribers", "topics", "rate", "window", "block"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} is {value}; it must be greater than 0")
        if self.qos not in (0, 1, 2):
            raise ConfigError(f"qos is {self.qos}; it must be 0, 1 or 2")

    def messages_on_their_way(self) -> int:
        """The window."""
        if self.window is not None:
            return self.window
        return ACKNOWLEDGED_MESSAGES if self.qos else max(8, min(2000, CLOSED_LOOP_BYTES // self.payload_bytes))

    def __str__(self) -> str:
        text = f"{self.publishers}→{self.subscribers}, {self.payload_bytes} B, QoS {self.qos}"
        if self.topics > 1:
            text += f", {self.topics} topics"
        if self.is_persistent:
            text += ", persistent"
        return text if self.rate is None else f"{text}, {self.rate:g}/s"


class Connection:
    """One client of the broker under test: the handshake, then whatever its role does with lanes."""

    def __init__(self, dialect: Dialect, link: Link) -> None:
        self.link = link
        self.dialect = dialect
        self._control = b""
        self._answers: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self._is_open = False

    async def ask(self, request: bytes) -> None:
        """Send a packet and wait for its answer."""
        if not request:
            return
        self.link.control.write(request)
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        self.dialect.check(answer)

    async def leave(self) -> None:
        """Say goodbye and wait until the broker has closed the connection: from then on it knows."""
        self.link.control.write(self.dialect.goodbye())
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            while not isinstance(await self._answers.get(), ConnectionLost):
                pass

    def start(self) -> None:
        """The handshake is over: what comes now on the control lane is for `messages_received`."""
        self._is_open = True

    def messages_received(self, lane_id: int, data: bytes) -> None:
        """Bytes after the handshake."""

    def data_received(self, lane_id: int, data: bytes) -> None:
        """Cut the handshake into packets; pass the rest on."""
        if lane_id != CONTROL or self._is_open:
            self.messages_received(lane_id, data)
            return
        self._control += data
        while (end := self.dialect.packet_end(self._control, 0)) is not None and end <= len(self._control):
            self._answers.put_nowait(self._control[:end])
            self._control = self._control[end:]

    def lane_finished(self, lane_id: int) -> None:
        """The end of a lane ends nothing here."""

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """What is missing shows as loss."""

    def lane_writable(self, lane: Lane) -> None:
        """The window bounds what is unsent."""

    def closed(self, reason: int | None, message: str) -> None:
        """Wake whoever waits for an answer."""
        self._answers.put_nowait(ConnectionLost(message, reason))


AnyConnection = TypeVar("AnyConnection", bound=Connection)


class Publisher(Connection):
    """Sends blocks on its flows in turn."""

    def __init__(self, dialect: Dialect, link: Link) -> None:
        super().__init__(dialect, link)
        self.flows: list[Flow] = []
        self.sent = 0
        self.on_their_way = 0
        self.answered: Latencies | None = None
        """From when a message was sent, or due, to its acknowledgement, if somebody wants to know."""
        self._lanes: list[Lane] = []
        self._acknowledged: list[Place] = []
        self._turn = 0
        self._next_packet_id = 1
        self._turn_of: dict[int, int] = {}
        self._partial = b""

    def open_lanes(self) -> None:
        """Give each flow its lane."""
        self._lanes = [self.link.lane(flow.index + 1) for flow in self.flows]
        self._acknowledged = [Place(flow) for flow in self.flows]

    def send(self, count: int, sent_ns: int, interval_ns: int = 0) -> None:
        """Send the next block."""
        turn = self._turn % len(self.flows)
        flow, first_packet_id = self.flows[turn], self._next_packet_id
        block = flow.make_block(count, sent_ns, interval_ns, first_packet_id)
        self._turn += 1
        self.sent += count
        self.on_their_way += count
        if flow.frame.packet_id_at is not None:
            packet_ids = [(first_packet_id + number - 1) % LAST_PACKET_ID + 1 for number in range(count)]
            self._turn_of.update(dict.fromkeys(packet_ids, turn))
            self._next_packet_id = packet_ids[-1] % LAST_PACKET_ID + 1
        self._lanes[turn].write(block.data)

    def messages_received(self, lane_id: int, data: bytes) -> None:
        """Acknowledgements: answer those of QoS 2 that go on, count those that end."""
        data = self._partial + data
        size = self.dialect.answer_size
        whole = len(data) - len(data) % size
        self._partial = data[whole:]
        replies: list[bytes] = []
        now_ns = time.perf_counter_ns()
        for at in range(0, whole, size):
            answer = data[at : at + size]
            reply = self.dialect.next_answer(answer)
            if reply is not None:
                replies.append(reply)
            else:
                place = self._acknowledged[self._turn_of.pop(int.from_bytes(answer[2:4], "big"))]
                if self.answered is not None and (block := place.flow.block(place.block_number)) is not None:
                    self.answered.counts[(now_ns - block.due_ns(place.seq)) // 1000] += 1
                place.advance(place.seq + 1)
        if replies:
            self.link.control.write(b"".join(replies))


class Subscriber(Connection):
    """Checks all flows, on as many lanes as the transport has."""

    def __init__(self, dialect: Dialect, link: Link) -> None:
        super().__init__(dialect, link)
        self.places: list[Place] = []
        self._readers: dict[int, ComparingReader | WalkingReader] = {}
        self._first_bytes: dict[int, bytes] = {}
        self._first_answers: list[bytes] = []

    def prepare(self, flows: list[Flow], tally: Tally, first_answers: list[bytes]) -> None:
        """Expect these flows."""
        self.places = [Place(flow) for flow in flows]
        self._tally = tally
        self._first_answers = first_answers

    @property
    def streams(self) -> int:
        """Lanes on which messages came."""
        return len(self._readers)

    def messages_received(self, lane_id: int, data: bytes) -> None:
        """Check what came."""
        now_ns = time.perf_counter_ns()
        reader = self._readers.get(lane_id)
        if reader is None:
            data = self._first_bytes.pop(lane_id, b"") + data
            reader = self._make_reader(lane_id, data)
            if reader is None:
                self._first_bytes[lane_id] = data
                return
        rest = reader.feed(data, now_ns)
        if rest is not None:
            walking = self._readers[lane_id] = self._make_walking_reader()
            walking.feed(rest, now_ns)

    def _make_reader(self, lane_id: int, data: bytes) -> ComparingReader | WalkingReader | None:
        """Compare where a lane has one flow at QoS 0, which its first message names."""
        frame = self.places[0].flow.frame
        reader: ComparingReader | WalkingReader
        if self._first_answers or (len(self.places) > 1 and not self.link.has_lanes):
            reader = self._make_walking_reader()
        elif len(data) < len(frame.data):
            return None
        else:
            index = frame.layout.unpack_from(data)[2]
            reader = ComparingReader(self.places[index % len(self.places)], self._tally)
        self._readers[lane_id] = reader
        return reader

    def _make_walking_reader(self) -> WalkingReader:
        return WalkingReader(self.places, self._tally, self.dialect, self._first_answers, self.link.control.write)


class Load:
    """All connections of one run."""

    subscriber_type: type[Subscriber] = Subscriber
    flow_type: type[Flow] = Flow

    def __init__(self, shape: Shape, dialect: Dialect) -> None:
        self.shape = shape
        self.tally = Tally(Latencies())
        self.is_overloaded = False
        self._dialect = dialect
        self._publishers: list[Publisher] = []
        self._subscribers: list[Subscriber] = []
        self._is_publishing = False
        self._window = max(1, shape.messages_on_their_way() // shape.publishers)
        self._block = min(self._window, shape.block or max(1, self._window // 8))

    async def open(self, connect_publisher: Connect, connect_subscriber: Connect) -> None:
        """Connect everybody: subscribers first, so that the first message already finds them."""
        await self._open_subscribers(connect_subscriber)
        await self._open_publishers(connect_publisher)
        self._make_flows()

    async def _open_subscribers(self, connect_subscriber: Connect) -> None:
        shape, flows = self.shape, range(self.shape.publishers * self.shape.topics)
        for number in range(shape.subscribers):
            subscriber = await self._connect(
                connect_subscriber, self.subscriber_type, f"bench-sub-{number}", shape.is_persistent
            )
            self._subscribers.append(subscriber)
            await subscriber.ask(self._dialect.subscribe(flows, shape.qos))

    async def _open_publishers(self, connect_publisher: Connect) -> None:
        shape, flows = self.shape, range(self.shape.publishers * self.shape.topics)
        for number in range(shape.publishers):
            publisher = await self._connect(connect_publisher, Publisher, f"bench-pub-{number}")
            self._publishers.append(publisher)
            await publisher.ask(self._dialect.register(flows[number * shape.topics : (number + 1) * shape.topics]))

    async def _connect(
        self, connect: Connect, kind: type[AnyConnection], client_id: str, is_persistent: bool = False
    ) -> AnyConnection:
        made: list[AnyConnection] = []

        def make_handler(link: Link) -> AnyConnection:
            made.append(kind(self._dialect, link))
            return made[0]

        await connect(make_handler)
        await made[0].ask(self._dialect.hello(client_id, is_persistent))
        return made[0]

    def _make_flows(self) -> None:
        shape = self.shape
        receivers = len(self._subscribers) + (shape.qos > 0)
        answers = self._dialect.first_answers(shape.qos) if shape.qos else []
        flows: list[Flow] = []
        for number, publisher in enumerate(self._publishers):
            for index in range(number * shape.topics, (number + 1) * shape.topics):
                frame = self._dialect.frame(index, shape.qos, shape.payload_bytes)
                publisher.flows.append(self.flow_type(index, frame, receivers, partial(self._block_done, publisher)))
            flows += publisher.flows
            publisher.open_lanes()
            publisher.start()
        for subscriber in self._subscribers:
            subscriber.prepare(flows, self.tally, answers)
            subscriber.start()

    # --- publishing ---

    def start(self) -> None:
        """Fill the windows, or start the clock."""
        self._is_publishing = True
        if self.shape.rate is not None:
            self._started_ns = time.perf_counter_ns()
            self._interval_ns = round(1e9 * self.shape.publishers / self.shape.rate)
            self._send_what_is_due()
            return
        for publisher in self._publishers:
            self._fill(publisher)

    def _block_done(self, publisher: Publisher, block: Block) -> None:
        """Everybody has got a block: its place in the window is free."""
        publisher.on_their_way -= block.end_seq - block.first_seq
        if self._is_publishing and self.shape.rate is None:
            self._fill(publisher)

    def _fill(self, publisher: Publisher) -> None:
        now_ns = time.perf_counter_ns()
        while publisher.on_their_way + self._block <= self._window:
            publisher.send(self._block, now_ns)

    def _send_what_is_due(self) -> None:
        """Runs once per turn of the loop, which never sleeps meanwhile: a timer would be a millisecond late."""
        if not self._is_publishing:
            return
        now_ns, interval_ns = time.perf_counter_ns(), self._interval_ns
        for number, publisher in enumerate(self._publishers):
            # Publishers take turns within an interval rather than all sending at its start.
            first_ns = self._started_ns + number * interval_ns // len(self._publishers)
            due = (now_ns - first_ns) // interval_ns + 1 - publisher.sent
            if due > 0:
                publisher.send(due, first_ns + publisher.sent * interval_ns, interval_ns)
            is_out_of_ids = self.shape.qos > 0 and publisher.on_their_way > MAX_UNANSWERED
            if publisher.link.unsent > MAX_BACKLOG_BYTES or is_out_of_ids:
                self.is_overloaded = True
                self._is_publishing = False
        asyncio.get_running_loop().call_soon(self._send_what_is_due)

    # --- the end ---

    async def drain(self) -> None:
        """Stop publishing and wait for what is on its way, until nothing more comes."""
        self._is_publishing = False
        received, waited_s = -1, 0.0
        while any(publisher.on_their_way for publisher in self._publishers) and waited_s < STALL_S:
            waited_s = waited_s + DRAIN_STEP_S if received == self.tally.received else 0.0
            received = self.tally.received
            await asyncio.sleep(DRAIN_STEP_S)
        for subscriber in self._subscribers:
            self.tally.lost += sum(place.flow.next_seq - place.seq for place in subscriber.places)

    @property
    def streams(self) -> int:
        """Lanes on which the subscriber with the most of them got messages."""
        return max(subscriber.streams for subscriber in self._subscribers)

    def close(self) -> None:
        """End all connections."""
        for connection in (*self._publishers, *self._subscribers):
            connection.link.abort()

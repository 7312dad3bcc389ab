"""Counting per connection, stream and topic, put in the way of messages while somebody watches and taken out after.

    dialect ── publish, publish_run, … ──► Metering ──► Broker          what a client sends
    core ── send_message, send_run ──► Meter ──► the dialect's outlets  what a client is sent

A broker that nobody watches has none of this: `open` puts its own methods where those of the broker and of its
connections are looked up, `close` takes them out again. So the way of a message is the same as if this file did not
exist, and while somebody watches it is one call longer.

Counts are those since the last `take`, and what was counted is forgotten by it: memory is bounded by what one interval
brought, and by the bounds below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.broker.dialects.connection import DialectConnection
from moq.broker.link import CONTROL
from moq.broker.peer import SENT

if TYPE_CHECKING:
    from collections.abc import Generator

    from moq.broker.confirmations import Wanted
    from moq.broker.core import Broker
    from moq.broker.message import Message, Run, Target
    from moq.broker.peer import Peer
    from moq.broker.session import Session

MAX_FLOWS: Final = 256
"""Topics told apart per connection and direction in one interval; the others are counted together."""

MAX_TOPICS: Final = 10_000
"""Topics told apart in one interval; the others are counted for their connections alone."""

OTHERS: Final = "\0"
"""Stands for the topics past the bound: no topic has this name."""

SLICE: Final = 64
"""Sessions that are looked at in one turn of the event loop: some tenths of a millisecond."""

PAUSE_S: Final = 0.002
"""Between two slices. A message takes several turns of the loop, and would wait for a slice in each of them if one
followed the other."""


_NOTHING: Final[dict[str, Flow]] = {}
"""What an idle connection has sent and received: thousands of them share it."""


class Flow:
    """The messages of one topic in one direction, of one connection or of all."""

    __slots__ = ("lane_id", "messages", "size", "target")

    def __init__(self, lane_id: int = 0, target: Target | None = None) -> None:
        self.messages = 0
        self.size = 0
        """Bytes of their payloads."""
        self.lane_id = lane_id
        """On which lane the client sent them."""
        self.target = target
        """For which subscription they were sent to it."""


class Meter:
    """What one connection has sent and received since it was last asked.

    It knows the outlets of its connection and not the connection itself, which refers to it: the two go without the
    garbage collector when the client does.
    """

    __slots__ = ("_send", "_send_run", "received", "sent")

    def __init__(self, connection: Peer) -> None:
        self.received = self.sent = _NOTHING
        self._send = connection.send_message
        # A dialect without a way of its own for runs sends their messages one by one: they are counted as such.
        self._send_run = vars(connection).get("send_run")
        connection.send_message = self.send_message  # type: ignore[method-assign]
        if self._send_run is not None:
            connection.send_run = self.send_run  # type: ignore[method-assign]

    def leave(self, connection: Peer) -> None:
        """Get out of the way of its connection."""
        connection.send_message = self._send  # type: ignore[method-assign]
        if self._send_run is not None:
            connection.send_run = self._send_run  # type: ignore[method-assign]

    def send_message(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> int:
        """See `Peer`."""
        outcome = self._send(message, target, qos, packet_id, dup)
        if outcome == SENT:
            flow = self.sent.get(message.topic) or self._open_sent(message.topic, target)
            flow.messages += 1
            flow.size += len(message.payload)
        return outcome

    def send_run(self, run: Run, target: Target) -> int:
        """See `Peer`."""
        assert self._send_run is not None
        dropped: int = self._send_run(run, target)
        sent = len(run.payloads) - dropped
        if sent:
            flow = self.sent.get(run.topic) or self._open_sent(run.topic, target)
            flow.messages += sent
            # A lane that is full stays so for the rest of the run.
            flow.size += run.size if not dropped else sum(map(len, run.payloads[:sent]))
        return dropped

    def take(self) -> tuple[dict[str, Flow], dict[str, Flow]]:
        """What was received and what was sent, by topic; counting begins anew."""
        counted = self.received, self.sent
        self.received = self.sent = _NOTHING
        return counted

    def open_received(self, topic: str, lane_id: int) -> Flow:
        """Where to count the messages of a topic that its client sends, on this lane."""
        if self.received is _NOTHING:
            self.received = {}
        return open_flow(self.received, topic, Flow(lane_id))

    def _open_sent(self, topic: str, target: Target | None) -> Flow:
        if self.sent is _NOTHING:
            self.sent = {}
        return open_flow(self.sent, topic, Flow(target=target))


class Metering:
    """The meters of one broker's connections, and what its topics have been brought."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topics: dict[str, Flow] = {}
        self._meters: dict[str, Meter] = {}  # by client id; that of a client that has left until the next `prune`
        # As they are looked up, so that whoever else stands in the way of messages stays there.
        self._publish = broker.publish
        self._publish_confirmed = broker.publish_confirmed
        self._publish_run = broker.publish_run
        self._request = broker.request
        self._respond = broker.respond
        self._start = broker.sessions.start

    def __len__(self) -> int:
        return len(self._meters)

    # --- in the way and out of it ---------------------------------------------------------------------

    def open(self) -> Generator[float]:
        """Begin to count; yields how long others should have their turn. Who connects meanwhile is counted at once."""
        broker = self._broker
        broker.publish = self.publish  # type: ignore[method-assign]
        broker.publish_confirmed = self.publish_confirmed  # type: ignore[method-assign]
        broker.publish_run = self.publish_run  # type: ignore[method-assign]
        broker.request = self.request  # type: ignore[method-assign]
        broker.respond = self.respond  # type: ignore[method-assign]
        broker.sessions.start = self.start  # type: ignore[method-assign]
        for number, session in enumerate(list(broker.sessions), 1):
            if session.peer is not None and session.client_id not in self._meters:
                self._meters[session.client_id] = Meter(session.peer)
            if not number % SLICE:
                yield PAUSE_S

    def close(self) -> Generator[float]:
        """Count no more; yields as `open` does."""
        broker = self._broker
        for name in ("publish", "publish_confirmed", "publish_run", "request", "respond"):
            delattr(broker, name)
        delattr(broker.sessions, "start")
        for number, (client_id, meter) in enumerate(list(self._meters.items()), 1):
            session = broker.sessions.get(client_id)
            if session is not None and session.peer is not None:
                meter.leave(session.peer)
            if not number % SLICE:
                yield PAUSE_S
        self._meters.clear()
        self._topics = {}

    # --- what was counted -----------------------------------------------------------------------------

    def meter(self, session: Session) -> Meter | None:
        """The meter of a session's connection, if it is connected."""
        return self._meters.get(session.client_id) if session.peer is not None else None

    def take_topics(self) -> dict[str, Flow]:
        """What was published, by topic; counting begins anew."""
        topics, self._topics = self._topics, {}
        return topics

    def prune(self) -> None:
        """Forget the meters of clients that have left."""
        sessions = self._broker.sessions
        for client_id in list(self._meters):
            session = sessions.get(client_id)
            if session is None or session.peer is None:
                del self._meters[client_id]

    # --- what stands in the way of the broker ---------------------------------------------------------

    def publish(self, session: Session, message: Message, packet_id: int, now: float) -> None:
        """See `Broker`."""
        self._count(session, message.topic, 1, len(message.payload))
        self._publish(session, message, packet_id, now)

    def publish_confirmed(
        self, session: Session, message: Message, packet_id: int, wanted: Wanted, now: float, *, dup: bool
    ) -> None:
        """See `Broker`."""
        self._count(session, message.topic, 1, len(message.payload))
        self._publish_confirmed(session, message, packet_id, wanted, now, dup=dup)

    def publish_run(self, run: Run, now: float) -> None:
        """See `Broker`."""
        self._count(self._broker.sessions.get(run.publisher), run.topic, len(run.payloads), run.size)
        self._publish_run(run, now)

    def request(self, session: Session, message: Message, packet_id: int, timeout_s: float, now: float) -> None:
        """See `Broker`."""
        self._count(session, message.topic, 1, len(message.payload))
        self._request(session, message, packet_id, timeout_s, now)

    def respond(self, session: Session, message: Message, packet_id: int, request_id: int, now: float) -> None:
        """See `Broker`."""
        self._count(session, message.topic, 1, len(message.payload))
        self._respond(session, message, packet_id, request_id, now)

    def start(self, session: Session, peer: Peer, now: float, window: int | None = None) -> None:
        """See `Sessions`."""
        self._meters[session.client_id] = Meter(peer)
        self._start(session, peer, now, window)

    def _count(self, session: Session | None, topic: str, messages: int, size: int) -> None:
        flow = self._topics.get(topic) or open_flow(self._topics, topic, Flow(), MAX_TOPICS)
        flow.messages += messages
        flow.size += size
        if session is None or (meter := self._meters.get(session.client_id)) is None:
            return
        own = meter.received.get(topic) or meter.open_received(topic, _incoming_lane(session))
        own.messages += messages
        own.size += size


def _incoming_lane(session: Session) -> int:
    peer = session.peer
    return peer.lane_id if isinstance(peer, DialectConnection) else CONTROL


def open_flow(flows: dict[str, Flow], topic: str, flow: Flow, most: int = MAX_FLOWS) -> Flow:
    """Tell a topic apart from others, unless so many are already."""
    if len(flows) >= most:
        return flows.setdefault(OTHERS, Flow())
    flows[topic] = flow
    return flow

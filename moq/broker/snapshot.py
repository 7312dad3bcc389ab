"""One snapshot of `$SYS/top`: figures of the whole broker, and the busiest connections, streams and topics.

Everybody is looked at, in slices, and the busiest of them are kept on the way: what a snapshot holds is bounded by
`max_top_entries`, whatever there is. A message counts for as much as a kibibyte, so that neither a chatty sensor nor a
camera hides the other, and so does one that waits: clients that do not keep up are worth seeing.

Rates are counts of one interval divided by its length, so that a rate times `interval_s` is the count again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from heapq import heappush, heappushpop
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from moq.broker.dialects.connection import DialectConnection
from moq.broker.metering import MAX_TOPICS, OTHERS, PAUSE_S, SLICE, Flow, open_flow

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from moq.broker.core import Broker
    from moq.broker.metering import Metering
    from moq.broker.session import Session

VERSION: Final = 1

MAX_NAME: Final = 200
"""Characters of a name that are told: a topic may have 65,535 bytes, and a snapshot has many."""

AT_ONCE: Final = 0.0
"""The next turn of the event loop."""

ItemT = TypeVar("ItemT")
Entry = dict[str, object]


class Busiest(Generic[ItemT]):
    """The items of most weight among all that were offered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[float, int, ItemT]] = []
        self._order = count(0, -1)
        self.offered = 0

    def offer(self, weight: float, item: ItemT) -> None:
        """Keep it if it is among them; of equals the first."""
        self.offered += 1
        if len(self._heap) < self._most:
            heappush(self._heap, (weight, next(self._order), item))
        elif weight > self._heap[0][0]:
            heappushpop(self._heap, (weight, next(self._order), item))

    def __iter__(self) -> Iterator[ItemT]:
        """The busiest first."""
        return (item for _, _, item in sorted(self._heap, key=lambda entry: entry[:2], reverse=True))


@dataclass(slots=True)
class ProcessState:
    """The process at one moment, which the core cannot know: asked of whoever does."""

    links: int
    """Connections that are open, those included that have not said who they are."""
    cpu_s: float
    """Processor time since it started."""
    rss_bytes: int
    """Its memory."""


class _Connection(NamedTuple):
    session: Session
    received: Flow
    sent: Flow


class _Stream(NamedTuple):
    session: Session
    topic: str
    is_incoming: bool
    flow: Flow


class _Topic(NamedTuple):
    name: str
    published: Flow
    delivered: Flow


class Snapshots:
    """Takes the snapshots of one broker, each from where the last one ended."""

    def __init__(self, broker: Broker, metering: Metering, process: Callable[[], ProcessState], now: float) -> None:
        self._broker = broker
        self._metering = metering
        self._process = process
        self._most = broker.limits.max_top_entries
        self._taken_at = now
        self._interval_s = 0.0
        self._totals = self._read_totals(process())

    def take(self, figures: Entry, now: float) -> Generator[float, None, Entry]:
        """One snapshot, with these figures among those of the broker; yields how long others should have a turn."""
        self._interval_s, self._taken_at = max(now - self._taken_at, 1e-3), now
        broker_figures = figures | self._broker_figures()
        published = self._metering.take_topics()
        delivered: dict[str, Flow] = {}
        connections: Busiest[_Connection] = Busiest(self._most)
        streams: Busiest[_Stream] = Busiest(self._most)
        queued = inflight = work = 0
        for session in list(self._broker.sessions):
            waiting, unanswered = session.outbound.waiting, session.outbound.inflight
            queued += waiting
            inflight += unanswered
            work += 1 + self._visit(session, waiting + unanswered, connections, streams, delivered)
            if work >= SLICE:
                work = 0
                yield PAUSE_S
        if len(self._metering) > connections.offered:
            self._metering.prune()
        topics: Busiest[_Topic] = Busiest(self._most)
        for number, name in enumerate({**published, **delivered}, 1):
            topic = _Topic(name, published.get(name, _NONE), delivered.get(name, _NONE))
            topics.offer(_weight(topic.published) + _weight(topic.delivered), topic)
            if not number % (SLICE * 4):
                yield PAUSE_S
        broker_figures |= {"queued": queued, "inflight": inflight, "connected": connections.offered}
        broker_figures |= {"active_streams": streams.offered, "active_topics": topics.offered}
        snapshot: Entry = {
            "version": VERSION,
            "at": round(now + self._broker.environment.epoch, 3),
            "interval_s": round(self._interval_s, 6),
            "broker": broker_figures,
        }
        yield AT_ONCE
        snapshot["connections"] = [entry for each in connections if (entry := self._connection(each, now))]
        yield AT_ONCE
        snapshot["streams"] = [entry for each in streams if (entry := self._stream(each))]
        yield AT_ONCE
        snapshot["topics"] = [self._topic(each) for each in topics]
        yield AT_ONCE
        return snapshot

    def _visit(
        self,
        session: Session,
        held: int,
        connections: Busiest[_Connection],
        streams: Busiest[_Stream],
        delivered: dict[str, Flow],
    ) -> int:
        """Take what one session's connection has counted; says how much there was."""
        meter, peer = self._metering.meter(session), session.peer
        if meter is None or not isinstance(peer, DialectConnection):
            return 0
        received, sent = meter.take()
        all_received = Flow() if received else _NONE
        all_sent = Flow() if sent else _NONE
        for topic, flow in received.items():
            _add(all_received, flow)
            streams.offer(_weight(flow), _Stream(session, topic, True, flow))
        for topic, flow in sent.items():
            _add(all_sent, flow)
            _add(delivered.get(topic) or open_flow(delivered, topic, Flow(), MAX_TOPICS), flow)
            streams.offer(_weight(flow), _Stream(session, topic, False, flow))
        weight = _weight(all_received) + _weight(all_sent) + held + peer.link.unsent / 1024
        connections.offer(weight, _Connection(session, all_received, all_sent))
        return len(received) + len(sent)

    # --- figures of the whole broker ------------------------------------------------------------------

    def _read_totals(self, process: ProcessState) -> dict[str, float]:
        figures = self._broker.figures
        names = ["messages_received", "bytes_received", "messages_sent", "bytes_sent"]
        names += [name for name in figures.counters() if name.startswith("dropped_")]
        return {name: getattr(figures, name) for name in names} | {"cpu_s": process.cpu_s}

    def _broker_figures(self) -> Entry:
        broker = self._broker
        environment, process = broker.environment, self._process()
        before, self._totals = self._totals, self._read_totals(process)
        rates = {name: self._rate(total - before[name]) for name, total in self._totals.items()}
        drops = [name.removeprefix("dropped_") for name in rates if name.startswith("dropped_")]
        return {
            "connections": process.links,
            "sessions": len(broker.sessions),
            "subscriptions": broker.subscriptions.count,
            "topics": len(broker.topics),
            "retained": broker.topics.retained_count,
            "messages_in_per_s": rates["messages_received"],
            "bytes_in_per_s": rates["bytes_received"],
            "messages_out_per_s": rates["messages_sent"],
            "bytes_out_per_s": rates["bytes_sent"],
            "drops": {
                name: {"per_s": rates[f"dropped_{name}"], "total": self._totals[f"dropped_{name}"]} for name in drops
            },
            "held_bytes": environment.pressure.held_bytes,
            "watermark_bytes": broker.limits.memory_watermark_bytes,
            "pressure": environment.pressure.level.name.lower(),
            "store_pending": environment.store.last - environment.store.durable,
            "cpu_share": rates["cpu_s"],
            "rss_bytes": process.rss_bytes,
        }

    # --- entries --------------------------------------------------------------------------------------

    def _connection(self, found: _Connection, now: float) -> Entry | None:
        session, peer = found.session, found.session.peer
        if not isinstance(peer, DialectConnection):
            return None  # it has left meanwhile
        link = peer.link
        state = link.state()
        return {
            "client_id": _shortened(session.client_id),
            "user": None if session.user is None else _shortened(session.user),
            "transport": link.transport,
            "dialect": peer.dialect,
            "peer": link.peer,
            "connected_s": round(now - peer.connected_at, 3),
            **self._rates("in", found.received),
            **self._rates("out", found.sent),
            "waiting": session.outbound.waiting,
            "inflight": session.outbound.inflight,
            "unsent_bytes": link.unsent,
            "streams_in": peer.incoming_lanes,
            "streams_out": link.outgoing_streams,
            "rtt_s": None if state is None else round(state.round_trip_s, 6),
            "congestion_window_bytes": None if state is None else state.congestion_window_bytes,
            "bytes_in_flight": None if state is None else state.bytes_in_flight,
            "lost": None if state is None else state.losses,
        }

    def _stream(self, found: _Stream) -> Entry | None:
        session, peer, flow = found.session, found.session.peer, found.flow
        if not isinstance(peer, DialectConnection):
            return None
        lane = None if found.is_incoming else peer.lane_of(found.topic, flow.target)
        stream_id: int | None = flow.lane_id
        if not found.is_incoming:
            stream_id = None if lane is None else lane.stream_id
        return {
            "client_id": _shortened(session.client_id),
            "direction": "in" if found.is_incoming else "out",
            "stream": None if found.topic == OTHERS else stream_id,
            "topic": _topic_name(found.topic),
            "messages_per_s": self._rate(flow.messages),
            "bytes_per_s": self._rate(flow.size),
            "unsent_bytes": None if lane is None else lane.unsent,
        }

    def _topic(self, found: _Topic) -> Entry:
        topic = self._broker.topics.get(found.name)
        return {
            "topic": _topic_name(found.name),
            **self._rates("in", found.published),
            **self._rates("out", found.delivered),
            "subscribers": self._subscribers(found.name),
            "retained": 0 if topic is None else len(topic.retained),
        }

    def _subscribers(self, name: str) -> int | None:
        if name in ("", OTHERS):
            return None
        route = self._broker.subscriptions.route(name)
        shared = sum(len(group.members) for group in route.groups)
        return len(route.targets) + len(route.paced) + len(route.stages) + shared

    def _rates(self, direction: str, flow: Flow) -> Entry:
        return {
            f"messages_{direction}_per_s": self._rate(flow.messages),
            f"bytes_{direction}_per_s": self._rate(flow.size),
        }

    def _rate(self, amount: float) -> float:
        return round(amount / self._interval_s, 3)


_NONE: Final = Flow()


def _add(total: Flow, flow: Flow) -> None:
    total.messages += flow.messages
    total.size += flow.size


def _weight(flow: Flow) -> float:
    return flow.messages + flow.size / 1024


def _topic_name(topic: str) -> str | None:
    """None: several topics, past those that are told apart. An empty name: responses, which have no topic."""
    return None if topic == OTHERS else _shortened(topic)


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def encode(snapshot: Entry) -> bytes:
    """A snapshot as the payload of a message."""
    return json.dumps(snapshot, separators=(",", ":"), ensure_ascii=False).encode()

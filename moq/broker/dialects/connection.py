"""What connections of every dialect share: reading lanes, large payloads, slow readers, overload, and how they end.

    CONNECTING ── the client said who it is ──► OPEN ── goodbye, violation, silence, take-over ──► CLOSED

A connection owns what ends with it: a frame reader per incoming lane, the payloads being put together, the one timer.
Everything that outlives it is the session's. What the packets are and what they mean is for the dialect, which
subclasses this; a peer that breaks its protocol is told why and closed, and nobody else notices.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from moq.broker.admission import TokenBucket
from moq.broker.link import CONTROL
from moq.broker.peer import CONGESTED, Peer
from moq.broker.traffic import LOST, end_reason, reset_reason
from moq.errors import RemoteProtocolError
from moq.reasons import Reason
from moq.wire.frames import Message as Streamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from moq.broker.core import Broker
    from moq.broker.link import Lane, Link
    from moq.broker.message import Message, Run, Target
    from moq.broker.session import Session
    from moq.broker.timers import Timer
    from moq.broker.traffic import Traffic
    from moq.wire.frames import Frames, PayloadChunk, PayloadEnded


class State(Enum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


ItemT = TypeVar("ItemT")
StreamedT = TypeVar("StreamedT", bound=Streamed)


class _Topics(Protocol):
    """What every dialect knows of a client's topics."""

    def judge_again(self) -> None:
        """Forget what the client may do."""


class _Assembly(Generic[StreamedT]):
    """A large payload on its way in."""

    __slots__ = ("chunks", "held", "packet", "size")

    def __init__(self, packet: StreamedT, size: int) -> None:
        self.packet = packet
        self.size = size
        self.chunks: list[bytes] = []
        self.held = 0


class DialectConnection(Peer, Generic[ItemT, StreamedT]):
    """One client, connected: a `Peer` to the core, fed by whoever owns the link.

    `ItemT` are the packets of a dialect, `StreamedT` those of them whose payload may be large.
    """

    _topics: _Topics  # from the moment it is open
    _traffic: Traffic

    def __init__(self, broker: Broker, link: Link, new_client_id: Callable[[], str], now: float) -> None:
        self._broker = broker
        self._environment = broker.environment
        self._limits = broker.limits
        self._link = link
        self._new_client_id = new_client_id
        self.state = State.CONNECTING
        self._session: Session | None = None
        self._readers: dict[int, Frames[ItemT, StreamedT]] = {}
        self._assemblies: dict[int, _Assembly[StreamedT]] = {}
        self._paused: set[int] = set()  # incoming lanes not read until the client reads our answers
        self._waiting: set[int] = set()  # incoming lanes not read until other payloads are complete
        self._slowed: set[int] = set()  # incoming lanes not read until their turn, because the broker holds too much
        self._pressure = broker.environment.pressure
        rate = self._limits.max_publish_rate
        self._rate = TokenBucket(rate, now) if rate else None
        self._is_counted_out = False
        self._last_received = now
        self.connected_at = now
        self.lane_id = CONTROL
        """The incoming lane whose data came last."""
        self._timer: Timer = broker.timers.at(now + self._limits.connect_timeout_s, self._on_connect_timeout)

    # --- what a dialect adds --------------------------------------------------------------------------

    def send_message(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> int:
        """See `Peer`. Dialects put the method of their outlets here: one that passes it on costs 0.1 of a delivery."""
        raise NotImplementedError

    @property
    def dialect(self) -> str:
        """What its client speaks: `mmqp`, `mqtt3` or `mqtt5`; for people and metrics."""
        raise NotImplementedError

    def lane_of(self, topic: str, target: Target | None) -> Lane | None:
        """The lane that messages of a topic go out on for a subscription, if it is open."""
        raise NotImplementedError

    def _new_reader(self) -> Frames[ItemT, StreamedT]:
        """A reader for a lane that data has arrived on for the first time."""
        raise NotImplementedError

    def _take(self, items: Iterable[ItemT | StreamedT | PayloadChunk | PayloadEnded], lane_id: int, now: float) -> None:
        """Packets arrived on a lane, in order."""
        raise NotImplementedError

    def _on_message(self, packet: StreamedT, lane_id: int, now: float) -> None:
        """A message is complete."""
        raise NotImplementedError

    def _is_message(self, item: object) -> bool:
        """True if a packet is a message, or the beginning of a large one."""
        raise NotImplementedError

    def _is_droppable(self, item: object) -> bool:
        """True if a packet is a message of QoS 0 that nothing after it depends on."""
        raise NotImplementedError

    def _say_goodbye(self, reason: Reason, message: str = "") -> None:
        """Tell the client why its connection, or its attempt at one, ends."""
        raise NotImplementedError

    def _say_where_to(self, server_reference: str) -> None:
        """Tell the client that the broker stops, and which one to use instead if the dialect has words for that."""
        self._say_goodbye(Reason.SERVER_SHUTTING_DOWN)

    def _leave(self, *, with_will: bool, now: float, keeps_session: bool = False) -> None:
        """Give the session back."""
        raise NotImplementedError

    def _answers(self, lane_id: int) -> Lane:
        """The lane on which packets of this incoming lane are answered."""
        return self._link.control

    def _forget_outgoing(self, lane: Lane) -> None:
        """An outgoing lane has closed."""

    # --- events of the link ---------------------------------------------------------------------------

    def receive_data(self, lane_id: int, data: bytes, now: float) -> None:
        """Bytes arrived on a lane."""
        if self.state is State.CLOSED:
            return
        self._environment.now = self._last_received = now
        self.lane_id = lane_id
        reader = self._readers.get(lane_id)
        if reader is None:
            reader = self._readers[lane_id] = self._new_reader()
            self._traffic.lanes_opened += self._link.has_lanes
        pressure = self._pressure
        received = sum(self._traffic.messages_in) if pressure.slows_storing else 0
        stored = self._environment.store.last
        try:
            items = reader.feed(data)
            if self._rate is not None:
                items = self._within_rate(items, self._rate, now)
            if pressure.drops:
                items = self._without_best_effort(items)
            self._take(items, lane_id, now)
        except RemoteProtocolError as error:
            self._violated(error, now)
        if (
            pressure.slows_storing
            # A store that is behind is no reason to slow those who ask nothing of it.
            and (pressure.slows or self._environment.store.last != stored)
            and (lane_id in self._assemblies or sum(self._traffic.messages_in) != received)
        ):
            self._slow(lane_id)
        if self._answers(lane_id).congested and self.state is State.OPEN:
            # It asks faster than it reads our answers: read no more of it until those are gone.
            self._paused.add(lane_id)
            self._link.pause_reading(lane_id)

    def lane_finished(self, lane_id: int, now: float) -> None:
        """The client ended a lane; it may do so only between packets."""
        self._environment.now = now
        reader = self._forget_lane(lane_id)
        if reader is not None and self._link.has_lanes:
            self._traffic.lanes_ended["finished"] += 1
        if reader is not None and reader.mid_packet:
            self._violated(RemoteProtocolError(f"lane {lane_id} ended inside a packet", Reason.MALFORMED_PACKET), now)

    def lane_reset(self, lane_id: int, reason: int = 0) -> None:
        """The client abandoned a lane: what was incomplete on it never was."""
        if self._forget_lane(lane_id) is not None and self._link.has_lanes:
            self._traffic.lanes_ended["reset"] += 1
            why = reset_reason(reason)
            self._traffic.lanes_reset[why] = self._traffic.lanes_reset.get(why, 0) + 1

    def lane_writable(self, lane: Lane, now: float) -> None:
        """A lane has drained, or closed."""
        self._environment.now = now
        if lane.is_closed:
            self._forget_outgoing(lane)
        for lane_id in [lane_id for lane_id in self._paused if not self._answers(lane_id).congested]:
            self._paused.discard(lane_id)
            self._resume(lane_id)
        if self._session is not None and self.state is State.OPEN:
            self._broker.on_writable(self._session, now)

    def closed(self, now: float) -> None:
        """The link is gone without a goodbye."""
        self._environment.now = now
        if self.state is State.OPEN:  # before that it was nobody
            self._note_end(None)
        self._leave(with_will=True, now=now)

    @property
    def link(self) -> Link:
        """What it runs over."""
        return self._link

    @property
    def incoming_lanes(self) -> int:
        """Lanes on which the client has sent something and which it has not ended."""
        return len(self._readers)

    @property
    def user(self) -> str | None:
        """Who the client logged in as; None before it did, or if it did not."""
        return self._session.user if self._session is not None else None

    @property
    def is_settled(self) -> bool:
        """True if no message of QoS 1 or 2 is between its first packet and its last, in either direction."""
        session = self._session
        return not self._assemblies and (session is None or not (session.outbound.inflight or session.received))

    def judge_again(self) -> None:
        """The rules of access have changed: nothing is allowed because it once was."""
        if self.state is State.OPEN:
            self._topics.judge_again()

    def dismiss(self, reason: Reason, now: float) -> None:
        """The broker does not want this client any more: to others it is lost."""
        if self.state is not State.CLOSED:
            self._note_end(reason)
            self._say_goodbye(reason)
            self._leave(with_will=True, now=now)
            self._end(reason)

    def shut_down(self, now: float, server_reference: str = "") -> None:
        """The broker stops: say so; the client's will is not for this."""
        if self.state is not State.CLOSED:
            self._environment.now = now
            self._note_end(Reason.SERVER_SHUTTING_DOWN)
            self._say_where_to(server_reference)
            self._leave(with_will=False, keeps_session=True, now=now)
            self._end(Reason.SERVER_SHUTTING_DOWN)

    def close(self, reason: Reason) -> None:
        """See `Peer`."""
        if self.state is not State.CLOSED:
            self._note_end(reason)
            self._say_goodbye(reason)
            self._end(reason)

    def send_run(self, run: Run, target: Target) -> int:
        """See `Peer`."""
        outcomes = [self.send_message(message, target, 0, 0, False) for message in run.messages()]
        return outcomes.count(CONGESTED)

    # --- large payloads -------------------------------------------------------------------------------

    def _on_payload_started(self, packet: StreamedT, size: int, lane_id: int) -> None:
        self._assemblies[lane_id] = _Assembly(packet, size)
        self._pace_assemblies()

    def _on_payload_chunk(self, chunk: PayloadChunk, lane_id: int) -> None:
        assembly = self._assemblies[lane_id]
        assembly.chunks.append(chunk.data)
        assembly.held += len(chunk.data)

    def _on_payload_ended(self, lane_id: int, now: float) -> None:
        assembly = self._assemblies.pop(lane_id)
        self._pace_assemblies()
        packet = assembly.packet
        if self._pressure.drops and self._is_droppable(packet):
            self._broker.figures.dropped_memory += 1
            return
        packet.payload = b"".join(assembly.chunks)
        self._on_message(packet, lane_id, now)

    def _pace_assemblies(self) -> None:
        """All lanes together may hold one largest packet: lanes past that wait, those that began first go first."""
        total = 0
        waiting: set[int] = set()
        for lane_id, assembly in self._assemblies.items():
            total += assembly.size
            if total > self._limits.max_packet_bytes:
                waiting.add(lane_id)
        for lane_id in waiting - self._waiting:
            self._link.pause_reading(lane_id)
        resumed, self._waiting = self._waiting - waiting, waiting
        for lane_id in resumed:
            self._resume(lane_id)

    def _resume(self, lane_id: int) -> None:
        """Read a lane again unless it waits for something else, too."""
        if not (lane_id in self._paused or lane_id in self._waiting or lane_id in self._slowed):
            self._link.resume_reading(lane_id)

    def _forget_lane(self, lane_id: int) -> Frames[ItemT, StreamedT] | None:
        self._paused.discard(lane_id)
        self._waiting.discard(lane_id)
        if lane_id in self._slowed:
            self._slowed.discard(lane_id)
            self._pressure.forget(self, lane_id)
        if self._assemblies.pop(lane_id, None) is not None:
            self._pace_assemblies()
        return self._readers.pop(lane_id, None)

    # --- overload -------------------------------------------------------------------------------------

    @property
    def assembling_bytes(self) -> int:
        """What is held of payloads that are not complete."""
        return sum(assembly.held for assembly in self._assemblies.values())

    def _within_rate(
        self, items: Iterable[ItemT | StreamedT | PayloadChunk | PayloadEnded], rate: TokenBucket, now: float
    ) -> Iterator[ItemT | StreamedT | PayloadChunk | PayloadEnded]:
        for item in items:
            if self._is_message(item) and not rate.take(now):
                raise RemoteProtocolError(
                    f"the client publishes more than {self._limits.max_publish_rate:g} messages per second",
                    Reason.MESSAGE_RATE_TOO_HIGH,
                )
            yield item

    def _without_best_effort(
        self, items: Iterable[ItemT | StreamedT | PayloadChunk | PayloadEnded]
    ) -> Iterator[ItemT | StreamedT | PayloadChunk | PayloadEnded]:
        for item in items:
            if self.state is State.OPEN and self._is_droppable(item):
                self._broker.figures.dropped_memory += 1
            else:
                yield item

    def _slow(self, lane_id: int) -> None:
        if self.state is State.OPEN and lane_id not in self._slowed:
            self._slowed.add(lane_id)
            self._link.pause_reading(lane_id)
            self._pressure.slow(self, lane_id)

    def is_awaited(self, lane_id: int) -> bool:
        """See `Slowable`."""
        return lane_id == CONTROL and self._session is not None and self._session.outbound.inflight > 0

    def read_on(self, lane_id: int, now: float) -> None:
        """See `Slowable`."""
        self._last_received = self._heard_at(now)
        self._slowed.discard(lane_id)
        self._resume(lane_id)

    def _heard_at(self, now: float) -> float:
        """When the client was last heard; nobody is silent while we do not listen."""
        return now if CONTROL in self._slowed else self._last_received

    def _forget_slowed(self) -> None:
        for lane_id in self._slowed:
            self._pressure.forget(self, lane_id)
        self._slowed.clear()

    # --- the beginning and the end --------------------------------------------------------------------

    def _let_in(self, session: Session) -> None:
        """The client is who it says."""
        self.state = State.OPEN
        self._timer.cancel()
        session.traffic = self._traffic
        self._broker.figures.traffic.let_in(self._traffic)

    def _note_end(self, reason: Reason | None) -> None:
        """Count how the connection ends, which it does once; None: without a word."""
        if not self._is_counted_out:
            self._is_counted_out = True
            why = LOST if reason is None else end_reason(reason)
            self._traffic.end(why, was_open=self.state is State.OPEN)

    def _on_connect_timeout(self, now: float) -> None:
        self._violated(RemoteProtocolError("the client did not say who it is in time", Reason.KEEP_ALIVE_TIMEOUT), now)

    def _violated(self, error: RemoteProtocolError, now: float) -> None:
        if self.state is State.CLOSED:
            return  # garbage after a goodbye
        figures = self._broker.figures
        figures.protocol_errors += 1
        figures.refused_publish_rate += error.reason == Reason.MESSAGE_RATE_TOO_HIGH
        figures.refused_inflight += error.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
        self._note_end(error.reason)
        self._say_goodbye(error.reason, str(error))
        self._leave(with_will=True, now=now)
        self._end(error.reason, str(error))

    def _give_back(self, *, with_will: bool, expiry_s: float, now: float) -> None:
        """Leave the session behind for `expiry_s`."""
        self._timer.cancel()
        self.state = State.CLOSED
        self._forget_slowed()
        self._forget_readers()
        session, self._session = self._session, None
        if session is not None:
            self._broker.sessions.disconnect(session, self, with_will=with_will, expiry_s=expiry_s, now=now)

    def _forget_readers(self) -> None:
        if self._link.has_lanes:
            self._traffic.lanes_ended["link"] += len(self._readers)
        self._readers.clear()

    def _end(self, reason: Reason, message: str = "") -> None:
        self._timer.cancel()
        self.state = State.CLOSED
        self._forget_slowed()
        self._forget_readers()
        self._assemblies.clear()
        self._link.close(reason, message)

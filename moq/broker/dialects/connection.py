"""What connections of every dialect share: reading lanes, large payloads, slow readers, and how they end.

    CONNECTING ── the client said who it is ──► OPEN ── goodbye, violation, silence, take-over ──► CLOSED

A connection owns what ends with it: a frame reader per incoming lane, the payloads being put together, the one timer.
Everything that outlives it is the session's. What the packets are and what they mean is for the dialect, which
subclasses this; a peer that breaks its protocol is told why and closed, and nobody else notices.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from moq.broker.peer import CONGESTED, Peer
from moq.errors import RemoteProtocolError
from moq.reasons import Reason
from moq.wire.frames import Message as Streamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from moq.broker.core import Broker
    from moq.broker.link import Lane, Link
    from moq.broker.message import Message, Run, Target
    from moq.broker.session import Session
    from moq.broker.timers import Timer
    from moq.wire.frames import Frames, PayloadChunk, PayloadEnded


class State(Enum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


ItemT = TypeVar("ItemT")
StreamedT = TypeVar("StreamedT", bound=Streamed)


class _Assembly(Generic[StreamedT]):
    """A large payload on its way in."""

    __slots__ = ("chunks", "packet", "size")

    def __init__(self, packet: StreamedT, size: int) -> None:
        self.packet = packet
        self.size = size
        self.chunks: list[bytes] = []


class DialectConnection(Peer, Generic[ItemT, StreamedT]):
    """One client, connected: a `Peer` to the core, fed by whoever owns the link.

    `ItemT` are the packets of a dialect, `StreamedT` those of them whose payload may be large.
    """

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
        self._last_received = now
        self._timer: Timer = broker.timers.at(now + self._limits.connect_timeout_s, self._on_connect_timeout)

    # --- what a dialect adds --------------------------------------------------------------------------

    def send_message(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> int:
        """See `Peer`. Dialects put the method of their outlets here: one that passes it on costs 0.1 of a delivery."""
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

    def _say_goodbye(self, reason: Reason, message: str = "") -> None:
        """Tell the client why its connection, or its attempt at one, ends."""
        raise NotImplementedError

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
        reader = self._readers.get(lane_id)
        if reader is None:
            reader = self._readers[lane_id] = self._new_reader()
        try:
            self._take(reader.feed(data), lane_id, now)
        except RemoteProtocolError as error:
            self._violated(error, now)
        if self._answers(lane_id).congested and self.state is State.OPEN:
            # It asks faster than it reads our answers: read no more of it until those are gone.
            self._paused.add(lane_id)
            self._link.pause_reading(lane_id)

    def lane_finished(self, lane_id: int, now: float) -> None:
        """The client ended a lane; it may do so only between packets."""
        self._environment.now = now
        reader = self._forget_lane(lane_id)
        if reader is not None and reader.mid_packet:
            self._violated(RemoteProtocolError(f"lane {lane_id} ended inside a packet", Reason.MALFORMED_PACKET), now)

    def lane_reset(self, lane_id: int) -> None:
        """The client abandoned a lane: what was incomplete on it never was."""
        self._forget_lane(lane_id)

    def lane_writable(self, lane: Lane, now: float) -> None:
        """A lane has drained, or closed."""
        self._environment.now = now
        if lane.is_closed:
            self._forget_outgoing(lane)
        for lane_id in [lane_id for lane_id in self._paused if not self._answers(lane_id).congested]:
            self._paused.discard(lane_id)
            if lane_id not in self._waiting:
                self._link.resume_reading(lane_id)
        if self._session is not None and self.state is State.OPEN:
            self._broker.on_writable(self._session, now)

    def closed(self, now: float) -> None:
        """The link is gone without a goodbye."""
        self._environment.now = now
        self._leave(with_will=True, now=now)

    def shut_down(self, now: float) -> None:
        """The broker stops: say so; the client's will is not for this."""
        if self.state is not State.CLOSED:
            self._say_goodbye(Reason.SERVER_SHUTTING_DOWN)
            self._leave(with_will=False, keeps_session=True, now=now)
            self._end(Reason.SERVER_SHUTTING_DOWN)

    def close(self, reason: Reason) -> None:
        """See `Peer`."""
        if self.state is not State.CLOSED:
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
        self._assemblies[lane_id].chunks.append(chunk.data)

    def _on_payload_ended(self, lane_id: int, now: float) -> None:
        assembly = self._assemblies.pop(lane_id)
        self._pace_assemblies()
        packet = assembly.packet
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
        for lane_id in self._waiting - waiting - self._paused:
            self._link.resume_reading(lane_id)
        self._waiting = waiting

    def _forget_lane(self, lane_id: int) -> Frames[ItemT, StreamedT] | None:
        self._paused.discard(lane_id)
        self._waiting.discard(lane_id)
        if self._assemblies.pop(lane_id, None) is not None:
            self._pace_assemblies()
        return self._readers.pop(lane_id, None)

    # --- the end --------------------------------------------------------------------------------------

    def _on_connect_timeout(self, now: float) -> None:
        self._violated(RemoteProtocolError("the client did not say who it is in time", Reason.KEEP_ALIVE_TIMEOUT), now)

    def _violated(self, error: RemoteProtocolError, now: float) -> None:
        if self.state is State.CLOSED:
            return  # garbage after a goodbye
        self._broker.figures.protocol_errors += 1
        self._say_goodbye(error.reason, str(error))
        self._leave(with_will=True, now=now)
        self._end(error.reason, str(error))

    def _give_back(self, *, with_will: bool, expiry_s: float, now: float) -> None:
        """Leave the session behind for `expiry_s`."""
        self._timer.cancel()
        self.state = State.CLOSED
        session, self._session = self._session, None
        if session is not None:
            self._broker.sessions.disconnect(session, self, with_will=with_will, expiry_s=expiry_s, now=now)

    def _end(self, reason: Reason, message: str = "") -> None:
        self._timer.cancel()
        self.state = State.CLOSED
        self._readers.clear()
        self._assemblies.clear()
        self._link.close(reason, message)

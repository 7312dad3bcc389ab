"""Messages on their way to one session: QoS, packet identifiers, windows, waiting queues, redelivery.

        offer ──► sent at once ──► inflight ──► acknowledged
          │                          ▲   │
          └──► waiting, per topic ───┘   └── connection lost: back to the front of its topic, marked DUP

Each topic waits in a queue of its own, so that order holds per topic while a congested lane holds up no other.
A packet identifier stays with its message until the last packet of the exchange; a message keeps it over
reconnects, and at QoS 2 over restarts too: that is what makes a repetition recognisable.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from moq.broker.message import Kind
from moq.broker.peer import UNDELIVERABLE
from moq.broker.records import message_from, message_record
from moq.broker.store import DeliveryRecord, Table
from moq.reasons import FIRST_REFUSAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moq.broker.environment import Environment
    from moq.broker.message import Message, Target
    from moq.broker.peer import Peer

MAX_PACKET_ID = 0xFFFF

ABSENT_LOAD = 1 << 32
"""Added to the load of a session without a connection: groups choose it last."""


class PacketIds:
    """Identifiers of one direction: each is in use until released as often as it was taken or held."""

    __slots__ = ("_holds", "_last")

    def __init__(self) -> None:
        self._last = 0
        self._holds: dict[int, int] = {}

    @property
    def are_used_up(self) -> bool:
        """True while every identifier is in use."""
        return len(self._holds) >= MAX_PACKET_ID

    def take(self) -> int:
        """A free identifier, or 0 if all are in use."""
        holds = self._holds
        if len(holds) >= MAX_PACKET_ID:
            return 0
        packet_id = self._last % MAX_PACKET_ID + 1
        while packet_id in holds:
            packet_id = packet_id % MAX_PACKET_ID + 1
        self._last = packet_id
        holds[packet_id] = 1
        return packet_id

    def hold(self, packet_id: int) -> None:
        """Keep an identifier in use for one more reason."""
        self._holds[packet_id] = self._holds.get(packet_id, 0) + 1

    def release(self, packet_id: int) -> None:
        """One reason fewer."""
        remaining = self._holds.get(packet_id, 0) - 1
        if remaining > 0:
            self._holds[packet_id] = remaining
        else:
            self._holds.pop(packet_id, None)


class Delivery:
    """One message on its way to one session."""

    __slots__ = ("dup", "message", "number", "packet_id", "qos", "released", "stored_as", "target")

    def __init__(self, message: Message, target: Target | None, qos: int, packet_id: int = 0) -> None:
        self.message = message
        self.target = target
        self.qos = qos
        self.packet_id = packet_id
        self.dup = False
        self.released = False
        self.number = -1
        self.stored_as = 0

    @property
    def exchange(self) -> int:
        """The key of the exchange: RESPONSEs carry identifiers of the other direction, so the kind is part of it."""
        return self.message.kind << 16 | self.packet_id

    @property
    def is_movable(self) -> bool:
        """True if another member of the group may get it instead: the receiver cannot have counted it as once."""
        if self.target is None or self.target.group is None or self.message.kind == Kind.REQUEST:
            return False
        return self.qos == 1 or not self.dup


class Outbound:
    """Everything one session is still to receive."""

    __slots__ = (
        "_blocked",
        "_environment",
        "_inflight",
        "_inflight_bytes",
        "_max_inflight",
        "_next_number",
        "_queues",
        "_ready",
        "_replays",
        "_waiting",
        "_waiting_bytes",
        "client_id",
        "ids",
        "is_stored",
        "peer",
    )

    def __init__(self, client_id: str, environment: Environment, is_stored: bool) -> None:
        self.client_id = client_id
        self.is_stored = is_stored
        self.peer: Peer | None = None
        self.ids = PacketIds()
        self._environment = environment
        self._max_inflight = environment.limits.max_inflight
        self._inflight: dict[int, Delivery] = {}
        self._inflight_bytes = 0
        self._queues: dict[str, deque[Delivery]] = {}
        self._ready: deque[str] = deque()
        self._blocked: set[str] = set()
        self._waiting = 0
        self._waiting_bytes = 0
        self._replays: dict[str, _Replay] = {}  # by filter
        self._next_number = 0

    @property
    def load(self) -> int:
        """How much is outstanding, for choosing the member of a group."""
        return self._waiting + len(self._inflight) + (ABSENT_LOAD if self.peer is None else 0)

    @property
    def waiting(self) -> int:
        """Messages in the queues."""
        return self._waiting

    @property
    def inflight(self) -> int:
        """Messages sent and not yet acknowledged."""
        return len(self._inflight)

    # --- towards the subscriber -----------------------------------------------------------------------

    def offer(self, message: Message, target: Target, now: float) -> None:
        """Deliver a message: now if it can be, later if it must be (QoS 1 and 2), else not at all."""
        qos = message.qos if message.qos < target.qos else target.qos  # noqa: FURB136 - min() costs 3x, per delivery
        if qos:
            self.accept(Delivery(message, target, qos), now)
        elif self.peer is not None and not self.peer.send_message(message, target, 0, 0, False):
            self._environment.figures.dropped_congested += 1

    def accept(self, delivery: Delivery, now: float) -> None:
        """Take responsibility for a delivery of QoS 1 or 2."""
        topic = delivery.message.topic
        sends_now = self.peer is not None and topic not in self._queues and self._window_is_open
        if self.is_stored and delivery.message.kind == Kind.PUBLISH:
            delivery.number = self._next_number
            self._next_number += 1
            if delivery.qos == 2 and sends_now:
                delivery.packet_id = self.ids.take()
            self._save(delivery)
        if not (sends_now and self._send(delivery)):
            self._enqueue(delivery, now)

    def replay(self, filter_: str, messages: Iterator[tuple[Message, Target]], now: float) -> None:
        """Send messages drawn one by one, as fast as the subscriber takes them: never as one burst into memory.

        A filter has one replay: who subscribes again while it is under way gets it from the beginning.
        """
        self._replays[filter_] = _Replay(messages)
        self.pump(now)

    def cancel_replay(self, filter_: str) -> None:
        """The subscription is gone: nothing more of it."""
        self._replays.pop(filter_, None)

    def on_writable(self, now: float) -> None:
        """A lane has room again, or the store got further."""
        self._ready.extend(self._blocked)
        self._blocked.clear()
        self.pump(now)

    def pump(self, now: float) -> None:
        """Send what waits, one message of each topic in turn, until the window or the lanes are full."""
        if self.peer is None:
            return
        ready, queues = self._ready, self._queues
        while ready and self._window_is_open:
            topic = ready.popleft()
            queue = queues[topic]
            delivery = queue[0]
            if not delivery.dup and delivery.message.expires_at <= now:
                self._environment.figures.dropped_expired += 1
                self._forget(delivery)
            elif not self._send(delivery):
                self._blocked.add(topic)
                continue
            queue.popleft()
            self._waiting -= 1
            self._waiting_bytes -= len(delivery.message.payload)
            if queue:
                ready.append(topic)
            else:
                del queues[topic]
        self._pump_replays(now)

    # --- answers of the subscriber --------------------------------------------------------------------

    def on_received(self, kind: int, packet_id: int, reason: int, now: float) -> bool:
        """QoS 2: the subscriber has the message, or refuses it. False if it was no message of QoS 2."""
        delivery = self._inflight.get(kind << 16 | packet_id)
        if reason >= FIRST_REFUSAL:
            if delivery is not None:
                self._finish(delivery, now)
            return True
        if delivery is not None and delivery.qos != 2:
            return False
        if delivery is not None and not delivery.released:
            delivery.released = True
            self._save(delivery)
        # An unknown identifier is released too, so that a subscriber that remembers more than we do gets rid of it.
        self._release(kind, packet_id)
        return True

    def on_acknowledged(self, kind: int, packet_id: int, now: float) -> bool:
        """The exchange is over. False if that cannot be: a QoS 2 message whose receipt was never confirmed."""
        delivery = self._inflight.get(kind << 16 | packet_id)
        if delivery is None:
            return True
        if delivery.qos == 2 and not delivery.released:
            return False
        self._finish(delivery, now)
        return True

    # --- connections come and go ----------------------------------------------------------------------

    def attach(self, peer: Peer, now: float, window: int | None = None) -> None:
        """A connection is there: first finish what was begun, then send what waits, `window` at a time."""
        self.peer = peer
        most = self._environment.limits.max_inflight
        self._max_inflight = most if window is None else min(window, most)
        for delivery in self._inflight.values():
            self._release(delivery.message.kind, delivery.packet_id)
        self.on_writable(now)

    def detach(self) -> list[Delivery]:
        """The connection is gone. Returns what another member of a group should get instead."""
        self.peer = None
        for delivery in reversed(list(self._inflight.values())):
            if delivery.released:
                continue
            del self._inflight[delivery.exchange]
            self._inflight_bytes -= len(delivery.message.payload)
            delivery.dup = True
            self._put_back(delivery)
        waiting = [delivery for queue in self._queues.values() for delivery in queue]
        for delivery in waiting:
            if delivery.message.kind == Kind.REQUEST:
                # A request waits for an answer now; whoever asked is told that this responder is gone.
                self.withdraw(delivery)
        return [delivery for delivery in waiting if delivery.is_movable]

    def withdraw(self, delivery: Delivery) -> None:
        """Someone else delivers this one."""
        topic = delivery.message.topic
        queue = self._queues[topic]
        queue.remove(delivery)
        self._note_left(delivery)
        if not queue:
            self._drop_queue(topic)

    def discard(self) -> list[Delivery]:
        """The session is over: forget everything. Returns what another member of a group should get instead."""
        orphans = self.detach()
        for delivery in [*self._inflight.values(), *(d for queue in self._queues.values() for d in queue)]:
            self._forget(delivery)
        self._inflight.clear()
        self._queues.clear()
        self._ready.clear()
        self._blocked.clear()
        self._replays.clear()
        self._waiting = self._waiting_bytes = self._inflight_bytes = 0
        return orphans

    def recover(self, number: int, record: DeliveryRecord, target: Target | None) -> None:
        """Take back a delivery that an earlier broker had accepted; `target` is None if nothing matches it now."""
        message = message_from(record.message, self._environment.epoch)
        delivery = Delivery(message, target, record.qos, record.packet_id)
        delivery.number = number
        delivery.released = record.released
        self._next_number = max(self._next_number, number + 1)
        if delivery.packet_id:
            self.ids.hold(delivery.packet_id)
            delivery.dup = True
        if delivery.released:
            self._inflight[delivery.exchange] = delivery
            self._inflight_bytes += len(delivery.message.payload)
        else:
            self._append(delivery)

    # --- inside ---------------------------------------------------------------------------------------

    @property
    def _window_is_open(self) -> bool:
        return (
            len(self._inflight) < self._max_inflight
            and self._inflight_bytes < self._environment.limits.max_queued_bytes
            and not self.ids.are_used_up
        )

    def _send(self, delivery: Delivery) -> bool:
        """Send one if the store and its lane let us."""
        if delivery.packet_id == 0:
            delivery.packet_id = self.ids.take()
            if delivery.qos == 2:
                self._save(delivery)
        # At QoS 2 the identifier must be safe before anyone sees it: a broker that crashed and forgot it would
        # repeat the message under another one, and the subscriber would take it for a new message.
        if delivery.qos == 2 and delivery.stored_as > self._environment.store.durable:
            self._environment.stalled.add(self)
            return False
        assert self.peer is not None
        outcome = self.peer.send_message(
            delivery.message, delivery.target, delivery.qos, delivery.packet_id, delivery.dup
        )
        if not outcome:
            return False
        if outcome == UNDELIVERABLE:
            self._forget(delivery)
            return True
        self._inflight[delivery.message.kind << 16 | delivery.packet_id] = delivery
        self._inflight_bytes += len(delivery.message.payload)
        return True

    def _release(self, kind: int, packet_id: int) -> None:
        """Let the subscriber forget the identifier, once it is safe that it has the message.

        If that were lost in a crash, the message would be repeated to someone who no longer recognises it.
        """
        peer = self.peer
        assert peer is not None
        self._environment.promises.keep(lambda: peer.release(kind, packet_id))

    def _finish(self, delivery: Delivery, now: float) -> None:
        del self._inflight[delivery.exchange]
        self._inflight_bytes -= len(delivery.message.payload)
        self._forget(delivery)
        if self._ready or self._replays:
            self.pump(now)

    def _forget(self, delivery: Delivery) -> None:
        if delivery.number >= 0:
            self._environment.store.delete(Table.DELIVERY, (self.client_id, delivery.number))
        if delivery.packet_id and delivery.message.kind != Kind.RESPONSE:
            self.ids.release(delivery.packet_id)

    def _save(self, delivery: Delivery) -> None:
        if delivery.number < 0:
            return
        environment = self._environment
        record = DeliveryRecord(
            message_record(delivery.message, environment.epoch), delivery.qos, delivery.packet_id, delivery.released
        )
        environment.store.put(Table.DELIVERY, (self.client_id, delivery.number), record)
        delivery.stored_as = environment.store.last

    def _enqueue(self, delivery: Delivery, now: float) -> None:
        limits = self._environment.limits
        size = len(delivery.message.payload)
        while (
            self._waiting >= limits.max_queued_messages or self._waiting_bytes + size > limits.max_queued_bytes
        ) and self._drop_one(delivery.message.topic, now):
            pass
        if self._waiting >= limits.max_queued_messages or self._waiting_bytes + size > limits.max_queued_bytes:
            self._environment.figures.dropped_queue_full += 1
            self._forget(delivery)
            return
        self._append(delivery)

    def _append(self, delivery: Delivery) -> None:
        topic = delivery.message.topic
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = deque()
            # Whatever kept it from being sent just now also keeps the topic blocked until something changes.
            if self.peer is not None and self._window_is_open:
                self._blocked.add(topic)
            else:
                self._ready.append(topic)
        queue.append(delivery)
        self._waiting += 1
        self._waiting_bytes += len(delivery.message.payload)

    def _put_back(self, delivery: Delivery) -> None:
        topic = delivery.message.topic
        if topic not in self._queues:
            self._queues[topic] = deque()
            self._ready.append(topic)
        self._queues[topic].appendleft(delivery)
        self._waiting += 1
        self._waiting_bytes += len(delivery.message.payload)

    def _drop_one(self, topic: str, now: float) -> bool:
        """Make room: the oldest of the same topic goes, or else of the topic that has waited longest.

        What was sent before stays: its receiver may have it already and wait for the exchange to end.
        """
        for name in (topic, next(iter(self._queues), topic)):
            queue = self._queues.get(name)
            victim = next((delivery for delivery in queue or () if not delivery.packet_id), None)
            if queue is not None and victim is not None:
                if victim.message.expires_at <= now:
                    self._environment.figures.dropped_expired += 1
                else:
                    self._environment.figures.dropped_queue_full += 1
                self.withdraw(victim)
                return True
        return False

    def _note_left(self, delivery: Delivery) -> None:
        self._waiting -= 1
        self._waiting_bytes -= len(delivery.message.payload)
        self._forget(delivery)

    def _drop_queue(self, topic: str) -> None:
        del self._queues[topic]
        self._blocked.discard(topic)
        if topic in self._ready:
            self._ready.remove(topic)

    def _pump_replays(self, now: float) -> None:
        while self._replays and not self._waiting and self._window_is_open and self.peer is not None:
            filter_, replay = next(iter(self._replays.items()))
            current = replay.current()
            if current is None:
                del self._replays[filter_]
                continue
            message, target = current
            qos = min(message.qos, target.qos)
            if message.expires_at > now:
                if qos:
                    self.accept(Delivery(message, target, qos), now)
                elif not self.peer.send_message(message, target, 0, 0, False):
                    return
            replay.advance()


class _Replay:
    """An iterator of messages that can be looked at before it is moved on."""

    __slots__ = ("_current", "_messages")

    def __init__(self, messages: Iterator[tuple[Message, Target]]) -> None:
        self._messages = messages
        self._current: tuple[Message, Target] | None = next(messages, None)

    def current(self) -> tuple[Message, Target] | None:
        return self._current

    def advance(self) -> None:
        self._current = next(self._messages, None)

"""Messages on their way to one session: QoS, windows, waiting, redelivery.

        offer ──► sent at once ──► inflight ──► acknowledged
          │                          ▲   │
          └──► waiting, per topic ───┘   └── connection lost: back to the front of its topic, marked DUP
                   ▲
                   └── backlog, in the store: what a persistent session has no room for in memory

A packet identifier stays with its message until the last packet of the exchange; a message keeps it over
reconnects, and at QoS 2 over restarts too: that is what makes a repetition recognisable.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from moq.broker.backlog import Backlog
from moq.broker.delivery import Delivery, PacketIds
from moq.broker.message import Kind
from moq.broker.peer import CONGESTED, SENT, UNDELIVERABLE
from moq.broker.records import message_from
from moq.broker.waiting import TopicQueues
from moq.reasons import FIRST_REFUSAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from moq.broker.environment import Environment
    from moq.broker.message import Message, Target
    from moq.broker.peer import Peer
    from moq.broker.store import DeliveryRecord, QueueRecord

    Resolve = Callable[[str, str | None], Target | None]
    """Finds a session's target for a topic, and for a shared subscription if it was chosen for one."""

ABSENT_LOAD: Final = 1 << 32
"""Added to the load of a session without a connection: groups choose it last."""

MEMORY_BYTES: Final = 1024 * 1024
"""Payloads of a persistent session that wait in memory, besides a single one that is larger."""


class Outbound:
    """Everything one session is still to receive."""

    __slots__ = (
        "_backlog",
        "_client_id",
        "_environment",
        "_inflight",
        "_inflight_bytes",
        "_is_pumping",
        "_max_inflight",
        "_queues",
        "_replays",
        "_resolve",
        "ids",
        "peer",
    )

    def __init__(self, client_id: str, environment: Environment, is_stored: bool) -> None:
        self.peer: Peer | None = None
        self.ids = PacketIds()
        self._client_id = client_id
        self._environment = environment
        self._max_inflight = environment.limits.max_inflight
        self._inflight: dict[int, Delivery] = {}
        self._inflight_bytes = 0
        self._queues = TopicQueues()
        self._backlog = Backlog(client_id, environment) if is_stored else None
        self._replays: dict[str, _Replay] = {}  # by filter
        self._resolve: Resolve = _nobody
        self._is_pumping = False

    @property
    def load(self) -> int:
        """How much is outstanding, for choosing the member of a group."""
        return self.waiting + len(self._inflight) + (ABSENT_LOAD if self.peer is None else 0)

    @property
    def waiting(self) -> int:
        """Messages in the queues, in memory and in the store."""
        return self._queues.messages + (self._backlog.messages if self._backlog is not None else 0)

    @property
    def waiting_bytes(self) -> int:
        """Their payloads."""
        return self._queues.size + (self._backlog.size if self._backlog is not None else 0)

    @property
    def inflight(self) -> int:
        """Messages sent and not yet acknowledged."""
        return len(self._inflight)

    @property
    def is_empty(self) -> bool:
        """True if nothing waits and nothing is in flight, as for most sessions at most times."""
        backlog = self._backlog
        return not (self._queues.messages or self._inflight or (backlog is not None and backlog.messages))

    @property
    def held_messages(self) -> int:
        """Messages in memory."""
        return self._queues.messages + len(self._inflight)

    @property
    def held_bytes(self) -> int:
        """Payload bytes in memory."""
        return self._queues.size + self._inflight_bytes

    def is_full(self, size: int) -> bool:
        """True if one more message of this size had to wait and there is no room for it."""
        limits = self._environment.limits
        return self.waiting >= limits.max_queued_messages or self.waiting_bytes + size > limits.max_queued_bytes

    # --- towards the subscriber -----------------------------------------------------------------------

    def offer(self, message: Message, target: Target, now: float) -> None:
        """Deliver a message: now if it can be, later if it must be (QoS 1 and 2), else not at all."""
        qos = message.qos if message.qos < target.qos else target.qos  # noqa: FURB136 - min() costs 3x, per delivery
        if qos:
            self.accept(Delivery(message, target, qos), now)
            return
        if self.peer is not None and not self.peer.send_message(message, target, 0, 0, False):
            self._environment.figures.dropped_congested += 1
        elif message.properties is not None and self.peer is not None:
            self._note_stamp(message)
        if message.properties is not None and message.properties.collection:
            self._lose(Delivery(message, target, 0))  # nobody acknowledges QoS 0

    def accept(self, delivery: Delivery, now: float) -> None:
        """Take responsibility for a delivery of QoS 1 or 2."""
        backlog = self._backlog if delivery.message.kind == Kind.PUBLISH else None
        sends_now = self._is_next(delivery, backlog)
        if not sends_now:
            if not self._has_room(delivery, now):
                self._give_up(delivery)
                return
            # Making room may have taken away all that was before it.
            sends_now = self._is_next(delivery, backlog)
        if backlog is not None:
            if delivery.qos >= 2 and sends_now:
                delivery.packet_id = self.ids.take()
            backlog.save(delivery)
        if sends_now and self._send(delivery):
            return
        if sends_now and not self._has_room(delivery, now):
            self._give_up(delivery)
        else:
            self._wait(delivery, is_blocked=sends_now)

    def _is_next(self, delivery: Delivery, backlog: Backlog | None) -> bool:
        """True if nothing is before a delivery and the window is open: only its lane, or the store, may say no."""
        return (
            self.peer is not None
            and delivery.message.topic not in self._queues
            and self._window_is_open
            and not (backlog is not None and backlog.messages)
        )

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
        self._queues.unblock()
        self.pump(now)

    def pump(self, now: float) -> None:
        """Send what waits, one message of each topic in turn, until the window or the lanes are full."""
        if self._is_pumping:
            return  # the page that a read answered at once is taken by the loop below
        self._is_pumping = True
        try:
            while self.peer is not None:
                self._pump_queues(now)
                if not self._read_on():
                    break
            self._pump_replays(now)
        finally:
            self._is_pumping = False

    def _pump_queues(self, now: float) -> None:
        queues = self._queues
        while self._window_is_open and (delivery := queues.first()) is not None:
            if not delivery.dup and delivery.message.expires_at <= now:
                self._environment.figures.dropped_expired += 1
                self._give_up(delivery)
            elif not self._send(delivery):
                queues.block()
                continue
            elif delivery.exchange in self._inflight:
                self._environment.latencies.on_queued(delivery.message, now)
            queues.take()
        if self in self._environment.stalled:
            self._make_identifiers_safe()

    def _make_identifiers_safe(self) -> None:
        """Choose identifiers for all that the window has room for: one commit makes them safe, not one for each."""
        room = self._max_inflight - len(self._inflight)
        for delivery in islice(self._queues, room):
            if delivery.qos == 2 and not delivery.packet_id and not self.ids.are_used_up:
                delivery.packet_id = self.ids.take()
                self._mark(delivery)

    # --- answers of the subscriber --------------------------------------------------------------------

    def on_received(self, kind: int, packet_id: int, reason: int, now: float, reply: bytes | None = None) -> bool:
        """QoS 2: the subscriber has the message, or refuses it. False if it was no message of QoS 2."""
        delivery = self._inflight.get(kind << 16 | packet_id)
        if reason >= FIRST_REFUSAL:
            if delivery is not None:
                self._lose(delivery)
                self._finish(delivery, now)
            return True
        if delivery is not None and delivery.qos < 2:
            return False
        if delivery is not None and not delivery.released:
            delivery.released = True
            self._environment.latencies.subscriber_acknowledgement[delivery.qos].add(now - delivery.sent_at)
            self._mark(delivery)
            self._answer(delivery, reply, now)
        # An unknown identifier is released too, so that a subscriber that remembers more than we do gets rid of it.
        self._release(kind, packet_id)
        return True

    def on_acknowledged(self, kind: int, packet_id: int, now: float, reply: bytes | None = None) -> bool:
        """The exchange is over. False if that cannot be: a QoS 2 message whose receipt was never confirmed."""
        delivery = self._inflight.get(kind << 16 | packet_id)
        if delivery is None:
            return True
        if delivery.qos >= 2:
            if not delivery.released:
                return False
        else:
            self._environment.latencies.subscriber_acknowledgement[1].add(now - delivery.sent_at)
            self._answer(delivery, reply, now)
        self._finish(delivery, now)
        return True

    # --- connections come and go ----------------------------------------------------------------------

    def attach(self, peer: Peer, resolve: Resolve, now: float, window: int | None = None) -> None:
        """A connection is there: first finish what was begun, then send what waits, `window` at a time."""
        self.peer = peer
        self._resolve = resolve
        most = self._environment.limits.max_inflight
        self._max_inflight = most if window is None else min(window, most)
        for delivery in self._inflight.values():
            self._release(delivery.message.kind, delivery.packet_id)
        self.on_writable(now)

    def detach(self) -> list[Delivery]:
        """The connection is gone. Returns what another member of a group should get instead, unless it is stored."""
        self.peer = None
        self._resolve = _nobody  # it refers to the session, which refers to this
        if self._backlog is not None:
            self._leave_to(self._backlog)
        for delivery in reversed(list(self._inflight.values())):
            if not delivery.released:
                self._stop(delivery)
                delivery.dup = True
                self._queues.put_back(delivery)
        for delivery in list(self._queues):
            if delivery.message.kind == Kind.REQUEST:
                # A request waits for an answer now; whoever asked is told that this responder is gone.
                self.withdraw(delivery)
        return [delivery for delivery in self._queues if delivery.is_movable]

    def _leave_to(self, backlog: Backlog) -> None:
        """Keep nothing in memory that is in the store: the client may stay away for long."""
        for delivery in [delivery for delivery in self._queues if delivery.is_stored]:
            self._queues.remove(delivery)
            self._leave_unsent(delivery)
        for delivery in [delivery for delivery in self._inflight.values() if delivery.is_stored]:
            self._stop(delivery)
            if delivery.qos == 1:
                backlog.mark(delivery)  # it is repeated under the same identifier
            backlog.leave(delivery)
        backlog.rewind()

    def withdraw(self, delivery: Delivery) -> None:
        """Someone else delivers this one."""
        self._queues.remove(delivery)
        self._forget(delivery)

    def withdraw_stored(self, record: DeliveryRecord) -> None:
        """Someone else delivers this one, which is in the store alone."""
        assert self._backlog is not None
        self._backlog.take_out(record)
        if record.packet_id:
            self.ids.release(record.packet_id)

    def discard(self) -> list[Delivery]:
        """The session is over: forget what is in memory. Returns what another member of a group should get instead."""
        orphans = self.detach()
        for delivery in [*self._inflight.values(), *self._queues]:
            self._forget(delivery)
            if not (delivery.released or delivery.is_movable):
                self._lose(delivery)
        self._inflight.clear()
        self._queues.clear()
        self._replays.clear()
        self._inflight_bytes = 0
        self.ids = PacketIds()
        if self._backlog is not None:
            self._backlog.forget()
        return orphans

    def recover(self, queue: QueueRecord) -> None:
        """Take back a queue that an earlier broker had; its messages stay in the store."""
        assert self._backlog is not None
        self._backlog.recover(queue)
        for packet_id in queue.packet_ids:
            self.ids.hold(packet_id)

    def on_swept(self, size: int) -> None:
        """A delivery expired in the store while the client was away."""
        assert self._backlog is not None
        self._backlog.on_swept(size)
        self._environment.figures.dropped_expired += 1

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
            if delivery.qos >= 2:
                self._mark(delivery)
        # At QoS 2 the identifier must be safe before anyone sees it: a broker that crashed and forgot it would
        # repeat the message under another one, and the subscriber would take it for a new message.
        if delivery.qos >= 2 and delivery.stored_as > self._environment.store.durable:
            self._environment.stalled.add(self)
            return False
        assert self.peer is not None
        outcome = self.peer.send_message(
            delivery.message, delivery.target, delivery.qos, delivery.packet_id, delivery.dup
        )
        if not outcome:
            return False
        if outcome == UNDELIVERABLE:
            self._give_up(delivery)
            return True
        self._start(delivery)
        delivery.sent_at = self._environment.now
        if delivery.message.properties is not None:
            self._note_stamp(delivery.message)
        return True

    def _note_stamp(self, message: Message) -> None:
        """A message with properties was sent: one of them may be when its publisher sent it."""
        assert message.properties is not None
        if message.properties.timestamp_ns is not None and not message.retain:
            environment = self._environment
            environment.latencies.on_stamped(message.properties.timestamp_ns, environment.now + environment.epoch)

    def _start(self, delivery: Delivery) -> None:
        self._inflight[delivery.message.kind << 16 | delivery.packet_id] = delivery
        self._inflight_bytes += len(delivery.message.payload)

    def _stop(self, delivery: Delivery) -> None:
        del self._inflight[delivery.exchange]
        self._inflight_bytes -= len(delivery.message.payload)

    def _release(self, kind: int, packet_id: int) -> None:
        """Let the subscriber forget the identifier, once it is safe that it has the message.

        If that were lost in a crash, the message would be repeated to someone who no longer recognises it.
        """
        peer = self.peer
        assert peer is not None
        self._environment.promises.keep(lambda: peer.release(kind, packet_id))

    def _finish(self, delivery: Delivery, now: float) -> None:
        self._stop(delivery)
        self._forget(delivery)
        if self._queues.messages or self._replays:
            self.pump(now)

    def _forget(self, delivery: Delivery) -> None:
        if delivery.number >= 0:
            assert self._backlog is not None
            self._backlog.remove(delivery)
        if delivery.packet_id and delivery.message.kind != Kind.RESPONSE:
            self.ids.release(delivery.packet_id)

    def _give_up(self, delivery: Delivery) -> None:
        """Forget a delivery that nobody got."""
        self._forget(delivery)
        self._lose(delivery)

    def _answer(self, delivery: Delivery, reply: bytes | None, now: float) -> None:
        """Tell whoever collects confirmations that the subscriber has the message."""
        properties = delivery.message.properties
        if properties is not None and properties.collection:
            confirmations = self._environment.confirmations
            confirmations.on_answer(properties.collection, self._place(delivery), self._client_id, reply, now)

    def _lose(self, delivery: Delivery) -> None:
        """Tell the same that it will never have it."""
        if delivery.message.properties is not None:
            self._environment.confirmations.on_lost(delivery.message, self._place(delivery))

    def _place(self, delivery: Delivery) -> str:
        target = delivery.target
        return target.group.key if target is not None and target.group is not None else self._client_id

    def _mark(self, delivery: Delivery) -> None:
        if delivery.number >= 0:
            assert self._backlog is not None
            self._backlog.mark(delivery)

    # --- waiting --------------------------------------------------------------------------------------

    def _wait(self, delivery: Delivery, *, is_blocked: bool) -> None:
        if delivery.is_stored and not self._has_room_in_memory(delivery):
            self._leave_unsent(delivery)
            if self.peer is not None:
                self._read_on()
        else:
            self._queues.append(delivery, is_blocked=is_blocked)

    def _leave_unsent(self, delivery: Delivery) -> None:
        assert self._backlog is not None
        if delivery.packet_id and not delivery.dup:
            # It was about to be sent and was not: it may still go to another member of its group, or never.
            self.ids.release(delivery.packet_id)
            delivery.packet_id = 0
            if delivery.qos == 2:
                self._backlog.mark(delivery)
        self._backlog.leave(delivery)

    def _has_room(self, delivery: Delivery, now: float) -> bool:
        if not self.is_full(len(delivery.message.payload)) or self._make_room(delivery, now):
            return True
        self._environment.figures.dropped_queue_full += 1
        return False

    def _has_room_in_memory(self, delivery: Delivery) -> bool:
        """True if a stored delivery may wait in memory: its client is there and nothing before it is in the store."""
        assert self._backlog is not None
        if self.peer is None or self._backlog.messages:
            return False
        queues = self._queues
        return not queues.messages or (
            queues.messages < self._environment.limits.max_queued_in_memory
            and queues.size + len(delivery.message.payload) <= MEMORY_BYTES
        )

    def _make_room(self, delivery: Delivery, now: float) -> bool:
        """Drop what waits for a newer message, if that is the policy; False if it has to go itself.

        The oldest of the same topic goes first, then of the topic that has waited longest, then of the backlog. What
        was sent before stays: its receiver may have it already and wait for the exchange to end.
        """
        environment, size = self._environment, len(delivery.message.payload)
        limits = environment.limits
        if environment.queue_policy != "drop-oldest" or size > limits.max_queued_bytes:
            return False
        while self.is_full(size):
            victim = self._queues.oldest(delivery.message.topic)
            if victim is None:
                return self._trim_backlog(size)
            if victim.message.expires_at <= now:
                environment.figures.dropped_expired += 1
            else:
                environment.figures.dropped_queue_full += 1
            self.withdraw(victim)
            self._lose(victim)
        return True

    def _trim_backlog(self, size: int) -> bool:
        backlog, limits = self._backlog, self._environment.limits
        if backlog is None:
            return False
        messages = 1 if self.waiting >= limits.max_queued_messages else 0
        return backlog.trim(messages, max(0, self.waiting_bytes + size - limits.max_queued_bytes))

    def _read_on(self) -> bool:
        """Fetch the next page of the backlog when half of what may wait in memory has gone; True if it is here."""
        backlog, queues = self._backlog, self._queues
        if (
            backlog is None
            or queues.messages * 2 > self._environment.limits.max_queued_in_memory
            or queues.size * 2 > MEMORY_BYTES
        ):
            return False
        return backlog.read_on(self._load, lambda: self.pump(self._environment.now))

    def _load(self, record: DeliveryRecord) -> None:
        target = self._resolve(record.message.topic, record.share)
        delivery = Delivery(message_from(record.message, self._environment.epoch), target, record.qos, record.packet_id)
        delivery.number = record.number
        delivery.released = record.released
        delivery.dup = record.packet_id != 0
        if delivery.released:
            self._start(delivery)
            self._release(Kind.PUBLISH, delivery.packet_id)
        else:
            self._queues.append(delivery, is_blocked=False)

    def _pump_replays(self, now: float) -> None:
        while self._replays and not self.waiting and self._window_is_open and self.peer is not None:
            filter_, replay = next(iter(self._replays.items()))
            current = replay.current()
            if current is None:
                del self._replays[filter_]
                continue
            message, target = current
            qos = min(message.qos, target.qos)
            if message.expires_at > now:
                if qos:
                    delivery = Delivery(message, target, qos)
                    self.accept(delivery, now)
                    is_sent = delivery.exchange in self._inflight
                else:
                    outcome = self.peer.send_message(message, target, 0, 0, False)
                    if outcome == CONGESTED:
                        return
                    is_sent = outcome == SENT
                self._environment.latencies.deferred += is_sent
            replay.advance()


def _nobody(topic: str, share: str | None) -> None:
    """Stands for `Resolve` while there is no connection and nothing is loaded."""


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

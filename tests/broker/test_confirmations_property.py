"""Whatever comes and goes, and in which order: an outcome names exactly those who answered, each once, told once.

Beside the broker runs a model of a few lines: a message has places, answers vacate them, and so do sessions that end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moq.reasons import Reason
from moq.wire import Confirmation, ConfirmSyn, PubAck, PublishExtension, PubReq, PubSyn
from tests.broker.desk import PERSISTENT, Client, Desk

NAMES = ("a", "b", "c", "d")
FLEETING = frozenset({"d"})
"""Its session ends with its connection."""

PACKET_IDS = range(1, 6)
names = st.sampled_from(NAMES)

Told = tuple[int, Reason, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Expected:
    """What the model knows of one message."""

    packet_id: int
    number: int
    needed: int
    designated: frozenset[str]
    places: set[str]
    deadline: float
    answers: dict[str, bytes | None] = field(default_factory=dict)
    reason: Reason | None = None

    def vacate(self, name: str, reply: bytes | None, *, has_answered: bool) -> bool:
        """True if that was the end of it."""
        if self.reason is not None or name not in self.places:
            return False
        self.places.discard(name)
        if has_answered:
            self.answers[name] = reply
        if len(self.answers) >= self.needed:
            self.reason = Reason.SUCCESS
        elif len(self.answers) + len(self.places) < self.needed:
            self.reason = Reason.TOO_FEW_SUBSCRIBERS
        return self.reason is not None

    def told(self) -> Told:
        assert self.reason is not None
        return self.packet_id, self.reason, tuple(self.answers.items())


class Confirming(RuleBasedStateMachine):
    """One publisher and four subscribers; all but one of their sessions survive everything."""

    @initialize(qos=st.lists(st.integers(1, 3), min_size=len(NAMES), max_size=len(NAMES)))
    def begin(self, qos: list[int]) -> None:
        self.desk = Desk()
        self.qos = dict(zip(NAMES, qos, strict=True))
        self.subscribers: dict[str, Client] = {}
        self.inboxes: dict[str, dict[int, int]] = {name: {} for name in NAMES}  # packet identifiers by message number
        self.said: dict[tuple[str, int], bytes | None] = {}
        self.sessions: set[str] = set()
        self.messages: dict[int, Expected] = {}  # by packet identifier, until released
        self.publisher: Client | None = None
        self.number = 0
        self.expected: list[Told] = []
        for name in NAMES:
            self.arrive(name)
        self.publisher_arrives()

    # --- subscribers ----------------------------------------------------------------------------------

    @precondition(lambda self: len(self.subscribers) < len(NAMES))
    @rule(data=st.data())
    def subscriber_arrives(self, data: st.DataObject) -> None:
        self.arrive(data.draw(st.sampled_from([name for name in NAMES if name not in self.subscribers])))

    def arrive(self, name: str) -> None:
        client = self.desk.connect(name, resume=True, settings=None if name in FLEETING else PERSISTENT)
        if name not in self.sessions:
            client.subscribe("t", alias=1, qos=self.qos[name])
            self.sessions.add(name)
        self.subscribers[name] = client

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def subscriber_is_lost(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.subscribers)))
        self.subscribers.pop(name).lost()
        self.inboxes[name].clear()
        if name in FLEETING:
            self.end_session(name)

    def end_session(self, name: str) -> None:
        self.sessions.discard(name)
        for message in self.messages.values():
            if message.vacate(name, None, has_answered=False):
                self.tell(message)

    @rule(data=st.data(), reply=st.none() | st.binary(max_size=3))
    def answer(self, data: st.DataObject, reply: bytes | None) -> None:
        waiting = [(name, number) for name, client in self.subscribers.items() for number in self.receive(name, client)]
        if not waiting:
            return
        name, number = data.draw(st.sampled_from(waiting))
        client, packet_id = self.subscribers[name], self.inboxes[name].pop(number)
        if self.qos[name] != 3:
            reply = None
        # A subscriber says the same about a message each time it is asked.
        reply = self.said.setdefault((name, number), reply)
        self.confirm(client, self.qos[name], packet_id, reply)
        for message in self.messages.values():
            if message.number == number and message.vacate(name, reply, has_answered=True):
                self.tell(message)

    def receive(self, name: str, client: Client) -> list[int]:
        self.inboxes[name].update((int(message.payload), message.id) for message in client.messages())
        return sorted(self.inboxes[name])

    def confirm(self, client: Client, qos: int, packet_id: int, reply: bytes | None) -> None:
        if qos == 1:
            client.puback(packet_id)
            return
        for _ in range(2):  # once more: it must not count again
            if reply is None:
                client.pubsyn(packet_id)
            else:
                client.send(ConfirmSyn(packet_id, 0, [Confirmation(reply=reply)]))
        assert client.take(PubSyn) == [PubSyn(0, packet_id, Reason.RELEASE)] * 2
        client.puback(packet_id)

    # --- the publisher --------------------------------------------------------------------------------

    @precondition(lambda self: self.publisher is None)
    @rule()
    def publisher_arrives(self) -> None:
        self.publisher = self.desk.connect("publisher", resume=True, settings=PERSISTENT)
        self.publisher.register("t", alias=1)
        for message in self.messages.values():
            self.send(message, dup=True)
            if message.reason is not None:
                self.tell(message)

    @precondition(lambda self: self.publisher is not None)
    @rule()
    def publisher_is_lost(self) -> None:
        assert self.publisher is not None
        self.publisher.lost()
        self.publisher = None

    @precondition(lambda self: self.publisher is not None and len(self.messages) < len(PACKET_IDS))
    @rule(waited=st.integers(0, 3), designated=st.frozensets(names, max_size=3), seconds=st.integers(1, 8))
    def publish(self, waited: int, designated: frozenset[str], seconds: int) -> None:
        assert self.publisher is not None
        packet_id = next(packet_id for packet_id in PACKET_IDS if packet_id not in self.messages)
        self.number += 1
        places = set(self.sessions & designated if designated else self.sessions)
        needed = max(waited, 1)
        message = Expected(packet_id, self.number, needed, designated, places, self.desk.now + seconds)
        self.waited, self.seconds = waited, seconds
        self.send(message, waited=waited, seconds=seconds)
        if len(places) < needed or (designated and waited > len(designated)):
            assert self.publisher.take(PubSyn) == [PubSyn(0, packet_id, Reason.TOO_FEW_SUBSCRIBERS)]
        else:
            self.messages[packet_id] = message

    def send(self, message: Expected, *, dup: bool = False, waited: int = 1, seconds: int = 1) -> None:
        assert self.publisher is not None
        extension = PublishExtension(subscribers=sorted(message.designated) or None, deadline_ms=seconds * 1000)
        payload = str(message.number).encode()
        self.publisher.send(PubReq(0, False, dup, 3, message.packet_id, 1, None, waited, extension, payload))

    @precondition(lambda self: self.publisher is not None and any(m.reason is not None for m in self.messages.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        assert self.publisher is not None
        self.told_as_expected()
        done = [packet_id for packet_id, message in self.messages.items() if message.reason is not None]
        packet_id = data.draw(st.sampled_from(done))
        del self.messages[packet_id]
        self.publisher.pubsyn(packet_id, Reason.RELEASE)
        assert self.publisher.take(PubAck) == [PubAck(0, packet_id, Reason.SUCCESS)]

    # --- time and the broker --------------------------------------------------------------------------

    @rule(seconds=st.integers(1, 4))
    def time_passes(self, seconds: int) -> None:
        self.desk.advance(seconds)
        for message in self.messages.values():
            if message.reason is None and message.deadline <= self.desk.now:
                message.reason = Reason.CONFIRMATION_TIMED_OUT
                self.tell(message)

    @rule()
    def broker_restarts(self) -> None:
        if self.publisher is not None:
            self.told_as_expected()
        self.desk = self.desk.restarted()
        self.publisher = None
        self.subscribers.clear()
        for inbox in self.inboxes.values():
            inbox.clear()
        for name in self.sessions & FLEETING:
            self.end_session(name)

    # --- what must hold -------------------------------------------------------------------------------

    def tell(self, message: Expected) -> None:
        if self.publisher is not None:
            self.expected.append(message.told())

    @invariant()
    def told_as_expected(self) -> None:
        expected, self.expected = sorted(self.expected), []
        if self.publisher is not None:
            told = [
                (
                    packet.packet_id,
                    Reason(packet.reason),
                    tuple((item.client_id or "", item.reply) for item in packet.confirmations),
                )
                for packet in self.publisher.take(ConfirmSyn)
            ]
            assert sorted(told) == expected
            assert self.publisher.read() == []

    @invariant()
    def nothing_else_is_kept(self) -> None:
        confirmations = self.desk.broker.confirmations
        unfinished = {message.packet_id for message in self.messages.values() if message.reason is None}
        assert {collection.packet_id for collection in confirmations._open.values()} == unfinished
        assert set(confirmations._of.get("publisher", ())) == set(self.messages)
        awaited = {place for message in self.messages.values() if message.reason is None for place in message.places}
        assert set(confirmations._awaited) == awaited


TestConfirming = Confirming.TestCase
TestConfirming.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""The messages of one connection on their way out: registration first, then lane, window and acknowledgement.

A message that cannot leave yet waits in its topic's queue: until the topic is registered, until the window of
unacknowledged messages has room, until the topic's lane has drained. Order within a topic is kept. How many may
wait is for the caller to bound (`Client` admits as many as the window).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.client.confirming import Confirmations, NotConfirmed
from moq.client.pending import Exchange, ExchangeState
from moq.client.topics import Registration, Topic
from moq.errors import ConnectionLost, RequestRefused
from moq.reasons import FIRST_REFUSAL, Reason
from moq.topics import has_wildcard
from moq.wire import encode
from moq.wire.mmqp import PublishKind, PubReq, PubSyn

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.link import Lane, Link
    from moq.client.messages import Message
    from moq.client.session import ClientSession
    from moq.errors import MoqError
    from moq.wire.mmqp import ConfirmSyn, PubAck

UNALIASED = 0
"""The lane key shared by topics without an alias."""

LOST_ANSWER = "the connection was lost before the answer to the request on {!r} arrived"
LOST_REQUESTER = "the connection was lost, and with it whoever sent the request on {!r}"


class Sender:
    """Sends the session's messages over one link."""

    def __init__(self, session: ClientSession, link: Link, window: int, register: Callable[[Topic], object]) -> None:
        self._session = session
        self._link = link
        self._window = window
        self._register = register
        self.sent = 0
        self._is_open = False
        self._blocked: dict[Topic, None] = {}
        self._replies: dict[int, Topic] = {}  # where responses go, by the alias their request came with

    # --- from the program ---------------------------------------------------------------------------------

    def submit(self, exchange: Exchange) -> None:
        """Send the message now if it can leave, else when it can."""
        if exchange.kind == PublishKind.RESPONSE and not self._is_open:
            exchange.settle(ConnectionLost(LOST_REQUESTER.format(exchange.topic)))
            return
        topic = self._topic(exchange)
        if not topic.waiting and self._send(topic, exchange):
            return
        topic.waiting.append(exchange)
        self._blocked[topic] = None

    def withdraw(self, exchange: Exchange) -> bool:
        """Give up a message that has not been sent; False if it is too late for that."""
        if exchange.is_settled or exchange.was_sent:
            return False
        self._topic(exchange).waiting.remove(exchange)
        return True

    # --- from the connection ------------------------------------------------------------------------------

    def opened(self, session_present: bool) -> None:
        """CONACK arrived: continue, or start again, what the last connection left unfinished."""
        self._is_open = True
        for exchange in list(self._session.outgoing.values()):
            if session_present:
                self._continue(exchange)
            else:
                self._restart(exchange)
        self._blocked.update((topic, None) for topic in self._session.topics.all() if topic.waiting)
        self.pump()

    def closed(self) -> None:
        """The link is gone: what was sent and not acknowledged waits again, in its old order, before the rest."""
        self._is_open = False
        for exchange in reversed(list(self._session.outgoing.values())):
            if exchange.qos == 0:
                self._finish(exchange, ConnectionLost(LOST_ANSWER.format(exchange.topic)))
            elif exchange.state is ExchangeState.SENT:
                exchange.state = ExchangeState.WAITING
                self._topic(exchange).waiting.appendleft(exchange)
        unsent = [exchange for reply in self._replies.values() for exchange in reply.waiting if not exchange.was_sent]
        for exchange in unsent:
            exchange.settle(ConnectionLost(LOST_REQUESTER.format(exchange.topic)))
        for topic in self._session.topics.all():
            topic.forget_connection()

    def on_pub_syn(self, packet: PubSyn) -> None:
        """QoS 2: the broker has the message, or refuses it."""
        exchange = self._session.outgoing.get((packet.kind, packet.packet_id))
        if packet.reason >= FIRST_REFUSAL:
            if exchange is not None:
                self._refused(exchange, packet.reason)
            return
        if exchange is not None:
            exchange.state = ExchangeState.RELEASED
        # An identifier we know nothing of is released too: the broker waits for nothing else.
        self._release(packet.kind, packet.packet_id)

    def on_confirm_syn(self, packet: ConfirmSyn) -> None:
        """QoS 3: who has the message. It was taken in any case, and is released."""
        exchange = self._session.outgoing.get((PublishKind.PUBLISH, packet.packet_id))
        if exchange is not None and exchange.wish is not None:
            exchange.state = ExchangeState.RELEASED
            confirmed = exchange.wish.confirmations(packet)
            if packet.reason >= FIRST_REFUSAL:
                exchange.settle(NotConfirmed(exchange.wish, exchange.topic, packet.reason, confirmed))
            else:
                exchange.confirmations = Confirmations(confirmed, packet.reason)
                exchange.settle()
        self._release(PublishKind.PUBLISH, packet.packet_id)

    def on_pub_ack(self, packet: PubAck) -> None:
        """The exchange is over, or a request is refused."""
        outgoing = self._session.outgoing
        exchange = outgoing.get((packet.kind, packet.packet_id))
        if exchange is None and packet.kind == PublishKind.RESPONSE and packet.reason >= FIRST_REFUSAL:
            exchange = outgoing.get((PublishKind.REQUEST, packet.packet_id))
        if exchange is None:
            return
        # A released message was received: that its identifier is not found only says that the broker let go first.
        if packet.reason >= FIRST_REFUSAL and exchange.state is not ExchangeState.RELEASED:
            self._refused(exchange, packet.reason)
            return
        exchange.state = ExchangeState.ENDED
        if exchange.is_over:
            self._finish(exchange)

    def on_response(self, packet_id: int, response: Message) -> None:
        """The answer to one of our requests; one nobody waits for any more is ignored."""
        exchange = self._session.outgoing.get((PublishKind.REQUEST, packet_id))
        if exchange is None:
            return
        exchange.response = response
        exchange.settle()
        if exchange.qos == 1:
            exchange.state = ExchangeState.ENDED  # who has the answer needs no receipt for the question
        if exchange.is_over:
            self._finish(exchange)

    def granted(self, registrar: Topic) -> None:
        """A registration was granted: what waits for it can go."""
        if has_wildcard(registrar.name):
            self.pump()
        else:
            self._pump_topic(registrar)

    def refused(self, registrar: Topic, error: MoqError) -> None:
        """A registration was refused: what waits for it cannot be sent."""
        topics = self._session.topics
        for topic in [topic for topic in self._blocked if topics.registrar(topic) is registrar]:
            del self._blocked[topic]
            refused = list(topic.waiting)
            topic.waiting.clear()
            for exchange in refused:
                self._finish(exchange, error)

    def pump(self) -> None:
        """Send what waits and can leave now."""
        for topic in list(self._blocked):
            self._pump_topic(topic)

    # --- inside -------------------------------------------------------------------------------------------

    def _pump_topic(self, topic: Topic) -> None:
        waiting = topic.waiting
        while waiting and (waiting[0].state is ExchangeState.ENDED or self._send(topic, waiting[0])):
            waiting.popleft()
        if not waiting:
            self._blocked.pop(topic, None)

    def _topic(self, exchange: Exchange) -> Topic:
        if exchange.kind != PublishKind.RESPONSE:
            return self._session.topics.find(exchange.topic)
        reply = self._replies.get(exchange.alias)
        if reply is None:
            reply = self._replies[exchange.alias] = Topic(exchange.topic, exchange.alias)
            reply.registration = Registration.GRANTED
        return reply

    def _send(self, topic: Topic, exchange: Exchange) -> bool:
        """Send a message; False if it has to wait."""
        if not self._is_open:
            return False
        alias = topic.alias
        if topic.registration is not Registration.GRANTED:
            topic.wants_requests |= exchange.kind == PublishKind.REQUEST
            registrar = self._session.topics.registrar(topic)
            if registrar.registration is not Registration.GRANTED:
                self._register(registrar)
                return False
            alias = UNALIASED
        elif exchange.kind == PublishKind.REQUEST and not topic.sends_requests:
            topic.wants_requests = True
            self._register(topic)
            return False
        lane = self._lane(topic, alias)
        if lane.congested or not self._track(exchange):
            return False
        lane.write(_encode(exchange, topic, alias))
        self.sent += 1
        exchange.was_sent = True
        exchange.state = ExchangeState.SENT if exchange.qos else ExchangeState.ENDED
        if not exchange.is_tracked:
            exchange.settle()
        return True

    def _lane(self, topic: Topic, alias: int) -> Lane:
        lane = topic.lane
        if lane is None or lane.is_closed:
            lane = topic.lane = self._link.lane(alias)
        return lane

    def _track(self, exchange: Exchange) -> bool:
        """Give the message an identifier if it needs one; False if the window is full."""
        if not exchange.is_tracked:
            return True
        outgoing = self._session.outgoing
        key = (exchange.kind, exchange.packet_id)
        if exchange.packet_id and outgoing.get(key) is exchange:
            return True
        if len(outgoing) >= self._window:
            return False
        if not exchange.packet_id:
            exchange.packet_id = self._session.ids.take()
        outgoing[exchange.kind, exchange.packet_id] = exchange
        return True

    def _continue(self, exchange: Exchange) -> None:
        """The broker has kept the session; what waits again is repeated as a duplicate by `pump`."""
        if exchange.state is ExchangeState.RELEASED:
            self._release(exchange.kind, exchange.packet_id)
        elif exchange.kind == PublishKind.RESPONSE and exchange.state is ExchangeState.WAITING:
            # Aliases the broker chose ended with their connection: the name says where the response belongs.
            exchange.alias = UNALIASED
            reply = self._topic(exchange)
            reply.waiting.append(exchange)
            self._blocked[reply] = None

    def _restart(self, exchange: Exchange) -> None:
        """The broker has forgotten the session: what it never confirmed is sent anew, under its old identifier."""
        exchange.was_sent = False
        if exchange.kind == PublishKind.RESPONSE:
            self._finish(exchange, ConnectionLost(LOST_REQUESTER.format(exchange.topic)))
        elif exchange.kind == PublishKind.REQUEST and exchange.state is not ExchangeState.WAITING:
            self._finish(exchange, ConnectionLost(LOST_ANSWER.format(exchange.topic)))
        elif exchange.state is ExchangeState.RELEASED:
            # PUBSYN said that the broker has it; to send it again could deliver it twice.
            self._finish(exchange)

    def _refused(self, exchange: Exchange, reason: int) -> None:
        if exchange.wish is not None:
            self._finish(exchange, NotConfirmed(exchange.wish, exchange.topic, reason))
            return
        kind = PublishKind(exchange.kind).name
        self._finish(exchange, RequestRefused(f"{kind} on {exchange.topic!r}", reason))

    def _finish(self, exchange: Exchange, error: MoqError | None = None) -> None:
        session = self._session
        exchange.state = ExchangeState.ENDED
        key = (exchange.kind, exchange.packet_id)
        if session.outgoing.get(key) is exchange:
            del session.outgoing[key]
            # The identifier of a request is also that of its response, whose own exchange may not be over.
            if (
                exchange.kind != PublishKind.RESPONSE
                and (PublishKind.RESPONSE, exchange.packet_id) not in session.received
            ):
                session.ids.release(exchange.packet_id)
        exchange.settle(error)
        if self._blocked and self._is_open:
            self.pump()

    def _release(self, kind: int, packet_id: int) -> None:
        self._link.control.write(encode(PubSyn(kind, packet_id, Reason.RELEASE)))


def _encode(exchange: Exchange, topic: Topic, alias: int) -> bytes:
    name = topic.name if alias == UNALIASED else None
    if name is not None and exchange.kind == PublishKind.RESPONSE:
        name = exchange.topic
    return encode(
        PubReq(
            exchange.kind,
            exchange.retain,
            exchange.was_sent and exchange.qos > 0,
            exchange.qos,
            exchange.packet_id,
            alias,
            name,
            None if exchange.wish is None else exchange.wish.waited,
            exchange.extension,
            exchange.payload,
        )
    )

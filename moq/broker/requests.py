"""REQUEST and RESPONSE: a question to whoever subscribed for requests, an answer to the asker alone.

The packet identifier of a request is the correlation. The requester chose one; the broker gives each responder
one of its own; a response carries the identifier of the request it answers.

    requester ── REQUEST 7 ──► broker ── REQUEST 31 ──► responder
    requester ◄─ RESPONSE 7 ── broker ◄─ RESPONSE 31 ── responder

All plain responders and one member of each group get the request; the first response wins. A request that
nobody can answer any more fails at once, one that nobody answers fails at its deadline.

A message with a response topic is a question too. It is relayed as a request to those who take requests and cannot
publish to that topic themselves; each of their responses is published there.

    publisher ── message ──► broker ── REQUEST 31 ──► responder
    its response topic ◄──── broker ◄─ RESPONSE 31 ── responder
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from moq.broker.access import Action
from moq.broker.delivery import Delivery
from moq.broker.message import Kind, Message, Properties, Target
from moq.broker.peer import CONGESTED, SENT
from moq.broker.subscriptions import Route
from moq.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from moq.broker.environment import Environment
    from moq.broker.session import Session
    from moq.broker.subscriptions import Group, Subscriptions
    from moq.broker.timers import Timer

LAST_PACKET_ID: Final = 0xFFFF
"""Relayed requests are counted from above here: no client chose their numbers."""


class _Request:
    """One request that waits for its response; a relayed one has no requester, but a response topic."""

    __slots__ = ("asked", "client_id", "message", "packet_id", "requester", "timer")

    def __init__(self, client_id: str, packet_id: int, message: Message, requester: Session | None) -> None:
        self.client_id = client_id
        self.requester = requester
        self.packet_id = packet_id
        self.message = message
        self.timer: Timer | None = None
        self.asked: dict[tuple[str, int], Target] = {}  # by responder and the identifier it knows


class Requests:
    """Every request that waits for its response, from both ends."""

    def __init__(
        self, environment: Environment, subscriptions: Subscriptions, publish: Callable[[Message, float], object]
    ) -> None:
        self._environment = environment
        self._subscriptions = subscriptions
        self._publish = publish
        self._last_relayed = LAST_PACKET_ID
        self._open: dict[str, dict[int, _Request]] = {}  # by requester, then its identifier
        self._asked: dict[str, dict[int, _Request]] = {}  # by responder, then the identifier it knows

    def open(self, requester: Session, packet_id: int, message: Message, timeout_s: float, now: float) -> Reason:
        """Pass a request on. A refusal says why nobody will answer it."""
        client_id = requester.client_id
        own = self._open.get(client_id, {})
        if packet_id in own:
            return Reason.SUCCESS  # repeated on a new connection: it is being answered already
        if len(own) >= self._environment.limits.max_requests_per_session:
            return Reason.QUOTA_EXCEEDED
        if not self._environment.access.allows(requester, Action.REQUEST, message.topic):
            return Reason.NOT_AUTHORIZED
        targets = list(self._responders(message))
        if not targets:
            self._environment.figures.requests_failed += 1
            return Reason.NO_RESPONDER
        request = _Request(client_id, packet_id, message, requester)
        return Reason.SUCCESS if self._ask_all(request, targets, timeout_s, now) else Reason.NO_RESPONDER

    def relay(self, message: Message, route: Route, now: float) -> Route:
        """Ask those who take requests about a message with a response topic. Returns the route to everyone else."""
        question = Message(
            message.topic,
            message.payload,
            min(message.qos, 2),
            publisher=message.publisher,
            expires_at=message.expires_at,
            properties=message.properties,
            kind=Kind.REQUEST,
            received_at=message.received_at,
        )
        members = [member for group in route.groups if (member := group.choose(message)) is not None]
        recipients = [target for target in route.targets + members if not self._relay_to(question, target, now)]
        return Route(recipients + route.paced, [], route.stages)

    def _relay_to(self, question: Message, target: Target, now: float) -> bool:
        """Make a message a request of its own for one target: each one's response is of interest."""
        session, publisher = target.session, question.publisher
        if not target.takes_requests or session.peer is None or (target.no_local and session.client_id == publisher):
            return False
        limits = self._environment.limits
        if len(self._open.get(publisher, ())) >= limits.max_requests_per_session:
            return False
        self._last_relayed += 1
        request = _Request(publisher, self._last_relayed, question, None)
        return self._ask_all(request, [target], limits.request_timeout_s, now)

    def _ask_all(self, request: _Request, targets: list[Target], timeout_s: float, now: float) -> bool:
        # One that still waits for a lane at its deadline is not sent any more.
        request.message.expires_at = min(request.message.expires_at, now + timeout_s)
        request.timer = self._environment.timers.at(
            now + timeout_s, lambda _: self._fail(request, Reason.REQUEST_TIMED_OUT)
        )
        self._open.setdefault(request.client_id, {})[request.packet_id] = request
        self._environment.figures.requests_opened += 1
        for target in targets:
            self._ask(request, target, now)
        if request.asked:
            return True
        self._close(request)
        self._environment.figures.requests_failed += 1
        return False

    def respond(self, responder: Session, packet_id: int, message: Message, now: float) -> Reason:
        """Carry a response to its requester, if it still waits for one."""
        request = self._asked.get(responder.client_id, {}).get(packet_id)
        if request is None:
            return Reason.REQUEST_CLOSED
        if not self._environment.access.allows(responder, Action.RESPOND, request.message.topic):
            return Reason.NOT_AUTHORIZED
        if request.requester is None:
            return self._publish_response(request, responder, message, now)
        self._close(request)
        answer = Message(
            request.message.topic,
            message.payload,
            message.qos,
            publisher=responder.client_id,
            expires_at=message.expires_at,
            properties=message.properties,
            kind=Kind.RESPONSE,
            received_at=message.received_at,
        )
        outbound = request.requester.outbound
        if answer.qos:
            outbound.accept(Delivery(answer, None, answer.qos, request.packet_id), now)
        elif outbound.peer is not None and not outbound.peer.send_message(answer, None, 0, request.packet_id, False):
            self._environment.figures.dropped_congested += 1
        return Reason.SUCCESS

    def _publish_response(self, request: _Request, responder: Session, message: Message, now: float) -> Reason:
        asked = request.message.properties
        assert asked is not None
        assert asked.response_topic is not None
        # It is the responder who publishes: a question cannot make it write where it may not.
        if not self._environment.access.allows(responder, Action.PUBLISH, asked.response_topic):
            return Reason.NOT_AUTHORIZED
        self._close(request)
        properties = replace(message.properties or Properties(), correlation_data=asked.correlation_data)
        self._publish(
            Message(
                asked.response_topic,
                message.payload,
                message.qos,
                publisher=responder.client_id,
                expires_at=message.expires_at,
                properties=properties,
                received_at=message.received_at,
            ),
            now,
        )
        return Reason.SUCCESS

    def on_detached(self, session: Session, now: float) -> None:
        """A responder is gone: another member of its group takes over, or the requester learns it at once."""
        for packet_id, request in self._asked.pop(session.client_id, {}).items():
            target = request.asked.pop((session.client_id, packet_id))
            session.outbound.ids.release(packet_id)
            group: Group | None = target.group
            if group is not None and (substitute := _connected(group, request.message, session)) is not None:
                self._ask(request, substitute, now)
            if not request.asked:
                self._fail(request, Reason.NO_RESPONDER)

    def on_session_ended(self, session: Session) -> None:
        """Nobody waits for these answers any more."""
        for request in list(self._open.get(session.client_id, {}).values()):
            self._close(request)

    def _responders(self, message: Message) -> Iterator[Target]:
        allows = self._environment.access.allows
        for group in self._subscriptions.route(message.topic).groups:
            if (target := _connected(group, message, None)) is not None:
                yield target
        asked: set[str] = set()
        for subscription in self._subscriptions.matching(message.topic):
            session = subscription.session
            if (
                subscription.group is None
                and subscription.accepts_requests
                and session.peer is not None
                and session.client_id not in asked
                and allows(session, Action.RECEIVE, message.topic)
                and allows(session, Action.RESPOND, message.topic)
            ):
                asked.add(session.client_id)
                yield Target(session, subscription)

    def _ask(self, request: _Request, target: Target, now: float) -> None:
        session = target.session
        packet_id = session.outbound.ids.take()
        if packet_id == 0:
            return
        request.asked[session.client_id, packet_id] = target
        self._asked.setdefault(session.client_id, {})[packet_id] = request
        message = request.message
        qos = min(message.qos, target.qos)
        if qos:
            session.outbound.ids.hold(packet_id)  # once for the exchange, once for the answer
            session.outbound.accept(Delivery(message, target, qos, packet_id), now)
            return
        assert session.peer is not None
        outcome = session.peer.send_message(message, target, 0, packet_id, False)
        if outcome != SENT:
            self._environment.figures.dropped_congested += outcome == CONGESTED
            self._forget(request, session, packet_id)

    def _fail(self, request: _Request, reason: Reason) -> None:
        self._close(request)
        self._environment.figures.requests_failed += 1
        if request.requester is None:
            return
        # This ends the whole exchange of the request, wherever its own acknowledgements stand.
        request.requester.note_released(Kind.REQUEST << 16 | request.packet_id)
        if request.requester.peer is not None:
            request.requester.peer.acknowledge(Kind.REQUEST, request.packet_id, reason)

    def _close(self, request: _Request) -> None:
        if request.timer is not None:
            request.timer.cancel()
        _take(self._open, request.client_id, request.packet_id)
        for (_, packet_id), target in list(request.asked.items()):
            self._forget(request, target.session, packet_id)

    def _forget(self, request: _Request, responder: Session, packet_id: int) -> None:
        del request.asked[responder.client_id, packet_id]
        _take(self._asked, responder.client_id, packet_id)
        responder.outbound.ids.release(packet_id)


def _take(table: dict[str, dict[int, _Request]], client_id: str, packet_id: int) -> None:
    """Remove an entry and, with the last of them, the client's table."""
    entries = table[client_id]
    del entries[packet_id]
    if not entries:
        del table[client_id]


def _connected(group: Group, message: Message, excluded: Session | None) -> Target | None:
    target = group.choose(message, excluded)
    return target if target is not None and target.session.peer is not None else None

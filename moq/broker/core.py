"""The broker: what clients' actions mean, as a pure function of events and time.

Dialects call the methods here as packets arrive (events); effects leave through four narrow interfaces: a
`Peer` for each connected client, the `Store`, deadlines (`next_timeout`, `handle_timeout`), and figures. Nothing
here awaits, reads a clock, opens a socket or knows a packet layout: `now` is an argument, so a test can replay an
hour in a millisecond.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from moq.broker.access import Action
from moq.broker.confirmations import Confirmations
from moq.broker.environment import Environment
from moq.broker.message import Kind, Message, Mode, Properties, Registration, Run, Subscription, Target, TopicType
from moq.broker.operators import Naming, OperatorError, Plan, parse
from moq.broker.pacing import Pacing
from moq.broker.requests import Requests
from moq.broker.retention import Topics
from moq.broker.sessions import Sessions
from moq.broker.stages import Stages
from moq.broker.subscriptions import Subscriptions
from moq.broker.system import CLOCK, time_answer
from moq.broker.types import Described, TypeDiscovery
from moq.errors import RequestRefused
from moq.reasons import Reason
from moq.topics import filter_error, has_wildcard, matches, name_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from moq.broker.confirmations import Wanted
    from moq.broker.session import Session
    from moq.broker.subscriptions import Route


class Broker:
    """Sessions, subscriptions, topics and the messages between them."""

    def __init__(self, environment: Environment | None = None, now: float = 0.0) -> None:
        self.environment = environment or Environment()
        self.limits = self.environment.limits
        self.figures = self.environment.figures
        self.timers = self.environment.timers
        self._access = self.environment.access
        self._promises = self.environment.promises
        self.subscriptions = Subscriptions(self._access)
        self.topics = Topics(self.environment)
        self.requests = Requests(self.environment, self.subscriptions, self.route)
        self.pacing = Pacing(self.environment, self.subscriptions, lambda *of: self.sessions.target(*of))
        self.stages = Stages(self.environment, self.subscriptions, self.topics, self.pacing)
        self.confirmations = self.environment.confirmations = Confirmations(self.environment, self.subscriptions, now)
        self.sessions = Sessions(self)
        self._types = TypeDiscovery(self.environment, self.topics, self.sessions)
        self.topics.recover(now)
        self.sessions.recover(now)
        self.confirmations.recover(self.sessions)
        self.topics.forget_idle()

    # --- topic requests -------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float, *, sends_retained: bool = True) -> Reason:
        """Add or replace a subscription; the messages its topics retain follow.

        Raises:
            RequestRefused: There is more to say about a refusal than its reason code.
        """
        session = subscription.session
        subscription.plan = self.read(subscription)
        if filter_error(subscription.source) is not None:
            return Reason.TOPIC_FILTER_INVALID
        if not self._may_subscribe(subscription):
            return Reason.NOT_AUTHORIZED
        replaced = session.subscriptions.get((subscription.filter, subscription.group))
        is_new = (subscription.filter, subscription.group) not in session.subscriptions
        if is_new and (
            len(session.subscriptions) >= self.limits.max_subscriptions_per_session
            or self.subscriptions.count >= self.limits.max_subscriptions
        ):
            return Reason.QUOTA_EXCEEDED
        if session.is_persistent and self.environment.store.failure is not None:
            self.figures.refused_store += 1
            return Reason.QUOTA_EXCEEDED
        if subscription.is_computed:
            self.stages.check(subscription)
        session.save_subscription(subscription)
        self.enter(subscription, now)
        if replaced is not None and replaced.is_computed and not self.stages.are_one(replaced, subscription):
            self.stages.remove(replaced)
        self.pacing.on_subscriptions_changed(session, now)
        if sends_retained:
            self.send_retained(subscription, now)
        return Reason.SUCCESS

    def read(self, subscription: Subscription) -> Plan | None:
        """What the operators of a subscription ask for; None if it has none.

        Raises:
            RequestRefused: They are not of the language.
        """
        naming = Naming.RPT if subscription.repeats_names else Naming.SKR
        try:
            plan = parse(subscription.filter, self.environment.functions.names(), naming)
        except OperatorError as error:
            raise RequestRefused(str(error), error.reason) from error
        if subscription.repeats_names and (plan is None or plan.spatial is None):
            raise RequestRefused(
                "RPT names the values of a spatial aggregate; there is none", Reason.TOPIC_FILTER_INVALID
            )
        return plan

    def enter(self, subscription: Subscription, now: float) -> None:
        """Let messages find a subscription."""
        if subscription.is_computed:
            self.stages.add(subscription, now)
        else:
            self.subscriptions.add(subscription)

    def withdraw(self, subscription: Subscription) -> None:
        """Undo `enter`."""
        if subscription.is_dormant:
            return
        if subscription.is_computed:
            self.stages.remove(subscription)
        else:
            self.subscriptions.remove(subscription)

    def _may_subscribe(self, subscription: Subscription) -> bool:
        """It is the plain filters that are judged, each of them, and not the text with its operators."""
        sources = (subscription.source,) if subscription.plan is None else subscription.plan.sources
        return all(self._access.allows(subscription.session, Action.SUBSCRIBE, source) for source in sources)

    def send_retained(self, subscription: Subscription, now: float) -> None:
        """Send a subscriber what its topics retain; members of groups, and who wants values, get live ones only."""
        if subscription.group is None and (subscription.plan is None or subscription.plan.is_filter):
            messages = self._retained_for(subscription, now)
            subscription.session.outbound.replay(subscription.filter, messages, now)

    def unsubscribe(self, session: Session, filter_: str, group: str | None = None) -> Reason:
        """Remove a subscription. What is already on its way still arrives."""
        subscription = session.subscriptions.get((filter_, group))
        if subscription is None:
            return Reason.NO_SUBSCRIPTION_EXISTED
        session.drop_subscription(subscription)
        self.withdraw(subscription)
        self.pacing.on_subscriptions_changed(session, self.environment.now)
        if group is None:
            session.outbound.cancel_replay(filter_)
        return Reason.SUCCESS

    def register(self, session: Session, registration: Registration) -> Reason:
        """Let a session publish on a topic, or on all topics of a filter, and set how they retain."""
        filter_ = registration.filter
        if filter_error(filter_) is not None:
            return Reason.TOPIC_FILTER_INVALID
        if not self._access.allows(session, Action.REGISTER, filter_):
            return Reason.NOT_AUTHORIZED
        is_new = filter_ not in session.registrations
        if is_new and len(session.registrations) >= self.limits.max_registrations_per_session:
            return Reason.QUOTA_EXCEEDED
        if session.is_persistent and self.environment.store.failure is not None:
            self.figures.refused_store += 1
            return Reason.QUOTA_EXCEEDED
        if not has_wildcard(filter_) and self.adopt(session, filter_, registration) is not Reason.SUCCESS:
            return Reason.QUOTA_EXCEEDED
        session.save_registration(registration)
        return Reason.SUCCESS

    def unregister(self, session: Session, filter_: str) -> Reason:
        """Take a registration back, and with it the topics no other one covers."""
        registration = session.registrations.get(filter_)
        if registration is None:
            return Reason.TOPIC_NOT_REGISTERED
        session.drop_registration(registration)
        for name in [name for name in session.publishes if matches(filter_, name)]:
            if not any(matches(other, name) for other in session.registrations):
                self.abandon(session, name)
        return Reason.SUCCESS

    def adopt(self, session: Session, name: str, registration: Registration) -> Reason:
        """A session turns out to publish on this very topic: remember it, with the registration's mode."""
        if name_error(name) is not None or not self._access.allows(session, Action.PUBLISH, name):
            return Reason.NOT_AUTHORIZED
        topic = self.topics.know(name)
        if topic is None:
            return Reason.QUOTA_EXCEEDED
        self.topics.set_mode(topic, registration.mode, registration.expiry_s)
        topic.publishers.add(session.client_id)
        session.publishes.add(name)
        return Reason.SUCCESS

    def abandon(self, session: Session, name: str) -> None:
        """A session no longer publishes on a topic."""
        session.publishes.discard(name)
        topic = self.topics.get(name)
        assert topic is not None
        topic.publishers.discard(session.client_id)
        self.topics.forget_if_idle(topic)

    def subscribers(self, session: Session, name: str) -> list[str] | Reason:
        """The client ids that would receive a message on this topic."""
        if name_error(name) is not None:
            return Reason.TOPIC_NAME_INVALID
        if not self._access.allows(session, Action.QUERY, name):
            return Reason.NOT_AUTHORIZED
        return sorted({subscription.session.client_id for subscription in self.subscriptions.matching(name)})

    # --- messages -------------------------------------------------------------------------------------

    def publish(self, session: Session, message: Message, packet_id: int, now: float) -> None:
        """A client published a message; at QoS 1 and 2 it hears back once the message is safe."""
        traffic, qos = session.traffic, message.qos
        traffic.messages_in[qos] += 1
        traffic.bytes_in[qos] += len(message.payload)
        if not qos:
            self.route(message, now)
            return
        peer = session.peer
        assert peer is not None
        reason = Reason.SUCCESS
        is_repeated = message.qos == 2 and packet_id in session.received
        if not is_repeated and (refusal := self._refusal(message)) is not None:
            # Told at once: where nothing can be stored a promise would wait for as long as that lasts.
            (peer.acknowledge if message.qos == 1 else peer.confirm_received)(Kind.PUBLISH, packet_id, refusal)
            return
        if message.qos == 1:
            reason = self.route(message, now)
            self._keep_promise(lambda: peer.acknowledge(Kind.PUBLISH, packet_id, reason), message)
            return
        if not is_repeated:
            session.note_received(packet_id)
            reason = self.route(message, now)
        self._keep_promise(lambda: peer.confirm_received(Kind.PUBLISH, packet_id, reason), message)

    def publish_confirmed(
        self, session: Session, message: Message, packet_id: int, wanted: Wanted, now: float, *, dup: bool
    ) -> None:
        """A client published a message and waits for its confirmations: QoS 3, or QoS 1 with the same wish.

        `Peer.confirm` follows once there are enough of them or no more will come; a refusal follows at once.
        """
        self._count(session, message)
        if self.confirmations.repeat(session, packet_id, is_repeated=dup or message.qos > 1):
            return
        if message.qos > 1 and packet_id in session.received:
            refusal: Reason | None = Reason.PACKET_IDENTIFIER_IN_USE
        else:
            refusal = self._refusal(message) or self.confirmations.open(session, packet_id, message, wanted, now)
        if refusal is not None:
            peer = session.peer
            assert peer is not None
            (peer.acknowledge if message.qos == 1 else peer.confirm_received)(Kind.PUBLISH, packet_id, refusal)
            return
        if message.qos > 1:
            session.note_received(packet_id)
        self.route(message, now)

    def publish_run(self, run: Run, now: float) -> None:
        """A client published several messages of QoS 0 in a row, which its dialect has counted."""
        figures = self.figures
        route = self.subscriptions.route(run.topic)
        for target in route.targets:
            peer = target.session.outbound.peer
            if peer is not None and not (target.no_local and target.session.client_id == run.publisher):
                figures.dropped_congested += peer.send_run(run, target)
        if route.has_others:
            self._offer_run_to_others(route, run, now)

    def request(self, session: Session, message: Message, packet_id: int, timeout_s: float, now: float) -> None:
        """A client asks whoever answers requests on a topic."""
        self._count(session, message)
        self._exchange(
            session, message, packet_id, lambda: self.requests.open(session, packet_id, message, timeout_s, now)
        )

    def respond(self, session: Session, message: Message, packet_id: int, request_id: int, now: float) -> None:
        """A client answers the request it knows as `request_id`; `packet_id` is that of the exchange of its answer."""
        self._count(session, message)
        self._exchange(session, message, packet_id, lambda: self.requests.respond(session, request_id, message, now))

    def tell_time(self, session: Session, request: Message, packet_id: int) -> None:
        """A client compares its clock with the broker's: the answer leaves in this turn, at QoS 0."""
        self._count(session, request)
        clock, peer = self.environment.wall_clock, session.peer
        assert clock is not None
        assert peer is not None

        def answer() -> Reason:
            payload = time_answer(clock.from_loop(request.received_at), clock.now_ns())
            peer.send_message(Message(CLOCK, payload, kind=Kind.RESPONSE), None, 0, packet_id, False)
            return Reason.SUCCESS

        self._exchange(session, request, packet_id, answer)

    def release(self, session: Session, kind: int, packet_id: int) -> None:
        """QoS 2: the publisher lets go of a message."""
        peer = session.peer
        assert peer is not None
        was_known = session.note_released(kind << 16 | packet_id)
        outcome = self.confirmations.release(session, packet_id) if kind == Kind.PUBLISH else None
        reason = Reason.SUCCESS if was_known else Reason.PACKET_IDENTIFIER_NOT_FOUND
        # Until this is safe the identifier must not be used again: after a crash its next message would be
        # taken for a repetition and lost.
        self._promises.keep(lambda: peer.confirm_completed(kind, packet_id, reason, outcome))

    def refuse(self, session: Session, kind: int, packet_id: int, reason: Reason) -> None:
        """QoS 2: a message is not taken, and the publisher's identifier is free again, whatever it was used for."""
        peer = session.peer
        assert peer is not None
        session.note_released(kind << 16 | packet_id)
        if kind == Kind.PUBLISH:
            self.confirmations.release(session, packet_id)
        self._promises.keep(lambda: peer.confirm_received(kind, packet_id, reason))

    def on_received(
        self, session: Session, kind: int, packet_id: int, reason: int, now: float, reply: bytes | None = None
    ) -> bool:
        """QoS 2: a subscriber has a message, or refuses it. False if it was no message of QoS 2.

        A reply is for a publisher that waits for confirmations; any other has no use for it.
        """
        return session.outbound.on_received(kind, packet_id, reason, now, reply)

    def on_acknowledged(
        self, session: Session, kind: int, packet_id: int, now: float, reply: bytes | None = None
    ) -> bool:
        """A subscriber ended an exchange. False if it broke the order of QoS 2."""
        return session.outbound.on_acknowledged(kind, packet_id, now, reply)

    def route(self, message: Message, now: float) -> Reason:
        """Deliver a message to everyone it is for, and keep it if it is to be retained; say whether anyone is there."""
        if message.retain:
            return self._route_retained(message, now)
        route = self.subscriptions.route(message.topic)
        reason = Reason.SUCCESS if route.targets or route.has_others else Reason.NO_MATCHING_SUBSCRIBERS
        if message.properties is not None and message.properties.response_topic is not None:
            route = self.requests.relay(message, route, now)
        for target in route.targets:
            if not (target.no_local and target.session.client_id == message.publisher):
                target.session.outbound.offer(message, target, now)
        if route.has_others:
            self._offer_to_others(route, message, message, now)
        return reason

    def _refusal(self, message: Message) -> Reason | None:
        """Why a message that is to be acknowledged cannot be taken: nothing can be stored, or a queue is full."""
        environment = self.environment
        if environment.store.failure is not None:
            self.figures.refused_store += 1
            return Reason.QUOTA_EXCEEDED
        if environment.queue_policy == "refuse" and self._is_a_queue_full(message):
            self.figures.refused_queue_full += 1
            return Reason.QUOTA_EXCEEDED
        return None

    def _is_a_queue_full(self, message: Message) -> bool:
        size = len(message.payload)
        route = self.subscriptions.route(message.topic)
        targets = route.targets + route.paced
        return any(target.qos and target.session.outbound.is_full(size) for target in targets) or any(
            all(member.qos and member.session.outbound.is_full(size) for member in group.members)
            for group in route.groups
        )

    def _offer_to_others(self, route: Route, message: Message, live: Message, now: float) -> None:
        """Offer a message to all but the plain targets: as it is to those who want it so, the live one to the rest."""
        for target in route.paced:
            if not (target.no_local and target.session.client_id == message.publisher):
                self.pacing.deliver(message if target.retain_as_published else live, target, now)
        for group in route.groups:
            if (member := group.choose(message)) is not None:
                self.pacing.deliver(message if member.retain_as_published else live, member, now)
        if route.stages:
            self.stages.take(route.stages, message, live, now)

    def _offer_run_to_others(self, route: Route, run: Run, now: float) -> None:
        messages = run.messages()
        for target in route.paced:
            if not (target.no_local and target.session.client_id == run.publisher):
                self.pacing.deliver_run(messages, target, now)
        for group in route.groups:
            for message in messages:
                if (member := group.choose(message)) is not None:
                    self.pacing.deliver(message, member, now)
        if route.stages:
            self.stages.take_run(route.stages, run, now)

    def _route_retained(self, message: Message, now: float) -> Reason:
        """A live message is not a retained one: subscribers can tell the two apart, unless they asked not to."""
        self.topics.retain(_unconfirmed(message), now)
        live = Message(
            message.topic,
            message.payload,
            message.qos,
            False,
            message.publisher,
            message.expires_at,
            message.properties,
            received_at=message.received_at,
        )
        route = self.subscriptions.route(message.topic)
        for target in route.targets:
            if not (target.no_local and target.session.client_id == message.publisher):
                target.session.outbound.offer(message if target.retain_as_published else live, target, now)
        self._offer_to_others(route, message, live, now)
        return Reason.SUCCESS if route.targets or route.has_others else Reason.NO_MATCHING_SUBSCRIBERS

    # --- types ----------------------------------------------------------------------------------------

    def announce(self, session: Session, name: str, type_: TopicType) -> Reason:
        """A publisher says what its topic carries."""
        topic = self.topics.get(name)
        if topic is None or session.client_id not in topic.publishers:
            return Reason.TOPIC_NOT_REGISTERED
        if not self._access.allows(session, Action.PUBLISH, name):
            return Reason.NOT_AUTHORIZED
        if len(type_.schema) > self.limits.max_schema_bytes:
            return Reason.PACKET_TOO_LARGE
        self.topics.set_type(topic, type_)
        return Reason.SUCCESS

    def describe(self, session: Session, filter_: str, answer: Callable[[Described], None], now: float) -> Reason:
        """A client asks what is published; `answer` is called once all publishers have been heard."""
        if filter_error(filter_) is not None:
            return Reason.TOPIC_FILTER_INVALID
        self._types.describe(session, filter_, answer, now)
        return Reason.SUCCESS

    def on_type_answer(self, session: Session, query_id: int, topic: str, type_: TopicType | None) -> None:
        """A publisher answered `Peer.ask_type`; None if it does not know."""
        if type_ is not None and len(type_.schema) > self.limits.max_schema_bytes:
            type_ = None
        self._types.on_answer(session.client_id, query_id, topic, type_)

    # --- time and store -------------------------------------------------------------------------------

    def next_timeout(self) -> float | None:
        """When `handle_timeout` wants to be called."""
        return self.timers.next_timeout()

    def handle_timeout(self, now: float) -> None:
        """Deadlines have passed."""
        self.environment.now = now
        self.timers.handle_timeout(now)

    def on_writable(self, session: Session, now: float) -> None:
        """A client's lane has drained."""
        session.outbound.on_writable(now)

    def when_safe(self, session: Session, callback: Callable[[], None]) -> None:
        """Call back once what a session has asked for would survive a crash: at once if it is not kept for that.

        While nothing can be stored, subscriptions and registrations are refused; that need not wait for better times.
        """
        if session.is_persistent and self.environment.store.failure is None:
            self._promises.keep(callback)
        else:
            callback()

    def on_durable(self, now: float) -> None:
        """The store has made more changes safe: what waited for them goes out."""
        self.environment.now = now
        self._promises.on_durable(now)
        stalled = list(self.environment.stalled)
        self.environment.stalled.clear()
        for outbound in stalled:
            outbound.on_writable(now)

    # --- inside ---------------------------------------------------------------------------------------

    def _count(self, session: Session, message: Message) -> None:
        traffic = session.traffic
        traffic.messages_in[message.qos] += 1
        traffic.bytes_in[message.qos] += len(message.payload)

    def _keep_promise(self, answer: Callable[[], None], message: Message) -> None:
        """Acknowledge a message once it is safe, and note how long that took."""
        self._promises.keep(answer, self.environment.latencies.acknowledgement[message.qos], message.received_at)

    def _exchange(self, session: Session, message: Message, packet_id: int, act: Callable[[], Reason]) -> None:
        """Answer a REQUEST or RESPONSE by its QoS; a refusal is told at any QoS, and ends the exchange."""
        peer = session.peer
        assert peer is not None
        kind, exchange = message.kind, message.kind << 16 | packet_id
        reason = Reason.SUCCESS if exchange in session.received else act()
        if reason is not Reason.SUCCESS or message.qos == 1:
            if reason is not Reason.SUCCESS and message.qos == 2:
                peer.confirm_received(kind, packet_id, reason)
            else:
                self._keep_promise(lambda: peer.acknowledge(kind, packet_id, reason), message)
        elif message.qos == 2:
            if exchange not in session.received:
                session.note_received(exchange)
            self._keep_promise(lambda: peer.confirm_received(kind, packet_id, Reason.SUCCESS), message)

    def _retained_for(self, subscription: Subscription, now: float) -> Iterator[tuple[Message, Target]]:
        target = Target(subscription.session, subscription)
        client_id = subscription.session.client_id
        for topic in self.topics.matching(subscription.source):
            if topic.retained and self._access.allows(subscription.session, Action.RECEIVE, topic.name):
                messages = self.topics.retained(topic, now)
                if subscription.is_computed:
                    messages = [message for message in messages if self.stages.passes(subscription, message)]
                if target.period_s:
                    messages = self._newest(messages[:1] if topic.mode is Mode.LIFO else messages[-1:], target)
                for message in messages:
                    if not (subscription.no_local and message.publisher == client_id):
                        yield message, target

    def _newest(self, newest: list[Message], target: Target) -> list[Message]:
        """What a subscriber with a period gets now of the newest message retained: it, or nothing before its time."""
        pacing, now = self.pacing, self.environment.now
        return [
            message
            for message in newest
            if not pacing.is_pending(target, message.topic) and pacing.admits(message, target, now)
        ]


def _unconfirmed(message: Message) -> Message:
    """A message as it is for those who come later: nobody waits for their confirmation."""
    if message.properties is None or not message.properties.collection:
        return message
    properties = replace(message.properties, waited=None, collection=0)
    return Message(
        message.topic,
        message.payload,
        min(message.qos, 2),
        message.retain,
        message.publisher,
        message.expires_at,
        None if properties == Properties() else properties,
        received_at=message.received_at,
    )

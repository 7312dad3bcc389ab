"""The asyncio client: waits where the core only accepts, and connects again when the link is lost.

    program ── publish, subscribe, request ──► Client ──► ClientCore ──► Link
                                                 └─ one task: watches the link, dials the next one

All state of the protocol is in the `ClientSession`; each link gets a new core for it. Nothing here is called back:
a program awaits. Any wait can be cancelled; a message whose `publish` is cancelled is withdrawn if it was not yet
sent, and otherwise goes its way in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from moq.client.confirming import NotConfirmed, wish_of
from moq.client.connection import FINAL_REASONS, Connection, resolve
from moq.client.core import ClientCore, State
from moq.client.inbox import DEFAULT_QUEUE
from moq.client.messages import Message, Request, TopicType
from moq.client.payloads import extension_of, subscribe_extension_of, to_bytes
from moq.client.subscription import Requests, Subscription
from moq.client.typed import is_typed, schema_bytes
from moq.errors import ConnectFailed, ConnectionLost, LocalProtocolError, MoqError, RequestRefused
from moq.reasons import Reason
from moq.wire.mmqp import PublishKind, RetentionMode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
    from types import TracebackType
    from typing import Literal, Self

    from moq.broker.link import Link
    from moq.client.confirming import Confirmations
    from moq.client.connection import Reconnect
    from moq.client.inbox import Inbox
    from moq.client.payloads import Payload
    from moq.client.pending import Exchange, Operation, Pending
    from moq.client.session import ClientSession, SessionOptions
    from moq.client.tracer import ClientTracer

    Dial = Callable[[Callable[[Link], ClientCore]], Awaitable[Link]]

ANSWER_GRACE_S = 1.0
"""How much longer than a deadline we wait for the broker to say that it has passed."""

CLOCK = "$SYS/clock"
"""Where the broker answers what time it is."""

CLOSE_TIMEOUT_S = 5.0
"""How long closing waits for a network that does not take what is left."""

DRAIN_POLL_S = 0.002
"""A link does not say when its last byte has left; closing asks it this often."""


class FirstConfirmation:
    """The first confirmation of a message, to be awaited whenever the program wants to know; it raises as `publish`."""

    def __init__(self, exchange: Exchange, outcome: Callable[[Exchange], Awaitable[None]]) -> None:
        self._exchange = exchange
        self._outcome = outcome

    @property
    def is_known(self) -> bool:
        """True if awaiting it does not wait."""
        return self._exchange.is_settled

    def __await__(self) -> Generator[Any, None, Confirmations]:
        yield from self._outcome(self._exchange).__await__()
        assert self._exchange.confirmations is not None
        return self._exchange.confirmations


class Client:
    """A connected client; made by `moq.connect` and used in `async with`."""

    def __init__(
        self,
        dial: Dial,
        session: ClientSession,
        options: SessionOptions,
        *,
        where: str = "the broker",
        reconnect: Reconnect | None = None,
        connect_timeout_s: float = 10.0,
        tracer: ClientTracer | None = None,
        stamp_ns: Callable[[], int] | None = None,
    ) -> None:
        self._dial = dial
        self._tracer = tracer
        self._stamp_ns = stamp_ns
        self._session = session
        self._options = options
        self._where = where
        self._reconnect = reconnect
        self._connect_timeout_s = connect_timeout_s
        self._connection: Connection | None = None
        self._attempts = 0
        self._watcher: asyncio.Task[None] | None = None
        self._end_error: ConnectionLost | None = None
        self._window = asyncio.Semaphore(options.window)
        self._announced: dict[str, type] = {}

    # --- the connection -----------------------------------------------------------------------------------

    @property
    def client_id(self) -> str | None:
        """The identifier of the session, chosen or assigned."""
        return self._session.client_id

    @property
    def is_connected(self) -> bool:
        """True while the broker answers; a client that reconnects is for a while not connected."""
        return self._connection is not None and self._connection.core.state is State.OPEN

    @property
    def session_present(self) -> bool:
        """True if the broker had kept the session when this connection was made."""
        return self._connection is not None and self._connection.core.session_present

    @property
    def transport(self) -> str:
        """What the present link runs over: `quic`, `tcp` or `tls`."""
        return self._machine.link.transport

    async def __aenter__(self) -> Self:
        if self._connection is not None:
            raise LocalProtocolError("a client connects once; make another with moq.connect")
        if self._tracer is not None:
            self._tracer.open()
        try:
            await self._connect()
        except BaseException as error:
            if self._tracer is not None:
                await self._tracer.close()
            if isinstance(error, ConnectionLost):
                raise ConnectFailed(str(error), error.reason) from error
            raise
        self._watcher = asyncio.create_task(self._watch(), name=f"moq client {self.client_id}")
        if self._tracer is not None:
            self._tracer.start(self._ask_time)
        return self

    async def _ask_time(self) -> bytes:
        return (await self.request(CLOCK)).payload

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what is still to be sent, say goodbye to the broker and end every wait; subscriptions just stop."""
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        assert self._connection is not None
        watcher.cancel()
        try:
            await asyncio.wait([watcher])
            if self.is_connected:
                await self._say_goodbye(self._connection)
        finally:
            self._connection.core.link.abort()
            self._finish(ConnectionLost("the client was closed", Reason.SUCCESS), is_orderly=True)
            if self._tracer is not None:
                await self._tracer.close()

    # --- messages -----------------------------------------------------------------------------------------

    @overload
    async def publish(
        self,
        topic: str,
        payload: Payload,
        qos: int = 0,
        retain: bool = False,
        ttl: float | None = None,
        *,
        confirm: None = None,
        timestamp_ns: int | None = None,
        properties: Mapping[str, str] | None = None,
        group_start: bool = False,
    ) -> None: ...

    @overload
    async def publish(  # type: ignore[overload-overlap]  # 0 is an int too, and the only one not waited for
        self,
        topic: str,
        payload: Payload,
        qos: int = 0,
        retain: bool = False,
        ttl: float | None = None,
        *,
        confirm: Literal[0],
        timeout: float | None = None,  # noqa: ASYNC109
        subscribers: Collection[str] = (),
        timestamp_ns: int | None = None,
        properties: Mapping[str, str] | None = None,
        group_start: bool = False,
    ) -> FirstConfirmation: ...

    @overload
    async def publish(
        self,
        topic: str,
        payload: Payload,
        qos: int = 0,
        retain: bool = False,
        ttl: float | None = None,
        *,
        confirm: int,
        timeout: float | None = None,  # noqa: ASYNC109
        subscribers: Collection[str] = (),
        timestamp_ns: int | None = None,
        properties: Mapping[str, str] | None = None,
        group_start: bool = False,
    ) -> Confirmations: ...

    async def publish(
        self,
        topic: str,
        payload: Payload,
        qos: int = 0,
        retain: bool = False,
        ttl: float | None = None,
        *,
        confirm: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it goes to the broker, which keeps it
        subscribers: Collection[str] = (),
        timestamp_ns: int | None = None,
        properties: Mapping[str, str] | None = None,
        group_start: bool = False,
    ) -> Confirmations | FirstConfirmation | None:
        """Publish a message; return when it is written (QoS 0) or the broker has taken responsibility (QoS 1, 2).

        A dataclass instance is sent as JSON and its type announced with the first. While the connection is
        congested, lost or its window full, this waits; nothing is buffered beyond the window.

        With `confirm` the message has QoS 3: this returns when so many subscribers have confirmed it, and says who.
        With `confirm=0` it returns when the message has been sent; await the result for the first confirmation.

        Args:
            topic: where to; registered with the broker at first use.
            payload: text, bytes or a dataclass instance.
            qos: 0 at most once, 1 at least once, 2 exactly once.
            retain: let the broker keep it for later subscribers (QoS 1 and 2).
            ttl: seconds for which the value is of use.
            confirm: how many subscribers to wait for.
            timeout: seconds to wait for them; the broker has a time of its own for those who do not say.
            subscribers: only these client ids count; see `subscribers()`.
            timestamp_ns: when it was made, for traces; unless given, now, if the client stamps its messages.
            properties: pairs of text passed on to the subscribers.
            group_start: a late joiner may begin here.

        Raises:
            RequestRefused: the broker does not take it.
            NotConfirmed: fewer than `confirm` subscribers can confirm it, or did in time; it says who did.
            ConnectionLost: the client ended first.
        """
        wish = None if confirm is None else wish_of(confirm, subscribers)
        if wish is None and (timeout is not None or subscribers):
            raise LocalProtocolError("timeout and subscribers are for messages with confirm")
        if is_typed(payload):
            await self._announce_once(topic, type(payload))
        if timestamp_ns is None and self._stamp_ns is not None:
            timestamp_ns = self._stamp_ns()
        designated = () if wish is None else wish.subscribers
        extension = extension_of(ttl, timestamp_ns, properties, group_start, timeout, designated)
        if wish is not None and not wish.waited:
            await self._window.acquire()
            return self._first_confirmation(
                lambda: self._machine.publish(topic, to_bytes(payload), 0, retain, extension, wish=wish)
            )
        async with self._window:
            exchange = self._machine.publish(topic, to_bytes(payload), qos, retain, extension, wish=wish)
            try:
                async with asyncio.timeout(None if timeout is None else timeout + ANSWER_GRACE_S):
                    await self._finished(exchange)
            except TimeoutError:
                assert wish is not None
                raise NotConfirmed(wish, topic, Reason.CONFIRMATION_TIMED_OUT) from None
        return exchange.confirmations

    def subscribe(
        self,
        filter_: str,
        qos: int = 0,
        group: str | None = None,
        requests: bool = False,
        period: float | None = None,
        priority: int | None = None,
        deadline: float | None = None,
        queue: int = DEFAULT_QUEUE,
        replies: bool = False,
    ) -> Subscription:
        """Subscribe to a topic or filter; iterate over the result.

        Each subscription has a queue of its own. When it is full, QoS 0 messages displace the oldest (counted in
        `dropped`), and acknowledgements of QoS 1 and 2 messages are withheld, so that the broker waits.

        Args:
            filter_: a topic, or a filter with `+` and `#`.
            qos: the highest QoS to receive with; 3 lets messages be confirmed with a reply.
            group: share the messages with the other members of the group.
            requests: also receive requests, as `Request`.
            period: seconds; at most one message per period and topic.
            priority: 0 (first) to 255 among the topics of this client.
            deadline: seconds after which a message is no longer worth sending.
            queue: messages that may wait for the program.
            replies: messages of QoS 3 are confirmed when the program calls their `reply`, or takes the next message,
                and not already when they arrive.
        """
        extension = subscribe_extension_of(period, priority, deadline)
        return Subscription(
            self, lambda: self._machine.subscribe(filter_, qos, group, requests, extension, queue, replies)
        )

    # --- requests -----------------------------------------------------------------------------------------

    async def request(self, topic: str, payload: Payload = b"", timeout: float = 5.0, qos: int = 0) -> Message:  # noqa: ASYNC109
        """Ask whoever answers requests on a topic, and wait for the answer.

        Raises:
            RequestRefused: nobody answers there, or nobody did in time.
            ConnectionLost: the connection went before the answer came.
        """
        stamp_ns = None if self._stamp_ns is None else self._stamp_ns()
        extension = extension_of(timestamp_ns=stamp_ns, deadline=timeout)
        async with self._window:
            exchange = self._machine.publish(topic, to_bytes(payload), qos, False, extension, PublishKind.REQUEST)
            try:
                async with asyncio.timeout(timeout + ANSWER_GRACE_S):
                    await self._finished(exchange)
            except TimeoutError:
                raise RequestRefused(f"REQUEST on {topic!r}", Reason.REQUEST_TIMED_OUT) from None
        assert exchange.response is not None
        return exchange.response

    def requests(self, filter_: str, group: str | None = None, qos: int = 2, queue: int = DEFAULT_QUEUE) -> Requests:
        """Receive the requests made on a topic or filter, each to be answered with `respond`."""

        def begin() -> Inbox:
            inbox = self._machine.subscribe(filter_, qos, group, True, None, queue)
            inbox.only_requests = True
            return inbox

        return Requests(self, begin)

    # --- topics -------------------------------------------------------------------------------------------

    async def register(
        self, topic: str, mode: RetentionMode = RetentionMode.OVERRIDE, expiry: float | None = None
    ) -> None:
        """Say beforehand that this client publishes on a topic or filter, and how its messages are kept.

        Raises:
            RequestRefused: it may not.
        """
        await self.settled(self._machine.register(topic, mode, None if expiry is None else round(expiry)))

    async def subscribers(self, topic: str) -> list[str]:
        """The client ids that would receive a message on this topic."""
        operation = self._machine.query(topic)
        await self.settled(operation)
        return operation.subscribers

    async def describe(self, filter_: str) -> list[TopicType]:
        """The types of the topics a filter matches; empty if none is known."""
        operation = self._machine.describe(filter_)
        await self.settled(operation)
        return operation.types

    async def announce(self, topic: str, type_: TopicType | type) -> None:
        """Say what is published on a topic: a `TopicType`, or a dataclass.

        Raises:
            RequestRefused: the topic is not ours to describe, or the description too long.
        """
        if isinstance(type_, type):
            type_ = TopicType(topic, schema_bytes(type_))
        # The broker takes types only from who is registered as a publisher of the topic.
        await self.settled(self._machine.ensure_registered(topic))
        await self.settled(self._machine.announce(type_))

    # --- for subscriptions --------------------------------------------------------------------------------

    def take(self, inbox: Inbox) -> Message | None:
        """The next message of a subscription, if there is one."""
        assert self._connection is not None
        message = self._connection.core.take(inbox)  # also after the end: what has arrived is still the program's
        if isinstance(message, Request):
            message.responder = self._respond
        elif message is not None and message.waited is not None and inbox.takes_replies:
            message.replier = self._reply
        return message

    def unsubscribe(self, inbox: Inbox) -> Operation | None:
        """End a subscription at the broker."""
        return None if self._end_error is not None else self._machine.unsubscribe(inbox)

    async def settled(self, operation: Operation) -> None:
        """Wait for an answer; raise what it says."""
        await self._outcome(operation)

    # --- inside -------------------------------------------------------------------------------------------

    @property
    def _machine(self) -> ClientCore:
        if self._end_error is not None:
            raise self._end_error
        if self._connection is None:
            raise LocalProtocolError("the client is not connected; use it in `async with moq.connect(...) as client:`")
        return self._connection.core

    async def _respond(self, request: Request, payload: Payload, qos: int) -> None:
        async with self._window:
            await self._finished(self._machine.respond(request, to_bytes(payload), qos))

    def _reply(self, message: Message, payload: bytes) -> None:
        self._machine.reply(message, payload)

    def _first_confirmation(self, publish: Callable[[], Exchange]) -> FirstConfirmation:
        """Send a message and leave its place in the window to it until it is confirmed."""
        try:
            exchange = publish()
        except BaseException:
            self._window.release()
            raise
        if exchange.is_settled:
            self._window.release()
        else:
            exchange.when_settled(self._window.release)
        return FirstConfirmation(exchange, self._outcome)

    async def _announce_once(self, topic: str, type_: type) -> None:
        if self._announced.get(topic) is not type_:
            await self.announce(topic, type_)
            self._announced[topic] = type_

    async def _finished(self, exchange: Exchange) -> None:
        """Wait until a message is written, acknowledged or answered; one we stop waiting for is taken back."""
        try:
            await self._outcome(exchange)
        except asyncio.CancelledError:
            if self._end_error is None:
                self._machine.withdraw(exchange)
            raise

    async def _outcome(self, pending: Pending) -> None:
        if not pending.is_settled:
            future = asyncio.get_running_loop().create_future()
            pending.when_settled(partial(resolve, future, None))
            await future
        if pending.error is not None:
            raise pending.error

    async def _connect(self) -> Connection:
        """Make a connection and log in.

        Raises:
            ConnectFailed: nobody answers.
            ConnectionLost: the broker refused, or the link was lost before it answered.
        """
        made: list[Connection] = []

        def make_core(link: Link) -> ClientCore:
            made.append(Connection(self._session, link, self._options, self._tracer))
            return made[-1].core

        link: Link | None = None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                link = await self._dial(make_core)
                connection = next(connection for connection in made if connection.core.link is link)
                self._connection = connection
                if connection.core.state is State.CREATED:
                    connection.core.start()
                error = await connection.outcome
        except TimeoutError:
            raise ConnectFailed(f"{self._where} did not answer within {self._connect_timeout_s:g} s") from None
        finally:
            if link is not None and connection.core.state is not State.OPEN:
                link.abort()
        if error is not None:
            raise error
        return connection

    async def _watch(self) -> None:
        """Wait for the link to be lost, make another, and so on until that is not wanted or not possible."""
        assert self._connection is not None
        connection = self._connection
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            error = await connection.until_lost()
            if self._reconnect is not None and clock() - began >= self._reconnect.longest_s:
                # Only a connection that lasted is a fresh start: one that is accepted and dropped again and
                # again must not be made again without pause.
                self._attempts = 0
            again = await self._connect_again(error)
            if isinstance(again, ConnectionLost):
                self._finish(again)
                return
            connection = again

    async def _connect_again(self, error: ConnectionLost) -> Connection | ConnectionLost:
        """The next connection, or why there will be none."""
        while self._reconnect is not None and error.reason not in FINAL_REASONS:
            await asyncio.sleep(self._reconnect.delay_s(self._attempts))
            self._attempts += 1
            try:
                return await self._connect()
            except ConnectFailed:
                continue
            except ConnectionLost as refusal:
                error = refusal
            except MoqError as fault:
                return ConnectionLost(f"{self._where} cannot be connected to again: {fault}")
        return error

    def _finish(self, error: ConnectionLost, *, is_orderly: bool = False) -> None:
        if self._end_error is None:
            self._end_error = error
            self._session.end(error, None if is_orderly else error)

    async def _say_goodbye(self, connection: Connection) -> None:
        """Let what was published leave first; a link closes when its control lane is empty, whatever others hold."""
        link = connection.core.link
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while link.unsent and connection.core.state is State.OPEN:  # noqa: ASYNC110  # see DRAIN_POLL_S
                    await asyncio.sleep(DRAIN_POLL_S)
                connection.core.close()
                await connection.closed

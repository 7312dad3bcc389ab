"""A subscription as the program sees it: an asynchronous iterator over one inbox.

    async with client.subscribe("a/#") as subscription:      active from here on
        async for message in subscription: ...

Used in a bare `async for` it becomes active with the first step. It ends at the broker when the block, the last
reference to it or the client ends, whichever is first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from moq.client.messages import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from moq.client.inbox import Inbox
    from moq.client.messages import Message
    from moq.client.pending import Operation


class Source(Protocol):
    """What a subscription needs of its client."""

    def take(self, inbox: Inbox) -> Message | None:
        """The next message, if there is one."""

    def unsubscribe(self, inbox: Inbox) -> Operation | None:
        """End it at the broker."""

    async def settled(self, operation: Operation) -> None:
        """Wait for an answer; raise what it says."""


class Subscription:
    """An asynchronous iterator of messages. Cancelling a step loses no message."""

    def __init__(self, source: Source, begin: Callable[[], Inbox]) -> None:
        self._source = source
        self._begin = begin
        self._inbox: Inbox | None = None
        self._arrived = asyncio.Event()
        self._is_closed = False

    @property
    def dropped(self) -> int:
        """QoS 0 messages displaced because the program did not keep up."""
        return self._inbox.dropped if self._inbox is not None else 0

    @property
    def queued(self) -> int:
        """Messages that have arrived and wait to be looked at."""
        return len(self._inbox.queue) if self._inbox is not None else 0

    async def ready(self) -> Self:
        """Wait until the broker has accepted the subscription.

        Raises:
            RequestRefused: it did not.
            ConnectionLost: the client ended first.
        """
        operation = self._started().operation
        if operation is not None:
            await self._source.settled(operation)
        return self

    async def aclose(self) -> None:
        """End the subscription; messages not looked at are discarded."""
        operation = self._close()
        if operation is not None:
            await self._source.settled(operation)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        inbox = self._inbox
        if inbox is None:
            await self.ready()
            inbox = self._started()
        while (message := self._source.take(inbox)) is None:
            if inbox.error is not None:
                raise inbox.error
            if inbox.is_ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return message

    async def __aenter__(self) -> Self:
        return await self.ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def __del__(self) -> None:
        # A `break` out of `async for` tells the iterator nothing; losing the last reference does.
        self._close()

    def _started(self) -> Inbox:
        if self._inbox is None:
            self._inbox = self._begin()
            # The event and not a method of this object: the session must not keep a subscription nobody holds.
            self._inbox.wake = self._arrived.set
        return self._inbox

    def _close(self) -> Operation | None:
        if self._is_closed or self._inbox is None:
            return None
        self._is_closed = True
        return self._source.unsubscribe(self._inbox)


class Requests(Subscription):
    """An asynchronous iterator of requests, each to be answered with `respond`."""

    async def __anext__(self) -> Request:
        message = await super().__anext__()
        assert isinstance(message, Request)
        return message

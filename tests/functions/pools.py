"""A pool of functions that tests can await."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from moq.functions.pool import FunctionPool

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Opened = Callable[..., AbstractAsyncContextManager["Pool"]]

PATIENCE_S = 50


class Pool(FunctionPool):
    """A pool that can be awaited."""

    def ask(self, name: str, payload: bytes = b"") -> asyncio.Future[bytes]:
        """What comes of it; RuntimeError with the words for the subscriber, or QueueFull."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def then(result: bytes | None, error: str | None) -> None:
            assert not future.done(), "given out twice"
            if error is not None:
                future.set_exception(RuntimeError(error))
            elif result is not None:
                future.set_result(result)

        if not self.submit(name, payload, then):
            raise asyncio.QueueFull
        return future

    async def call(self, name: str, payload: bytes = b"") -> bytes:
        """As `ask`, awaited."""
        return await asyncio.wait_for(self.ask(name, payload), PATIENCE_S)

    async def complaint(self, name: str, payload: bytes = b"") -> str:
        """What a subscriber is told of a call that must fail."""
        with pytest.raises(RuntimeError) as caught:
            await self.call(name, payload)
        return str(caught.value)

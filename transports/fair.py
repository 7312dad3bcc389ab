"""An event loop on which new connections wait for each other, and nobody else for them.

    poll ─► ready ─┬─ established: all of them, every turn
                   └─ new: a few of them in this turn, the others in the turns after

A turn of the loop lasts as long as everything that is ready takes, and what a turn writes leaves at its end. When
hundreds of connections arrive, shake hands or break off together, a message of an established one would wait for them
all: 70 ms were measured where it takes 1 ms. So only a few of the new ones have their turn at a time. The kernel
reports the others again: nothing is lost, and it costs them little, for the turns are short.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

EVENTS_PER_TURN: Final = 2
"""Of new connections: a handshake step takes about a millisecond."""

NEW_FOR_S: Final = 5.0
"""From then on a connection is as good as any other: a storm is made of connections that last less."""


class FairSelector(selectors.DefaultSelector):
    """Reports few of those descriptors that were marked as new."""

    def __init__(self) -> None:
        super().__init__()
        self._new: dict[int, float] = {}  # descriptor → when it is new no more
        self._served = 0

    def mark_new(self, descriptor: int) -> None:
        """Let the events of a descriptor wait for others for the next seconds."""
        self._new[descriptor] = time.monotonic() + NEW_FOR_S

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        """Forget a descriptor; its number may be another's next."""
        key = super().unregister(fileobj)
        self._new.pop(key.fd, None)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, as selectors do, without the new ones whose turn it is not."""
        ready = super().select(timeout)
        if not self._new or len(ready) <= EVENTS_PER_TURN:
            return ready
        now, new = time.monotonic(), self._new
        for descriptor in [key.fd for key, _ in ready if new.get(key.fd, now) < now]:
            del new[descriptor]
        waiting = [event for event in ready if event[0].fd in new]
        if len(waiting) <= EVENTS_PER_TURN:
            return ready
        # Where the last turn ended this one begins: nobody among them is passed over for long.
        first = self._served = self._served % len(waiting)
        self._served += EVENTS_PER_TURN
        chosen = (waiting + waiting)[first : first + EVENTS_PER_TURN]
        return [event for event in ready if event[0].fd not in new] + chosen


class FairLoop(asyncio.SelectorEventLoop):
    """An event loop that listeners can tell which of its connections are new."""

    def __init__(self) -> None:
        self._fair_selector = FairSelector()
        super().__init__(self._fair_selector)

    def mark_new(self, descriptor: int) -> None:
        """This connection was accepted just now."""
        self._fair_selector.mark_new(descriptor)


def mark_new(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    """Tell a loop of a new connection, if it is one that cares."""
    if isinstance(loop, FairLoop):
        loop.mark_new(descriptor)

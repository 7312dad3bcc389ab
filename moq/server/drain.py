"""How the clients of a broker that stops are let go: exchanges first, then a goodbye, then the end.

    settle ── no exchange of QoS 1 or 2 under way, or a fifth of the time over ──► goodbye ── sent ──► closed
                                                                                        └── time over ──► aborted

Each connection goes as soon as it has settled, so publishers between two messages leave first and what is under way
dries up instead of being replaced. What cannot be settled in time is not lost: the store has it, or its sender has,
and the next connection of the session goes on with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from moq.broker.store import Store
    from moq.server.served import ServedLink

SETTLE_SHARE: Final = 0.2
"""How much of the time clients have to end their exchanges: a second of the default. The rest is for the goodbye, which
a client that is stuck would not get if it were waited for until the end."""

POLL_S: Final = 0.005
"""Nothing tells that an exchange has ended: it is looked at this often, while the broker stops."""


async def drain(
    links: Collection[ServedLink],
    store: Store,
    clock: Callable[[], float],
    *,
    timeout_s: float,
    server_reference: str,
) -> None:
    """Let all clients go; `links` are those still open, and get fewer.

    An acknowledgement is part of its exchange: nobody goes before the store is where it was when this began. What comes
    after that may not be acknowledged, and is sent again.
    """
    began, last = clock(), store.last
    leaving: set[ServedLink] = set()

    def say_goodbye(*, to_all: bool) -> None:
        for served in [served for served in links if served not in leaving]:
            if to_all or served.connection.is_settled:
                leaving.add(served)
                served.connection.shut_down(clock(), server_reference)

    while links and clock() < began + timeout_s * SETTLE_SHARE:
        if store.durable >= last:
            say_goodbye(to_all=False)
        await asyncio.sleep(POLL_S)
    say_goodbye(to_all=True)
    while links and clock() < began + timeout_s:  # noqa: ASYNC110  # see POLL_S
        await asyncio.sleep(POLL_S)
    for served in list(links):
        served.link.abort()

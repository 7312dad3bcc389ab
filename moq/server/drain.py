"""How the clients of a broker that stops are let go: exchanges first, then a goodbye, then the end.

    settle ── no exchange of QoS 1 or 2 under way, or SETTLE_S over ──► goodbye ── sent ──► closed
                                                                                     └── timeout_s over ──► aborted

Each connection goes as soon as it has settled, so publishers between two messages leave first and what is under way
dries up instead of being replaced. What cannot be settled in time is not lost: the store has it, or its sender has,
and the next connection of the session goes on with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from moq.server.served import ServedLink

SETTLE_S: Final = 1.0
"""How long clients have to end their exchanges, but never more than half of the whole time. Several round trips: a
client that takes longer is stuck, and would be told nothing if it were waited for until the end."""

POLL_S: Final = 0.005
"""Nothing tells that an exchange has ended: it is looked at this often, while the broker stops."""


async def drain(
    links: Collection[ServedLink],
    is_durable: Callable[[], bool],
    clock: Callable[[], float],
    *,
    timeout_s: float,
    server_reference: str,
) -> None:
    """Let all clients go; `links` are those still open, and get fewer.

    An acknowledgement is part of its exchange: while `is_durable` is false some wait for the store.
    """
    began = clock()
    leaving: set[ServedLink] = set()

    def say_goodbye(*, to_all: bool) -> None:
        for served in [served for served in links if served not in leaving]:
            if to_all or served.connection.is_settled:
                leaving.add(served)
                served.connection.shut_down(clock(), server_reference)

    while links and clock() < began + min(SETTLE_S, timeout_s / 2):
        if is_durable():
            say_goodbye(to_all=False)
        await asyncio.sleep(POLL_S)
    say_goodbye(to_all=True)
    while links and clock() < began + timeout_s:  # noqa: ASYNC110  # see POLL_S
        await asyncio.sleep(POLL_S)
    for served in list(links):
        served.link.abort()

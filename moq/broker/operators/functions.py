"""Processing functions as the core knows them: a name, a queue that takes payloads, and what comes back later.

The functions themselves are plug-ins and run in worker processes: whoever owns those gives the core a `Functions`.

    message ──► submit ──► a worker ──► then(result, None) ──► windows, aggregates, subscribers
                  │                └──► then(None, error)  ──► $ERROR/… to the subscribers
                  └──► False, the queue is full ─────────────► $ERROR/… to the subscribers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Then = Callable[[bytes | None, str | None], None]
    """Gets what a function made of a payload, or None and why there is nothing, in words for the subscriber."""


class Functions(Protocol):
    """The processing functions of a broker."""

    def names(self) -> Collection[str]:
        """What subscriptions call them, without `$`: capitals, digits and `_`, none an operator's keyword."""

    def submit(self, name: str, payload: bytes, then: Then) -> bool:
        """Have a payload processed; False if the queue is full, and then nothing follows.

        `then` is called exactly once, later, from the event loop and never from within `submit`. Of one name, results
        come in the order of their payloads: a topic's latest value is the one published last.
        """

    def describe(self) -> list[dict[str, object]]:
        """One entry per function for `$SYS/capabilities`: `keyword`, `desc` and `returns`, as in figure 1 of MQTT+."""


class NoFunctions:
    """A broker without plug-ins."""

    def names(self) -> Collection[str]:
        """See `Functions`."""
        return ()

    def submit(self, name: str, payload: bytes, then: Then) -> bool:
        """See `Functions`. Nobody can have subscribed to one."""
        raise AssertionError(f"there is no function {name}")

    def describe(self) -> list[dict[str, object]]:
        """See `Functions`."""
        return []

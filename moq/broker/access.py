"""Who may do what: the question the core asks before anything takes effect, and again before each delivery.

It is asked of a client and a topic, never of a connection: a session that its client has left is judged as well, and
an answer given yesterday binds nobody today. Answers that are kept (routes, topics a connection may publish on) are
forgotten when the rules change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Action(Enum):
    """What a client can be allowed or denied."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    RECEIVE = "receive"
    """What SUBSCRIBE is for a message on its way: asked for each topic that a filter turns out to match."""
    REGISTER = "register"
    REQUEST = "request"
    RESPOND = "respond"
    TYPE = "type"
    QUERY = "query"


class Actor(Protocol):
    """Who asks: a session, or a client that has none yet."""

    @property
    def client_id(self) -> str:
        """The identifier it chose or was given."""

    @property
    def user(self) -> str | None:
        """Who it logged in as; None: it did not."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A client without a session."""

    client_id: str
    user: str | None


class Access(Protocol):
    """Decides on one action of one client on one topic or filter."""

    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        """True if this client may do this."""


class OpenAccess:
    """Everybody may do everything, except write to the broker's own `$` topics."""

    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        """See `Access`."""
        return not (topic.startswith("$") and action in _WRITING)


_WRITING = frozenset({Action.PUBLISH, Action.REGISTER, Action.REQUEST})

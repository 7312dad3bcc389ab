"""Who may do what: the question the core asks before anything takes effect."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Action(Enum):
    """What a client can be allowed or denied."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    RECEIVE = "receive"
    TYPE = "type"
    QUERY = "query"


class Access(Protocol):
    """Decides on one action of one client on one topic or filter."""

    def allows(self, client_id: str, action: Action, topic: str) -> bool:
        """True if this client may do this."""


class OpenAccess:
    """Everybody may do everything, except write to the broker's own `$` topics."""

    def allows(self, client_id: str, action: Action, topic: str) -> bool:
        """See `Access`."""
        return not (action is Action.PUBLISH and topic.startswith("$"))

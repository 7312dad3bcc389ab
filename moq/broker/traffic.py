"""Messages, payloads and connections by transport, dialect and QoS: plain numbers that connections add to.

A connection gets the one `Traffic` of its kind as it starts, and adds to lists whose index is the QoS: that costs what
adding to a single total did. Totals are sums, made when somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

QOS_LEVELS: Final = 4
"""0, 1, 2, and 3 for messages whose publisher waits for confirmations."""

ENDS: Final = {
    Reason.SUCCESS: "client",
    Reason.KEEP_ALIVE_TIMEOUT: "keep_alive",
    Reason.SESSION_TAKEN_OVER: "taken_over",
    Reason.SERVER_SHUTTING_DOWN: "shutting_down",
    Reason.NOT_AUTHORIZED: "not_authorized",
    Reason.BAD_USER_NAME_OR_PASSWORD: "not_authorized",
    Reason.BAD_AUTHENTICATION_METHOD: "not_authorized",
    Reason.CLIENT_IDENTIFIER_NOT_VALID: "not_authorized",
    Reason.QUOTA_EXCEEDED: "limit",
    Reason.SERVER_BUSY: "limit",
    Reason.MESSAGE_RATE_TOO_HIGH: "limit",
    Reason.RECEIVE_MAXIMUM_EXCEEDED: "limit",
    Reason.PACKET_TOO_LARGE: "limit",
}
"""Why connections end, in the few words of a label; every other reason is a violation of the protocol."""

VIOLATION: Final = "protocol_error"
LOST: Final = "lost"
"""The link was gone without a goodbye."""

END_REASONS: Final = (*dict.fromkeys(ENDS.values()), VIOLATION, LOST)


class Traffic:
    """What connections of one transport and dialect have brought and taken, since the start."""

    __slots__ = (
        "accepted",
        "bytes_in",
        "bytes_out",
        "closed",
        "dialect",
        "lanes_ended",
        "lanes_opened",
        "lanes_reset",
        "messages_in",
        "messages_out",
        "open",
        "refused",
        "transport",
    )

    def __init__(self, transport: str = "", dialect: str = "") -> None:
        self.transport = transport
        self.dialect = dialect
        self.messages_in = [0] * QOS_LEVELS
        self.bytes_in = [0] * QOS_LEVELS
        self.messages_out = [0] * QOS_LEVELS
        self.bytes_out = [0] * QOS_LEVELS
        self.accepted = 0
        """Connections whose client was let in."""
        self.open = 0
        """Those that are there now."""
        self.closed = dict.fromkeys(END_REASONS, 0)
        """Those that ended, by reason."""
        self.refused = dict.fromkeys(END_REASONS, 0)
        """Connections whose client was told that it is not let in, by reason."""

        self.lanes_opened = 0
        """Lanes that clients opened, on links that have lanes."""
        self.lanes_ended = {"finished": 0, "reset": 0, "link": 0}
        """How they ended: by their client's finishing them, abandoning them, or with the link."""
        self.lanes_reset: dict[str, int] = {}
        """Those abandoned, by the reason given."""

    @property
    def lanes_open(self) -> int:
        """Lanes of clients that are open now."""
        return self.lanes_opened - sum(self.lanes_ended.values())

    def end(self, why: str, *, was_open: bool) -> None:
        """A connection has ended, or did not come about."""
        if was_open:
            self.open -= 1
            self.closed[why] += 1
        else:
            self.refused[why] += 1


class Traffics:
    """The traffic of one broker."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str], Traffic] = {}
        self._messages_out: list[list[int]] = []

    def __iter__(self) -> Iterator[Traffic]:
        return iter(self._by_kind.values())

    def of(self, transport: str, dialect: str) -> Traffic:
        """The one of this transport and dialect."""
        traffic = self._by_kind.get((transport, dialect))
        if traffic is None:
            traffic = self._by_kind[transport, dialect] = Traffic(transport, dialect)
        return traffic

    def let_in(self, traffic: Traffic) -> None:
        """A client of this kind is let in."""
        if not traffic.accepted:
            self._messages_out.append(traffic.messages_out)
        traffic.accepted += 1
        traffic.open += 1

    def sent(self) -> int:
        """Messages sent: asked twice for each read, so it is quick."""
        total = 0
        for counts in self._messages_out:
            total += sum(counts)
        return total


def end_reason(reason: int) -> str:
    """The label of a reason code that ended a connection."""
    return ENDS.get(Reason(reason), VIOLATION)


def reset_reason(code: int) -> str:
    """The label of a code with which a lane was abandoned: whatever a peer sends, there are only so many."""
    try:
        return Reason(code).name.lower()
    except ValueError:
        return "unknown"

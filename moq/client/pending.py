"""What the client has asked of the broker and not yet heard the end of: exchanges and operations.

    Exchange    a message we send, and what became of it
        WAITING ──PUBREQ──► SENT ──────────────PUBACK────────────────────────► ENDED      QoS 1
                              └─PUBSYN─► RELEASED ──────PUBACK───────────────► ENDED      QoS 2
                              └─PUBSYN, TYPE 3: settled ─► RELEASED ──PUBACK─► ENDED      QoS 3
        WAITING ──PUBREQ──► ENDED                                                         QoS 0
    Operation   a TOPREQ, TYPEREQ or PUBTYPE and its answer

Both settle once, with an error or without, and then wake whoever waits for it. Both outlive the connection they began
on: what is unsettled when it is lost is asked again on the next.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from moq.errors import LocalProtocolError
from moq.wire.mmqp import PublishKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.client.confirming import Confirmations, Wish
    from moq.client.messages import Message, TopicType
    from moq.client.topics import Topic
    from moq.errors import MoqError
    from moq.wire.mmqp import PublishExtension, TopicRequest

MAX_PACKET_ID = 0xFFFF


class PacketIds:
    """Identifiers in use, given out in a circle: one just freed is the last to come again.

    So a late answer to an exchange that was given up meets no new exchange of the same number.
    """

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._last = 0

    def take(self) -> int:
        """A free identifier, used from now on."""
        if len(self._used) == MAX_PACKET_ID:
            raise LocalProtocolError(f"all {MAX_PACKET_ID} packet identifiers are in use")
        packet_id = self._last
        while True:
            packet_id = packet_id % MAX_PACKET_ID + 1
            if packet_id not in self._used:
                break
        self._last = packet_id
        self._used.add(packet_id)
        return packet_id

    def release(self, packet_id: int) -> None:
        """The identifier may be given out again."""
        self._used.discard(packet_id)


class Pending:
    """Something asked whose outcome is not known yet."""

    __slots__ = ("_wakers", "error", "is_settled")

    def __init__(self) -> None:
        self.is_settled = False
        self.error: MoqError | None = None
        self._wakers: tuple[Callable[[], None], ...] = ()

    def when_settled(self, wake: Callable[[], None]) -> None:
        """Call this once the outcome is known, which it is not yet."""
        self._wakers += (wake,)

    def settle(self, error: MoqError | None = None) -> None:
        """The outcome is known; the first one counts."""
        if self.is_settled:
            return
        self.is_settled = True
        self.error = error
        for wake in self._wakers:
            wake()


class ExchangeState(Enum):
    """How far a message we send has come."""

    WAITING = auto()
    SENT = auto()
    RELEASED = auto()
    ENDED = auto()


class Exchange(Pending):
    """One message we send.

    A REQUEST settles with its `response`, one of QoS 3 with its `confirmations`, everything else with its
    acknowledgement.
    """

    __slots__ = (
        "alias",
        "confirmations",
        "extension",
        "kind",
        "packet_id",
        "payload",
        "qos",
        "response",
        "retain",
        "state",
        "topic",
        "was_sent",
        "wish",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        extension: PublishExtension | None = None,
        kind: int = PublishKind.PUBLISH,
        packet_id: int = 0,
        alias: int = 0,
        wish: Wish | None = None,
    ) -> None:
        super().__init__()
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.extension = extension
        self.kind = kind
        self.packet_id = packet_id  # 0 until it is sent; a RESPONSE has that of its REQUEST
        self.alias = alias  # of a RESPONSE: the alias its REQUEST came with
        self.state = ExchangeState.WAITING
        self.was_sent = False  # on a connection of this session: to send it again is to send a duplicate
        self.response: Message | None = None
        self.wish = wish  # of QoS 3: the confirmations to wait for
        self.confirmations: Confirmations | None = None

    @property
    def is_tracked(self) -> bool:
        """True if an answer to it will come, so that its identifier is in use from sending to the last packet."""
        return self.qos > 0 or self.kind == PublishKind.REQUEST

    @property
    def is_over(self) -> bool:
        """True if no packet of it is still to come."""
        return self.state is ExchangeState.ENDED and (self.kind != PublishKind.REQUEST or self.response is not None)


class Operation(Pending):
    """One topic request, question or announcement, asked again on each connection until it is answered."""

    __slots__ = ("request", "subscribers", "topic", "types", "what")

    def __init__(self, what: str, request: TopicRequest | str | TopicType, topic: Topic | None = None) -> None:
        super().__init__()
        self.what = what  # for errors: "SUBSCRIBE a/b"
        self.request = request  # a topic request; the filter of a TYPEREQ; the type a PUBTYPE announces
        self.topic = topic  # what a REGISTER is about
        self.subscribers: list[str] = []
        self.types: list[TopicType] = []

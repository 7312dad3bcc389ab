"""One message on its way to one session, and the identifiers such messages travel under."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.message import Kind

if TYPE_CHECKING:
    from moq.broker.message import Message, Target

MAX_PACKET_ID = 0xFFFF


class PacketIds:
    """Identifiers of one direction: each is in use until released as often as it was taken or held."""

    __slots__ = ("_holds", "_last")

    def __init__(self) -> None:
        self._last = 0
        self._holds: dict[int, int] = {}

    @property
    def are_used_up(self) -> bool:
        """True while every identifier is in use."""
        return len(self._holds) >= MAX_PACKET_ID

    def take(self) -> int:
        """A free identifier, or 0 if all are in use."""
        holds = self._holds
        if len(holds) >= MAX_PACKET_ID:
            return 0
        packet_id = self._last % MAX_PACKET_ID + 1
        while packet_id in holds:
            packet_id = packet_id % MAX_PACKET_ID + 1
        self._last = packet_id
        holds[packet_id] = 1
        return packet_id

    def hold(self, packet_id: int) -> None:
        """Keep an identifier in use for one more reason."""
        self._holds[packet_id] = self._holds.get(packet_id, 0) + 1

    def release(self, packet_id: int) -> None:
        """One reason fewer."""
        remaining = self._holds.get(packet_id, 0) - 1
        if remaining > 0:
            self._holds[packet_id] = remaining
        else:
            self._holds.pop(packet_id, None)


class Delivery:
    """One message on its way to one session."""

    __slots__ = ("dup", "message", "number", "packet_id", "qos", "released", "sent_at", "stored_as", "target")

    def __init__(self, message: Message, target: Target | None, qos: int, packet_id: int = 0) -> None:
        self.message = message
        self.target = target
        self.qos = qos
        self.packet_id = packet_id
        self.dup = False
        self.released = False
        self.number = -1
        """Its place in the session's queue in the store; below 0 it is in none."""
        self.sent_at = 0.0
        """When it was last sent, on the clock of `now`; 0 before that."""
        self.stored_as = 0
        """The change after which the store knows its packet identifier."""

    @property
    def is_stored(self) -> bool:
        """True if the store has it too."""
        return self.number >= 0

    @property
    def exchange(self) -> int:
        """The key of the exchange: RESPONSEs carry identifiers of the other direction, so the kind is part of it."""
        return self.message.kind << 16 | self.packet_id

    @property
    def is_movable(self) -> bool:
        """True if another member of the group may get it instead: the receiver cannot have counted it as once."""
        if self.target is None or self.target.group is None or self.message.kind == Kind.REQUEST:
            return False
        return self.qos == 1 or not self.dup

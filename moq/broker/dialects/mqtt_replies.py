"""Packets to an MQTT client other than its messages, and the exchanges they end.

A packet identifier belongs to one exchange until its last packet. On a link with several lanes the whole exchange
stays on the lane it began on: the lanes of those that did not begin on control are remembered here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from moq.broker.dialects.mqtt_confirmations import told as told_outcome
from moq.broker.link import CONTROL
from moq.errors import RemoteProtocolError
from moq.reasons import Reason, describe
from moq.wire import mqtt

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.confirmations import Outcome
    from moq.broker.link import Lane, Link

PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70

ACKNOWLEDGEMENT_BYTES: Final = 12
"""What an acknowledgement takes besides its user properties, at most: its header, identifier, reason, their length."""

LAST_REASON: Final = Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
"""MQTT knows none above; ours become IMPLEMENTATION_SPECIFIC_ERROR."""

_SHORT: Final = struct.Struct(">BBH")
_PACKETS: Final[dict[int, Callable[[int, int, mqtt.Properties | None], mqtt.Packet]]] = {
    PUBACK: mqtt.PubAck,
    PUBREC: mqtt.PubRec,
    PUBCOMP: mqtt.PubComp,
}
_EXPLAINED = mqtt.ConnAck | mqtt.Disconnect | mqtt.PubAck | mqtt.PubRec | mqtt.PubComp | mqtt.SubAck
_FROM_BROKER: Final = 1 << 16
"""Tells the identifiers of the broker's exchanges from those of the client's."""


class Replies:
    """What one client is told, once its CONNECT has told the version and the client's limits."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.version = mqtt.VERSION_3_1_1
        self.max_packet_bytes = mqtt.MAX_REMAINING + mqtt.MAX_HEADER_BYTES
        self.receive_maximum = 0
        self.wants_reasons = True
        self._unacknowledged: set[int] = set()  # the client's exchanges that have not ended
        self._lane_ids: dict[int, int] = {}  # lanes of exchanges that are not on control

    def send(self, packet: mqtt.Packet, lane_id: int = CONTROL) -> None:
        """Send a packet, as an answer to what came on a lane."""
        frame = mqtt.encode(packet, self.version)
        if len(frame) > self.max_packet_bytes and isinstance(packet, _EXPLAINED):
            # A reason string is left out where it would be too much for the client [MQTT-3.14.2-3].
            packet.properties = None
            frame = mqtt.encode(packet, self.version)
        self.lane(lane_id).write(frame)

    def lane(self, lane_id: int) -> Lane:
        """Where packets of an incoming lane are answered; on control once that way back is closed."""
        lane = self._link.control if lane_id == CONTROL else self._link.reply_lane(lane_id)
        return self._link.control if lane.is_closed else lane

    # --- exchanges of the client ----------------------------------------------------------------------

    def begin(self, packet_id: int, lane_id: int) -> None:
        """A PUBLISH of QoS 1 or 2 arrived, or its PUBREL."""
        self._unacknowledged.add(packet_id)
        if len(self._unacknowledged) > self.receive_maximum:
            raise RemoteProtocolError(
                f"{len(self._unacknowledged)} messages are not acknowledged; the receive maximum is "
                f"{self.receive_maximum} [MQTT-3.3.4-7]",
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
            )
        if lane_id != CONTROL:
            self._lane_ids[packet_id] = lane_id

    def go_on(self, control: int, packet_id: int, reason: Reason, outcome: Outcome | None = None) -> None:
        """Answer a PUBLISH whose exchange has a further step."""
        self._answer(control, packet_id, reason, self._lane_ids.get(packet_id, CONTROL), outcome)

    def end(self, control: int, packet_id: int, reason: Reason, outcome: Outcome | None = None) -> None:
        """Answer with the last packet of an exchange."""
        self._unacknowledged.discard(packet_id)
        lane_id = self._lane_ids.pop(packet_id, CONTROL) if self._lane_ids else CONTROL
        if packet_id:  # a response of QoS 0 is not refused
            self._answer(control, packet_id, reason, lane_id, outcome)

    def _answer(self, control: int, packet_id: int, reason: Reason, lane_id: int, outcome: Outcome | None) -> None:
        if outcome is not None and self.version == mqtt.VERSION_5 and self.wants_reasons:
            pairs = told_outcome(outcome, self.max_packet_bytes - ACKNOWLEDGEMENT_BYTES)
            properties = mqtt.Properties(user_properties=pairs)
            self.send(_PACKETS[control](packet_id, reason, properties), lane_id)
            return
        if reason is Reason.SUCCESS or self.version == mqtt.VERSION_3_1_1:
            self.lane(lane_id).write(_SHORT.pack(control, 2, packet_id))
            return
        code = told(reason)
        # Words only where they say more than the code [MQTT-3.1.2-29].
        why = describe(reason) if code is not reason and self.wants_reasons else ""
        self.send(_PACKETS[control](packet_id, code, explained(why)), lane_id)

    # --- exchanges of the broker ----------------------------------------------------------------------

    def note_received(self, packet_id: int, lane_id: int) -> None:
        """The client's PUBREC came on a lane: the PUBREL follows there."""
        if lane_id != CONTROL:
            self._lane_ids[packet_id | _FROM_BROKER] = lane_id

    def note_ended(self, packet_id: int) -> None:
        """The client ended an exchange."""
        self._lane_ids.pop(packet_id | _FROM_BROKER, None)

    def release(self, packet_id: int) -> None:
        """Let the client forget an identifier."""
        self.lane(self._lane_ids.get(packet_id | _FROM_BROKER, CONTROL)).write(_SHORT.pack(PUBREL, 2, packet_id))


def told(reason: Reason) -> Reason:
    """A reason in the words of MQTT."""
    return reason if reason <= LAST_REASON else Reason.IMPLEMENTATION_SPECIFIC_ERROR


def explained(message: str) -> mqtt.Properties | None:
    """The properties of a packet that says why."""
    return mqtt.Properties(reason_string=message) if message else None

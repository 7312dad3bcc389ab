"""Outlets that tell a tracer what they send: chosen when a connection begins, where the broker is traced.

They send as the plain ones do and look afterwards: a delivery is traced if and only if it was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.dialects.mmqp_outlets import Outlets
from moq.broker.dialects.mqtt_outlets import MQTTOutlets
from moq.broker.peer import SENT

if TYPE_CHECKING:
    from moq.broker.message import Message, Run, Target
    from moq.broker.tracer import ConnectionTracer


class TracedOutlets(Outlets):
    """Those of MMQP."""

    _trace: ConnectionTracer

    def begin(self, dialect: str, client_id: str) -> None:
        """See `Outlets`."""
        tracer = self._environment.tracer
        assert tracer is not None
        self._trace = tracer.opened(self._link, dialect, client_id)

    def send(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> int:
        """See `Outlets`."""
        outcome = super().send(message, target, qos, packet_id, dup)
        if outcome == SENT:
            outlet = self._outlets.get(message.topic)
            lane, alias = (self._link.lane(0), 0) if outlet is None else (outlet.lane, outlet.alias)
            self._trace.delivered(message, target, qos, dup, lane, alias)
        return outcome

    def send_run(self, run: Run, target: Target) -> int:
        """See `Outlets`."""
        outlet = self._outlets.get(run.topic)
        if outlet is None or not outlet.is_announced:
            return super().send_run(run, target)  # which sends, and traces, its messages one by one
        dropped = super().send_run(run, target)
        if not dropped:
            self._trace.run_delivered(run, target, outlet.lane, outlet.alias)
        return dropped


class TracedMQTTOutlets(MQTTOutlets):
    """Those of MQTT."""

    _trace: ConnectionTracer

    def begin(self, dialect: str, client_id: str) -> None:
        """See `MQTTOutlets`."""
        tracer = self._environment.tracer
        assert tracer is not None
        self._trace = tracer.opened(self._link, dialect, client_id)

    def send(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> int:
        """See `MQTTOutlets`."""
        outcome = super().send(message, target, qos, packet_id, dup)
        if outcome == SENT:
            lane = self._link.control if not self.lanes else self.lane_of(target)
            self._trace.delivered(message, target, qos, dup, lane, self._aliases.get(message.topic, 0))
        return outcome

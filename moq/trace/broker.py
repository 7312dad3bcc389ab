"""The broker's tracer: a record for each delivery the sampler chooses, with the times it came in and went out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.trace.clock import from_loop, now_ns
from moq.trace.connections import Connections
from moq.trace.records import MAX_NS, NO_TIME, UNKNOWN
from moq.trace.schema import BROKER_ROLE, CLOCK

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link
    from moq.broker.message import Message, Run, Target
    from moq.trace.connections import Traced
    from moq.trace.writer import TraceWriter


class BrokerTracer:
    """See `moq.broker.tracer.Tracer`."""

    def __init__(self, writer: TraceWriter) -> None:
        self.writer = writer
        self.connections = Connections(writer)

    def opened(self, link: Link, dialect: str, client_id: str) -> Deliveries:
        """See `Tracer`."""
        return Deliveries(self.writer, self.connections.add(link, dialect, client_id))

    def tick(self) -> None:
        """To be called every INTERVAL_S."""
        self.connections.look()
        self.writer.tick()


class Deliveries:
    """See `moq.broker.tracer.ConnectionTracer`."""

    __slots__ = ("_number", "_origin", "_sampler", "_writer")

    def __init__(self, writer: TraceWriter, traced: Traced) -> None:
        self._writer = writer
        self._sampler = writer.sampler
        self._number = traced.number
        self._origin = traced.origin

    def delivered(self, message: Message, target: Target | None, qos: int, dup: bool, lane: Lane, alias: int) -> None:
        """See `ConnectionTracer`."""
        if target is None and message.topic == CLOCK:
            return  # ours, and no message of anybody's
        properties = message.properties
        stamp = NO_TIME if properties is None else properties.timestamp_ns or NO_TIME
        if stamp > MAX_NS:
            stamp = NO_TIME
        weight = self._sampler.weigh(stamp)
        if not weight:
            return
        self._writer.message(
            BROKER_ROLE,
            self._number,
            self._origin,
            message.topic,
            lane.stream_id,
            alias,
            qos,
            message.kind,
            len(message.payload),
            stamp,
            from_loop(message.received_at) if message.received_at else NO_TIME,
            now_ns(),
            NO_TIME,
            lane.unsent,
            UNKNOWN if target is None else target.session.outbound.waiting,
            dup,
            UNKNOWN,
            weight,
        )

    def run_delivered(self, run: Run, target: Target, lane: Lane, alias: int) -> None:
        """See `ConnectionTracer`."""
        sampler, payloads = self._sampler, run.payloads
        count = len(payloads)
        if sampler.due >= count:
            # What `choose` would do, without calling it: this is all that most runs cost.
            sampler.due -= count
            sampler.offered += count
            return
        weight, record = sampler.weight, self._writer.message
        places = sampler.choose(count)
        came_ns, went_ns = from_loop(run.received_at), now_ns()
        stream_id, unsent, waiting = lane.stream_id, lane.unsent, target.session.outbound.waiting
        for place in places:
            record(
                BROKER_ROLE,
                self._number,
                self._origin,
                run.topic,
                stream_id,
                alias,
                0,
                0,
                len(payloads[place]),
                NO_TIME,
                came_ns,
                went_ns,
                NO_TIME,
                unsent,
                waiting,
                False,
                UNKNOWN,
                weight,
            )

"""`moq bench --trace DIR`: the subscriber's side of a trace, written by the load generator.

Messages over MMQP get a stamp, so that the broker's records and these meet: the time a message was due, and for those
of one block, which are due together, a nanosecond more for each, so that no two are alike. MQTT 3.1.1 has no place for
one: there the time in the payload is recorded, which the broker does not know.

With `on_delivery` the open-loop benchmarks record theirs.
"""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from moq import wire
from moq.bench.dialects import BODY, MMQP, Frame, topic
from moq.bench.flows import ComparingReader, Flow, WalkingReader
from moq.bench.load import Load, Subscriber
from moq.trace.clock import EPOCH_NS
from moq.trace.connections import Connections
from moq.trace.records import NO_TIME, UNKNOWN
from moq.trace.schema import CLIENT, SUBSCRIBER_ROLE
from moq.trace.writer import INTERVAL_S, TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from moq.bench.dialects import Dialect
    from moq.bench.flows import Block, Place, Tally
    from moq.bench.load import Connect, Shape
    from moq.broker.link import Link
    from moq.trace.connections import Traced

STAMP: Final = struct.Struct(">Q")
_PLACEHOLDER: Final = 0x0123456789ABCDEF


class PlannedFlow(Protocol):
    """What the open-loop benchmarks know of a flow."""

    @property
    def index(self) -> int:
        """Its number, which names its topic."""

    @property
    def qos(self) -> int:
        """Of its messages."""


class BenchTrace:
    """Writes what subscribers of the load generator receive; its clock is the one that loads are timed with."""

    def __init__(self, directory: Path, max_rate: float) -> None:
        self.writer = TraceWriter(directory, CLIENT, max_rate=max_rate).open()
        self.connections = Connections(self.writer)
        self.receivers: dict[int, Traced] = {}
        self._ticking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Flush, and look at connections, from now on."""
        self._ticking = asyncio.create_task(self._tick())

    def close(self) -> None:
        """Complete the files."""
        if self._ticking is not None:
            self._ticking.cancel()
        self.writer.close()

    def add_receiver(self, number: int, link: Link, dialect: str) -> Traced:
        """A subscriber is connected."""
        self.receivers[number] = self.connections.add(link, dialect, f"bench-sub-{number}")
        return self.receivers[number]

    def forget_receivers(self) -> None:
        """A run is over."""
        for traced in self.receivers.values():
            self.connections.remove(traced.link)
        self.receivers.clear()

    def on_delivery(self, receiver: int, plan: PlannedFlow, seq: int, due_ns: int, now_ns: int, size: int) -> None:
        """Record what a receiver got; see `moq.bench.ledger`."""
        self.record(self.receivers[receiver], 0, plan.index, plan.qos, seq, due_ns + EPOCH_NS, now_ns, size)

    def record(
        self, traced: Traced, lane_id: int, index: int, qos: int, seq: int, stamp_ns: int, now_ns: int, size: int
    ) -> None:
        """Record a delivery, if it is sampled."""
        weight = self.writer.sampler.weigh(stamp_ns)
        if weight:
            self.writer.message(
                SUBSCRIBER_ROLE,
                traced.number,
                traced.origin,
                topic(index),
                lane_id,
                0,
                qos,
                0,
                size,
                stamp_ns,
                NO_TIME,
                NO_TIME,
                now_ns + EPOCH_NS,
                UNKNOWN,
                UNKNOWN,
                False,
                seq,
                weight,
            )

    async def _tick(self) -> None:
        while True:
            self.connections.look()
            self.writer.tick()
            await asyncio.sleep(INTERVAL_S)


class StampedMMQP(MMQP):
    """Frames with the extension that carries a time."""

    def frame(self, flow: int, qos: int, payload_bytes: int) -> Frame:
        """See `Dialect`."""
        extension = wire.PublishExtension(timestamp_ns=_PLACEHOLDER)
        packet = wire.PubReq(
            0, False, False, qos, 1 if qos else 0, flow + 1, None, None, extension, bytes(payload_bytes)
        )
        data = wire.encode(packet)
        stamp_at, body_at = data.index(STAMP.pack(_PLACEHOLDER)), len(data) - payload_bytes
        head_size = 3 + (data[0] >> 2 & 3)
        layout = struct.Struct(f">{head_size}sH{body_at - head_size - 2}xIIQ{payload_bytes - BODY.size}x")
        return Frame(data, body_at, head_size if qos else None, data[:head_size], layout, stamp_at)


class StampedFlow(Flow):
    """A flow whose messages tell when they were due."""

    def make_block(self, count: int, sent_ns: int, interval_ns: int, first_packet_id: int) -> Block:
        """See `Flow`."""
        block = super().make_block(count, sent_ns, interval_ns, first_packet_id)
        stamp_at, size = self.frame.stamp_at, len(self.frame.data)
        if stamp_at is not None:
            data = bytearray(block.data)
            for number in range(count):
                STAMP.pack_into(data, number * size + stamp_at, stamp_ns(block, number))
            block.data = bytes(data)
        return block


def stamp_ns(block: Block, number: int) -> int:
    """The stamp of a message of a block."""
    return EPOCH_NS + block.sent_ns + number * (block.interval_ns or 1)


class TracedComparingReader(ComparingReader):
    """Records what it counts."""

    def __init__(self, place: Place, tally: Tally, subscriber: TracedSubscriber, lane_id: int) -> None:
        super().__init__(place, tally)
        self._record = partial(subscriber.trace.record, subscriber.traced, lane_id, place.flow.index, subscriber.qos)
        self._size = len(place.flow.frame.data) - place.flow.frame.body_at

    def _count(self, block: Block, first: int, end: int, now_ns: int) -> None:
        super()._count(block, first, end, now_ns)
        for number in range(first, end):
            self._record(block.first_seq + number, stamp_ns(block, number), now_ns, self._size)


class TracedWalkingReader(WalkingReader):
    """Records what it walks over."""

    subscriber: TracedSubscriber
    lane_id: int

    def _walk(self, data: memoryview, now_ns: int, replies: list[bytes]) -> int:
        walked = super()._walk(data, now_ns, replies)
        frame, subscriber = self._places[0].flow.frame, self.subscriber
        size = len(frame.data)
        for start in range(0, walked, size):
            index, seq, sent_ns = BODY.unpack_from(data, start + frame.body_at)
            stamp = sent_ns + EPOCH_NS
            if frame.stamp_at is not None:
                (stamp,) = STAMP.unpack_from(data, start + frame.stamp_at)
            subscriber.trace.record(
                subscriber.traced, self.lane_id, index, subscriber.qos, seq, stamp, now_ns, size - frame.body_at
            )
        return walked


class TracedSubscriber(Subscriber):
    """Reads with the readers above."""

    trace: BenchTrace
    traced: Traced
    qos: int

    def messages_received(self, lane_id: int, data: bytes) -> None:
        """See `Subscriber`."""
        self._lane_id = lane_id
        super().messages_received(lane_id, data)

    def _make_reader(self, lane_id: int, data: bytes) -> ComparingReader | WalkingReader | None:
        reader = super()._make_reader(lane_id, data)
        if isinstance(reader, ComparingReader):
            reader = self._readers[lane_id] = TracedComparingReader(reader.place, self._tally, self, lane_id)
        return reader

    def _make_walking_reader(self) -> WalkingReader:
        reader = TracedWalkingReader(
            self.places, self._tally, self.dialect, self._first_answers, self.link.control.write
        )
        reader.subscriber, reader.lane_id = self, self._lane_id
        return reader


class TracedLoad(Load):
    """A load with stamps, whose subscribers record what they get."""

    subscriber_type = TracedSubscriber
    flow_type = StampedFlow

    def __init__(self, trace: BenchTrace, shape: Shape, dialect: Dialect) -> None:
        super().__init__(shape, StampedMMQP() if isinstance(dialect, MMQP) else dialect)
        self._trace = trace

    async def open(self, connect_publisher: Connect, connect_subscriber: Connect) -> None:
        """See `Load`."""
        await super().open(connect_publisher, connect_subscriber)
        name = "mmqp" if isinstance(self._dialect, MMQP) else "mqtt3"
        for number, subscriber in enumerate(self._subscribers):
            assert isinstance(subscriber, TracedSubscriber)
            subscriber.trace, subscriber.qos = self._trace, self.shape.qos
            subscriber.traced = self._trace.add_receiver(number, subscriber.link, name)

    def close(self) -> None:
        """See `Load`."""
        super().close()
        self._trace.forget_receivers()

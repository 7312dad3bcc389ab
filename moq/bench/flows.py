"""Flows of numbered messages, and the readers that check every byte of them at each subscriber.

    Flow    one topic of one publisher: blocks of frames, each sent in one write
    Block   kept until everybody has it: what arrives is compared with it

A reader compares what it gets with what was sent, block by block, which costs the speed of memory and not of Python.
That works as long as a lane carries one flow at QoS 0 and nothing is missing; otherwise, or from the first byte that
differs, it takes frames apart one by one and counts what is lost, repeated or out of order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from moq.bench.dialects import BODY

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.bench.dialects import Dialect, Frame
    from moq.bench.latencies import Latencies

LAST_PACKET_ID = 0xFFFF


class Block:
    """Frames sent in one write."""

    __slots__ = ("data", "end_seq", "first_seq", "interval_ns", "pending", "sent_ns")

    def __init__(self, data: bytes, first_seq: int, count: int, sent_ns: int, interval_ns: int, pending: int) -> None:
        self.data = data
        self.first_seq = first_seq
        self.end_seq = first_seq + count
        self.sent_ns = sent_ns
        self.interval_ns = interval_ns
        """Between the intended times of two frames; 0 if all are meant to leave at once."""
        self.pending = pending
        """Who has not got it yet: every subscriber, and above QoS 0 the publisher waits for the acknowledgements."""

    def due_ns(self, seq: int) -> int:
        """When this message was meant to leave."""
        return self.sent_ns + (seq - self.first_seq) * self.interval_ns


class Flow:
    """One topic of one publisher."""

    def __init__(self, index: int, frame: Frame, receivers: int, on_done: Callable[[Block], None]) -> None:
        self.index = index
        self.frame = frame
        self.next_seq = 0
        self._receivers = receivers
        self._on_done = on_done
        self._blocks: deque[Block] = deque()
        self._first_block = 0
        self._template = bytearray()

    def make_block(self, count: int, sent_ns: int, interval_ns: int, first_packet_id: int) -> Block:
        """The next `count` messages; they are expected from now on."""
        frame, size, seq = self.frame, len(self.frame.data), self.next_seq
        if len(self._template) != count * size:
            self._template = bytearray(frame.data * count)
        template, pack = self._template, BODY.pack_into
        for number in range(count):
            pack(template, number * size + frame.body_at, self.index, seq + number, sent_ns + number * interval_ns)
            if frame.packet_id_at is not None:
                packet_id = (first_packet_id + number - 1) % LAST_PACKET_ID + 1
                at = number * size + frame.packet_id_at
                template[at : at + 2] = packet_id.to_bytes(2, "big")
        block = Block(bytes(template), seq, count, sent_ns, interval_ns, self._receivers)
        self._blocks.append(block)
        self.next_seq += count
        return block

    def block(self, number: int) -> Block | None:
        """A block that somebody still waits for."""
        index = number - self._first_block
        return self._blocks[index] if 0 <= index < len(self._blocks) else None

    def passed(self, block: Block) -> None:
        """One more receiver has all of this block."""
        block.pending -= 1
        while self._blocks and self._blocks[0].pending <= 0:
            self._first_block += 1
            self._on_done(self._blocks.popleft())


class Tally:
    """What all subscribers together have seen."""

    def __init__(self, latencies: Latencies) -> None:
        self.latencies = latencies
        self.received = 0
        self.lost = 0
        self.repeated = 0
        self.disordered = 0


class Place:
    """How far one receiver is in one flow."""

    __slots__ = ("block_number", "flow", "missing", "seq")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.seq = 0
        self.block_number = 0
        self.missing: set[int] = set()

    def advance(self, seq: int) -> None:
        """Everything before `seq` has come, or never will."""
        self.seq = seq
        while (block := self.flow.block(self.block_number)) is not None and block.end_seq <= seq:
            self.block_number += 1
            self.flow.passed(block)


class ComparingReader:
    """Reads one flow by comparing it with what was sent."""

    def __init__(self, place: Place, tally: Tally) -> None:
        self.place = place
        self._tally = tally
        self._offset = 0

    def feed(self, data: bytes, now_ns: int) -> bytes | None:
        """Check what came; returns None if all is as sent, else what is not counted yet, from the start of a frame."""
        place, pos, end = self.place, 0, len(data)
        size = len(place.flow.frame.data)
        while pos < end:
            block = place.flow.block(place.block_number)
            if block is None:
                return data[pos:]
            offset = self._offset
            take = min(end - pos, len(block.data) - offset)
            if take == len(block.data):
                is_same = data.startswith(block.data, pos)
            else:
                is_same = data[pos : pos + take] == block.data[offset : offset + take]
            if not is_same:
                return block.data[offset - offset % size : offset] + data[pos:]
            self._count(block, offset // size, (offset + take) // size, now_ns)
            pos += take
            self._offset = 0 if offset + take == len(block.data) else offset + take
            place.advance(block.first_seq + (offset + take) // size)
        return None

    def _count(self, block: Block, first: int, end: int, now_ns: int) -> None:
        counts = self._tally.latencies.counts
        self._tally.received += end - first
        if block.interval_ns == 0:
            counts[(now_ns - block.sent_ns) // 1000] += end - first
            return
        for number in range(first, end):
            counts[(now_ns - block.sent_ns - number * block.interval_ns) // 1000] += 1


class WalkingReader:
    """Reads any mixture of flows, frame by frame, and acknowledges what asks for it."""

    def __init__(
        self,
        places: list[Place],
        tally: Tally,
        dialect: Dialect,
        answers: list[bytes],
        send: Callable[[bytes], None],
    ) -> None:
        self._places = places
        self._tally = tally
        self._dialect = dialect
        self._answers = answers
        self._send = send
        frame = places[0].flow.frame
        self._head, self._layout = frame.head, frame.layout
        self._tail = b""

    def feed(self, data: bytes, now_ns: int) -> None:
        """Check what came."""
        if self._tail:
            data = self._tail + data
        pos, size = 0, self._layout.size
        replies: list[bytes] = []
        while True:
            whole = (len(data) - pos) // size * size
            pos += self._walk(memoryview(data)[pos : pos + whole], now_ns, replies)
            # What is here is no message, or not whole.
            stop = self._dialect.packet_end(data, pos)
            if stop is None or stop > len(data) or data.startswith(self._head, pos):
                break
            packet = data[pos:stop]
            if (message := self._dialect.unnamed(packet)) is not None:
                self._walk(memoryview(message), now_ns, replies)
            elif (reply := self._dialect.next_answer(packet)) is not None:
                replies.append(reply)
            pos = stop
        self._tail = data[pos:]
        if replies:
            self._send(b"".join(replies))

    def _walk(self, data: memoryview, now_ns: int, replies: list[bytes]) -> int:
        """Take whole messages as long as there are any; the number of bytes taken."""
        places, head, answers = self._places, self._head, self._answers
        counts = self._tally.latencies.counts
        count = 0
        touched: dict[int, int] = {}
        for start, packet_id, index, seq, sent_ns in self._layout.iter_unpack(data):
            if start != head:
                break
            count += 1
            counts[(now_ns - sent_ns) // 1000] += 1
            if seq != touched.get(index, places[index].seq):
                seq = self._explain(places[index], touched.get(index, places[index].seq), seq)
            touched[index] = seq + 1
            if answers:
                replies.append(answers[packet_id])
        self._tally.received += count
        for index, seq in touched.items():
            places[index].advance(seq)
        return count * self._layout.size

    def _explain(self, place: Place, expected: int, seq: int) -> int:
        """A number that was not expected; returns the highest seen so far."""
        if seq > expected:
            place.missing.update(range(expected, seq))
            self._tally.lost += seq - expected
            return seq
        self._tally.received -= 1
        if seq in place.missing:
            place.missing.discard(seq)
            self._tally.received += 1
            self._tally.lost -= 1
            self._tally.disordered += 1
        else:
            self._tally.repeated += 1
        return expected - 1

"""Records of fixed size in preallocated buffers: what the event loop writes, and a background thread reads.

    record ──► pack_into the current buffer ── full, or a second old ──► the thread ──► free again
                        └── none is free: dropped, and counted

Names do not fit a fixed size. A record has the number of its topic and of its connection, and the buffer the table of
names the numbers mean; tables are replaced before they grow without end, because a client can invent topics.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE: Final = struct.Struct("<qqqqqqqqIIIfHBB")
MESSAGE_FIELDS: Final = (
    ("sent_at_ns", "<i8"),
    ("broker_in_ns", "<i8"),
    ("broker_out_ns", "<i8"),
    ("received_at_ns", "<i8"),
    ("sequence", "<i8"),
    ("stream_id", "<i8"),
    ("queue_bytes", "<i8"),
    ("queue_messages", "<i8"),
    ("connection", "<u4"),
    ("topic", "<u4"),
    ("payload_bytes", "<u4"),
    ("weight", "<f4"),
    ("alias", "<u2"),
    ("qos", "<u1"),
    ("flags", "<u1"),
)
"""The same, as NumPy reads it."""

STATE: Final = struct.Struct("<qqqqqqqqqI")
STATE_FIELDS: Final = (
    ("at_ns", "<i8"),
    ("round_trip_ns", "<i8"),
    ("congestion_window_bytes", "<i8"),
    ("bytes_in_flight", "<i8"),
    ("packets_sent", "<i8"),
    ("packets_received", "<i8"),
    ("losses", "<i8"),
    ("open_streams", "<i8"),
    ("unsent_bytes", "<i8"),
    ("connection", "<u4"),
)

NO_TIME: Final = 0
UNKNOWN: Final = -1
"""What stands for null: in times 0, in numbers and sizes -1, in aliases 0."""
MAX_NS: Final = (1 << 63) - 1
"""A larger stamp has no place in the schema: it counts as none."""

DUPLICATE: Final = 1
KIND_SHIFT: Final = 1
ROLE_SHIFT: Final = 3
TWO_BITS: Final = 3

MAX_NAMES: Final = 50_000
"""Topics, and connections, in one table of names: some MB."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a record says of its connection."""

    client_id: str
    transport: str
    dialect: str
    peer: str


class Names:
    """What numbers in the records of some buffers stand for."""

    __slots__ = ("connections", "numbers", "origins", "topics")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.topics: list[str] = []
        self.connections: dict[int, int] = {}
        self.origins: list[tuple[int, Origin]] = []
        """Connections by their place here, which is what records have: their number, and what is said of them."""

    @property
    def are_many(self) -> bool:
        """True if the next buffer shall have a new table."""
        return len(self.topics) >= MAX_NAMES or len(self.origins) >= MAX_NAMES

    def number(self, topic: str) -> int:
        """The number of a topic."""
        number = self.numbers.get(topic)
        if number is None:
            number = self.numbers[topic] = len(self.topics)
            self.topics.append(topic)
        return number

    def place(self, connection: int, origin: Origin) -> int:
        """The place of a connection."""
        place = self.connections.get(connection)
        if place is None:
            place = self.connections[connection] = len(self.origins)
            self.origins.append((connection, origin))
        return place


class Buffer:
    """Records of one table."""

    __slots__ = ("begun_ns", "data", "names", "size", "used")

    def __init__(self, size: int, capacity: int) -> None:
        self.size = size
        self.data = bytearray(size * capacity)
        self.used = 0
        """Bytes."""
        self.begun_ns = 0
        self.names = Names()

    @property
    def count(self) -> int:
        """Records in it."""
        return self.used // self.size


class Pool:
    """The buffers of one table."""

    def __init__(self, size: int, capacity: int, buffers: int, hand_over: Callable[[Buffer], None]) -> None:
        self._size = size
        self._end = size * capacity
        self._free = [Buffer(size, capacity) for _ in range(buffers)]
        self._hand_over = hand_over
        self._names = Names()
        self.current: Buffer | None = None
        self.recorded = 0
        self.dropped = 0
        """Records for which no buffer was free."""

    def place(self, now_ns: int) -> Buffer | None:
        """A buffer with room for one record more, at its `used`; None, and counted, if there is none."""
        buffer = self.current
        if buffer is not None:
            if buffer.used < self._end and not buffer.names.are_many:
                return buffer
            self.flush()
        try:
            buffer = self._free.pop()
        except IndexError:
            self.dropped += 1
            return None
        if self._names.are_many:
            self._names = Names()
        buffer.names = self._names
        buffer.begun_ns = now_ns
        self.current = buffer
        return buffer

    def flush(self, begun_before_ns: int | None = None) -> None:
        """Hand over what there is, if it is old enough."""
        buffer = self.current
        if buffer is not None and buffer.used and (begun_before_ns is None or buffer.begun_ns < begun_before_ns):
            self.current = None
            self.recorded += buffer.count
            self._hand_over(buffer)

    def give_back(self, buffer: Buffer) -> None:
        """A buffer has been written; called by the thread, for which appending to a list is safe."""
        buffer.used = 0
        self._free.append(buffer)

"""An ordered byte stream cut into packets; large payloads pass through in chunks.

    bytes fed ──► [kept tail + new bytes] ──► packets, in order
                                         └──► PayloadStarted, PayloadChunk ..., PayloadEnded

A reader belongs to one lane. It keeps only the incomplete packet at the end of what it was fed, and never more than
`chunk_bytes` and the largest fields of a packet, whatever a header announces: a message with a longer payload is
handed on as it arrives. `Frames` knows nothing of a dialect: its header is for the subclass's `_cut`, its packets are
type parameters.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from moq.errors import PacketTooLarge, ProtocolError, Truncated

CHUNK_BYTES = 256 * 1024

_EAGER_BYTES = 1024
"""Up to here every read is a look at whether the fields of a large message are complete, so that its payload starts at
once; past it each look waits for twice as much, lest a header that trickles in costs the square of its size."""


class Message(Protocol):
    """The packet of a dialect whose payload may be larger than memory."""

    payload: bytes


@dataclass(slots=True)
class PayloadChunk:
    """The next bytes of the payload under way."""

    data: bytes


@dataclass(slots=True)
class PayloadEnded:
    """The payload under way is complete."""


ItemT = TypeVar("ItemT")
MessageT = TypeVar("MessageT", bound=Message)


class Frames(Generic[ItemT, MessageT]):
    """What readers of every dialect share: the kept tail, the payload under way, the fault that ends it all."""

    def __init__(self, max_packet_bytes: int, chunk_bytes: int, max_fields_bytes: int) -> None:
        """Refuse packets above `max_packet_bytes`; hand on payloads above `chunk_bytes` as they arrive.

        `max_fields_bytes` bounds everything in a packet but its payload.
        """
        self._max_packet_bytes = max_packet_bytes
        self._chunk_bytes = chunk_bytes
        self._max_fields_bytes = max_fields_bytes
        self._tail = bytearray()
        self._wanted = 0  # bytes the tail must have before it is worth another look
        self._payload_left = 0
        self._fault: ProtocolError | None = None

    @property
    def mid_packet(self) -> bool:
        """True while a packet has begun that is not complete."""
        return bool(self._tail) or self._payload_left > 0

    @property
    def held(self) -> int:
        """Bytes kept until more arrive."""
        return len(self._tail)

    def feed(self, data: bytes) -> Iterable[ItemT | MessageT | PayloadChunk | PayloadEnded]:
        """Take bytes and give what they complete, in order.

        The packets are decoded when this returns, and a packet that breaks the protocol raises when the iteration
        reaches it: those before it are still given. Feeding on after that raises the same error.
        """
        if self._fault is not None:
            raise self._fault
        # A list costs what a generator does (scripts/bench_codec.py) and, being complete when this returns, leaves
        # the reader in a known state when its caller stops half-way.
        items: list[ItemT | MessageT | PayloadChunk | PayloadEnded] = []
        try:
            self._take(data, items)
        except ProtocolError as fault:
            self._fault = fault
            self._tail.clear()
            return _then_raise(items, fault)
        return items

    def _take(self, data: bytes, items: list[ItemT | MessageT | PayloadChunk | PayloadEnded]) -> None:
        pos = 0
        if self._payload_left:
            pos = self._pass_payload(data, 0, items)
        elif self._tail:
            self._tail += data
            if len(self._tail) < self._wanted:
                return
            data = bytes(self._tail)
            self._tail.clear()
        pos = self._cut(data, pos, items)
        if pos < len(data):
            self._tail += data[pos:] if pos else data

    def _cut(self, buf: bytes, pos: int, items: list[ItemT | MessageT | PayloadChunk | PayloadEnded]) -> int:
        """Decode every complete packet from `pos` on and return where the first incomplete one begins.

        Sets `_wanted` when that one is worth waiting for.
        """
        raise NotImplementedError

    def _decode_message(self, buf: bytes, pos: int, start: int, end: int) -> MessageT:
        """Decode the message at `pos` whose fields start at `start`, as if it ended at `end`."""
        raise NotImplementedError

    def _payload_started(self, message: MessageT, size: int) -> ItemT:
        """The item that announces a payload of so many bytes."""
        raise NotImplementedError

    def _stream(
        self, buf: bytes, pos: int, start: int, end: int, items: list[ItemT | MessageT | PayloadChunk | PayloadEnded]
    ) -> int | None:
        """Begin a message whose payload may be too large to hold; None while its fields are incomplete.

        The fields are decoded from what is there, as if the packet ended with it: the payload is what is left.
        """
        there = min(end, len(buf), start + self._max_fields_bytes)
        try:
            message = self._decode_message(buf, pos, start, there)
        except Truncated:
            if there == end:
                raise
            if there == start + self._max_fields_bytes:
                raise PacketTooLarge(
                    f"a packet of type {buf[pos] >> 4} has more than {self._max_fields_bytes} bytes "
                    "before its payload, which is the most allowed"
                ) from None
            have = there - pos
            self._wanted = 2 * have if have > _EAGER_BYTES else 0
            self._wanted = min(self._wanted, end - pos, start - pos + self._max_fields_bytes)
            return None
        payload = there - len(message.payload)
        if end - payload > self._chunk_bytes:
            message.payload = b""
            items.append(self._payload_started(message, end - payload))
            self._payload_left = end - payload
            return self._pass_payload(buf, payload, items)
        if end > len(buf):
            self._wanted = end - pos
            return None
        message.payload = buf[payload:end]
        items.append(message)
        return end

    def _pass_payload(self, buf: bytes, pos: int, items: list[ItemT | MessageT | PayloadChunk | PayloadEnded]) -> int:
        """Hand on what is there of the payload under way and return where it ends in `buf`."""
        chunk = buf[pos : pos + self._payload_left]
        if chunk:
            items.append(PayloadChunk(chunk))
            self._payload_left -= len(chunk)
            if not self._payload_left:
                items.append(PayloadEnded())
        return pos + len(chunk)


T = TypeVar("T")


def _then_raise(items: list[T], fault: ProtocolError) -> Iterator[T]:
    yield from items
    raise fault

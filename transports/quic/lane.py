"""An outgoing lane: an outbox in front of one QUIC stream."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transports.quic.link import QUICLink


class QUICLane:
    """One outgoing stream."""

    __slots__ = (
        "_link",
        "_offset",
        "_outbox",
        "_queued",
        "congested",
        "is_asleep",
        "is_closed",
        "is_finishing",
        "is_shared",
        "key",
        "stream_id",
        "written_at",
    )

    def __init__(self, link: QUICLink, stream_id: int, key: int, *, is_shared: bool) -> None:
        self.congested = False
        self.is_asleep = True
        """True if the link need not look at this lane: nothing is queued and the engine has sent all it got."""
        self.is_closed = False
        self.is_finishing = False
        self.is_shared = is_shared
        self.key = key
        self.stream_id = stream_id
        self.written_at = 0.0
        self._link = link
        self._outbox: deque[bytes] = deque()
        self._offset = 0
        self._queued = 0

    @property
    def queued(self) -> int:
        """Bytes in the outbox."""
        return self._queued

    @property
    def unsent(self) -> int:
        """Bytes that have not been in a packet yet."""
        return self._queued + self._link.engine_unsent(self.stream_id)

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        if self.is_closed or not data:
            return
        size = len(data)
        self._outbox.append(data)
        self._queued += size
        link = self._link
        link.queued += size
        if (self._queued > link.lane_mark or link.queued > link.link_mark) and not self.congested:
            link.congest(self)
        if self.is_asleep:
            link.wake(self)

    def finish(self) -> None:
        """End this lane after what was written."""
        if not (self.is_shared or self.is_closed):
            self.is_closed = self.is_finishing = True
            self._link.finish(self)

    def reset(self, reason: int) -> None:
        """End this lane now."""
        if not (self.is_shared or self.is_closed):
            self._link.reset(self, reason)

    def take(self, limit: int) -> bytes:
        """Remove up to `limit` bytes from the front of the outbox."""
        outbox = self._outbox
        if self._queued <= limit and not self._offset:
            data = outbox[0] if len(outbox) == 1 else b"".join(outbox)
            outbox.clear()
        else:
            data = self._take_part(limit)
        self._queued -= len(data)
        return data

    def _take_part(self, limit: int) -> bytes:
        parts: list[bytes | memoryview] = []
        outbox = self._outbox
        while outbox and limit:
            head = memoryview(outbox[0])[self._offset : self._offset + limit]
            parts.append(head)
            limit -= len(head)
            self._offset += len(head)
            if self._offset == len(outbox[0]):
                outbox.popleft()
                self._offset = 0
        return b"".join(parts)

    def discard(self) -> int:
        """Close and drop what is queued; returns how much that was."""
        dropped = self._queued
        self.is_closed = True
        self.congested = False
        self._outbox.clear()
        self._offset = self._queued = 0
        return dropped

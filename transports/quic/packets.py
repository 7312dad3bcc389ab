"""What can be read of a QUIC packet without keys, and the one packet that needs none: version negotiation.

RFC 8999 fixes these fields for every version of QUIC; nothing else about a packet is looked at here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

LONG_HEADER = 0x80
CID_BYTES = 8
"""Length of the connection ids we choose: a short header does not say how long its id is."""

MAX_CID_BYTES = 20
SMALLEST_INITIAL = 1200
"""RFC 9000 section 14.1: a first packet comes in a datagram of at least this size, so that we never amplify."""


@dataclass(slots=True)
class LongHeader:
    """The fields of a long header that every version shares."""

    version: int
    destination_cid: bytes
    source_cid: bytes

    @property
    def is_version_negotiation(self) -> bool:
        """True for an answer to somebody else's packet; answering it in turn could go on for ever."""
        return self.version == 0


def maybe_long_header(datagram: bytes) -> LongHeader | None:
    """The long header a datagram begins with, or None if it has none or is cut off."""
    if len(datagram) < 7 or not datagram[0] & LONG_HEADER:
        return None
    source_at = 6 + datagram[5]
    if source_at >= len(datagram):
        return None
    end = source_at + 1 + datagram[source_at]
    if end > len(datagram):
        return None
    version = int.from_bytes(datagram[1:5], "big")
    return LongHeader(version, datagram[6:source_at], datagram[source_at + 1 : end])


def encode_version_negotiation(header: LongHeader, versions: tuple[int, ...]) -> bytes:
    """Tell a client which versions we speak (RFC 8999 section 6)."""
    return b"".join(
        (
            bytes((os.urandom(1)[0] | LONG_HEADER,)),
            bytes(4),
            bytes((len(header.source_cid),)),
            header.source_cid,
            bytes((len(header.destination_cid),)),
            header.destination_cid,
            *(version.to_bytes(4, "big") for version in versions),
        )
    )

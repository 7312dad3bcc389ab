"""A connection refused before its handshake (RFC 9000 section 5.2.2): one packet, and nothing to remember.

Initial packets are encrypted with what everyone can read in the client's first one. So a refusal costs a server tenths
of a millisecond where a handshake costs several, and the client learns the reason at once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicErrorCode, QuicFrameType, QuicPacketType
from aioquic.quic.packet_builder import QuicPacketBuilder

from transports.quic.packets import CID_BYTES, SMALLEST_INITIAL

if TYPE_CHECKING:
    from transports.quic.packets import LongHeader

FRAME_OVERHEAD_BYTES = 8
"""Of CONNECTION_CLOSE before its words: error code, frame type, their length."""


def encode_refusal(header: LongHeader, reason: str) -> bytes:
    """Answer a client's first packet with CONNECTION_REFUSED, and why in words."""
    crypto = CryptoPair()
    crypto.setup_initial(cid=header.destination_cid, is_client=False, version=header.version)
    builder = QuicPacketBuilder(
        host_cid=os.urandom(CID_BYTES),
        peer_cid=header.source_cid,
        version=header.version,
        is_client=False,
        max_datagram_size=SMALLEST_INITIAL,
    )
    words = reason.encode()
    builder.start_packet(QuicPacketType.INITIAL, crypto)
    frame = builder.start_frame(QuicFrameType.TRANSPORT_CLOSE, capacity=FRAME_OVERHEAD_BYTES + len(words))
    frame.push_uint_var(QuicErrorCode.CONNECTION_REFUSED)
    frame.push_uint_var(QuicFrameType.PADDING)  # no frame of the client's is to blame
    frame.push_uint_var(len(words))
    frame.push_bytes(words)
    datagrams, _ = builder.flush()
    return datagrams[0]

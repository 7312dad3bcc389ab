"""Address validation before the handshake (RFC 9000 section 8.1): a client repeats a token we remember nothing of.

Any engine can be behind it: the token and the Retry packet are the same for all, and aioquic's helpers make them.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioquic._buffer import Buffer
from aioquic.quic.packet import QuicPacketType, encode_quic_retry, pull_quic_header
from aioquic.quic.retry import QuicRetryTokenHandler

from transports.quic.packets import CID_BYTES

if TYPE_CHECKING:
    from transports.quic.engine import Address
    from transports.quic.packets import LongHeader


@dataclass(slots=True)
class Validated:
    """The client has shown that it receives at its address."""

    original_cid: bytes
    """What its very first packet was addressed to; the handshake must name it."""


class Retry:
    """Makes and checks tokens."""

    def __init__(self) -> None:
        self._tokens = QuicRetryTokenHandler()

    def validate(self, datagram: bytes, header: LongHeader, address: Address) -> Validated | bytes:
        """Validated, or the answer to send: a Retry packet, or nothing for what deserves none."""
        try:
            initial = pull_quic_header(Buffer(data=datagram), host_cid_length=CID_BYTES)
        except ValueError:
            return b""
        if initial.packet_type != QuicPacketType.INITIAL:
            return b""
        now = time.monotonic()
        if not initial.token:
            return self._ask(header, address, now)
        try:
            original_cid = self._tokens.validate_token(
                address=address, destination_cid=header.destination_cid, token=initial.token, now=now
            )
        except ValueError:
            return b""
        return Validated(original_cid)

    def _ask(self, header: LongHeader, address: Address, now: float) -> bytes:
        source_cid = os.urandom(CID_BYTES)
        token = self._tokens.create_token(
            address=address,
            original_destination_connection_id=header.destination_cid,
            retry_source_connection_id=source_cid,
            now=now,
        )
        return encode_quic_retry(
            version=header.version,
            source_cid=source_cid,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )

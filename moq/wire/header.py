"""The fixed header of MMQP: type (4 bits), RLF (2), flags (2), then a big-endian length of 1 to 4 bytes.

RLF is the number of length bytes minus one; the length counts what follows it and takes the fewest bytes it fits.
"""

from moq.errors import LocalProtocolError, NotShortest, RemoteProtocolError, Truncated
from moq.reasons import Reason
from moq.wire.mmqp import ConReq

RLF = 0b0000_1100
"""The bits of the control byte that say how many bytes the length has."""

RLF_TWO_BYTES = 0b0000_0100

MAX_REMAINING = 0xFFFF_FFFF

MAX_HEADER_BYTES = 5

MAX_FIELDS_BYTES = 128 * 1024
"""Everything in a packet but the payload of PUBREQ. The layout alone would allow a header of 16 MiB in user
properties, all of which a reader must hold; this leaves room for 255 subscriber ids of full length."""


def fixed_header(control: int, fields_bytes: int, payload_bytes: int = 0) -> bytes:
    """The bytes before a packet's fields; `control` has its type and flags."""
    if fields_bytes > MAX_FIELDS_BYTES:
        raise LocalProtocolError(
            f"a packet of type {control >> 4} has {fields_bytes} bytes of fields; at most {MAX_FIELDS_BYTES} may be"
        )
    remaining = fields_bytes + payload_bytes
    if remaining <= 0xFF:
        return bytes((control, remaining))
    if remaining > MAX_REMAINING:
        raise LocalProtocolError(f"a packet has a remaining length of {remaining}; at most {MAX_REMAINING} is allowed")
    size = (remaining.bit_length() + 7) // 8
    return bytes((control | (size - 1) << 2,)) + remaining.to_bytes(size, "big")


def read_header(buf: bytes, pos: int) -> tuple[int, int] | None:
    """Where the fields of the packet at `pos` start and end, or None while its length is incomplete."""
    if buf[pos] & RLF == RLF_TWO_BYTES and pos + 2 < len(buf) and buf[pos + 1]:
        # The commonest length that is not one byte, in about half the time of what follows.
        start = pos + 3
        return start, start + (buf[pos + 1] << 8 | buf[pos + 2])
    size = (buf[pos] >> 2 & 3) + 1
    start = pos + 1 + size
    if start > len(buf):
        return None
    remaining = int.from_bytes(buf[pos + 1 : start], "big")
    if size > 1 and remaining < 1 << 8 * (size - 1):
        raise NotShortest(f"a remaining length of {remaining} takes {size} bytes; the fewest it fits are expected")
    return start, start + remaining


_PREAMBLE = ConReq.PREAMBLE


def take_preamble(buf: bytes, pos: int, end: int) -> int:
    """Pass over the protocol name that opens CONREQ; whoever speaks another protocol learns it from the reason."""
    stop = pos + len(_PREAMBLE)
    found = buf[pos : min(stop, end)]
    if found == _PREAMBLE:
        return stop
    if _PREAMBLE.startswith(found):
        raise Truncated(f"the protocol name takes {len(_PREAMBLE)} bytes; the packet ends after {len(found)} of them")
    raise RemoteProtocolError(
        f"the protocol name is {found!r}; expected {_PREAMBLE!r}", Reason.UNSUPPORTED_PROTOCOL_VERSION
    )

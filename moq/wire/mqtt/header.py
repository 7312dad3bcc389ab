"""The fixed header of MQTT: type (4 bits), flags (4), then a variable byte integer; and how a connection begins.

A variable byte integer has seven bits per byte, the lowest first, and goes on while bit 7 is set, for at most four
bytes. MQTT 5 wants it in the fewest bytes it fits [MQTT-1.5.5-1]; 3.1.1 does not say so, and devices pad it there.
"""

from typing import Final

from moq.errors import LocalProtocolError, MalformedPacket, NotShortest, RemoteProtocolError, Truncated
from moq.reasons import Reason

VERSION_3_1_1: Final = 4
VERSION_5: Final = 5

PREAMBLE: Final = b"\x00\x04MQTT"
LEGACY_PREAMBLE: Final = b"\x00\x06MQIsdp"
"""How MQTT 3.1 begins, which nobody should speak any more."""

MAX_REMAINING: Final = 268_435_455

MAX_HEADER_BYTES: Final = 5

MAX_FIELDS_BYTES: Final = 512 * 1024
"""Everything in a packet but the payload of PUBLISH, all of which a reader must hold. It leaves room for the five
fields of CONNECT that may have 65,535 bytes each, and for as much again in properties."""

CONNECT: Final = 0x10


def put_variable(value: int, name: str) -> bytes:
    """A variable byte integer."""
    if 0 <= value < 0x80:
        return value.to_bytes(1, "big")
    if not 0 <= value <= MAX_REMAINING:
        raise LocalProtocolError(f"{name} is {value}; expected 0 to {MAX_REMAINING}")
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def take_variable(buf: bytes, pos: int, end: int, name: str) -> tuple[int, int]:
    """Read a variable byte integer of MQTT 5, which takes the fewest bytes."""
    found = _variable(buf, pos, end, name)
    if found is None:
        raise Truncated(f"{name} takes {end - pos + 1} bytes; the packet ends after {end - pos} of them")
    value, stop = found
    refuse_padding(buf, pos, stop, name)
    return value, stop


def refuse_padding(buf: bytes, pos: int, stop: int, name: str) -> None:
    """Refuse a variable byte integer whose last byte adds nothing."""
    if stop > pos + 1 and not buf[stop - 1]:
        raise NotShortest(f"{name} takes {stop - pos} bytes; the fewest it fits are expected [MQTT-1.5.5-1]")


def _variable(buf: bytes, pos: int, end: int, name: str) -> tuple[int, int] | None:
    value = 0
    for shift in (0, 7, 14, 21):
        if pos >= end:
            return None
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise MalformedPacket(f"{name} goes on after four bytes; a variable byte integer has at most four")


def fixed_header(control: int, fields_bytes: int, payload_bytes: int = 0) -> bytes:
    """The bytes before a packet's fields; `control` has its type and flags."""
    if fields_bytes > MAX_FIELDS_BYTES:
        raise LocalProtocolError(
            f"a packet of type {control >> 4} has {fields_bytes} bytes of fields; at most {MAX_FIELDS_BYTES} may be"
        )
    remaining = fields_bytes + payload_bytes
    if remaining < 0x80:
        return bytes((control, remaining))
    return control.to_bytes(1, "big") + put_variable(remaining, "the remaining length")


def read_header(buf: bytes, pos: int) -> tuple[int, int] | None:
    """Where the fields of the packet at `pos` start and end, or None while its length is incomplete."""
    if pos + 2 < len(buf) and buf[pos + 1] > 0x7F and buf[pos + 2] < 0x80:
        # The commonest length that is not one byte, in about two thirds of the time of what follows.
        start = pos + 3
        return start, start + (buf[pos + 2] << 7 | buf[pos + 1] & 0x7F)
    found = _variable(buf, pos + 1, len(buf), "a remaining length")
    if found is None:
        return None
    remaining, start = found
    return start, start + remaining


def take_preamble(buf: bytes, pos: int, end: int) -> int:
    """Pass over the protocol name that opens CONNECT."""
    stop = pos + len(PREAMBLE)
    found = buf[pos : min(stop, end)]
    if found == PREAMBLE:
        return stop
    if PREAMBLE.startswith(found):
        raise Truncated(f"the protocol name takes {len(PREAMBLE)} bytes; the packet ends after {len(found)} of them")
    legacy = buf[pos : min(pos + len(LEGACY_PREAMBLE), end)]
    said = "MQIsdp: MQTT 3.1" if legacy == LEGACY_PREAMBLE else repr(found)
    raise RemoteProtocolError(
        f"the protocol name is {said}; MQTT 3.1.1 and 5 are spoken, which say {PREAMBLE!r}",
        Reason.UNSUPPORTED_PROTOCOL_VERSION,
    )


def protocol_version(buf: bytes, pos: int, end: int) -> int:
    """The version a CONNECT asks for, whose fields start at `pos`: 4 is MQTT 3.1.1, 5 is MQTT 5."""
    pos = take_preamble(buf, pos, end)
    if pos >= end:
        raise Truncated("Connect.version takes 1 bytes; the packet ends after 0 of them")
    if buf[pos] not in (VERSION_3_1_1, VERSION_5):
        raise RemoteProtocolError(
            f"Connect.version is {buf[pos]}; expected 4 (MQTT 3.1.1) or 5", Reason.UNSUPPORTED_PROTOCOL_VERSION
        )
    return buf[pos]


def starts_like_mqtt(data: bytes) -> bool | None:
    """Say whether a connection that begins with these bytes speaks MQTT; None: more are needed.

    MQTT's CONNECT is 0x10, a variable byte integer and the protocol name with a two-byte length, whose first byte is
    zero. MMQP's CONREQ has RLF and RES in the low bits of the first byte, and a one-byte length before its name, which
    is never zero.
    """
    if not data:
        return None
    if data[0] != CONNECT:
        return False
    try:
        header = read_header(data, 0)
    except MalformedPacket:
        return False
    if header is None:
        return None
    start, end = header
    if start == end:
        return False
    return data[start] == 0 if start < len(data) else None

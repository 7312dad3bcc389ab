"""What the generated encoders and decoders share: strings, counts and the errors they raise.

`take_*` read a field at `pos` and say where it ends; `put_*` give a field's bytes. Decoding raises
`RemoteProtocolError` and its kinds, encoding `LocalProtocolError`; each message names the field, the value, the rule.
"""

import dataclasses
from collections.abc import Sized

from moq.errors import LocalProtocolError, MalformedPacket, ReservedBits, TrailingBytes, Truncated
from moq.wire.fields import Number, PropertyList, layout

MAX_SHORT = 0xFF
MAX_LONG = 0xFFFF


# --- decoding -----------------------------------------------------------------------------------------


def take_string(buf: bytes, pos: int, end: int, name: str) -> tuple[str, int]:
    """Read a string with a one-byte length."""
    start = pos + 1
    if start > end:
        raise truncated(((name, 1),), end - pos)
    stop = start + buf[pos]
    if stop > end:
        raise truncated(((name, stop - pos),), end - pos)
    return decode_text(buf[start:stop], name), stop


def take_long_string(buf: bytes, pos: int, end: int, name: str) -> tuple[str, int]:
    """Read a string with a two-byte length."""
    start = pos + 2
    if start > end:
        raise truncated(((name, 2),), end - pos)
    stop = start + (buf[pos] << 8 | buf[pos + 1])
    if stop > end:
        raise truncated(((name, stop - pos),), end - pos)
    return decode_text(buf[start:stop], name), stop


def take_binary(buf: bytes, pos: int, end: int, name: str) -> tuple[bytes, int]:
    """Read bytes with a one-byte length."""
    start = pos + 1
    if start > end:
        raise truncated(((name, 1),), end - pos)
    stop = start + buf[pos]
    if stop > end:
        raise truncated(((name, stop - pos),), end - pos)
    return buf[start:stop], stop


def take_long_binary(buf: bytes, pos: int, end: int, name: str) -> tuple[bytes, int]:
    """Read bytes with a two-byte length."""
    start = pos + 2
    if start > end:
        raise truncated(((name, 2),), end - pos)
    stop = start + (buf[pos] << 8 | buf[pos + 1])
    if stop > end:
        raise truncated(((name, stop - pos),), end - pos)
    return buf[start:stop], stop


def decode_text(data: bytes, name: str) -> str:
    """The text of a string: well-formed UTF-8, which has no surrogates, without U+0000."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"{name} is {data!r}; a string is UTF-8 ({error.reason})") from None
    if "\0" in text:
        raise MalformedPacket(f"{name} is {text!r}; a string has no U+0000")
    return text


def truncated(fields: tuple[tuple[str, int], ...], left: int) -> Truncated:
    """The packet ends inside the first of these neighbouring fields that does not fit into what is left."""
    (name, size), *after = fields
    while size <= left:
        left -= size
        (name, size), *after = after
    return Truncated(f"{name} takes {size} bytes; the packet ends after {left} of them")


def trailing(name: str, left: int) -> TrailingBytes:
    """The packet goes on after its last field."""
    return TrailingBytes(f"{name} is followed by {left} bytes; the packet must end with its last field")


def reserved(name: str, flags: int, mask: int) -> ReservedBits:
    """A bit that must be zero is set."""
    return ReservedBits(f"{name} is 0x{flags:02x}; bits 0x{mask:02x} are reserved and must be zero")


def above(name: str, value: int, maximum: int) -> MalformedPacket:
    """Bits hold a value nobody has given a meaning."""
    return MalformedPacket(f"{name} is {value}; expected 0 to {maximum}")


# --- encoding -----------------------------------------------------------------------------------------


def put_string(text: str, name: str) -> bytes:
    """A string with a one-byte length."""
    data = _utf8(text, name)
    return short_length(data, name) + data


def put_long_string(text: str, name: str) -> bytes:
    """A string with a two-byte length."""
    return put_long_binary(_utf8(text, name), name)


def put_binary(data: bytes, name: str) -> bytes:
    """Bytes with a one-byte length."""
    return short_length(data, name) + data


def put_long_binary(data: bytes, name: str) -> bytes:
    """Bytes with a two-byte length."""
    if len(data) > MAX_LONG:
        raise LocalProtocolError(f"{name} has {len(data)} bytes; at most {MAX_LONG} fit its length")
    return len(data).to_bytes(2, "big") + data


def short_length(items: Sized, name: str) -> bytes:
    """The one-byte length or count of what follows."""
    if len(items) > MAX_SHORT:
        raise LocalProtocolError(f"{name} has a length of {len(items)}; at most {MAX_SHORT} fits its length byte")
    return len(items).to_bytes(1, "big")


def _utf8(text: str, name: str) -> bytes:
    if "\0" in text:
        raise LocalProtocolError(f"{name} is {text!r}; a string has no U+0000")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{name} is {text!r}; a string is UTF-8 ({error.reason})") from None


def unfit(name: str, value: int, maximum: int) -> LocalProtocolError:
    """A value does not fit its bits."""
    return LocalProtocolError(f"{name} is {value}; expected 0 to {maximum}")


def too_young(name: str, value: object, version: int) -> LocalProtocolError:
    """A field is set that came with a later version than the one spoken."""
    return LocalProtocolError(f"{name} is {value!r}; there is no such field before version {version}")


def out_of_range(struct: object) -> LocalProtocolError | None:
    """Find the number that does not fit its field: called only once `struct.pack` has refused."""
    for field in layout(type(struct)):
        if isinstance(field.kind, PropertyList):
            continue  # each of its values was checked as it was put
        value = getattr(struct, field.name)
        if isinstance(field.kind, Number) and value is not None and not 0 <= value < 1 << 8 * field.kind.size:
            maximum = (1 << 8 * field.kind.size) - 1
            return unfit(f"{type(struct).__name__}.{field.name}", value, maximum)
        for part in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(part) and (error := out_of_range(part)):
                return error
    return None

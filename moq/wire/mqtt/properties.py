"""The properties of MQTT 5: each declared once with its identifier, form, range and the packets that may carry it.

    property length (variable byte integer) │ identifier │ value │ identifier │ value │ ...

They come in any order; what is absent is None, and a list without any property is None itself. A property that is not
allowed in its packet is malformed (2.2.2.2), one that is repeated or out of range a protocol error, unless the
standard has a code of its own for it.
"""

import dataclasses
import operator
import struct
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from moq.errors import LocalProtocolError, MalformedPacket, RemoteProtocolError, Truncated
from moq.reasons import Reason
from moq.wire.codec import (
    put_long_binary,
    put_long_string,
    take_long_binary,
    take_long_string,
    truncated,
    unfit,
)
from moq.wire.fields import U8, U16, U32, LongBinary, LongString, Number, Sized
from moq.wire.mqtt.header import MAX_REMAINING, put_variable, take_variable

EVERYWHERE: Final = (
    "CONNECT CONNACK PUBLISH WILL PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK DISCONNECT AUTH"
)
"""Whatever has properties: packets, and the will inside CONNECT."""

ANSWERS: Final = "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH"


@dataclass(frozen=True, slots=True)
class Property:
    """What the standard says of one property."""

    identifier: int
    scopes: str
    """The packets that may have it, as in table 2-4."""
    least: int = 0
    most: int | None = None
    repeats_in: str = ""
    """The packets that may have it more than once."""
    refusal: Reason = Reason.PROTOCOL_ERROR
    """What a value out of range is answered with."""


Flag = Annotated[bool, Number("flag", "B", 1)]
Variable = Annotated[int, Number("variable byte integer", "", 0)]
Pair = Annotated[tuple[str, str], Sized("string pair", Number("u16", "H", 2), is_text=True)]


@dataclass(slots=True)
class Properties:
    """The properties of a packet, or of a will."""

    payload_format_indicator: Annotated[U8 | None, Property(0x01, "PUBLISH WILL", most=1)] = None
    message_expiry_interval: Annotated[U32 | None, Property(0x02, "PUBLISH WILL")] = None
    content_type: Annotated[LongString | None, Property(0x03, "PUBLISH WILL")] = None
    response_topic: Annotated[LongString | None, Property(0x08, "PUBLISH WILL")] = None
    correlation_data: Annotated[LongBinary | None, Property(0x09, "PUBLISH WILL")] = None
    subscription_identifiers: Annotated[
        list[Variable] | None, Property(0x0B, "PUBLISH SUBSCRIBE", least=1, most=MAX_REMAINING, repeats_in="PUBLISH")
    ] = None
    session_expiry_interval: Annotated[U32 | None, Property(0x11, "CONNECT CONNACK DISCONNECT")] = None
    assigned_client_identifier: Annotated[LongString | None, Property(0x12, "CONNACK")] = None
    server_keep_alive: Annotated[U16 | None, Property(0x13, "CONNACK")] = None
    authentication_method: Annotated[LongString | None, Property(0x15, "CONNECT CONNACK AUTH")] = None
    authentication_data: Annotated[LongBinary | None, Property(0x16, "CONNECT CONNACK AUTH")] = None
    request_problem_information: Annotated[Flag | None, Property(0x17, "CONNECT", most=1)] = None
    will_delay_interval: Annotated[U32 | None, Property(0x18, "WILL")] = None
    request_response_information: Annotated[Flag | None, Property(0x19, "CONNECT", most=1)] = None
    response_information: Annotated[LongString | None, Property(0x1A, "CONNACK")] = None
    server_reference: Annotated[LongString | None, Property(0x1C, "CONNACK DISCONNECT")] = None
    reason_string: Annotated[LongString | None, Property(0x1F, ANSWERS)] = None
    receive_maximum: Annotated[U16 | None, Property(0x21, "CONNECT CONNACK", least=1)] = None
    topic_alias_maximum: Annotated[U16 | None, Property(0x22, "CONNECT CONNACK")] = None
    topic_alias: Annotated[U16 | None, Property(0x23, "PUBLISH", least=1, refusal=Reason.TOPIC_ALIAS_INVALID)] = None
    maximum_qos: Annotated[U8 | None, Property(0x24, "CONNACK", most=1)] = None
    retain_available: Annotated[Flag | None, Property(0x25, "CONNACK", most=1)] = None
    user_properties: Annotated[list[Pair] | None, Property(0x26, EVERYWHERE, repeats_in=EVERYWHERE)] = None
    maximum_packet_size: Annotated[U32 | None, Property(0x27, "CONNECT CONNACK", least=1)] = None
    wildcard_subscription_available: Annotated[Flag | None, Property(0x28, "CONNACK", most=1)] = None
    subscription_identifiers_available: Annotated[Flag | None, Property(0x29, "CONNACK", most=1)] = None
    shared_subscription_available: Annotated[Flag | None, Property(0x2A, "CONNACK", most=1)] = None

    def broken_rule(self) -> str | None:
        """Say which rule across properties is broken, or None."""
        if self.authentication_data is not None and self.authentication_method is None:
            return "authentication_data is given without authentication_method (3.1.2.11.10)"
        return None


# --- values of each form ------------------------------------------------------------------------------

Value: TypeAlias = int | str | bytes | tuple[str, str]
Take: TypeAlias = Callable[[bytes, int, int, str], tuple[Value, int]]
Put: TypeAlias = Callable[..., bytes]


def _take_number(code: str) -> Take:
    form = struct.Struct(f">{code}")

    def take(buf: bytes, pos: int, end: int, name: str) -> tuple[int, int]:
        if pos + form.size > end:
            raise truncated(((name, form.size),), end - pos)
        value: int = form.unpack_from(buf, pos)[0]
        return value, pos + form.size

    return take


def _put_number(size: int) -> Put:
    maximum = (1 << 8 * size) - 1

    def put(value: int, name: str) -> bytes:
        if not 0 <= value <= maximum:
            raise unfit(name, value, maximum)
        return value.to_bytes(size, "big")

    return put


def _take_pair(buf: bytes, pos: int, end: int, name: str) -> tuple[tuple[str, str], int]:
    first, pos = take_long_string(buf, pos, end, name)
    second, pos = take_long_string(buf, pos, end, name)
    return (first, second), pos


def _put_pair(pair: tuple[str, str], name: str) -> bytes:
    return put_long_string(pair[0], name) + put_long_string(pair[1], name)


_TAKE: Final[dict[str, Take]] = {
    "flag": _take_number("B"),
    "u8": _take_number("B"),
    "u16": _take_number("H"),
    "u32": _take_number("I"),
    "variable byte integer": take_variable,
    "long string": take_long_string,
    "long binary": take_long_binary,
    "string pair": _take_pair,
}

_PUT: Final[dict[str, Put]] = {
    "flag": _put_number(1),
    "u8": _put_number(1),
    "u16": _put_number(2),
    "u32": _put_number(4),
    "variable byte integer": put_variable,
    "long string": put_long_string,
    "long binary": put_long_binary,
    "string pair": _put_pair,
}


# --- the declarations, read ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Declared:
    """One property as declared: its name, its form, what the standard says."""

    name: str
    form: str
    is_list: bool
    property: Property

    def taker(self) -> Take:
        """How its value is read and judged."""
        take, name, property_ = _TAKE[self.form], self.name, self.property
        least, most, is_flag = property_.least, property_.most, self.form == "flag"
        if not least and most is None:
            return take

        def take_bounded(buf: bytes, pos: int, end: int, where: str) -> tuple[Value, int]:
            value, pos = take(buf, pos, end, where)
            assert isinstance(value, int)
            if value < least or (most is not None and value > most):
                raise RemoteProtocolError(f"{name} is {value}; {_range(property_)}", property_.refusal)
            return (value != 0 if is_flag else value), pos

        return take_bounded

    def putter(self) -> Callable[[Value], bytes]:
        """How its identifier and value are written."""
        put, name, property_ = _PUT[self.form], self.name, self.property
        least, most, identifier = property_.least, property_.most, bytes((property_.identifier,))

        def put_bounded(value: Value) -> bytes:
            if isinstance(value, int) and (value < least or (most is not None and value > most)):
                raise LocalProtocolError(f"{name} is {value}; {_range(property_)}")
            return identifier + put(value, name)

        return put_bounded


def _range(property_: Property) -> str:
    if property_.most is None:
        return f"expected at least {property_.least}"
    return f"expected {property_.least} to {property_.most}"


def _declared() -> tuple[Declared, ...]:
    hints = typing.get_type_hints(Properties, include_extras=True)
    found = []
    for field in dataclasses.fields(Properties):
        optional, property_ = typing.get_args(hints[field.name])
        hint = typing.get_args(optional)[0]
        is_list = typing.get_origin(hint) is list
        kind = typing.get_args(typing.get_args(hint)[0] if is_list else hint)[1]
        found.append(Declared(field.name, kind.label, is_list, property_))
    return tuple(found)


DECLARED: Final = _declared()

_Reader: TypeAlias = tuple[str, Take, bool, bool]
"""Name, how to read a value, whether it is a list, whether it may be repeated."""

_READERS: Final[dict[str, dict[int, _Reader]]] = {
    scope: {
        d.property.identifier: (d.name, d.taker(), d.is_list, scope in d.property.repeats_in.split())
        for d in DECLARED
        if scope in d.property.scopes.split()
    }
    for scope in EVERYWHERE.split()
}


class _Writer:
    """What a packet may have and what it may not, each fetched in one call."""

    def __init__(self, scope: str) -> None:
        allowed = [d for d in DECLARED if scope in d.property.scopes.split()]
        forbidden = [d.name for d in DECLARED if d not in allowed]
        self.putters = [(d.name, d.putter(), scope in d.property.repeats_in.split()) for d in allowed]
        self.values = _fetch([d.name for d in allowed])
        self.forbidden = _fetch(forbidden)
        self.absent = (None,) * len(forbidden)


def _fetch(names: list[str]) -> Callable[[Properties], tuple[Value | list[Value] | None, ...]]:
    get = operator.attrgetter(*names)
    # Of a single name it gives the value itself.
    return get if len(names) > 1 else lambda properties: (get(properties),)


_WRITERS: Final = {scope: _Writer(scope) for scope in EVERYWHERE.split()}


# --- lists of properties ------------------------------------------------------------------------------


def take_properties(buf: bytes, pos: int, end: int, scope: str) -> tuple[Properties | None, int]:
    """Read the properties of a packet; None if there are none."""
    if pos < end and not buf[pos]:
        return None, pos + 1
    size, pos = take_variable(buf, pos, end, "the property length")
    stop = pos + size
    if stop > end:
        raise truncated((("properties", size),), end - pos)
    properties = Properties()
    readers = _READERS[scope]
    while pos < stop:
        reader = readers.get(buf[pos])
        if reader is None:
            raise MalformedPacket(f"{scope} has a property 0x{buf[pos]:02x}; it may not have such a one")
        name, take, is_list, repeats = reader
        before = getattr(properties, name)
        if before is not None and not repeats:
            raise RemoteProtocolError(f"{scope} has {name} more than once; once is allowed")
        try:
            value, pos = take(buf, pos + 1, stop, name)
        except Truncated as error:
            # Not the packet is too short, of which more may come, but the property length.
            raise MalformedPacket(f"the property length of {scope} is {size}; {error}") from None
        if not is_list:
            setattr(properties, name, value)
        elif before is None:
            setattr(properties, name, [value])
        else:
            before.append(value)
    if rule := properties.broken_rule():
        raise RemoteProtocolError(rule)
    return properties, stop


def put_properties(properties: Properties | None, scope: str) -> bytes:
    """The properties of a packet with their length."""
    if properties is None:
        return b"\0"
    if rule := properties.broken_rule():
        raise LocalProtocolError(rule)
    writer = _WRITERS[scope]
    if writer.forbidden(properties) != writer.absent:
        raise _not_allowed(properties, scope)
    data = b""
    for (name, put, repeats), value in zip(writer.putters, writer.values(properties), strict=True):
        if value is None:
            continue
        if not isinstance(value, list):
            data += put(value)
            continue
        if len(value) > 1 and not repeats:
            raise LocalProtocolError(f"{scope} has {name} more than once; once is allowed")
        data += b"".join([put(item) for item in value])
    return put_variable(len(data), "the property length") + data


def _not_allowed(properties: Properties, scope: str) -> LocalProtocolError:
    names = [
        d.name for d in DECLARED if getattr(properties, d.name) is not None and scope not in d.property.scopes.split()
    ]
    return LocalProtocolError(f"{scope} has {', '.join(names)}; it may not have such properties")

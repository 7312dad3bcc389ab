"""The kinds of field a packet is made of, and how a declaration is read.

A packet is a slotted dataclass whose annotations are its layout: attribute order is wire order, and each attribute
says what it is with one of the kinds below. Nothing here encodes or decodes: `scripts/generate.py` turns layouts
into straight-line code, tables and tests, for every dialect alike.

    flag byte     stands where its first bit is declared (a member of a union begins with it: bits 7-6 are its TAG)
    control byte  the first byte of the fixed header; its low bits belong to the packet: two in MMQP, four in MQTT

A bit nobody declared is reserved: it is sent as zero and refused otherwise. A field may be younger than the protocol
(`Since`): the layout of an older version goes without it.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, TypeAlias, TypeVar


@dataclass(frozen=True, slots=True)
class Number:
    """An unsigned big-endian number of a fixed size."""

    label: str
    code: str
    """Its character in a `struct` format."""
    size: int


@dataclass(frozen=True, slots=True)
class Sized:
    """A length, then that many bytes; text is UTF-8 without U+0000."""

    label: str
    length: Number
    is_text: bool


@dataclass(frozen=True, slots=True)
class Rest:
    """Whatever is left of the packet; always its last field."""


@dataclass(frozen=True, slots=True)
class Bits:
    """A value in the flag byte, from bit `high` down to bit `low`, at most `maximum`."""

    high: int
    low: int
    name: str
    maximum: int

    @property
    def mask(self) -> int:
        """The bits it takes, in place."""
        return (2 << self.high) - (1 << self.low)


@dataclass(frozen=True, slots=True)
class ControlBits(Bits):
    """The same in the low bits of the control byte."""


@dataclass(frozen=True, slots=True)
class Present:
    """The field is there exactly when this bit of the flag byte is set."""

    bit: int
    name: str

    @property
    def mask(self) -> int:
        """The bit, in place."""
        return 1 << self.bit


@dataclass(frozen=True, slots=True)
class When:
    """The field is there exactly when an earlier field has this value."""

    field: str
    value: int


@dataclass(frozen=True, slots=True)
class Unless:
    """The field is there unless an earlier field has this value; then it is `absent`."""

    field: str
    value: int
    absent: int


@dataclass(frozen=True, slots=True)
class IfMore:
    """The packet may end before this field, which then is `absent`; so may every field after it."""

    absent: int | None


Presence: TypeAlias = Present | When | Unless | IfMore


@dataclass(frozen=True, slots=True)
class Since:
    """The field came with this version of the protocol; before it, it is `absent`."""

    version: int
    absent: int | bytes | None


@dataclass(frozen=True, slots=True)
class PropertyList:
    """The properties of MQTT 5, those allowed in `scope`: a packet, or the will."""

    scope: str


@dataclass(frozen=True, slots=True)
class Nested:
    """A structure inside the packet."""

    struct: type


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several structures, told apart by bits 7-6 of their flag byte."""

    structs: tuple[type, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """Marks a list: a count byte, then the elements."""


@dataclass(frozen=True, slots=True)
class UpToEnd:
    """Marks a list: elements up to the end of the packet."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A list of one kind of element."""

    element: "Sized | Nested | OneOf"
    is_counted: bool


Kind: TypeAlias = Number | Sized | Rest | Bits | ControlBits | PropertyList | Nested | OneOf | Repeated

_U8 = Number("u8", "B", 1)
_U16 = Number("u16", "H", 2)

U8 = Annotated[int, _U8]
U16 = Annotated[int, _U16]
U32 = Annotated[int, Number("u32", "I", 4)]
U64 = Annotated[int, Number("u64", "Q", 8)]
ShortString = Annotated[str, Sized("short string", _U8, is_text=True)]
ShortBinary = Annotated[bytes, Sized("short binary", _U8, is_text=False)]
LongString = Annotated[str, Sized("long string", _U16, is_text=True)]
LongBinary = Annotated[bytes, Sized("long binary", _U16, is_text=False)]
RestOfPacket = Annotated[bytes, Rest()]

T = TypeVar("T")
Counted = Annotated[list[T], Count()]
ToEnd = Annotated[list[T], UpToEnd()]

TAG = Bits(7, 6, "TYPE", 3)
"""Where the members of a union say which one they are."""


@dataclass(frozen=True, slots=True)
class Field:
    """One attribute of a packet, as declared."""

    name: str
    kind: Kind
    presence: Presence | None
    since: Since | None = None


def layout(struct: type, version: int | None = None) -> tuple[Field, ...]:
    """The fields of a packet or structure, in wire order; those of one version if the protocol has several."""
    hints = typing.get_type_hints(struct, include_extras=True)
    declared = (_field(field.name, hints[field.name]) for field in dataclasses.fields(struct))
    return tuple(
        field for field in declared if version is None or field.since is None or field.since.version <= version
    )


def has_flag_byte(struct: type, version: int | None = None) -> bool:
    """True if the structure has a byte of flags."""
    return hasattr(struct, "TAG") or any(flag_bits(field) is not None for field in layout(struct, version))


def flag_bits(field: Field) -> Bits | Present | None:
    """The bits this field takes in the flag byte, if any."""
    if isinstance(field.presence, Present):
        return field.presence
    if isinstance(field.kind, Bits) and not isinstance(field.kind, ControlBits):
        return field.kind
    return None


def reserved_mask(struct: type, version: int | None = None) -> int:
    """The bits of the flag byte that must be zero."""
    used = TAG.mask if hasattr(struct, "TAG") else 0
    for field in layout(struct, version):
        bits = flag_bits(field)
        used |= bits.mask if bits is not None else 0
    return 0xFF & ~used


def control_flags(packet: type) -> Iterator[int]:
    """Every value the low bits of this packet's control byte may take."""
    fields = [field.kind for field in layout(packet) if isinstance(field.kind, ControlBits)]
    mask = sum(bits.mask for bits in fields)
    for flags in range(mask + 1):
        if flags & ~mask == 0 and all((flags & bits.mask) >> bits.low <= bits.maximum for bits in fields):
            yield flags | getattr(packet, "CONTROL", 0)


def _field(name: str, hint: object) -> Field:
    """Read one annotation: `Annotated[U16 | None, Present(6, "KPAL")]`."""
    presence = since = None
    if typing.get_origin(hint) is Annotated:
        value, *marks = typing.get_args(hint)
        presence = next((mark for mark in marks if isinstance(mark, Presence)), None)
        since = next((mark for mark in marks if isinstance(mark, Since)), None)
        kinds = [mark for mark in marks if mark is not presence and mark is not since]
        if kinds:
            return Field(name, _kind(value, kinds[0]), presence, since)
        hint = next(option for option in typing.get_args(value) if option is not type(None))
    if typing.get_origin(hint) is Annotated:
        return Field(name, _kind(*typing.get_args(hint)), presence, since)
    return Field(name, _element(hint), presence, since)


def _kind(value: object, mark: object) -> Kind:
    if isinstance(mark, Count | UpToEnd):
        (element,) = typing.get_args(value)
        return Repeated(_element(element), isinstance(mark, Count))
    assert isinstance(mark, Number | Sized | Rest | Bits | PropertyList), mark
    return mark


def _element(hint: object) -> Sized | Nested | OneOf:
    if typing.get_origin(hint) is types.UnionType:
        return OneOf(typing.get_args(hint))
    if typing.get_origin(hint) is Annotated:
        mark = typing.get_args(hint)[1]
        assert isinstance(mark, Sized), mark
        return mark
    assert isinstance(hint, type), hint
    return Nested(hint)

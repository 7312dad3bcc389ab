"""Reads a dialect's declarations for those who write its codec and its tables: runs of fields, steps, names."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

from moq.wire import fields
from moq.wire.fields import Bits, Field, Nested, Number, OneOf, Repeated

FLAGS = Field("flags", Number("u8", "B", 1), None)


@dataclass(frozen=True)
class Run:
    """Neighbouring fixed-size fields that are always there: one `struct`, one bound."""

    fields: tuple[Field, ...]

    @property
    def code(self) -> str:
        """The format of its `struct`."""
        return "".join(number(field).code for field in self.fields)

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(number(field).size for field in self.fields)


Step = Run | Field


def number(field: Field) -> Number:
    """The kind of a field known to be a number."""
    assert isinstance(field.kind, Number)
    return field.kind


def is_bits(field: Field) -> bool:
    """True if the field is part of the flag or control byte and has no bytes of its own."""
    return isinstance(field.kind, Bits)


def structures(packets: Iterable[type]) -> list[type]:
    """The structures nested in these packets, inner ones first."""
    found: list[type] = []
    for packet in packets:
        for field in fields.layout(packet):
            kind = field.kind.element if isinstance(field.kind, Repeated) else field.kind
            inner = kind.structs if isinstance(kind, OneOf) else (kind.struct,) if isinstance(kind, Nested) else ()
            found += [struct for struct in (*structures(inner), *inner) if struct not in found]
    return found


def unions(packets: Iterable[type]) -> list[OneOf]:
    """The unions these packets contain."""
    found: list[OneOf] = []
    for packet in packets:
        for field in fields.layout(packet):
            kind = field.kind.element if isinstance(field.kind, Repeated) else field.kind
            if isinstance(kind, OneOf) and kind not in found:
                found.append(kind)
    return found


def control_byte(packet: type) -> int:
    """The type of a packet, in its four high bits in every dialect, and its constant flags."""
    type_: int = packet.TYPE  # type: ignore[attr-defined]
    constant: int = getattr(packet, "CONTROL", 0)
    return type_ << 4 | constant


def snake(name: str) -> str:
    """`SubscribeExtension` as `subscribe_extension`; packet names are one word in the specification."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def function(verb: str, struct: type) -> str:
    """The name of a structure's or packet's codec function."""
    if hasattr(struct, "TYPE"):
        return f"{verb}_{struct.__name__.lower()}"
    return f"_{verb}_{snake(struct.__name__)}"


def struct_name(code: str) -> str:
    """The name of the shared `struct.Struct` of a format."""
    return f"_{code}"


class Dialect:
    """One version of a dialect's declarations: what its codec module is made from."""

    def __init__(
        self, module: ModuleType, packets: tuple[type, ...], header: ModuleType, version: int | None = None
    ) -> None:
        self.module = module
        self.packets = tuple(packet for packet in packets if version is None or getattr(packet, "SINCE", 0) <= version)
        self.header = header
        self.version = version
        self.structures = structures(self.packets)
        self.unions = unions(self.packets)

    def layout(self, struct: type) -> tuple[Field, ...]:
        """The fields of this version."""
        return fields.layout(struct, self.version)

    def missing(self, struct: type) -> list[Field]:
        """The fields this version does not have yet."""
        there = self.layout(struct)
        return [field for field in fields.layout(struct) if field not in there]

    def wire_order(self, struct: type) -> Iterator[Field]:
        """The fields that have bytes, the flag byte where its first bit is declared."""
        flags_due = fields.has_flag_byte(struct, self.version)
        if hasattr(struct, "TAG"):
            yield FLAGS
            flags_due = False
        for field in self.layout(struct):
            if flags_due and fields.flag_bits(field) is not None:
                yield FLAGS
                flags_due = False
            if not is_bits(field):
                yield field

    def steps(self, struct: type) -> list[Step]:
        """What a codec does one after the other."""
        found: list[Step] = []
        for field in self.wire_order(struct):
            if not isinstance(field.kind, Number) or field.presence is not None:
                found.append(field)
            elif found and isinstance(found[-1], Run):
                found[-1] = Run((*found[-1].fields, field))
            else:
                found.append(Run((field,)))
        return found

    def union_name(self, union: OneOf) -> str:
        """The name the module gives a union."""
        return next(
            name for name, value in vars(self.module).items() if getattr(value, "__args__", None) == union.structs
        )

    def dispatch_name(self, union: OneOf, what: str) -> str:
        """The name of a union's table of decoders or encoders."""
        return f"_{snake(self.union_name(union)).upper()}_{what}"

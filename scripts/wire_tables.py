"""Writes the tables of the documents on the wire: between `<!-- generated: NAME -->` and `<!-- end -->`.

In `docs/protocol.md`, `NAME` is a packet or structure of MMQP, `packet types` or `reason codes`; the words beside a
field are the comment beside its declaration. In `docs/reference/mqtt-wire.md` it is `properties`.
"""

import inspect
import re
from collections.abc import Iterator

from moq import reasons
from moq.wire import fields
from moq.wire.fields import (
    TAG,
    Bits,
    ControlBits,
    Field,
    Kind,
    Nested,
    Number,
    OneOf,
    Present,
    Repeated,
    Rest,
    Sized,
    When,
    layout,
)
from moq.wire.mqtt.properties import DECLARED, EVERYWHERE
from scripts.wire_layout import FLAGS, Dialect, control_byte

BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
BITS = range(7, -1, -1)


def with_tables(document: str, dialect: Dialect) -> str:
    """The document with every table as the declarations have it."""
    structs = {struct.__name__: struct for struct in (*dialect.structures, *dialect.packets)}
    missing = structs.keys() - {match[2] for match in BLOCK.finditer(document)}
    if missing:
        raise SystemExit(f"docs/protocol.md has no table for {', '.join(sorted(missing))}")

    def table(match: re.Match[str]) -> str:
        if match[2] == "reason codes":
            lines = list(reason_table())
        elif match[2] == "packet types":
            lines = list(type_table(dialect))
        else:
            lines = list(struct_tables(dialect, structs[match[2]]))
        return match[1] + "\n" + "\n".join(lines) + "\n\n" + match[3]

    return BLOCK.sub(table, document)


def type_table(dialect: Dialect) -> Iterator[str]:
    """Every packet with its type."""
    yield "| type | packet | control flags | purpose |"
    yield "|---|---|---|---|"
    for packet in dialect.packets:
        name, purpose = described(packet)
        yield f"| {control_byte(packet) >> 4} | {name} | {' '.join(control_bits(packet))} | {purpose} |"


def struct_tables(dialect: Dialect, struct: type) -> Iterator[str]:
    """One packet or structure: its purpose, its bits, its fields."""
    yield (inspect.getdoc(struct) or "").replace("\n", " ")
    yield ""
    if hasattr(struct, "TYPE"):
        type_bits = list(f"{control_byte(struct) >> 4:04b}")
        yield from bit_table("control byte", [*type_bits, "RLF", "RLF", *control_bits(struct)])
    if fields.has_flag_byte(struct):
        yield from bit_table("flags", flag_cells(struct))
    rows = list(field_rows(dialect, struct))
    if rows:
        yield "| field | form | there when | meaning |"
        yield "|---|---|---|---|"
        yield from rows
    else:
        yield "It has no fields: its remaining length is 0."


def bit_table(name: str, cells: list[str]) -> Iterator[str]:
    """The eight bits of the control byte or the flag byte."""
    yield f"| {name} | {' | '.join(f'{bit}' for bit in BITS)} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    yield f"| | {' | '.join(cells)} |"
    yield ""


def flag_cells(struct: type) -> list[str]:
    """What each bit of the flag byte is, from bit 7 down."""
    cells = ["0"] * 8
    if hasattr(struct, "TAG"):
        cells[:2] = list(f"{struct.TAG:02b}")
    for field in layout(struct):
        bits = fields.flag_bits(field)
        for bit in BITS:
            if bits is not None and bits.mask & 1 << bit:
                cells[7 - bit] = bits.name
    return cells


def control_bits(packet: type) -> list[str]:
    """The two low bits of the control byte."""
    cells = list(f"{control_byte(packet) & 3:02b}")
    for field in layout(packet):
        if isinstance(field.kind, ControlBits):
            for bit in (1, 0):
                if field.kind.mask & 1 << bit:
                    cells[1 - bit] = field.kind.name
    return cells


def field_rows(dialect: Dialect, struct: type) -> Iterator[str]:
    """The fields in wire order; those in bits follow the byte they are in."""
    comments = field_comments(struct)
    for field in layout(struct):
        if isinstance(field.kind, ControlBits):
            yield row(field.name, f"{field.kind.name} in the control byte", "always", comments[field.name])
    if preamble := getattr(struct, "PREAMBLE", b""):
        yield row("protocol name", "short string", "always", f"`{preamble[1:].decode()}`")
    for field in dialect.wire_order(struct):
        if field is not FLAGS:
            yield row(field.name, form(dialect, field.kind), presence(field), comments[field.name])
            continue
        yield row("flags", "u8", "always", "")
        if hasattr(struct, "TAG"):
            yield row("type", f"bits {TAG.high}-{TAG.low} of flags", "always", f"{struct.TAG}")
        for bits in layout(struct):
            if isinstance(bits.kind, Bits) and not isinstance(bits.kind, ControlBits):
                yield row(bits.name, f"{bits.kind.name} in flags", "always", comments[bits.name])


def row(name: str, form_: str, when: str, meaning: str) -> str:
    """One line of a field table."""
    shown = name if " " in name else f"`{name}`"
    return f"| {shown} | {form_} | {when} | {meaning} |"


def form(dialect: Dialect, kind: Kind) -> str:
    """A kind of field in words."""
    match kind:
        case Number(label) | Sized(label):
            return label
        case Rest():
            return "the rest"
        case Nested(struct):
            return f"[{struct.__name__}](#{struct.__name__.lower()})"
        case OneOf():
            return f"[{dialect.union_name(kind)}](#topic-requests)"
        case Repeated(element, is_counted):
            each = form(dialect, element)
            return f"count byte, then {each} each" if is_counted else f"{each}, up to the end"
    raise AssertionError(kind)


def presence(field: Field) -> str:
    """When a field is there, in words."""
    match field.presence:
        case Present(_, name):
            return name
        case When(other, value):
            return f"`{other}` is {value}"
    return "always"


def field_comments(struct: type) -> dict[str, str]:
    """The comment beside each field's declaration."""
    comments = {field.name: "" for field in layout(struct)}
    for line in inspect.getsource(struct).splitlines():
        if found := re.match(r"    (\w+): .*?  # (.+)$", line):
            comments[found[1]] = found[2]
    return comments


def described(packet: type) -> tuple[str, str]:
    """A packet's name in the specification and what it does: its docstring is `NAME does so: who sends it`."""
    name, purpose = (inspect.getdoc(packet) or "").split(" ", 1)
    return name, purpose.replace("\n", " ").rstrip(".")


def reason_table() -> Iterator[str]:
    """Every reason code."""
    comments = dict(re.findall(r"    (\w+) = 0x\w+  # (.+)", inspect.getsource(reasons.Reason)))
    yield "| code | name | note |"
    yield "|---|---|---|"
    for reason in reasons.Reason:
        yield f"| `0x{reason.value:02X}` | {reason.name} | {comments.get(reason.name, '')} |"


def with_property_table(document: str) -> str:
    """The document with the table of MQTT's properties as they are declared."""
    table = "\n".join(property_table())
    return BLOCK.sub(lambda match: f"{match[1]}\n{table}\n\n{match[3]}", document)


def property_table() -> Iterator[str]:
    """Every property of MQTT 5."""
    yield "| identifier | attribute of `Properties` | form | values | packets |"
    yield "|---|---|---|---|---|"
    for declared in DECLARED:
        property_ = declared.property
        form_ = f"list of {declared.form}" if declared.is_list else declared.form
        values = "" if not property_.least and property_.most is None else f"{property_.least} to {property_.most}"
        values = values.replace(" to None", " and above")
        scopes = "all" if property_.scopes == EVERYWHERE else property_.scopes
        repeated = f"; repeated in {property_.repeats_in}" if property_.repeats_in else ""
        repeated = "; may be repeated" if property_.repeats_in == property_.scopes else repeated
        yield f"| `0x{property_.identifier:02X}` | `{declared.name}` | {form_} | {values} | {scopes}{repeated} |"

"""Writes a dialect's codec: the text of `moq/wire/_mmqp.py`, from the declarations of `moq/wire/mmqp.py`.

The code is what a careful person would write by hand: neighbouring fixed-size fields share one `struct`, each bound
is checked once, and what is absent costs no more than a look.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

from moq.wire import fields
from moq.wire.fields import (
    TAG,
    Bits,
    ControlBits,
    Field,
    Nested,
    Number,
    OneOf,
    Present,
    Repeated,
    Rest,
    Sized,
    layout,
)

FLAGS = Field("flags", Number("u8", "B", 1), None)


# --- reading the declarations -------------------------------------------------------------------------


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


def wire_order(struct: type) -> Iterator[Field]:
    """The fields that have bytes, the flag byte where its first bit is declared."""
    flags_due = fields.has_flag_byte(struct)
    if hasattr(struct, "TAG"):
        yield FLAGS
        flags_due = False
    for field in layout(struct):
        if flags_due and fields.flag_bits(field) is not None:
            yield FLAGS
            flags_due = False
        if not is_bits(field):
            yield field


def steps(struct: type) -> list[Step]:
    """What a codec does one after the other."""
    found: list[Step] = []
    for field in wire_order(struct):
        if not isinstance(field.kind, Number) or field.presence is not None:
            found.append(field)
        elif found and isinstance(found[-1], Run):
            found[-1] = Run((*found[-1].fields, field))
        else:
            found.append(Run((field,)))
    return found


def structures(packets: Iterable[type]) -> list[type]:
    """The structures nested in these packets, inner ones first."""
    found: list[type] = []
    for packet in packets:
        for field in layout(packet):
            kind = field.kind.element if isinstance(field.kind, Repeated) else field.kind
            inner = kind.structs if isinstance(kind, OneOf) else (kind.struct,) if isinstance(kind, Nested) else ()
            found += [struct for struct in (*structures(inner), *inner) if struct not in found]
    return found


def unions(packets: Iterable[type]) -> list[OneOf]:
    """The unions these packets contain."""
    found: list[OneOf] = []
    for packet in packets:
        for field in layout(packet):
            kind = field.kind.element if isinstance(field.kind, Repeated) else field.kind
            if isinstance(kind, OneOf) and kind not in found:
                found.append(kind)
    return found


def control_byte(packet: type) -> int:
    """The type of a packet and its constant flags, in place."""
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
    """One dialect's declarations: what its codec module is made from."""

    def __init__(self, module: ModuleType, packets: tuple[type, ...]) -> None:
        self.module = module
        self.packets = packets
        self.structures = structures(packets)
        self.unions = unions(packets)

    def union_name(self, union: OneOf) -> str:
        """The name the module gives a union."""
        return next(
            name for name, value in vars(self.module).items() if getattr(value, "__args__", None) == union.structs
        )

    def shortest_control(self) -> int:
        """The control byte of the packet that has a shortest form."""
        return next(control_byte(packet) for packet in self.packets if hasattr(packet, "SHORTEST"))

    def dispatch_name(self, union: OneOf, what: str) -> str:
        """The name of a union's table of decoders or encoders."""
        return f"_{snake(self.union_name(union)).upper()}_{what}"


# --- decoders -----------------------------------------------------------------------------------------

TAKE = {"short string": "take_string", "short binary": "take_binary", "long string": "take_long_string"}
PUT = {"short string": "put_string", "short binary": "put_binary", "long string": "put_long_string"}
TYPES = {True: "str", False: "bytes"}


class Decoder:
    """Writes the decode function of one packet or structure."""

    def __init__(self, dialect: Dialect, struct: type) -> None:
        self.dialect = dialect
        self.struct = struct
        self.name = struct.__name__
        self.is_packet = hasattr(struct, "TYPE")

    def lines(self) -> Iterator[str]:
        """The whole function."""
        result = self.name if self.is_packet else f"tuple[{self.name}, int]"
        control = ", control: int" if self.is_packet else ""
        yield f"def {function('decode', self.struct)}(buf: bytes, pos: int, end: int{control}) -> {result}:"
        yield f'    """Read {self.name}."""'
        if hasattr(self.struct, "PREAMBLE"):
            yield "    pos = take_preamble(buf, pos, end)"
        for step in steps(self.struct):
            for line in self.run(step) if isinstance(step, Run) else self.field(step):
                yield f"    {line}"
        for line in self.finish():
            yield f"    {line}"

    def run(self, run: Run) -> Iterator[str]:
        """Read neighbouring fixed-size fields."""
        yield from self.bound(run.fields, run.size)
        names = ", ".join(field.name for field in run.fields)
        if run.code == "B":
            yield f"{names} = buf[pos]"
        else:
            yield f"{names}{',' if len(run.fields) == 1 else ''} = {struct_name(run.code)}.unpack_from(buf, pos)"
        yield from self.shortest(run)
        if FLAGS in run.fields:
            yield from self.flags()
        yield f"pos += {run.size}"

    def bound(self, run: tuple[Field, ...], size: int) -> Iterator[str]:
        """Refuse a packet that ends before these fields do."""
        named = ", ".join(f'("{self.name}.{field.name}", {number(field).size})' for field in run)
        comma = "," if len(run) == 1 else ""
        yield f"if pos + {size} > end:"
        yield f"    raise truncated(({named}{comma}), end - pos)"

    def shortest(self, run: Run) -> Iterator[str]:
        """Return at once when the flag byte is zero and so are the fields that rules are about."""
        if not hasattr(self.struct, "SHORTEST"):
            return
        control = [field for field in layout(self.struct) if isinstance(field.kind, ControlBits)]
        tests = [f"control & {field.kind.mask}" for field in control if isinstance(field.kind, Bits)]
        tests += [name for name in self.struct.SHORTEST if name not in [field.name for field in control]]
        yield f"if not (flags or {' or '.join(tests)}):"
        yield f"    return {self.shortest_packet(run.size)}"

    def shortest_packet(self, payload_at: int) -> str:
        """The constructor's call for a packet of the shortest form, its payload so many bytes after `pos`."""
        assert hasattr(self.struct, "SHORTEST")
        values = []
        for field in layout(self.struct):
            if isinstance(field.kind, Rest):
                values.append(f"buf[pos + {payload_at} : end]")
            elif field.presence is not None:
                values.append("None")
            elif is_bits(field):
                values.append("False" if self.is_bool(field) else "0")
            else:
                values.append("0" if field.name in self.struct.SHORTEST else field.name)
        return f"{self.name}({', '.join(values)})"

    def cut_shortest(self) -> Iterator[str]:
        """A function that reads a run of packets of the shortest form, fixed headers included."""
        assert hasattr(self.struct, "TYPE")
        assert hasattr(self.struct, "SHORTEST")
        run = steps(self.struct)[0]
        assert isinstance(run, Run)
        size = run.size + 2
        zero = ["flags", *(field.name for field in run.fields if field.name in self.struct.SHORTEST)]
        stop = f"control != SHORTEST or {' or '.join(zero)} or remaining < {run.size} or end > size"
        yield "def cut_shortest(buf: bytes, pos: int, append: Callable[[Packet], None]) -> int:"
        yield f'    """Read {self.name} packets of the shortest form as long as there are; return where they end."""'
        yield "    size = len(buf)"
        yield f"    last = size - {size}"
        yield "    while pos <= last:"
        names = ", ".join(field.name for field in run.fields)
        yield f"        control, remaining, {names} = {struct_name('BB' + run.code)}.unpack_from(buf, pos)"
        yield "        end = pos + 2 + remaining"
        yield f"        if {stop}:"
        yield "            break"
        yield f"        append({self.shortest_packet(size)})"
        yield "        pos = end"
        yield "    return pos"

    def flags(self) -> Iterator[str]:
        """Refuse reserved bits and values without a meaning."""
        if mask := fields.reserved_mask(self.struct):
            yield f"if flags & 0x{mask:02x}:"
            yield f'    raise reserved("{self.name}.flags", flags, 0x{mask:02x})'
        for field in layout(self.struct):
            if not isinstance(field.kind, Bits) or isinstance(field.kind, ControlBits) or self.is_bool(field):
                continue
            width = field.kind.high - field.kind.low + 1
            yield f"{field.name} = flags >> {field.kind.low} & {(1 << width) - 1}"
            if field.kind.maximum < (1 << width) - 1:
                yield f"if {field.name} > {field.kind.maximum}:"
                yield f'    raise above("{self.name}.{field.name}", {field.name}, {field.kind.maximum})'

    def field(self, field: Field) -> Iterator[str]:
        """Read one field that is not part of a run."""
        if isinstance(field.kind, Rest):
            return
        if field.presence is None:
            yield from self.value(field)
            return
        yield f"{field.name}: {self.type_of(field)} | None = None"
        if isinstance(field.presence, Present):
            yield f"if flags & 0x{field.presence.mask:02x}:"
        else:
            yield f"if {field.presence.field} == {field.presence.value}:"
        for line in self.value(field):
            yield f"    {line}"

    def value(self, field: Field) -> Iterator[str]:
        """Read one field that is there."""
        name = f'"{self.name}.{field.name}"'
        match field.kind:
            case Number(_, code, size):
                yield from self.bound((field,), size)
                yield f"{field.name} = {'buf[pos]' if size == 1 else f'{struct_name(code)}.unpack_from(buf, pos)[0]'}"
                yield f"pos += {size}"
            case Sized(label):
                yield f"{field.name}, pos = {TAKE[label]}(buf, pos, end, {name})"
            case Nested(struct):
                yield f"{field.name}, pos = {function('decode', struct)}(buf, pos, end)"
            case Repeated(element, is_counted):
                yield from self.repeated(field, element, is_counted)

    def repeated(self, field: Field, element: Sized | Nested | OneOf, is_counted: bool) -> Iterator[str]:
        """Read a list."""
        name = f'"{self.name}.{field.name}"'
        item = f"{field.name}_item"
        if is_counted:
            yield from self.bound((Field(field.name, Number("u8", "B", 1), None),), 1)
            yield "count = buf[pos]"
            yield "pos += 1"
        annotation = "" if field.presence is not None else f": {self.type_of(field)}"
        yield f"{field.name}{annotation} = []"
        yield "for _ in range(count):" if is_counted else "while pos < end:"
        match element:
            case Sized(label):
                yield f"    {item}, pos = {TAKE[label]}(buf, pos, end, {name})"
            case Nested(struct):
                yield f"    {item}, pos = {function('decode', struct)}(buf, pos, end)"
            case OneOf():
                if is_counted:
                    yield "    if pos >= end:"
                    yield f"        raise truncated((({name}, 1),), 0)"
                table = self.dialect.dispatch_name(element, "DECODERS")
                yield f"    {item}, pos = {table}[buf[pos] >> {TAG.low}](buf, pos, end)"
        yield f"    {field.name}.append({item})"

    def finish(self) -> Iterator[str]:
        """Refuse what follows the last field, build the object, ask for its rules."""
        declared = layout(self.struct)
        last = declared[-1].kind if declared else None
        ends_open = isinstance(last, Rest) or (isinstance(last, Repeated) and not last.is_counted)
        if self.is_packet and not ends_open:
            yield "if pos != end:"
            yield f'    raise trailing("{self.name}", end - pos)'
        built = f"{self.name}({', '.join(self.argument(field) for field in declared)})"
        suffix = "" if self.is_packet else ", pos"
        if not hasattr(self.struct, "broken_rule"):
            yield f"return {built}{suffix}"
            return
        yield f"{'packet' if self.is_packet else 'part'} = {built}"
        yield f"if rule := {'packet' if self.is_packet else 'part'}.broken_rule():"
        yield "    raise RemoteProtocolError(rule)"
        yield f"return {'packet' if self.is_packet else 'part'}{suffix}"

    def argument(self, field: Field) -> str:
        """What the constructor is given for a field."""
        if isinstance(field.kind, Rest):
            return "buf[pos:end]"
        if isinstance(field.kind, ControlBits):
            return f"control & 0x{field.kind.mask:02x} != 0" if self.is_bool(field) else self.control_value(field.kind)
        if isinstance(field.kind, Bits) and self.is_bool(field):
            return f"flags & 0x{field.kind.mask:02x} != 0"
        return field.name

    def control_value(self, kind: ControlBits) -> str:
        """Bits of the control byte as a number."""
        return f"control & {kind.mask}" if kind.low == 0 else f"(control & {kind.mask}) >> {kind.low}"

    def is_bool(self, field: Field) -> bool:
        """True if a field in bits is a single one."""
        return isinstance(field.kind, Bits) and field.kind.high == field.kind.low

    def type_of(self, field: Field) -> str:
        """A field's type in Python."""
        match field.kind:
            case Sized(is_text=is_text):
                return TYPES[is_text]
            case Nested(struct):
                return struct.__name__
            case Repeated(Sized(is_text=is_text)):
                return f"list[{TYPES[is_text]}]"
            case Repeated(Nested(struct)):
                return f"list[{struct.__name__}]"
            case Repeated(OneOf() as union):
                return f"list[{self.dialect.union_name(union)}]"
        return "int"


# --- encoders -----------------------------------------------------------------------------------------


class Encoder:
    """Writes the encode function of one packet or structure."""

    def __init__(self, dialect: Dialect, struct: type) -> None:
        self.dialect = dialect
        self.struct = struct
        self.name = struct.__name__
        self.is_packet = hasattr(struct, "TYPE")
        self.it = "packet" if self.is_packet else "part"

    def lines(self) -> Iterator[str]:
        """The whole function."""
        yield f"def {function('encode', self.struct)}({self.it}: {self.name}) -> bytes:"
        yield f'    """Write {self.name}."""'
        for line in self.body():
            yield f"    {line}"

    def body(self) -> Iterator[str]:
        """Check, then the fields in wire order."""
        yield from self.shortest()
        yield from self.checks()
        if fields.has_flag_byte(self.struct):
            yield f"flags = {self.flag_byte()}"
        yield from self.plain()
        later = steps(self.struct)
        head = later.pop(0) if later and isinstance(later[0], Run) else None
        rest = [step for step in later if isinstance(step, Field) and isinstance(step.kind, Rest)]
        tail = [step for step in later if step not in rest]
        yield from self.tail(tail)
        preamble: str = getattr(self.struct, "PREAMBLE", "")
        pieces = [repr(bytes([len(preamble)]) + preamble.encode())] if preamble else []
        pieces += [self.pack(head)] if isinstance(head, Run) else []
        pieces += ["tail"] if tail else []
        yield from self.result(" + ".join(pieces), f"{self.it}.{rest[0].name}" if rest else "")

    def pack(self, run: Run) -> str:
        """Neighbouring fixed-size fields as an expression."""
        values = ", ".join("flags" if field is FLAGS else f"{self.it}.{field.name}" for field in run.fields)
        return f"{struct_name(run.code)}.pack({values})"

    def tail(self, steps_: list[Run | Field]) -> Iterator[str]:
        """What follows the first run, field by field; those that are absent cost a look."""
        assign = "tail ="
        for step in steps_:
            value = self.pack(step) if isinstance(step, Run) else self.value(step, f"{self.it}.{step.name}")
            if isinstance(step, Run) or step.presence is None:
                yield f"{assign} {value}"
                assign = "tail +="
                continue
            if assign == "tail =":
                yield 'tail = b""'
                assign = "tail +="
            yield f"if {self.it}.{step.name} is not None:"
            if isinstance(step.presence, Present):
                yield f"    flags |= 0x{step.presence.mask:02x}"
            yield f"    tail += {value}"

    def result(self, joined: str, rest: str) -> Iterator[str]:
        """Put the pieces together; the payload is copied once."""
        if not self.is_packet:
            yield f"return {joined}"
        elif not joined:
            yield f"return fixed_header({self.control()}, 0)"
        elif not rest:
            yield f"fields = {joined}"
            yield f"return fixed_header({self.control()}, len(fields)) + fields"
        else:
            comma = ", " if getattr(self.struct, "STREAMED", False) else " + "
            yield f"fields = {joined}"
            header = f"fixed_header({self.control()}, len(fields){comma}len({rest}))"
            yield f'return b"".join(({header}, fields, {rest}))'

    def shortest(self) -> Iterator[str]:
        """Return at once when no option is set and nothing needs a check."""
        if not hasattr(self.struct, "SHORTEST"):
            return
        run, rest = steps(self.struct)[0], layout(self.struct)[-1]
        assert isinstance(run, Run)
        absent = [f"{self.it}.{f.name} is None" for f in layout(self.struct) if f.presence is not None]
        zero = [f"{self.it}.{f.name}" for f in layout(self.struct) if is_bits(f) or f.name in self.struct.SHORTEST]
        values = ["0" if f is FLAGS or f.name in self.struct.SHORTEST else f"{self.it}.{f.name}" for f in run.fields]
        yield f"payload = {self.it}.{rest.name}"
        yield f"size = len(payload) + {run.size}"
        yield f"if size <= 0xFF and {' and '.join(absent)} and not ({' or '.join(zero)}):"
        yield f"    return {struct_name('BB' + run.code)}.pack(SHORTEST, size, {', '.join(values)}) + payload"

    def plain(self) -> Iterator[str]:
        """Return with one `struct` for header and fields when none of the optional ones is there."""
        if not hasattr(self.struct, "SHORTEST"):
            return
        run = steps(self.struct)[0]
        assert isinstance(run, Run)
        absent = [f"{self.it}.{f.name} is None" for f in layout(self.struct) if f.presence is not None]
        values = ", ".join("flags" if f is FLAGS else f"{self.it}.{f.name}" for f in run.fields)
        yield f"if {' and '.join(absent)}:"
        yield "    if size <= 0xFF:"
        yield f"        return {struct_name('BB' + run.code)}.pack({self.control()}, size, {values}) + payload"
        yield "    if size <= 0xFFFF:"
        yield f"        return {struct_name('BH' + run.code)}.pack(0x04 | {self.control()}, size, {values}) + payload"

    def checks(self) -> Iterator[str]:
        """Refuse values that do not fit their bits, and broken rules."""
        for field in layout(self.struct):
            if isinstance(field.kind, Bits) and field.kind.high != field.kind.low:
                yield f"if not 0 <= {self.it}.{field.name} <= {field.kind.maximum}:"
                yield f'    raise unfit("{self.name}.{field.name}", {self.it}.{field.name}, {field.kind.maximum})'
        if hasattr(self.struct, "broken_rule"):
            yield f"if rule := {self.it}.broken_rule():"
            yield "    raise LocalProtocolError(rule)"

    def flag_byte(self) -> str:
        """The flag byte as an expression, the bits that say what is present left out."""
        terms = []
        if tag := getattr(self.struct, "TAG", 0):
            terms.append(f"0x{tag << TAG.low:02x}")
        for field in layout(self.struct):
            bits = fields.flag_bits(field)
            if isinstance(bits, Bits):
                terms.append(f"{self.it}.{field.name} << {bits.low}")
        return " | ".join(terms) or "0"

    def control_type(self) -> str:
        """The constant part of the control byte."""
        return f"0x{control_byte(self.struct):02x}"

    def control(self) -> str:
        """The control byte as an expression."""
        terms = [self.control_type()]
        for field in layout(self.struct):
            if isinstance(field.kind, ControlBits):
                shift = f" << {field.kind.low}" if field.kind.low else ""
                terms.append(f"{self.it}.{field.name}{shift}")
        return " | ".join(terms)

    def value(self, field: Field, value: str) -> str:
        """A field's bytes as an expression."""
        match field.kind:
            case Number(_, code):
                return f"{struct_name(code)}.pack({value})"
            case Repeated(element, is_counted):
                joined = f'b"".join([{self.element(field, element, "item")} for item in {value}])'
                count = f'short_length({value}, "{self.name}.{field.name}") + ' if is_counted else ""
                return count + joined
            case Sized() | Nested() | OneOf():
                return self.element(field, field.kind, value)
        raise AssertionError(field)

    def element(self, field: Field, kind: Sized | Nested | OneOf, value: str) -> str:
        """One element's bytes as an expression."""
        match kind:
            case Sized(label):
                return f'{PUT[label]}({value}, "{self.name}.{field.name}")'
            case Nested(struct):
                return f"{function('encode', struct)}({value})"
            case OneOf():
                return f"{self.dialect.dispatch_name(kind, 'ENCODERS')}[type({value})]({value})"


# --- the module ---------------------------------------------------------------------------------------


def codec_source(dialect: Dialect) -> str:
    """The text of a dialect's codec module."""
    functions: list[str] = []
    for struct in dialect.structures:
        functions += ["\n".join(Decoder(dialect, struct).lines()), "\n".join(Encoder(dialect, struct).lines())]
    for union in dialect.unions:
        functions += list(dispatch_tables(dialect, union))
    for packet in dialect.packets:
        functions += ["\n".join(Decoder(dialect, packet).lines()), "\n".join(Encoder(dialect, packet).lines())]
    functions += ["\n".join(Decoder(dialect, p).cut_shortest()) for p in dialect.packets if hasattr(p, "SHORTEST")]
    body = "\n\n\n".join([*functions, packet_tables(dialect)])
    return "\n\n".join([heading(dialect, body), body]) + "\n"


def heading(dialect: Dialect, body: str) -> str:
    """The docstring, the imports the body needs, the shared structs."""
    module = dialect.module.__name__
    helpers = sorted(name for name in helper_names() if re.search(rf"\b{name}\b", body))
    errors = [name for name in ("LocalProtocolError", "RemoteProtocolError") if name in body]
    names = [struct.__name__ for struct in (*dialect.structures, *dialect.packets)]
    names += [dialect.union_name(union) for union in dialect.unions] + ["Packet"]
    codes = sorted(set(re.findall(r"\b_([BHIQ]+)\b", body)))
    preamble = "take_preamble, " if "take_preamble" in body else ""
    return "\n".join(
        [
            f'"""Encoders and decoders of {module}, straight-line: written by scripts/generate.py, not by hand."""',
            "",
            "# ruff: noqa: A001  (locals have the names of the fields)",
            "",
            "from collections.abc import Callable",
            "from struct import Struct",
            "",
            f"from moq.errors import {', '.join(errors)}",
            f"from moq.wire.codec import ({', '.join(helpers)},)",
            f"from moq.wire.header import {preamble}fixed_header",
            f"from {module} import ({', '.join(sorted(names))},)",
            "",
            *[f'{struct_name(code)} = Struct(">{code}")' for code in codes],
            "",
            f"SHORTEST = 0x{dialect.shortest_control():02x}",
            '"""The control byte of the commonest packet, which has routes of its own."""',
            "",
        ]
    )


def helper_names() -> list[str]:
    """The helpers generated code may call."""
    takes_and_puts = [*TAKE.values(), *PUT.values()]
    return [*takes_and_puts, "short_length", "truncated", "trailing", "reserved", "above", "unfit"]


def dispatch_tables(dialect: Dialect, union: OneOf) -> Iterator[str]:
    """How the members of a union are found: by their type bits, by their class."""
    name = dialect.union_name(union)
    by_tag = sorted(union.structs, key=lambda struct: getattr(struct, "TAG", -1))
    decoders = ", ".join(function("decode", struct) for struct in by_tag)
    encoders = ", ".join(f"{struct.__name__}: {function('encode', struct)}" for struct in by_tag)
    decoder_type = f"tuple[Callable[[bytes, int, int], tuple[{name}, int]], ...]"
    yield f"{dialect.dispatch_name(union, 'DECODERS')}: {decoder_type} = ({decoders},)"
    yield f"{dialect.dispatch_name(union, 'ENCODERS')}: dict[type[{name}], Callable[..., bytes]] = {{{encoders},}}"


def packet_tables(dialect: Dialect) -> str:
    """How packets are found: by their control byte without RLF, by their class."""
    decoders = []
    streamed = []
    for packet in dialect.packets:
        for flags in fields.control_flags(packet):
            control = f"0x{control_byte(packet) | flags:02x}"
            decoders.append(f"{control}: {function('decode', packet)}")
            streamed += [control] if getattr(packet, "STREAMED", False) else []
    encoders = [f"{packet.__name__}: {function('encode', packet)}" for packet in dialect.packets]
    return "\n".join(
        [
            "Decoder = Callable[[bytes, int, int, int], Packet]",
            "",
            f"DECODERS: dict[int, Decoder] = {{{', '.join(decoders)},}}",
            '"""By control byte, RLF bits zero."""',
            "",
            f"ENCODERS: dict[type[Packet], Callable[..., bytes]] = {{{', '.join(encoders)},}}",
            "",
            f"STREAMED = frozenset({{{', '.join(streamed)}}})",
            '"""Control bytes, RLF bits zero, of the packets whose payload may be larger than memory."""',
        ]
    )

"""Writes decoders: one straight-line function for each packet and structure of a dialect."""

from collections.abc import Iterator

from moq.wire import fields
from moq.wire.fields import (
    TAG,
    Bits,
    ControlBits,
    Field,
    IfMore,
    Nested,
    Number,
    OneOf,
    Presence,
    Present,
    PropertyList,
    Repeated,
    Rest,
    Sized,
    Unless,
    When,
)
from scripts.wire_layout import FLAGS, Dialect, Run, function, is_bits, number, struct_name

TAKE = {
    "short string": "take_string",
    "short binary": "take_binary",
    "long string": "take_long_string",
    "long binary": "take_long_binary",
}
TYPES = {True: "str", False: "bytes"}

RULES = {"broken_form": "MalformedPacket", "broken_rule": "RemoteProtocolError"}
"""The methods that judge across fields, and what the peer is told when one objects."""


def absent(field: Field) -> int | None:
    """What a field that is not there is in Python."""
    return field.presence.absent if isinstance(field.presence, Unless | IfMore) else None


class Decoder:
    """Writes the decode function of one packet or structure."""

    def __init__(self, dialect: Dialect, struct: type) -> None:
        self.dialect = dialect
        self.struct = struct
        self.name = struct.__name__
        self.is_packet = hasattr(struct, "TYPE")
        self.layout = dialect.layout(struct)

    def lines(self) -> Iterator[str]:
        """The whole function."""
        result = self.name if self.is_packet else f"tuple[{self.name}, int]"
        control = ", control: int" if self.is_packet else ""
        yield f"def {function('decode', self.struct)}(buf: bytes, pos: int, end: int{control}) -> {result}:"
        yield f'    """Read {self.name}."""'
        if hasattr(self.struct, "PREAMBLE"):
            yield "    pos = take_preamble(buf, pos, end)"
        for step in self.dialect.steps(self.struct):
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
        control = [field for field in self.layout if isinstance(field.kind, ControlBits)]
        tests = [f"control & {field.kind.mask}" for field in control if isinstance(field.kind, Bits)]
        tests += [name for name in self.struct.SHORTEST if name not in [field.name for field in control]]
        yield f"if not (flags or {' or '.join(tests)}):"
        yield f"    return {self.shortest_packet(run.size)}"

    def shortest_packet(self, payload_at: int) -> str:
        """The constructor's call for a packet of the shortest form, its payload so many bytes after `pos`."""
        assert hasattr(self.struct, "SHORTEST")
        values = []
        for field in self.layout:
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
        run = self.dialect.steps(self.struct)[0]
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
        if mask := fields.reserved_mask(self.struct, self.dialect.version):
            yield f"if flags & 0x{mask:02x}:"
            yield f'    raise reserved("{self.name}.flags", flags, 0x{mask:02x})'
        for field in self.layout:
            if not isinstance(field.kind, Bits) or isinstance(field.kind, ControlBits) or self.is_bool(field):
                continue
            width = field.kind.high - field.kind.low + 1
            shifted = f"flags >> {field.kind.low}" if field.kind.low else "flags"
            yield f"{field.name} = {shifted} & {(1 << width) - 1}"
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
        optional = "" if isinstance(field.kind, PropertyList) or absent(field) is not None else " | None"
        yield f"{field.name}: {self.type_of(field)}{optional} = {absent(field)}"
        yield f"if {self.is_there(field.presence)}:"
        for line in self.value(field):
            yield f"    {line}"

    def is_there(self, presence: Presence) -> str:
        """The test for a field that may be absent."""
        match presence:
            case Present():
                return f"flags & 0x{presence.mask:02x}"
            case IfMore():
                return "pos < end"
            case When(other, value):
                return f"{other} == {value}"
            case Unless(other, value):
                (kind,) = (field.kind for field in self.layout if field.name == other)
                assert isinstance(kind, ControlBits)
                assert value == 0
                return f"control & 0x{kind.mask:02x}"

    def value(self, field: Field) -> Iterator[str]:
        """Read one field that is there."""
        name = f'"{self.name}.{field.name}"'
        match field.kind:
            case Number(_, code, size):
                if not (size == 1 and isinstance(field.presence, IfMore)):
                    yield from self.bound((field,), size)
                yield f"{field.name} = {'buf[pos]' if size == 1 else f'{struct_name(code)}.unpack_from(buf, pos)[0]'}"
                yield f"pos += {size}"
            case Sized(label):
                yield f"{field.name}, pos = {TAKE[label]}(buf, pos, end, {name})"
            case PropertyList(scope):
                yield f'{field.name}, pos = take_properties(buf, pos, end, "{scope}")'
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
        declared = self.layout
        last = declared[-1].kind if declared else None
        ends_open = isinstance(last, Rest) or (isinstance(last, Repeated) and not last.is_counted)
        if self.is_packet and not ends_open:
            yield "if pos != end:"
            yield f'    raise trailing("{self.name}", end - pos)'
        missing = self.dialect.missing(self.struct)
        arguments = [self.older(f) if f in missing else self.argument(f) for f in fields.layout(self.struct)]
        built = f"{self.name}({', '.join(arguments)})"
        suffix = "" if self.is_packet else ", pos"
        rules = [(name, error) for name, error in RULES.items() if hasattr(self.struct, name)]
        if not rules:
            yield f"return {built}{suffix}"
            return
        it = "packet" if self.is_packet else "part"
        yield f"{it} = {built}"
        for name, error in rules:
            yield f"if rule := {it}.{name}():"
            yield f"    raise {error}(rule)"
        yield f"return {it}{suffix}"

    def older(self, field: Field) -> str:
        """What the constructor is given for a field this version does not have yet."""
        assert field.since is not None
        return repr(field.since.absent)

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
            case PropertyList():
                return "Properties | None"
            case Nested(struct):
                return struct.__name__
            case Repeated(Sized(is_text=is_text)):
                return f"list[{TYPES[is_text]}]"
            case Repeated(Nested(struct)):
                return f"list[{struct.__name__}]"
            case Repeated(OneOf() as union):
                return f"list[{self.dialect.union_name(union)}]"
        return "int"

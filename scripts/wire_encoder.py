"""Writes encoders: one straight-line function for each packet and structure of a dialect."""

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
    Present,
    PropertyList,
    Repeated,
    Rest,
    Sized,
    Unless,
)
from scripts.wire_decoder import RULES, absent
from scripts.wire_layout import FLAGS, Dialect, Run, control_byte, function, is_bits, struct_name

PUT = {
    "short string": "put_string",
    "short binary": "put_binary",
    "long string": "put_long_string",
    "long binary": "put_long_binary",
}


class Encoder:
    """Writes the encode function of one packet or structure."""

    def __init__(self, dialect: Dialect, struct: type) -> None:
        self.dialect = dialect
        self.struct = struct
        self.name = struct.__name__
        self.is_packet = hasattr(struct, "TYPE")
        self.layout = dialect.layout(struct)
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
        if fields.has_flag_byte(self.struct, self.dialect.version):
            yield f"flags = {self.flag_byte()}"
        yield from self.plain()
        later = self.dialect.steps(self.struct)
        head = later.pop(0) if later and isinstance(later[0], Run) else None
        rest = [step for step in later if isinstance(step, Field) and isinstance(step.kind, Rest)]
        tail = [step for step in later if step not in rest]
        yield from self.tail(tail)
        pieces = [repr(self.struct.PREAMBLE)] if hasattr(self.struct, "PREAMBLE") else []
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
            yield f"if {self.is_there(step)}:"
            if isinstance(step.presence, Present):
                yield f"    flags |= 0x{step.presence.mask:02x}"
            yield f"    tail += {value}"

    def is_there(self, field: Field) -> str:
        """The test for a field that may be absent."""
        match field.presence:
            case Unless(other, value):
                assert value == 0
                return f"{self.it}.{other}"
            case IfMore():
                later = self.layout[self.layout.index(field) :]
                return " or ".join(f"{self.it}.{f.name}" + ("" if absent(f) == 0 else " is not None") for f in later)
        return f"{self.it}.{field.name} is not None"

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
        run, rest = self.dialect.steps(self.struct)[0], self.layout[-1]
        assert isinstance(run, Run)
        absent = [f"{self.it}.{f.name} is None" for f in self.layout if f.presence is not None]
        zero = [f"{self.it}.{f.name}" for f in self.layout if is_bits(f) or f.name in self.struct.SHORTEST]
        values = ["0" if f is FLAGS or f.name in self.struct.SHORTEST else f"{self.it}.{f.name}" for f in run.fields]
        yield f"payload = {self.it}.{rest.name}"
        yield f"size = len(payload) + {run.size}"
        yield f"if size <= 0xFF and {' and '.join(absent)} and not ({' or '.join(zero)}):"
        yield f"    return {struct_name('BB' + run.code)}.pack(SHORTEST, size, {', '.join(values)}) + payload"

    def plain(self) -> Iterator[str]:
        """Return with one `struct` for header and fields when none of the optional ones is there."""
        if not hasattr(self.struct, "SHORTEST"):
            return
        run = self.dialect.steps(self.struct)[0]
        assert isinstance(run, Run)
        absent = [f"{self.it}.{f.name} is None" for f in self.layout if f.presence is not None]
        values = ", ".join("flags" if f is FLAGS else f"{self.it}.{f.name}" for f in run.fields)
        yield f"if {' and '.join(absent)}:"
        yield "    if size <= 0xFF:"
        yield f"        return {struct_name('BB' + run.code)}.pack({self.control()}, size, {values}) + payload"
        yield "    if size <= 0xFFFF:"
        yield f"        return {struct_name('BH' + run.code)}.pack(0x04 | {self.control()}, size, {values}) + payload"

    def checks(self) -> Iterator[str]:
        """Refuse values that do not fit their bits, and broken rules."""
        for field in self.layout:
            if isinstance(field.kind, Bits) and field.kind.high != field.kind.low:
                yield f"if not 0 <= {self.it}.{field.name} <= {field.kind.maximum}:"
                yield f'    raise unfit("{self.name}.{field.name}", {self.it}.{field.name}, {field.kind.maximum})'
        for field in self.dialect.missing(self.struct):
            assert field.since is not None
            value = f"{self.it}.{field.name}"
            yield f"if {value}{' is not None' if field.since.absent is None else ''}:"
            yield f'    raise too_young("{self.name}.{field.name}", {value}, {field.since.version})'
        for name in RULES:
            if hasattr(self.struct, name):
                yield f"if rule := {self.it}.{name}():"
                yield "    raise LocalProtocolError(rule)"

    def flag_byte(self) -> str:
        """The flag byte as an expression, the bits that say what is present left out."""
        terms = []
        if tag := getattr(self.struct, "TAG", 0):
            terms.append(f"0x{tag << TAG.low:02x}")
        for field in self.layout:
            bits = fields.flag_bits(field)
            if isinstance(bits, Bits):
                terms.append(self.shifted(field, bits))
        return " | ".join(terms) or "0"

    def control_type(self) -> str:
        """The constant part of the control byte."""
        return f"0x{control_byte(self.struct):02x}"

    def control(self) -> str:
        """The control byte as an expression."""
        bits = [self.shifted(field, field.kind) for field in self.layout if isinstance(field.kind, ControlBits)]
        return " | ".join([self.control_type(), *bits])

    def shifted(self, field: Field, bits: Bits) -> str:
        """A value in its place in a byte."""
        return f"{self.it}.{field.name}" + (f" << {bits.low}" if bits.low else "")

    def value(self, field: Field, value: str) -> str:
        """A field's bytes as an expression."""
        match field.kind:
            case Number(_, code):
                return f"{struct_name(code)}.pack({value})"
            case Repeated(element, is_counted):
                joined = f'b"".join([{self.element(field, element, "item")} for item in {value}])'
                count = f'short_length({value}, "{self.name}.{field.name}") + ' if is_counted else ""
                return count + joined
            case PropertyList(scope):
                return f'put_properties({value}, "{scope}")'
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

"""Writes a dialect's codec module from its declarations: `moq/wire/_mmqp.py` from `moq/wire/mmqp.py`.

The code is what a careful person would write by hand: neighbouring fixed-size fields share one `struct`, each bound
is checked once, and what is absent costs no more than a look.
"""

import re
from collections.abc import Iterable, Iterator

from moq.wire import fields
from moq.wire.fields import OneOf
from scripts.wire_decoder import RULES, TAKE, Decoder
from scripts.wire_encoder import PUT, Encoder
from scripts.wire_layout import Dialect, control_byte, function, struct_name


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
    of = f"version {dialect.version} of {module}" if dialect.version else module
    names = [struct.__name__ for struct in (*dialect.structures, *dialect.packets)]
    names += [dialect.union_name(union) for union in dialect.unions] + ["Packet"]
    codes = sorted(set(re.findall(r"\b_([BHIQ]+)\b", body)))
    properties = f"{dialect.header.__name__.rpartition('.')[0]}.properties"
    return "\n".join(
        [
            f'"""Encoders and decoders of {of}, straight-line: written by scripts/generate.py."""',
            "",
            "# ruff: noqa: A001  (locals have the names of the fields)",
            "",
            "from collections.abc import Callable",
            "from struct import Struct",
            "",
            *imports("moq.errors", ("LocalProtocolError", *RULES.values()), body),
            *imports("moq.wire.codec", helper_names(), body),
            *imports(dialect.header.__name__, ("fixed_header", "take_preamble"), body),
            *imports(properties, ("Properties", "put_properties", "take_properties"), body),
            f"from {module} import ({', '.join(sorted(names))},)",
            "",
            *[f'{struct_name(code)} = Struct(">{code}")' for code in codes],
            "",
            *shortest_control(dialect),
        ]
    )


def imports(module: str, names: Iterable[str], body: str) -> Iterator[str]:
    """The import of those names the body uses."""
    if used := sorted(name for name in names if re.search(rf"\b{name}\b", body)):
        yield f"from {module} import ({', '.join(used)})"


def shortest_control(dialect: Dialect) -> Iterator[str]:
    """The constant the routes of the commonest packet begin with."""
    for packet in dialect.packets:
        if hasattr(packet, "SHORTEST"):
            yield f"SHORTEST = 0x{control_byte(packet):02x}"
            yield '"""The control byte of the commonest packet, which has routes of its own."""'
            yield ""


def helper_names() -> list[str]:
    """The helpers generated code may call."""
    takes_and_puts = [*TAKE.values(), *PUT.values()]
    return [*takes_and_puts, "short_length", "truncated", "trailing", "reserved", "above", "unfit", "too_young"]


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
    """How packets are found: by their type and flags, by their class."""
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
            '"""By control byte, of which only type and flags are set."""',
            "",
            f"ENCODERS: dict[type[Packet], Callable[..., bytes]] = {{{', '.join(encoders)},}}",
            "",
            f"STREAMED = frozenset({{{', '.join(streamed)}}})",
            '"""Control bytes, likewise, of the packets whose payload may be larger than memory."""',
        ]
    )

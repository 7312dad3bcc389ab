"""Hypothesis strategies derived from the packet declarations: a new packet is tested the day it is declared."""

from collections.abc import Callable
from typing import cast

from hypothesis import strategies as st

from moq.wire import PACKETS, Packet
from moq.wire.fields import Bits, Field, Kind, Nested, Number, OneOf, Repeated, Rest, Sized, When, layout

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
"""Strings that fit a one-byte length whatever their characters."""


def values(kind: Kind) -> st.SearchStrategy[object]:
    match kind:
        case Number(_, _, size):
            # Zero is common: several rules turn on it.
            return st.just(0) | st.integers(0, (1 << 8 * size) - 1)
        case Sized(is_text=True):
            return texts
        case Sized() | Rest():
            return st.binary(max_size=255)
        case Bits(high, low, _, maximum):
            return st.booleans() if high == low else st.integers(0, maximum)
        case Nested(struct):
            return structs(struct)
        case OneOf(members):
            return st.one_of([structs(member) for member in members])
        case Repeated(element):
            return st.lists(values(element), max_size=4)


@st.composite
def structs(draw: Callable[[st.SearchStrategy[object]], object], struct: type) -> object:
    """Any structure or packet that breaks no rule."""
    return draw(_unchecked(struct).filter(lambda value: not getattr(value, "broken_rule", lambda: None)()))


@st.composite
def _unchecked(draw: Callable[[st.SearchStrategy[object]], object], struct: type) -> object:
    drawn: dict[str, object] = {}
    for field in layout(struct):
        drawn[field.name] = draw(_field(field, drawn))
    return struct(**drawn)


def _field(field: Field, drawn: dict[str, object]) -> st.SearchStrategy[object]:
    present = values(field.kind)
    if isinstance(field.presence, When):
        return present if drawn[field.presence.field] == field.presence.value else st.none()
    return present if field.presence is None else st.none() | present


any_packet = cast("st.SearchStrategy[Packet]", st.one_of([structs(packet) for packet in PACKETS]))

"""Hypothesis strategies derived from the packet declarations: a new packet is tested the day it is declared."""

from collections.abc import Callable
from typing import cast

from hypothesis import strategies as st

from moq.wire import PACKETS, Packet, mqtt
from moq.wire.fields import (
    Bits,
    Field,
    IfMore,
    Kind,
    Nested,
    Number,
    OneOf,
    PropertyList,
    Repeated,
    Rest,
    Sized,
    Unless,
    When,
    layout,
)
from moq.wire.mqtt.properties import DECLARED, Declared, Properties

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
"""Strings that fit a one-byte length whatever their characters."""

Draw = Callable[[st.SearchStrategy[object]], object]


def values(kind: Kind, version: int | None = None) -> st.SearchStrategy[object]:
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
        case PropertyList(scope):
            return st.none() | properties(scope)
        case Nested(struct):
            return structs(struct, version)
        case OneOf(members):
            return st.one_of([structs(member, version) for member in members])
        case Repeated(element):
            return st.lists(values(element, version), max_size=4)


def property_values(declared: Declared) -> st.SearchStrategy[object]:
    forms: dict[str, st.SearchStrategy[object]] = {
        "flag": st.booleans(),
        "long string": texts,
        "long binary": st.binary(max_size=255),
        "string pair": st.tuples(texts, texts),
    }
    sizes = {"u8": 0xFF, "u16": 0xFFFF, "u32": 0xFFFF_FFFF, "variable byte integer": mqtt.MAX_REMAINING}
    if declared.form in sizes:
        most = declared.property.most
        return st.integers(declared.property.least, sizes[declared.form] if most is None else most)
    return forms[declared.form]


@st.composite
def properties(draw: Draw, scope: str) -> Properties:
    """Some of the properties a packet may have, at least one."""
    allowed = [declared for declared in DECLARED if scope in declared.property.scopes.split()]
    chosen = draw(st.lists(st.sampled_from(allowed), min_size=1, max_size=5, unique_by=lambda declared: declared.name))
    drawn: dict[str, object] = {}
    for declared in cast("list[Declared]", chosen):
        value = property_values(declared)
        if declared.is_list:
            repeats = scope in declared.property.repeats_in.split()
            value = st.lists(value, min_size=1, max_size=3 if repeats else 1)
        drawn[declared.name] = draw(value)
    if "authentication_data" in drawn:
        drawn.setdefault("authentication_method", draw(texts))
    return Properties(**drawn)  # type: ignore[arg-type]


@st.composite
def structs(draw: Draw, struct: type, version: int | None = None) -> object:
    """Any structure or packet of a version that breaks no rule."""
    return draw(_unchecked(struct, version).filter(_is_legal))


def _is_legal(value: object) -> bool:
    rules = (getattr(value, name, None) for name in ("broken_form", "broken_rule"))
    return not any(rule() for rule in rules if rule is not None)


@st.composite
def _unchecked(draw: Draw, struct: type, version: int | None) -> object:
    there = layout(struct, version)
    drawn: dict[str, object] = {}
    for field in layout(struct):
        drawn[field.name] = draw(_field(field, drawn, version)) if field in there else _older(field)
    if struct is mqtt.Connect:
        drawn["version"] = version
    return struct(**drawn)


def _older(field: Field) -> object:
    assert field.since is not None
    return field.since.absent


def _field(field: Field, drawn: dict[str, object], version: int | None) -> st.SearchStrategy[object]:
    present = values(field.kind, version)
    match field.presence:
        case When(other, value):
            return present if drawn[other] == value else st.none()
        case Unless(other, value, absent):
            return present if drawn[other] != value else st.just(absent)
        case None | IfMore():
            return present
    return st.none() | present


any_packet = cast("st.SearchStrategy[Packet]", st.one_of([structs(packet) for packet in PACKETS]))


def mqtt_packets_of(version: int) -> tuple[type[mqtt.Packet], ...]:
    """The packets a version of MQTT has."""
    return tuple(packet for packet in mqtt.PACKETS if getattr(packet, "SINCE", 0) <= version)


any_mqtt_packet = {
    version: cast(
        "st.SearchStrategy[mqtt.Packet]", st.one_of([structs(packet, version) for packet in mqtt_packets_of(version)])
    )
    for version in (mqtt.VERSION_3_1_1, mqtt.VERSION_5)
}
"""By version."""

"""Dataclasses as payloads: schema, encoding, decoding, and what is said of misfits."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.client.messages import Message, TopicType
from moq.client.typed import PayloadError, from_json, is_typed, schema_bytes, schema_of, to_json


class Mode(enum.Enum):
    AUTO = "auto"
    OFF = "off"


@dataclass
class Place:
    """Where something is."""

    floor: int
    room: str = ""


@dataclass
class Reading:
    celsius: float
    sensor: str
    ok: bool = True
    mode: Mode = Mode.AUTO
    unit: Literal["C", "K"] = "C"
    place: Place | None = None
    history: list[float] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    raw: bytes = b""
    span: tuple[int, int] = (0, 0)
    tags: frozenset[str] = frozenset()
    numbers: tuple[int, ...] = ()
    alias: Optional[str] = None  # noqa: UP045  # both spellings are understood
    extra: Any = None
    derived: int = field(default=7, init=False)


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Odd:
    number: complex


@dataclass
class OddKeys:
    table: dict[int, str]


readings = st.builds(
    Reading,
    celsius=st.floats(allow_nan=False, allow_infinity=False),
    sensor=st.text(),
    ok=st.booleans(),
    mode=st.sampled_from(Mode),
    unit=st.sampled_from(["C", "K"]),
    place=st.none() | st.builds(Place, floor=st.integers(), room=st.text()),
    history=st.lists(st.floats(allow_nan=False, allow_infinity=False)),
    labels=st.dictionaries(st.text(), st.integers()),
    raw=st.binary(),
    span=st.tuples(st.integers(), st.integers()),
    tags=st.frozensets(st.text()),
    numbers=st.lists(st.integers()).map(tuple),
    alias=st.none() | st.text(),
    extra=st.none() | st.integers() | st.lists(st.text()),
)


@given(readings)
def test_a_dataclass_survives_the_round_trip(reading: Reading) -> None:
    assert from_json(Reading, to_json(reading)) == reading


def test_the_schema_describes_every_field() -> None:
    schema = schema_of(Reading)
    assert schema["required"] == ["celsius", "sensor"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "celsius": {"type": "number"},
        "sensor": {"type": "string"},
        "ok": {"type": "boolean"},
        "mode": {"enum": ["auto", "off"]},
        "unit": {"enum": ["C", "K"]},
        "place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
        "history": {"type": "array", "items": {"type": "number"}},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
        "raw": {"type": "string", "contentEncoding": "base64"},
        "span": {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "integer"}],
            "items": False,
            "minItems": 2,
        },
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "alias": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "extra": {},
    }
    assert schema["$defs"]["Place"]["description"] == "Where something is."
    assert "description" not in schema, "the signature that dataclass writes is no description"
    assert json.loads(schema_bytes(Reading)) == schema


def test_a_type_may_contain_itself() -> None:
    schema = schema_of(Tree)
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["type"] == "object"
    assert from_json(Tree, b'{"children":[{"children":[]}]}') == Tree([Tree([])])


def test_a_schema_without_nested_types_has_no_definitions() -> None:
    assert "$defs" not in schema_of(Place)


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"{", "is not JSON, so it is no Reading"),
        (b"[]", r"Reading is \[\]; expected an object with the fields of Reading"),
        (b'{"sensor":"a"}', "Reading.celsius is missing"),
        (b'{"celsius":1,"sensor":2}', "Reading.sensor is 2; expected text"),
        (b'{"celsius":true,"sensor":""}', "Reading.celsius is true; expected a number"),
        (b'{"celsius":1,"sensor":"","ok":1}', "Reading.ok is 1; expected true or false"),
        (b'{"celsius":1,"sensor":"","colour":1}', "Reading has the field 'colour', which Reading does not"),
        (b'{"celsius":1,"sensor":"","mode":"on"}', "Reading.mode is \"on\"; expected one of 'auto', 'off'"),
        (b'{"celsius":1,"sensor":"","unit":"F"}', "Reading.unit is \"F\"; expected one of 'C', 'K'"),
        (b'{"celsius":1,"sensor":"","place":{"floor":"1"}}', 'Reading.place fits none of its types: .*floor is "1"'),
        (b'{"celsius":1,"sensor":"","history":{}}', "Reading.history is {}; expected an array"),
        (b'{"celsius":1,"sensor":"","history":[1,"x"]}', r"Reading.history\[1\] is \"x\"; expected a number"),
        (b'{"celsius":1,"sensor":"","labels":[]}', r"Reading.labels is \[\]; expected an object"),
        (b'{"celsius":1,"sensor":"","labels":{"a":1.5}}', r"Reading.labels\['a'\] is 1.5; expected an integer"),
        (b'{"celsius":1,"sensor":"","raw":"*"}', 'Reading.raw is "\\*"; expected base64 text'),
        (b'{"celsius":1,"sensor":"","raw":1}', "Reading.raw is 1; expected base64 text"),
        (b'{"celsius":1,"sensor":"","span":[1]}', "Reading.span has 1 items; expected 2"),
        (b'{"celsius":1,"sensor":' + b"[" * 100 + b"]" * 100 + b"}", r"\.\.\.; expected text"),
    ],
)
def test_a_misfit_is_named_with_its_place(payload: bytes, complaint: str) -> None:
    with pytest.raises(PayloadError, match=complaint):
        Message("t", payload).as_(Reading)


@pytest.mark.parametrize(("type_", "value"), [(Odd, Odd(1j)), (OddKeys, OddKeys({1: "a"}))])
def test_a_type_without_a_json_form_is_refused(type_: type, value: object) -> None:
    with pytest.raises(PayloadError, match="has no JSON form here"):
        schema_of(type_)
    with pytest.raises(PayloadError, match="has no JSON form here"):
        from_json(type_, b'{"number":1}' if type_ is Odd else b'{"table":{}}')
    if type_ is Odd:
        with pytest.raises(PayloadError, match=r"Odd\.number is of type complex"):
            to_json(value)


def test_only_instances_of_dataclasses_are_typed() -> None:
    assert is_typed(Place(1))
    assert not is_typed(Place)
    assert not is_typed({"floor": 1})


def test_a_message_shows_its_payload_as_text_and_json() -> None:
    assert Message("t", "grün".encode()).text == "grün"
    assert Message("t", b'{"a":[1]}').json() == {"a": [1]}
    assert TopicType("t", b'{"type":"number"}').json_schema() == {"type": "number"}

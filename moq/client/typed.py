"""Dataclasses as payloads: their JSON Schema, JSON from them, and them from JSON.

Understood are bool, int, float, str, bytes (base64), None, Any, enums, Literal, unions, Optional, list, tuple, set,
frozenset, dict with text keys, and dataclasses of these. Decoding accepts exactly what the schema describes: a
message that does not fit raises `PayloadError` with the path to the misfit, it is never bent into shape.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import types
import typing
from typing import Any, TypeVar, cast

from moq.errors import MoqError

T = TypeVar("T")

Json = Any
"""A JSON document: its shape is what this module checks."""

_SIMPLE: dict[object, dict[str, Json]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}

_SEQUENCES: dict[object, type] = {list: list, tuple: tuple, set: set, frozenset: frozenset}


class PayloadError(MoqError, ValueError):
    """A payload is not of the expected type, or a type has no JSON form; the message says where and why."""


def is_typed(value: object) -> bool:
    """True for an instance of a dataclass: it is sent as JSON and its type announced."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def schema_of(type_: type) -> dict[str, Json]:
    """The JSON Schema of a dataclass; nested dataclasses become `$defs`, so a type may contain itself."""
    definitions: dict[str, Json] = {}
    _schema(type_, definitions, type_.__name__)
    root = definitions.pop(type_.__name__)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": type_.__name__, **root}
    if f'"#/$defs/{type_.__name__}"' in json.dumps([root, definitions]):
        definitions[type_.__name__] = root
    if definitions:
        schema["$defs"] = definitions
    return schema


def schema_bytes(type_: type) -> bytes:
    """The JSON Schema of a dataclass as PUBTYPE carries it."""
    return json.dumps(schema_of(type_), separators=(",", ":")).encode()


def to_json(value: object) -> bytes:
    """A dataclass instance as JSON."""
    return json.dumps(_encode(value, type(value).__name__), separators=(",", ":"), allow_nan=False).encode()


def from_json(type_: type[T], payload: bytes) -> T:
    """An instance of the dataclass from JSON.

    Raises:
        PayloadError: the payload is not JSON, or not of that shape.
    """
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise PayloadError(f"the payload is not JSON, so it is no {type_.__name__}: {error}") from error
    return cast("T", _decode(type_, document, type_.__name__))


# --- schema ---------------------------------------------------------------------------------------------


def _schema(type_: Any, definitions: dict[str, Json], path: str) -> dict[str, Json]:
    if type_ in _SIMPLE:
        return dict(_SIMPLE[type_])
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(argument, definitions, path) for argument in arguments]}
    if origin in _SEQUENCES:
        return _sequence_schema(origin, arguments, definitions, path)
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions, path)}
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return {"enum": [member.value for member in type_]}
    if dataclasses.is_dataclass(type_) and isinstance(type_, type):
        return _dataclass_schema(type_, definitions)
    raise _no_form(type_, path)


def _sequence_schema(
    origin: Any, arguments: tuple[Any, ...], definitions: dict[str, Json], path: str
) -> dict[str, Json]:
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        items = [_schema(argument, definitions, path) for argument in arguments]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    schema: dict[str, Json] = {"type": "array", "items": _schema(arguments[0], definitions, path)}
    if origin in (set, frozenset):
        schema["uniqueItems"] = True
    return schema


def _dataclass_schema(type_: type, definitions: dict[str, Json]) -> dict[str, Json]:
    name = type_.__name__
    if name not in definitions:
        schema: dict[str, Json] = {"type": "object"}
        definitions[name] = schema  # before its fields, which may name it again
        hints = typing.get_type_hints(type_)
        fields = [field for field in dataclasses.fields(type_) if field.init]
        schema["properties"] = {
            field.name: _schema(hints[field.name], definitions, f"{name}.{field.name}") for field in fields
        }
        schema["required"] = [field.name for field in fields if _is_required(field)]
        schema["additionalProperties"] = False
        if type_.__doc__ and not type_.__doc__.startswith(f"{name}("):  # not the signature dataclass writes there
            schema["description"] = type_.__doc__
    return {"$ref": f"#/$defs/{name}"}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


# --- encoding -------------------------------------------------------------------------------------------


def _encode(value: Any, path: str) -> Json:
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple | set | frozenset):
        return [_encode(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {str(key): _encode(item, f"{path}[{key!r}]") for key, item in value.items()}
    if is_typed(value):
        fields = [field for field in dataclasses.fields(value) if field.init]
        return {field.name: _encode(getattr(value, field.name), f"{path}.{field.name}") for field in fields}
    raise _no_form(type(value), path)


# --- decoding -------------------------------------------------------------------------------------------


def _decode(type_: Any, document: Json, path: str) -> Any:
    if type_ in _SIMPLE:
        return _decode_simple(type_, document, path)
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin is typing.Literal:
        return _decode_literal(arguments, document, path)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(arguments, document, path)
    if origin in _SEQUENCES:
        return _decode_sequence(origin, arguments, document, path)
    if origin is dict and arguments[0] is str:
        if not isinstance(document, dict):
            raise _misfit(path, document, "an object")
        return {key: _decode(arguments[1], item, f"{path}[{key!r}]") for key, item in document.items()}
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        try:
            return type_(document)
        except ValueError as error:
            raise _misfit(path, document, f"one of {', '.join(repr(member.value) for member in type_)}") from error
    if dataclasses.is_dataclass(type_) and isinstance(type_, type):
        return _decode_dataclass(type_, document, path)
    raise _no_form(type_, path)


def _decode_simple(type_: Any, document: Json, path: str) -> Any:
    if type_ is Any or type_ is object:
        return document
    if type_ is bytes:
        try:
            return base64.b64decode(document, validate=True)
        except (ValueError, TypeError) as error:
            raise _misfit(path, document, "base64 text") from error
    # JSON has one kind of number: 3 is a float where a float is asked for. True is never a number.
    if type_ is float and type(document) is int:
        return float(document)
    if type(document) is not type_:
        raise _misfit(path, document, _NAMES[type_])
    return document


_NAMES: dict[object, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): "null",
}


def _decode_literal(values: tuple[Any, ...], document: Json, path: str) -> Any:
    for value in values:
        if type(value) is type(document) and value == document:
            return document
    raise _misfit(path, document, f"one of {', '.join(map(repr, values))}")


def _decode_union(choices: tuple[Any, ...], document: Json, path: str) -> Any:
    refusals = []
    for choice in choices:
        try:
            return _decode(choice, document, path)
        except PayloadError as refusal:
            refusals.append(str(refusal))
    raise PayloadError(f"{path} fits none of its types: {'; '.join(refusals)}")


def _decode_sequence(origin: Any, arguments: tuple[Any, ...], document: Json, path: str) -> Any:
    if not isinstance(document, list):
        raise _misfit(path, document, "an array")
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        if len(document) != len(arguments):
            raise PayloadError(f"{path} has {len(document)} items; expected {len(arguments)}")
        item_types: list[Any] = list(arguments)
    else:
        item_types = [arguments[0]] * len(document)
    pairs = enumerate(zip(item_types, document, strict=True))
    return _SEQUENCES[origin](_decode(item_type, item, f"{path}[{index}]") for index, (item_type, item) in pairs)


def _decode_dataclass(type_: type, document: Json, path: str) -> Any:
    if not isinstance(document, dict):
        raise _misfit(path, document, f"an object with the fields of {type_.__name__}")
    hints = typing.get_type_hints(type_)
    fields = {field.name: field for field in dataclasses.fields(type_) if field.init}
    if unknown := sorted(document.keys() - fields.keys()):
        raise PayloadError(f"{path} has the field {unknown[0]!r}, which {type_.__name__} does not")
    for name, field in fields.items():
        if name not in document and _is_required(field):
            raise PayloadError(f"{path}.{name} is missing")
    return type_(**{name: _decode(hints[name], value, f"{path}.{name}") for name, value in document.items()})


def _misfit(path: str, document: Json, expected: str) -> PayloadError:
    shown = json.dumps(document)
    return PayloadError(f"{path} is {shown if len(shown) <= 60 else shown[:57] + '...'}; expected {expected}")


def _no_form(type_: Any, path: str) -> PayloadError:
    return PayloadError(f"{path} is of type {getattr(type_, '__name__', type_)}, which has no JSON form here")

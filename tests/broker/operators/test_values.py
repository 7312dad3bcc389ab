"""What counts as a number, a text or a field; and that no payload, however hostile, does more than be none of them."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.broker.operators.values import Literal, field, measured, number, rounded, written


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"22.5", "22.5"),
        (b"-3", "-3"),
        (b" 7\r\n", "7"),
        (b"1e3", "1000"),
        (b"1.5E-3", "0.0015"),
        (b"-0.0", "0"),
        (b"0e9999", "0"),
        (b"18446744073709551615", "18446744073709551615"),
        (b"1" * 40, "1.111111111111111111111111111111111e39"),
        (b"1e308", "1e308"),
    ],
)
def test_a_number_is_read_and_written(text: bytes, value: str) -> None:
    read = number(text)
    assert read is not None
    assert written(read) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b" ",
            b"nan",
            b"inf",
            b"-Infinity",
            b"1_000",
            b"0x10",
            b"007",
            b"+5",
            b".5",
            b"5.",
            b"1,5",
            b"1e",
            b"1 2",
        ),
        *("١٢".encode(), b"1\xff", b"\x0b5", b"1e309", b"1e-309", b"1e99999", b"9" * 65, b"0." + b"0" * 63, b"true"),
    ],
)
def test_anything_else_is_no_number(text: bytes) -> None:
    assert number(text) is None


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=4))
def test_a_number_has_one_text_and_it_is_read_back(value: Decimal) -> None:
    text = written(value)
    assert number(text.encode()) == value
    assert Fraction(text) == Fraction(value)


@given(st.integers(-(10**34) + 1, 10**34 - 1), st.integers(-300, 270))
def test_a_number_of_any_size_is_read_back_from_its_text(digits: int, exponent: int) -> None:
    value = Decimal(digits).scaleb(exponent)
    read = number(written(value).encode())
    assert read is not None
    assert read == value
    assert written(read) == written(value)


def test_a_sum_is_rounded_to_34_digits() -> None:
    assert rounded(Decimal("1." + "3" * 50)) == Decimal("1." + "3" * 33)


# --- fields -------------------------------------------------------------------------------------------

DOCUMENT = b'{"temp": 21.50, "id": 9007199254740993, "tags": ["a", {"b.c": "d"}], "on": true, "no": null, "text": "5"}'


@pytest.mark.parametrize(
    ("path", "scalar"),
    [
        (("temp",), "21.50"),
        (("id",), "9007199254740993"),
        (("tags", "0"), "a"),
        (("tags", "1", "b.c"), "d"),
        (("on",), "true"),
        (("no",), "null"),
        (("text",), "5"),
        (("tags",), None),
        (("tags", "2"), None),
        (("tags", "01"), None),
        (("tags", "-1"), None),
        (("absent",), None),
        (("temp", "more"), None),
        (("text", "0"), None),
    ],
)
def test_a_path_leads_to_a_scalar_or_nowhere(path: tuple[str, ...], scalar: str | None) -> None:
    assert field(DOCUMENT, path) == scalar


def test_only_numbers_of_a_document_are_numbers() -> None:
    assert measured(DOCUMENT, ("temp",)) == Decimal("21.5")
    assert measured(DOCUMENT, ("text",)) is None
    assert measured(DOCUMENT, ("on",)) is None
    assert measured(b"21.5", None) == Decimal("21.5")
    assert isinstance(field(DOCUMENT, ("temp",)), Literal)
    assert not isinstance(field(DOCUMENT, ("text",)), Literal)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1} x',
        '{"a": 1}'.encode("utf-16"),
        b"[" * 60_000,
        b'{"a":' * 33 + b"1" + b"}" * 33,
        b'{"a": 1, "b": "' + b"x" * 70_000 + b'"}',
        b'"' + b'\\"' * 30_000,
    ],
)
def test_what_is_no_bounded_document_has_no_fields(payload: bytes) -> None:
    assert field(payload, ("a",)) is None


def test_brackets_in_strings_are_not_depth() -> None:
    payload = json.dumps({"a": 1, "b": '[{"' * 100, "c": [[]] * 40}).encode()
    assert field(payload, ("a",)) == "1"


def test_a_document_may_be_wide() -> None:
    payload = json.dumps([{"a": n} for n in range(2_000)]).encode()
    assert field(payload, ("1999", "a")) == "1999"


def test_a_number_too_long_for_a_payload_is_too_long_for_a_field() -> None:
    assert measured(b'{"a": ' + b"9" * 5_000 + b"}", ("a",)) is None


@given(st.binary(max_size=60) | st.text('{}[]",:0a\\', max_size=80).map(str.encode), st.sampled_from(["a", "0", ""]))
def test_any_payload_has_the_field_or_not(payload: bytes, step: str) -> None:
    scalar = field(payload, (step,))
    assert scalar is None or isinstance(json.loads(payload), dict | list)

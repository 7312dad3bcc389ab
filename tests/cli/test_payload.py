"""How payloads look to people and machines."""

from __future__ import annotations

import sys

import pytest

from moq.cli.payload import printable, readable, to_json_fields


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


@pytest.mark.parametrize("text", ["on", "", "zwei\nZeilen\tund mehr", "größe 21 °C", "👩‍👧", "a\r\nb"])
def test_text_is_shown_as_text(text: str) -> None:
    assert readable(text.encode()) == text


@pytest.mark.parametrize("payload", [b"\x1b[2Jgone", b"over\rwritten", b"\x00", b"\x7f", "\x9b".encode(), b"\xff\xfe"])
def test_what_could_disturb_a_terminal_is_shown_as_binary(payload: bytes) -> None:
    assert readable(payload) == f"({len(payload)} bytes) {payload.hex(' ')}"


def test_binary_is_cut_after_its_first_bytes() -> None:
    assert readable(b"\xff" * 1000) == "(1000 bytes) " + "ff " * 32 + "..."


@pytest.mark.usefixtures("terminal")
def test_json_is_indented_on_a_terminal() -> None:
    assert readable(b'{"a":[1,2]}') == '{\n  "a": [\n    1,\n    2\n  ]\n}'


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("payload", [b"{no json", b"[" * 100_000, b"21.5"])
def test_what_only_looks_like_json_stays_as_it_is(payload: bytes) -> None:
    assert readable(payload) == payload.decode()


@pytest.mark.usefixtures("terminal")
def test_a_control_character_hidden_in_json_stays_escaped() -> None:
    assert readable(b'["\\u001b", "\\u009b"]') == '[\n  "\\u001b",\n  "\\x9b"\n]'


def test_json_stays_on_its_line_in_a_pipe() -> None:
    assert readable(b'{"a": 1}') == '{"a": 1}'


def test_control_characters_of_a_topic_are_escaped() -> None:
    assert printable("a/\x1b[2J") == "a/\\x1b[2J"


def test_json_fields_hold_text_or_base64() -> None:
    assert to_json_fields(b"on") == {"payload": "on"}
    assert to_json_fields(b"\xff") == {"payload_base64": "/w=="}

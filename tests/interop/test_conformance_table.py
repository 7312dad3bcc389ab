"""Every statement of MQTT 5 that binds a server is covered by a test, and the documentation names it."""

from __future__ import annotations

import re

import pytest

from tests.interop.conformance import PAGE, citations
from tests.vectors.mqtt_statements import CLIENT, SERVER

ROW = re.compile(r"^\| (\S+-\d+) \| (.+?) \|(?: \[`(\w+)`\]\(\.\./\.\./(\S+)\) \|)?$", re.MULTILINE)
REMAKE = "run: python -m tests.interop.conformance"


@pytest.fixture(scope="module")
def tests() -> dict[str, list[str]]:
    return citations()


def test_every_statement_that_binds_a_server_has_a_test(tests: dict[str, list[str]]) -> None:
    assert [statement for statement in SERVER if statement not in tests] == []


def test_no_statement_is_on_both_lists() -> None:
    assert not SERVER.keys() & CLIENT.keys()


def test_the_documentation_names_a_test_that_covers_each_statement(tests: dict[str, list[str]]) -> None:
    rows = {statement: (words, f"{path}::{name}") for statement, words, name, path in ROW.findall(PAGE.read_text())}
    assert {statement: words for statement, (words, _) in rows.items()} == SERVER | CLIENT, REMAKE
    gone = {
        statement: test for statement, (_, test) in rows.items() if statement in SERVER and test not in tests[statement]
    }
    assert gone == {}, REMAKE

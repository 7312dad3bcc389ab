"""Plug-ins found by entry point: what can be used is offered, what cannot is named and left out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pytest

from moq.config import Limits
from moq.functions import Cost, Function, OutputType, PluginError
from moq.functions import process as process_module
from moq.functions.function import MAX_DESCRIPTION
from tests.functions.distributions import install
from tests.functions.pools import Pool

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
    from moq.functions import Cost, Function, OutputType
    good = Function("GOOD", ("text/plain",), Cost.LOW, "is good", OutputType.TEXT, bytes)
"""


async def opened() -> Pool:
    pool = Pool(1, Limits())
    await pool.open()
    await pool.close()
    return pool


def function(**parts: object) -> Function:
    usual = {
        "name": "SHOUT",
        "input_types": ("text/plain",),
        "cost": Cost.LOW,
        "description": "says it in capitals",
        "output_type": OutputType.TEXT,
        "call": bytes.upper,
    }
    return Function(**{**usual, **parts})  # type: ignore[arg-type]


# --- what a function is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "value", "complaint"),
    [
        ("name", "shout", "name is 'shout'; expected at most 32 capitals, digits and '_', a capital first"),
        ("name", "1UP", "name is '1UP'; expected at most 32 capitals, digits and '_', a capital first"),
        ("name", "", "name is ''; expected at most 32 capitals, digits and '_', a capital first"),
        ("name", "A" * 33, f"name is '{'A' * 33}'; expected at most 32 capitals, digits and '_', a capital first"),
        ("name", "DAILYAVG", "name is 'DAILYAVG', which is an operator"),
        ("name", "SYS", "name is 'SYS', which is an operator"),
        ("input_types", (), "input_types is (); expected a tuple of media types"),
        ("input_types", ("png",), "input_types has 'png', which is no media type such as 'image/png'"),
        ("cost", "dear", "cost is 'dear'; known are low, medium, high"),
        ("output_type", "number", "output_type is 'number'; known are value, text, json, bytes"),
        ("description", "", "description has 0 characters; expected 1 to 200"),
        ("description", "x" * (MAX_DESCRIPTION + 1), "description has 201 characters; expected 1 to 200"),
        ("call", 3, "call is 3, which cannot be called"),
        ("prepare", 3, "prepare is 3, which cannot be called"),
        ("interface", 2, "interface is 2; this broker has 1"),
    ],
)
def test_a_complaint_names_the_part_its_value_and_the_rule(part: str, value: object, complaint: str) -> None:
    with pytest.raises(PluginError) as caught:
        function(**{part: value})
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("returned", "payload"),
    [
        (3, b"3"),
        (True, b"1"),
        (10**30, b"1e30"),
        (0.1, b"0.1"),
        (2.0, b"2"),
        (-1e-9, b"-1e-9"),
        (np.int32(7), b"7"),
        (np.float64(0.5), b"0.5"),
        ("21", b"21"),
        (b"21.5", b"21.5"),
    ],
)
def test_a_number_is_written_as_operators_write_theirs(returned: object, payload: bytes) -> None:
    assert function(output_type=OutputType.VALUE, call=lambda _: returned).process(b"") == payload


@pytest.mark.parametrize("returned", [float("nan"), float("inf"), 10**400, "many", b"", b"1 2", None, [1]])
def test_what_is_no_number_is_no_value(returned: object) -> None:
    with pytest.raises(PluginError, match="returned"):
        function(output_type=OutputType.VALUE, call=lambda _: returned).process(b"")


@pytest.mark.parametrize(
    ("returned", "payload"), [(b"\xff\x00", b"\xff\x00"), ("ü", b"\xc3\xbc"), (bytearray(b"a"), b"a")]
)
def test_text_and_bytes_are_payloads_as_they_are(returned: object, payload: bytes) -> None:
    assert function(output_type=OutputType.BYTES, call=lambda _: returned).process(b"") == payload


# --- which there are ----------------------------------------------------------------------------------


async def test_a_plugin_is_described_as_in_the_paper_and_more(site: Path) -> None:
    install(site, "good-functions", "good_functions", GOOD, GOOD="good")
    pool = await opened()
    assert set(pool.names()) == {"GOOD", "CNTPPL"}
    assert pool.describe()[0] == {
        "keyword": "$GOOD",
        "desc": "is good",
        "returns": "text",
        "accepts": ["text/plain"],
        "cost": "low",
    }


BROKEN = [
    ("raise ValueError('no such thing')", "ValueError: no such thing"),
    ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ("broken = 3", "PluginError: broken_functions:broken is a int; expected a moq.functions.Function"),
    ("", "AttributeError: module 'broken_functions' has no attribute 'broken'"),
    (
        GOOD.replace("good =", "broken ="),
        "PluginError: its entry point is called BROKEN, it is called GOOD; both must be the same",
    ),
    (GOOD.replace("bytes)", "bytes, interface=9)"), "PluginError: interface is 9; this broker has 1"),
    ("import sys; sys.exit('bye')", "SystemExit: bye"),
    ("import os; os._exit(5)", "ended the worker with status 5"),
    ("while True: pass", "took more than 0.5 seconds"),
]


@pytest.mark.parametrize(("code", "reason"), BROKEN)
async def test_a_broken_plugin_is_named_and_the_others_are_used(
    site: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    if "while" in code:
        monkeypatch.setattr(process_module, "LOAD_TIMEOUT_S", 0.5)
    install(site, "broken-functions", "broken_functions", code, BROKEN="broken")
    pool = await opened()
    assert set(pool.names()) == {"CNTPPL"}
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert told.getMessage() == f"the function BROKEN of broken-functions 1.0 is left out: {reason}"


async def test_a_plugin_after_a_crash_is_used(site: Path) -> None:
    install(site, "a-broken-one", "broken_functions", "import os; os._exit(5)", BROKEN="broken")
    install(site, "good-functions", "good_functions", GOOD, GOOD="good")
    assert set((await opened()).names()) == {"GOOD", "CNTPPL"}


@pytest.mark.parametrize("name", ["good", "SUM"])
async def test_a_name_no_function_can_have_is_not_even_imported(
    site: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    install(site, "bad-names", "bad_names", "import os; os._exit(5)", **{name: "good"})
    await opened()
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert told.getMessage().startswith(f"the function {name} of bad-names 1.0 is left out: name is '{name}'")


async def test_of_two_with_one_name_the_first_in_the_alphabet_is_used(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(site, "b-functions", "b_functions", GOOD.replace("is good", "is b"), GOOD="good")
    install(site, "a-functions", "a_functions", GOOD.replace("is good", "is a"), GOOD="good")
    pool = await opened()
    assert pool.describe()[0]["desc"] == "is a"
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert told.getMessage() == (
        "the function GOOD of b-functions 1.0 is left out: there is the function GOOD of a-functions 1.0 already"
    )


async def test_a_stranger_can_replace_one_of_ours(site: Path) -> None:
    install(site, "z-functions", "z_functions", GOOD.replace("GOOD", "CNTPPL"), CNTPPL="good")
    assert [entry["desc"] for entry in (await opened()).describe()] == ["is good"]


async def test_a_plugin_that_lacks_something_is_left_out_without_a_warning(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "moq.functions")
    install(
        site,
        "lacking-functions",
        "lacking_functions",
        "from moq.functions import Unavailable\nraise Unavailable('it needs a camera')",
        LACKING="lacking",
    )
    assert set((await opened()).names()) == {"CNTPPL"}
    (told,) = caplog.records
    assert told.levelno == logging.INFO
    assert told.getMessage() == "the function LACKING of lacking-functions 1.0 is not there: it needs a camera"

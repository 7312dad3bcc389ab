"""Processing functions through the real broker: values and errors reach subscribers, and the broker goes on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import tomllib
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion

import moq
from tests.functions.distributions import ENTRIES, FUNCTIONS, install
from tests.functions.pictures import draw, encode
from tests.functions.processes import wait_for_the_end_of, workers
from tests.running import MOQ, PATIENCE_S, Broker, Running
from tests.running import moq as run_moq

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from moq import Client, Message, Subscription

# Workers have low priority: beside busy neighbours, starting one or counting people can take ten times as long.
pytestmark = pytest.mark.timeout(180)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-function.md"


@contextmanager
def broker_with_functions(where: Path, *options: str) -> Iterator[Broker]:
    """A broker that has the functions of the tests besides its own."""
    if not (where / "site").exists():
        install(where / "site", "some-functions", "some_functions", FUNCTIONS, **ENTRIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(where / "site"))
        with Broker(where, *options) as running:
            yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One for all tests, whatever they do to its workers; at the end it must be well."""
    # Functions have low priority: on a loaded machine a picture can take many times the quarter of a second it needs.
    patience = f"function_timeout_s={PATIENCE_S}"
    with broker_with_functions(tmp_path_factory.mktemp("broker"), "--limit", patience) as running:
        yield running
        assert running.stop() == 0


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with moq.connect(broker.url("tcp")) as connected:
        yield connected


async def next_of(subscription: Subscription) -> Message:
    return await asyncio.wait_for(anext(subscription), PATIENCE_S)


# --- values -------------------------------------------------------------------------------------------


def block(language: str) -> str:
    """The one block of code in this language on the page that tells how to write a function."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_ten_lines_of_the_documentation_make_a_function(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, project = block("python"), tomllib.loads(block("toml"))
    assert len([line for line in code.splitlines() if line and not line.startswith("#")]) <= 10
    for name, value in project["project"]["entry-points"]["moq.functions"].items():
        module, _, attribute = value.partition(":")
        install(tmp_path / "site", project["project"]["name"], module, code, **{name: attribute})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    subscribing, publishing = re.findall(r"^    moq ((?:sub|pub) .*)$", PAGE.read_text(), re.MULTILINE)[:2]
    with Broker(data_dir) as broker:

        def words(line: str) -> list[str]:
            return shlex.split(line.replace("tcp://localhost", broker.url("tcp")), comments=True)

        with Running(*MOQ, *words(subscribing), "-c", "1") as subscriber:
            subscriber.wait_for("subscribed to")
            assert run_moq(*words(publishing)).returncode == 0
            assert subscriber.wait() == 0
    assert subscriber.stdout == [f"$SHOUT/door/bell {publishing.partition('# ')[2]}"]


async def test_functions_are_listed_among_the_capabilities(client: Client) -> None:
    async with client.subscribe("$SYS/capabilities") as capabilities:
        listed = {entry["keyword"]: entry for entry in json.loads((await next_of(capabilities)).payload)}
    assert listed["$CNTPPL"]["desc"] == "counts people in an image"
    assert listed["$CNTPPL"]["returns"] == "value"
    assert {f"${name}" for name in ENTRIES} < set(listed)


async def test_people_in_pictures_are_counted_and_added_up(client: Client) -> None:
    async with (
        client.subscribe("$CNTPPL/+/image") as counted,
        client.subscribe("$SUM$CNTPPL/+/image") as added,
        client.subscribe("$SUM$DAILYAVG$CNTPPL/+/image"),
    ):
        for room, people, together in (("hall", 1, 1), ("yard", 2, 3), ("hall", 0, 2)):
            await client.publish(f"{room}/image", encode(draw(people), ".jpg"), qos=1)
            value = await next_of(counted)
            assert (value.topic, value.payload) == (f"$CNTPPL/{room}/image", str(people).encode())
            assert (await next_of(added)).payload == str(together).encode()


async def test_processed_values_are_aggregated_over_time_and_topics(client: Client) -> None:
    async with client.subscribe("$SUM$WIN;1s;MAX$LENGTH/+/text") as aggregated:
        for topic, text in (("a/text", b"four"), ("b/text", b"seven77")):
            await client.publish(topic, text, qos=1)
        total = 0
        while total < 11:  # in one window, or in two if one ends between the messages
            total += int((await next_of(aggregated)).payload)
        assert total == 11


@pytest.mark.parametrize("version", [ProtocolVersion.V311, ProtocolVersion.V5])
async def test_clients_of_mqtt_get_values_and_errors_by_the_topic_alone(
    broker: Broker, version: ProtocolVersion
) -> None:
    async with aiomqtt.Client("localhost", broker.ports["tcp"], protocol=version) as client:
        await client.subscribe("$UPPER/mqtt/+", qos=1)
        for payload in (b"text", b"\xff"):
            await client.publish("mqtt/room", payload, qos=1)
        async with asyncio.timeout(PATIENCE_S):
            value, error = [await anext(client.messages) for _ in range(2)]
    assert (str(value.topic), value.payload) == ("$UPPER/mqtt/room", b"TEXT")
    assert str(error.topic) == "$ERROR/$UPPER/mqtt/room"
    assert isinstance(error.payload, bytes)
    assert error.payload.startswith(b"UnicodeDecodeError: ")


async def test_retained_messages_are_processed_again_for_a_session_that_survived_a_restart(data_dir: Path) -> None:
    def connected(broker: Broker) -> aiomqtt.Client:
        return aiomqtt.Client("localhost", broker.ports["tcp"], identifier="survivor", clean_session=False)

    with broker_with_functions(data_dir) as broker:
        async with connected(broker) as client:
            await client.publish("a/text", b"four", qos=1, retain=True)
            await client.subscribe("$SUM$LENGTH/+/text", qos=1)
        assert await asyncio.to_thread(broker.stop) == 0
    with broker_with_functions(data_dir) as broker:
        async with connected(broker) as client, asyncio.timeout(PATIENCE_S):
            await client.publish("b/text", b"seven77", qos=1)
            assert (await anext(client.messages)).payload == b"11"


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("FAIL", "ZeroDivisionError: division by zero"),
        ("END", "ended the worker with status 3"),
        ("FLOOD", "PluginError: returned 2000000 bytes; at most 1048576 are allowed"),
    ],
)
async def test_an_error_reaches_the_subscriber_and_others_notice_nothing(client: Client, name: str, words: str) -> None:
    async with (
        client.subscribe(f"${name}/room") as failing,
        client.subscribe("$LENGTH/room") as other,
        client.subscribe("room") as plain,
    ):
        await client.publish("room", b"2000000", qos=1)
        assert (await next_of(plain)).payload == b"2000000"
        assert (await next_of(other)).payload == b"7"
        told = await next_of(failing)
        assert (told.topic, told.payload) == (f"$ERROR/${name}/room", words.encode())


def function_figures(broker: Broker) -> dict[str, float]:
    with urllib.request.urlopen(f"http://localhost:{broker.ports['http']}/metrics", timeout=PATIENCE_S) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines() if line.startswith("moq_function_")]
    return {name.removeprefix("moq_function_"): float(value) for name, value in lines}


async def test_calls_and_what_became_of_them_are_counted(broker: Broker, client: Client) -> None:
    before = await asyncio.to_thread(function_figures, broker)
    async with client.subscribe("$UPPER/counted") as upper, client.subscribe("$END/counted") as end:
        for payload in (b"one", b"\xff"):
            await client.publish("counted", payload, qos=1)
            await next_of(upper)
            await next_of(end)
    after = await asyncio.to_thread(function_figures, broker)
    counted = {name: after[name] - before[name] for name in before if not name.endswith("_created")}
    assert counted.pop("busy_seconds_total") > 0
    assert counted == {
        "calls_outstanding": 0,
        "calls_total": 4,
        "errors_total": 1,
        "timeouts_total": 0,
        "crashes_total": 2,
        "refused_total": 0,
    }


async def test_a_function_without_end_is_an_error_to_its_subscriber(data_dir: Path) -> None:
    with broker_with_functions(data_dir, "--limit", "function_timeout_s=2") as broker:
        async with moq.connect(broker.url("tcp")) as client, client.subscribe("$SPIN/room") as failing:
            await client.publish("room", b"", qos=1)
            assert (await next_of(failing)).payload == b"took more than 2 seconds"


async def test_a_function_nobody_has_is_refused_with_the_reason(client: Client) -> None:
    with pytest.raises(moq.RequestRefused, match=r"\$NOTHERE"):
        async with client.subscribe("$NOTHERE/room"):
            pass


# --- processes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_worker_outlives_its_broker(data_dir: Path, number: int) -> None:
    with broker_with_functions(data_dir) as broker:
        async with (
            moq.connect(broker.url("tcp"), reconnect=False) as client,
            client.subscribe("$WHO/room") as who,
            client.subscribe("$SPIN/other"),
        ):
            await client.publish("room", b"", qos=1)
            pid = int((await next_of(who)).payload)
            await client.publish("other", b"", qos=1)
            started = workers(broker.process.pid)
            assert pid in started
            code = await asyncio.to_thread(broker.stop, number)
        assert code == (-number if number == signal.SIGKILL else 0)
        await asyncio.to_thread(wait_for_the_end_of, started)


async def test_a_worker_has_nothing_of_the_broker_open(broker: Broker, client: Client) -> None:
    async with client.subscribe("$WHO/room") as who:
        await client.publish("room", b"", qos=1)
        pid = int((await next_of(who)).payload)
    opened = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    assert len([name for name in opened if name.startswith("socket:")]) == 1
    assert not [name for name in opened if str(broker.data_dir) in name]

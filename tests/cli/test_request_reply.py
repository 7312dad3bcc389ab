"""`moq request`, `moq reply` and `moq types` against a real broker."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Self

import pytest

import moq as library
from tests.running import MOQ, Broker, Running, moq


class Replier(Running):
    """`moq reply`; inside `with` it answers."""

    def __init__(self, broker: Broker, topic: str, *options: str) -> None:
        super().__init__(*MOQ, "reply", broker.url("tcp"), topic, *options)

    def __enter__(self) -> Self:
        self.wait_for("answering requests")
        return self


@pytest.mark.parametrize(
    ("options", "response"),
    [
        (("-m", "pong"), b"pong\n"),
        (("--echo",), b"ping\n"),
        (("--exec", "tr a-z A-Z; echo $MOQ_TOPIC"), b"PINGreply/x"),
    ],
)
def test_a_request_gets_its_response(broker: Broker, options: tuple[str, ...], response: bytes) -> None:
    with Replier(broker, "reply/x", "-c", "1", *options) as replier:
        done = moq("request", broker.url("quic"), "reply/x", "-m", "ping", "--data-dir", str(broker.data_dir))
        assert (done.returncode, done.stdout.startswith(response)) == (0, True), done
        assert replier.wait() == 0
    assert replier.stdout == ["reply/x ping"]


def test_a_response_is_written_raw_or_as_json(broker: Broker) -> None:
    with Replier(broker, "reply/raw", "--echo"):
        raw = moq("request", broker.url("tcp"), "reply/raw", "-f", "-", "--raw", stdin=b"\x00\xff")
        machine = moq("request", broker.url("tcp"), "reply/raw", "-m", "ping", "--json")
    assert raw.stdout == b"\x00\xff"
    assert json.loads(machine.stdout)["payload"] == "ping"


def test_nobody_to_answer_is_exit_code_4(broker: Broker) -> None:
    done = moq("request", broker.url("tcp"), "reply/nobody", "-m", "ping")
    assert done.returncode == 4
    assert b"no responder" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_response_that_does_not_come_is_exit_code_5(broker: Broker) -> None:
    with Replier(broker, "reply/failing", "--exec", "exit 7") as replier:
        done = moq("request", broker.url("tcp"), "reply/failing", "-m", "ping", "--timeout", "1")
        assert done.returncode == 5
        replier.wait_for("'exit 7' ended with status 7")


@dataclass
class Reading:
    """A temperature."""

    celsius: float


async def announce(url: str) -> None:
    async with library.connect(url) as client:
        await client.publish("types/temp", Reading(21.5), qos=1)


def test_types_lists_what_publishers_announced(broker: Broker) -> None:
    asyncio.run(announce(broker.url("tcp")))
    line = moq("types", broker.url("tcp"), "types/#")
    assert line.stdout.decode().startswith("types/temp json_schema application/json {"), line
    machine = json.loads(moq("types", broker.url("tcp"), "types/#", "--json").stdout)
    assert machine["topic"] == "types/temp"
    assert machine["schema"]["properties"] == {"celsius": {"type": "number"}}


def test_types_of_unknown_topics_are_none(broker: Broker) -> None:
    done = moq("types", broker.url("tcp"), "nothing/here/#")
    assert (done.returncode, done.stdout) == (0, b"")

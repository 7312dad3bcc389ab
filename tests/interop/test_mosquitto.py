"""Mosquitto's command line clients against the broker."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.running import PATIENCE_S, Running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto_rr") is None, reason="mosquitto_pub, mosquitto_sub and mosquitto_rr are not installed"
)

VERSIONS = ("mqttv311", "mqttv5")


def mosquitto(command: str, port: int, *arguments: str) -> str:
    """Run one command to its end; returns what it printed."""
    done = subprocess.run(
        [f"mosquitto_{command}", "-p", str(port), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def subscriber(port: int, topic: str, *arguments: str) -> Running:
    """A `mosquitto_sub` that is subscribed when this returns."""
    running = Running("stdbuf", "-oL", "mosquitto_sub", "-d", "-p", str(port), "-t", topic, *arguments)
    running.wait_for("Subscribed")
    return running


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("publisher_version", VERSIONS)
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_what_is_published_is_printed(port: int, topic: str, version: str, publisher_version: str, qos: str) -> None:
    with subscriber(port, topic, "-V", version, "-q", qos, "-C", "1", "-F", "%t %p %q") as running:
        mosquitto("pub", port, "-V", publisher_version, "-t", topic, "-q", qos, "-m", "21.5")
        running.wait_for(f"{topic} 21.5 {qos}")


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_every_line_of_a_file_arrives_in_order(port: int, topic: str, version: str, qos: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(200))
    with subscriber(port, topic, "-V", version, "-q", qos, "-C", "200", "-F", "%p") as running:
        subprocess.run(
            ["mosquitto_pub", "-p", str(port), "-V", version, "-q", qos, "-t", topic, "-l"],
            input=lines,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        assert running.wait() == 0
    assert [line for line in running.stdout if line.startswith("line ")] == lines.splitlines()


def test_a_retained_message_is_given_and_can_be_removed(port: int, topic: str, version: str) -> None:
    mosquitto("pub", port, "-V", version, "-t", topic, "-r", "-q", "1", "-m", "kept")
    assert mosquitto("sub", port, "-V", version, "-t", topic, "-C", "1", "-F", "%r %p") == "1 kept\n"
    mosquitto("pub", port, "-V", version, "-t", topic, "-r", "-q", "1", "-n")
    with subscriber(port, topic, "-V", version, "-C", "1", "-F", "%r %p") as running:
        mosquitto("pub", port, "-V", version, "-t", topic, "-m", "live")
        running.wait_for("0 live")


def test_a_session_keeps_messages_while_its_client_is_away(port: int, topic: str, version: str) -> None:
    session: tuple[str, ...] = ("-V", version, "-i", topic.replace("/", "-"), "-c", "-q", "2", "-t", topic)
    if version == "mqttv5":
        session += ("-x", "600")
    mosquitto("sub", port, *session, "-E")
    for number in range(3):
        mosquitto("pub", port, "-V", version, "-t", topic, "-q", "2", "-m", f"{number}")
    assert mosquitto("sub", port, *session, "-C", "3") == "0\n1\n2\n"


def test_a_will_is_published_when_its_client_is_killed(port: int, topic: str, version: str) -> None:
    with subscriber(port, topic, "-V", version, "-C", "1", "-F", "%p") as running:
        with subscriber(port, f"{topic}/x", "-V", version, "--will-topic", topic, "--will-payload", "gone") as device:
            device.process.kill()
        running.wait_for("gone")


def test_members_of_a_shared_subscription_divide_the_messages(port: int, topic: str) -> None:
    """Each member also has the end to itself: what comes before it has arrived when it does."""
    member = (f"$share/group/{topic}", "-t", f"{topic}/end", "-V", "mqttv5", "-q", "1", "-F", "got %p")
    with subscriber(port, *member) as first, subscriber(port, *member) as second:
        for number in range(10):
            mosquitto("pub", port, "-V", "mqttv5", "-q", "1", "-t", topic, "-m", f"{number}")
        mosquitto("pub", port, "-V", "mqttv5", "-q", "1", "-t", f"{topic}/end", "-m", "end")
        for running in (first, second):
            running.wait_for("got end")
    lines = [line for running in (first, second) for line in running.stdout if line.startswith("got ")]
    assert sorted(lines) == sorted([*(f"got {number}" for number in range(10)), "got end", "got end"])


@pytest.fixture
def responder(port: int, topic: str) -> Iterator[Running]:
    """Prints the requests it gets, with the topic to answer on."""
    with subscriber(port, topic, "-V", "mqttv5", "-q", "1", "-F", "request %p to %R with %D") as running:
        yield running


def test_mosquitto_rr_gets_its_answer(port: int, topic: str, responder: Running) -> None:
    with Running(
        *("mosquitto_rr", "-V", "mqttv5", "-p", str(port), "-t", topic, "-e", f"{topic}/answer", "-q", "1"),
        *("-D", "publish", "correlation-data", "c7", "-m", "how warm?"),
    ) as requester:
        responder.wait_for(f"request how warm? to {topic}/answer with c7")
        mosquitto("pub", port, "-V", "mqttv5", "-q", "1", "-t", f"{topic}/answer", "-m", "21.5")
        requester.wait_for("21.5")
        assert requester.wait() == 0


def test_properties_are_printed_as_they_were_given(port: int, topic: str) -> None:
    form = "%P | %C | %R | %D | %p"
    with subscriber(port, topic, "-V", "mqttv5", "-q", "1", "-C", "1", "-F", form) as running:
        mosquitto(
            *("pub", port, "-V", "mqttv5", "-q", "1", "-t", topic, "-m", "x"),
            *("-D", "publish", "user-property", "b", "2", "-D", "publish", "user-property", "a", "1"),
            *("-D", "publish", "content-type", "text/plain", "-D", "publish", "response-topic", "r/t"),
            *("-D", "publish", "correlation-data", "data"),
        )  # fmt: skip
        running.wait_for("b:2 a:1 | text/plain | r/t | data | x")

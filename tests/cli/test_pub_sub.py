"""`moq pub` and `moq sub` against a real broker."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from typing import TYPE_CHECKING, Self

import pytest

from tests.running import MOQ, PATIENCE_S, Broker, Running, moq

if TYPE_CHECKING:
    from pathlib import Path

SCHEMES = ("quic", "tcp", "tls")


class Subscriber(Running):
    """`moq sub`; inside `with` its subscription stands."""

    def __init__(self, broker: Broker, filter_: str, *options: str, scheme: str = "tcp") -> None:
        super().__init__(*MOQ, "sub", broker.url(scheme), filter_, "--data-dir", str(broker.data_dir), *options)

    def __enter__(self) -> Self:
        self.wait_for("subscribed to")
        return self


def pub(broker: Broker, topic: str, *options: str, scheme: str = "tcp", stdin: bytes = b"") -> None:
    done = moq("pub", broker.url(scheme), topic, "--data-dir", str(broker.data_dir), *options, stdin=stdin)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("subscriber_scheme", SCHEMES)
@pytest.mark.parametrize("publisher_scheme", SCHEMES)
def test_what_is_published_over_one_transport_arrives_over_another(
    broker: Broker, publisher_scheme: str, subscriber_scheme: str
) -> None:
    topic = f"pair/{publisher_scheme}/{subscriber_scheme}"
    with Subscriber(broker, f"{topic}/#", "-c", "1", scheme=subscriber_scheme) as subscriber:
        pub(broker, f"{topic}/light", "-m", "on", scheme=publisher_scheme)
        assert subscriber.wait() == 0
    assert subscriber.stdout == [f"{topic}/light on"]


def test_auto_finds_a_transport_that_works(broker: Broker) -> None:
    with Subscriber(broker, "auto/x", "-c", "1") as subscriber:
        url = "auto://localhost?" + "&".join(f"{scheme}={broker.ports[scheme]}" for scheme in SCHEMES)
        done = moq("pub", url, "auto/x", "-m", "on", "--data-dir", str(broker.data_dir))
        assert done.returncode == 0, done.stderr
        assert subscriber.wait() == 0


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_every_qos_is_carried(broker: Broker, qos: str) -> None:
    with Subscriber(broker, f"qos/{qos}", "-c", "1", "-q", "2", "--json") as subscriber:
        pub(broker, f"qos/{qos}", "-m", "hi", "-q", qos)
        assert subscriber.wait() == 0
    assert json.loads(subscriber.stdout[0]) == {
        "topic": f"qos/{qos}",
        "qos": int(qos),
        "retain": False,
        "payload": "hi",
    }


def test_a_payload_comes_from_standard_input_and_leaves_raw(broker: Broker, tmp_path: Path) -> None:
    payload = bytes(range(256)) * 1000
    command = [*MOQ, "sub", broker.url("tcp"), "raw/x", "-c", "1", "--raw", "--data-dir", str(broker.data_dir)]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)
        assert process.stderr is not None
        with process.stderr as stderr:
            assert b"subscribed to" in stderr.readline()
            pub(broker, "raw/x", "-f", "-", stdin=payload)
            assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "out").read_bytes() == payload


def test_a_payload_comes_from_a_file(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "payload").write_text("from a file")
    with Subscriber(broker, "file/x", "-c", "1") as subscriber:
        pub(broker, "file/x", "-f", str(tmp_path / "payload"))
        subscriber.wait()
    assert subscriber.stdout == ["file/x from a file"]


def test_binary_is_shown_as_size_and_hex_and_base64_in_json(broker: Broker) -> None:
    payload = b"\x00\xff" * 20
    with (
        Subscriber(broker, "binary/x", "-c", "1") as readable,
        Subscriber(broker, "binary/x", "-c", "1", "--json") as machine,
    ):
        pub(broker, "binary/x", "-f", "-", stdin=payload)
        readable.wait()
        machine.wait()
    assert readable.stdout == ["binary/x (40 bytes) " + "00 ff " * 16 + "..."]
    assert base64.b64decode(json.loads(machine.stdout[0])["payload_base64"]) == payload


def test_a_retained_message_reaches_a_later_subscriber(broker: Broker) -> None:
    pub(broker, "retained/x", "-m", "kept", "--retain")
    done = moq("sub", broker.url("tcp"), "retained/x", "-c", "1", "--json")
    assert json.loads(done.stdout) == {"topic": "retained/x", "qos": 1, "retain": True, "payload": "kept"}


def test_each_line_is_written_at_once(broker: Broker) -> None:
    with Subscriber(broker, "line/x") as subscriber:
        for number in range(3):
            pub(broker, "line/x", "-m", str(number))
            assert subscriber.wait_for("line/x") == f"line/x {number}"


def test_one_member_of_a_group_gets_each_message(broker: Broker) -> None:
    with (
        Subscriber(broker, "group/x", "--group", "workers", "-c", "1") as one,
        Subscriber(broker, "group/x", "--group", "workers", "-c", "1") as other,
    ):
        pub(broker, "group/x", "-m", "first")
        pub(broker, "group/x", "-m", "second")
        assert (one.wait(), other.wait()) == (0, 0)
    assert sorted(one.stdout + other.stdout) == ["group/x first", "group/x second"]


def test_a_period_lets_the_first_and_the_last_of_a_burst_through(broker: Broker) -> None:
    with Subscriber(broker, "period/+", "-c", "2", "--period", "300", "-q", "1") as subscriber:
        for number in range(3):
            pub(broker, "period/x", "-m", str(number), "-q", "1")
        assert subscriber.wait() == 0
    assert subscriber.stdout[0] == "period/x 0"


def test_what_the_broker_refuses_is_exit_code_4(broker: Broker) -> None:
    done = moq("sub", broker.url("tcp"), "$AVGG/x", "-c", "1")
    assert (done.returncode, done.stdout) == (4, b"")
    assert done.stderr.startswith(b"moq: SUBSCRIBE '$AVGG/x': ")


def test_too_few_messages_in_time_is_exit_code_5(broker: Broker) -> None:
    done = moq("sub", broker.url("tcp"), "silence", "-c", "1", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (5, b"")
    assert done.stderr.splitlines()[-1] == b"moq: not done within 0.5 s"


def test_ctrl_c_and_sigterm_end_a_subscriber_without_complaint(broker: Broker) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with Subscriber(broker, "ending/x") as subscriber:
            assert subscriber.stop(number) == code
        assert len(subscriber.stderr) == 1


def test_a_reader_that_goes_away_ends_the_subscriber_without_complaint(broker: Broker) -> None:
    command = [*MOQ, "sub", broker.url("tcp"), "pipe/x"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stderr as stderr:
        stderr.readline()
        process.stdout.close()
        pub(broker, "pipe/x", "-m", "unread")
        assert process.wait(PATIENCE_S) == 141
        assert stderr.read() == b""


def test_a_broker_that_is_not_there_is_exit_code_3_with_a_hint() -> None:
    done = moq("pub", "tcp://localhost:1", "a", "-m", "x")
    assert done.returncode == 3
    assert done.stderr.startswith(b"moq: no broker answers at tcp://localhost:1 (is `scripts/broker` running?)")
    assert done.stderr.count(b"\n") == 1


def test_a_broker_whose_certificate_is_not_trusted_is_exit_code_3(broker: Broker, tmp_path: Path) -> None:
    done = moq("pub", broker.url("tls"), "a", "-m", "x", "--data-dir", str(tmp_path))
    assert done.returncode == 3
    assert b"certificate" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_the_authority_can_be_named(broker: Broker, tmp_path: Path) -> None:
    ca = broker.data_dir / "certs" / "ca.pem"
    for scheme in ("tls", "quic"):
        done = moq("pub", broker.url(scheme), "a", "-m", "x", "--data-dir", str(tmp_path), "--ca", str(ca))
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("pub", "http://localhost", "a", "-m", "x"), "must begin with one of"),
        (("pub", "tcp://localhost:1", "a"), "one of the arguments -m/--message -f/--file is required"),
        (("pub", "tcp://localhost:1", "a", "-m", "x", "-q", "4"), "invalid choice"),
        (("sub", "tcp://localhost:1", "a", "-c", "0"), "0 is not greater than 0"),
        (("sub", "tcp://localhost:1", "a", "--timeout", "-1"), "-1 is not a positive number of seconds"),
        (("sub", "tcp://localhost:1", "a", "--raw", "--json"), "not allowed with argument"),
        (("nonsense",), "invalid choice: 'nonsense'"),
        ((), "required: COMMAND"),
    ],
)
def test_wrong_options_are_exit_code_2_and_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    done = moq(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_a_topic_with_wildcards_cannot_be_published_to(broker: Broker) -> None:
    done = moq("pub", broker.url("tcp"), "room/#", "-m", "x")
    assert done.returncode == 2
    assert done.stderr == b"moq: topic name 'room/#' contains a wildcard\n"


def test_a_file_that_is_not_there_is_exit_code_1() -> None:
    done = moq("pub", "tcp://localhost:1", "a", "-f", "/nonexistent")
    assert (done.returncode, done.stderr) == (1, b"moq: /nonexistent: No such file or directory\n")

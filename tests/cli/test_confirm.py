"""`moq pub --confirm` against a real broker and real subscribers."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import pytest

from moq.cli.exits import Exit
from tests.cli.test_pub_sub import Subscriber
from tests.running import Broker, moq

if TYPE_CHECKING:
    import subprocess


def confirmed(broker: Broker, topic: str, *options: str, scheme: str = "tcp") -> subprocess.CompletedProcess[bytes]:
    url, data_dir = broker.url(scheme), str(broker.data_dir)
    return moq("pub", url, topic, "-m", "news", "--data-dir", data_dir, "--confirm", *options)


@pytest.mark.parametrize("scheme", ["quic", "tcp", "tls"])
def test_it_prints_who_has_confirmed_and_when(broker: Broker, scheme: str) -> None:
    topic = f"confirm/{scheme}"
    with (
        Subscriber(broker, topic, "-c", "1", "--client-id", f"{scheme}-a", scheme=scheme) as one,
        Subscriber(broker, topic, "-c", "1", "--client-id", f"{scheme}-b", "-q", "2", scheme=scheme) as two,
    ):
        done = confirmed(broker, topic, "2", "--timeout", "10", scheme=scheme)
        assert (done.returncode, done.stderr) == (Exit.OK, b"")
        assert one.wait() == two.wait() == 0
    lines = done.stdout.decode().splitlines()
    assert sorted(line.split()[0] for line in lines) == [f"{scheme}-a", f"{scheme}-b"]
    assert all(re.fullmatch(r"\S+ \d+ ms", line) for line in lines)


def test_machines_get_json(broker: Broker) -> None:
    with Subscriber(broker, "confirm/json", "-c", "1", "--client-id", "json-a"):
        done = confirmed(broker, "confirm/json", "0", "--json")
    (line,) = done.stdout.decode().splitlines()
    shown = json.loads(line)
    assert shown.pop("after_s") >= 0
    assert shown == {"client_id": "json-a"}


def test_too_few_subscribers_are_refused_and_the_missing_named(broker: Broker) -> None:
    with Subscriber(broker, "confirm/few", "--client-id", "few-a"):
        done = confirmed(broker, "confirm/few", "2", "--subscriber", "few-a", "--subscriber", "few-b")
    assert (done.returncode, done.stdout) == (Exit.REFUSED, b"")
    assert b"0 of 2 confirmed, missing 'few-a', 'few-b': too few subscribers (0xc5)" in done.stderr


def test_a_deadline_that_passes_is_a_timeout_and_those_in_time_are_printed(broker: Broker) -> None:
    quick = Subscriber(broker, "confirm/late", "-c", "1", "--client-id", "late-a")
    silent = Subscriber(broker, "confirm/late", "--client-id", "late-b")
    with quick, silent:
        silent.process.send_signal(signal.SIGSTOP)
        done = confirmed(broker, "confirm/late", "2", "--timeout", "1")
    assert done.returncode == Exit.TIMEOUT
    assert done.stdout.startswith(b"late-a ")
    assert b"1 of 2 confirmed ('late-a'): confirmation timed out (0xc6)" in done.stderr


@pytest.mark.parametrize("options", [["--subscriber", "a"], ["--json"]])
def test_options_for_confirmations_need_confirm(broker: Broker, options: list[str]) -> None:
    done = moq("pub", broker.url("tcp"), "t", "-m", "x", *options)
    assert done.returncode == Exit.USAGE
    assert b"--confirm" in done.stderr


def test_more_than_are_named_is_wrong_usage(broker: Broker) -> None:
    done = confirmed(broker, "t", "2", "--subscriber", "a")
    assert done.returncode == Exit.USAGE
    assert b"confirm is 2, more than the 1 subscribers" in done.stderr

"""`moq broker`: settings, the ready line, stopping."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

import certs
from moq.cli import broker as command
from moq.cli.main import make_parser
from moq.config import BrokerConfig
from tests.running import FREE_PORTS, MOQ, Broker, Running, moq

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_0(tmp_path: Path, number: int) -> None:
    with Broker(tmp_path) as broker:
        assert broker.stop(number) == 0
    assert len(broker.stdout) == 1


def test_the_ready_line_names_every_port(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        ready = json.loads(broker.stdout[0])
        assert ready.pop("event") == "ready"
        assert ready.keys() == {"tcp", "tls", "quic", "http", "ws", "wss"}
        assert all(ready.values())
        with urllib.request.urlopen(f"http://127.0.0.1:{ready['http']}/healthz", timeout=10) as answer:
            assert answer.status == 200


def test_a_broker_with_a_subscriber_drains_and_exits_0(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Running(*MOQ, "sub", broker.url("tcp"), "a") as subscriber:
        subscriber.wait_for("subscribed to")
        assert broker.stop() == 0


def test_the_data_directory_comes_from_the_environment(tmp_path: Path) -> None:
    with Running(*MOQ, "broker", *FREE_PORTS, MOQ_DATA_DIR=str(tmp_path / "data")) as broker:
        broker.wait_for("ready")
    assert (tmp_path / "data" / "certs" / "server.pem").exists()


@pytest.mark.parametrize("scheme", ["tcp", "tls", "quic", "http"])
def test_a_port_in_use_is_one_line_that_names_it(tmp_path: Path, scheme: str) -> None:
    kind = socket.SOCK_DGRAM if scheme == "quic" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        port = taken.getsockname()[1]
        done = moq("broker", *FREE_PORTS, f"--{scheme}-port", str(port), "--data-dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    (message,) = [line for line in done.stderr.decode().splitlines() if " INFO " not in line]
    assert message.startswith(f"moq: {scheme}_port is {port}: ")
    assert "address already in use" in message.lower()


def test_good_settings_pass_the_check(tmp_path: Path) -> None:
    (tmp_path / "moq.toml").write_text("tcp_port = 0\n[limits]\nmax_inflight = 10\n")
    done = moq("broker", "--config", str(tmp_path / "moq.toml"), "--check-config")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"moq: the settings can be used\n")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--tcp-port", "70000"), "moq: tcp_port is 70000; a port is 0 (any free one) to 65535\n"),
        (("--limit", "max_inflight=0"), "moq: limits.max_inflight is 0; it must be greater than 0\n"),
        (("--limit", "max_inflight"), "moq broker: argument --limit: max_inflight is not NAME=NUMBER"),
        (("--limit", "nonsense=1"), "moq: limits.nonsense is not a setting\n"),
        (("--host", "0.0.0.0"), "moq: host is '0.0.0.0', which others can reach"),
        (("--config", "/nonexistent.toml"), "moq: cannot read the configuration /nonexistent.toml: No such file"),
        (("--tcp-por", "1"), "moq: unrecognized arguments: --tcp-por 1"),
    ],
)
def test_settings_that_cannot_be_used_are_exit_code_2(options: tuple[str, ...], complaint: str) -> None:
    done = moq("broker", "--check-config", *options)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(complaint)
    assert done.stderr.count(b"\n") == 1


def check(tmp_path: Path, *options: str, **settings: object) -> list[str]:
    """The complaints about a configuration file and options, without the name of the program."""
    file = tmp_path / "moq.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    done = moq("broker", "--config", str(file), "--check-config", *options, MOQ_DATA_DIR=str(tmp_path / "data"))
    assert done.returncode == (0 if done.stderr == b"moq: the settings can be used\n" else 2)
    return [line.removeprefix("moq: ") for line in done.stderr.decode().splitlines()]


def test_ports_that_exclude_each_other_are_named_with_their_file(tmp_path: Path) -> None:
    rule = "each listener needs a port of its own"
    assert check(tmp_path, "--http-port", "5000", tcp_port=5000, tls_port=5000, quic_port=5000, wss_port=0) == [
        f"{tmp_path}/moq.toml: tls_port is 5000, which is tcp_port too; {rule}",
        f"http_port is 5000, which is tcp_port too; {rule}",
    ]


def test_a_data_directory_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    for data_dir in (in_the_way, in_the_way / "below"):
        assert check(tmp_path, data_dir=str(data_dir)) == [
            f"{tmp_path}/moq.toml: data_dir is '{data_dir}': {in_the_way} is not a directory"
        ]
    assert check(tmp_path, data_dir=str(tmp_path / "yet" / "to" / "be" / "made")) == ["the settings can be used"]
    assert not (tmp_path / "yet").exists()


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path / "data")
    assert check(tmp_path) == ["the settings can be used"]
    where.server_key.write_bytes(where.ca_key.read_bytes())
    (complaint,) = check(tmp_path)
    assert complaint.startswith(
        f"data_dir is '{tmp_path}/data': certificate {where.server} with private key {where.server_key}: "
    )


def test_every_complaint_is_told_and_names_setting_file_and_rule(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text('[[rule]]\nallow = ["fly"]\n')
    first, second = check(tmp_path, "--access-file", str(access), users_file="missing.toml")
    assert first.startswith(
        f"{tmp_path}/moq.toml: users_file is 'missing.toml': cannot read the users file missing.toml: No such file"
    )
    assert second.startswith(
        f"access_file is '{access}': the access file {access}: rule 1: allow has 'fly'; known are publish, "
    )


def test_every_setting_has_an_option_of_its_name() -> None:
    args = vars(make_parser().parse_args(["broker"]))
    assert {field.name for field in fields(BrokerConfig)} - {"limits"} <= args.keys()
    assert set(command.SETTINGS) == {field.name for field in fields(BrokerConfig)} - {"limits"}

"""`moq users`, a broker with users, and clients that log in to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import queue
import stat
import subprocess
from typing import IO, TYPE_CHECKING

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

import moq as library
from moq.reasons import Reason
from moq.security.scram import METHOD, matches
from moq.security.users import load_users
from moq.wire import mqtt
from tests.broker.mqtt.test_authentication import Scram
from tests.running import MOQ, PATIENCE_S, Broker, Running, moq
from tests.server.mqtt_client import MQTTClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

V4, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
PASSWORD = "through-the-looking-glass"
CTRL_D = b"\x04"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.toml"


def add(name: str, file: Path, password: str = PASSWORD) -> None:
    done = moq("users", "add", name, "--file", str(file), stdin=f"{password}\n".encode())
    assert (done.returncode, done.stdout) == (0, b""), done.stderr


# --- the command --------------------------------------------------------------------------------------


def test_users_are_added_listed_and_removed(file: Path) -> None:
    add("bob", file)
    add("alice", file)
    listed = moq("users", "list", "--file", str(file))
    assert (listed.returncode, listed.stdout) == (0, b"alice\nbob\n")
    assert moq("users", "remove", "bob", "--file", str(file)).returncode == 0
    listed = moq("users", "list", "--json", "--file", str(file))
    assert [json.loads(line) for line in listed.stdout.splitlines()] == [
        {"name": "alice", "method": "SCRAM-SHA-256", "iterations": 4096}
    ]


def test_the_file_is_in_the_data_directory_for_its_owner_alone_and_has_no_password(tmp_path: Path) -> None:
    done = moq("users", "add", "alice", stdin=b"wonder\n", MOQ_DATA_DIR=str(tmp_path / "data"))
    path = tmp_path / "data" / "users.toml"
    assert done.stderr.decode() == f"moq: added 'alice' in {path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "wonder" not in path.read_text()
    assert moq("users", "list", "--data-dir", str(path.parent)).stdout == b"alice\n"


def test_adding_a_user_again_changes_the_password(file: Path) -> None:
    add("alice", file, "first")
    done = moq("users", "add", "alice", "--file", str(file), stdin=b"second\r\nthird\n")
    assert done.stderr.decode() == f"moq: changed the password of 'alice' in {file}\n"
    (verifier,) = load_users(file).values()
    assert matches(verifier, b"second")


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (("add", "alice"), b"\n", "the password is empty or has characters that are not allowed (RFC 4013)"),
        (("add", "alice"), b"", "the password is empty or has characters that are not allowed (RFC 4013)"),
        (("add", "alice"), b"\xff\n", "the password is not UTF-8"),
        (("add", "alice"), b"x" * 1000, "the password has more than 255 bytes"),
        (("add", ""), b"x\n", "the user name '' cannot be used: nothing is left of the text (RFC 4013)"),
        (("remove", "mallory"), b"", "the users file {file} has no user 'mallory'"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    file: Path, arguments: tuple[str, ...], stdin: bytes, complaint: str
) -> None:
    add("bob", file)
    before = file.read_bytes()
    done = moq("users", *arguments, "--file", str(file), stdin=stdin)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"moq: {complaint.format(file=file)}\n"
    assert file.read_bytes() == before


@pytest.mark.parametrize("arguments", [("list",), ("remove", "alice")])
def test_without_a_file_there_is_a_hint(file: Path, arguments: tuple[str, ...]) -> None:
    done = moq("users", *arguments, "--file", str(file))
    assert done.returncode == 2
    assert b"`moq users add NAME` makes one" in done.stderr


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ((b"wonder\n", b"wonder\n"), 0, b"added 'alice'"),
        ((b"wonder\n", b"other\n"), 2, b"the two passwords are not the same"),
        ((b"wonder\n", CTRL_D), 2, b"no password was given"),
    ],
)
def test_on_a_terminal_the_password_is_asked_for_twice_without_echo(
    file: Path, answers: tuple[bytes, bytes], code: int, said: bytes
) -> None:
    prompts = dict(zip((b"Password for alice: ", b"The same again: "), answers, strict=True))
    ended, stderr, shown = on_terminal(["users", "add", "alice", "--file", str(file)], prompts)
    assert ended == code
    assert said in stderr
    assert file.exists() == (code == 0)
    assert b"wonder" not in shown


def on_terminal(arguments: list[str], answers: dict[bytes, bytes]) -> tuple[int, bytes, bytes]:
    """Run `moq` on a terminal, answering its prompts; gives exit code, stderr and what the terminal shows."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*MOQ, *arguments],
        stdin=theirs,
        stderr=subprocess.PIPE,
        start_new_session=True,  # away from the terminal the tests may run on, which would be asked instead
    ) as process:
        os.close(theirs)
        assert process.stderr is not None
        for prompt, answer in answers.items():
            read_until(process.stderr, prompt)
            os.write(ours, answer)
        stderr = process.stderr.read()
    return process.returncode, stderr, rest_of(ours)


def read_until(stream: IO[bytes], text: bytes) -> None:
    seen = b""
    while not seen.endswith(text):
        char = stream.read(1)
        assert char, f"ended after {seen!r}"
        seen += char


def rest_of(terminal: int) -> bytes:
    """What a terminal whose other end is closed has still to show."""
    with contextlib.closing(os.fdopen(terminal, "rb", buffering=0)) as stream, contextlib.suppress(OSError):
        return stream.read(65536) or b""
    return b""


# --- the broker ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that lets nobody in but alice."""
    data_dir = tmp_path_factory.mktemp("closed")
    add("alice", data_dir / "users.toml")
    with Broker(data_dir, "--users-file", str(data_dir / "users.toml")) as broker:
        yield broker


def pub(
    broker: Broker, user: str | None = None, password: str | None = None, scheme: str = "tcp"
) -> subprocess.CompletedProcess[bytes]:
    arguments = ["pub", broker.url(scheme), "a", "-m", "x", "--data-dir", str(broker.data_dir)]
    if user is not None:
        arguments += ["--user", user]
    return moq(*arguments) if password is None else moq(*arguments, MOQ_PASSWORD=password)


def paho_answer(broker: Broker, version: MQTTProtocolVersion, user: str | None, password: str | None) -> str:
    """What a paho client is told when it connects."""
    answers: queue.Queue[str] = queue.Queue()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version, reconnect_on_failure=False)
    client.username_pw_set(user, password)
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.put(str(reason))
    client.connect("localhost", broker.ports["tcp"])
    client.loop_start()
    try:
        return answers.get(timeout=PATIENCE_S)
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("scheme", ["tcp", "tls", "quic"])
def test_moq_logs_in_with_the_password_of_the_environment(closed_broker: Broker, scheme: str) -> None:
    done = pub(closed_broker, "alice", PASSWORD, scheme)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("alice", "wrong", "bad user name or password (0x86)"),
        ("mallory", PASSWORD, "bad user name or password (0x86)"),
        (None, PASSWORD, "not authorized (0x87)"),
    ],
)
def test_moq_ends_with_exit_code_4_if_it_is_not_let_in(
    closed_broker: Broker, user: str | None, password: str, reason: str
) -> None:
    done = pub(closed_broker, user, password)
    assert done.returncode == 4
    assert done.stderr.decode().endswith(f" refused the connection: {reason}\n")
    assert done.stderr.count(b"\n") == 1


def test_a_subscriber_that_is_not_let_in_does_not_try_again(closed_broker: Broker) -> None:
    done = moq("sub", closed_broker.url("tcp"), "a", "--user", "alice", MOQ_PASSWORD="wrong")
    assert done.returncode == 4


def test_a_user_without_a_password_and_a_terminal_is_told_where_to_put_it(
    closed_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOQ_PASSWORD", raising=False)
    done = pub(closed_broker, "alice")
    assert done.returncode == 2
    assert done.stderr.startswith(b"moq: --user alice needs a password; set MOQ_PASSWORD")


@pytest.mark.parametrize(
    ("answer", "code"), [(f"{PASSWORD}\n".encode(), 0), (b"wrong\n", 4), (CTRL_D, 2)], ids=["right", "wrong", "none"]
)
def test_on_a_terminal_a_client_asks_for_the_password(
    closed_broker: Broker, monkeypatch: pytest.MonkeyPatch, answer: bytes, code: int
) -> None:
    monkeypatch.delenv("MOQ_PASSWORD", raising=False)
    arguments = ["pub", closed_broker.url("tcp"), "a", "-m", "x", "--user", "alice"]
    ended, _, shown = on_terminal(arguments, {b"Password for alice: ": answer})
    assert ended == code
    assert PASSWORD.encode() not in shown


async def test_the_library_learns_why_it_was_not_let_in(closed_broker: Broker) -> None:
    client = library.connect(closed_broker.url("tcp"), user_name="alice", password="wrong")
    with pytest.raises(library.ConnectFailed) as caught:
        await client.__aenter__()
    assert caught.value.reason == Reason.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize(
    ("user", "password", "answer"),
    [
        ("alice", PASSWORD, "Success"),
        ("alice", "wrong", "Bad user name or password"),
        ("mallory", PASSWORD, "Bad user name or password"),
        (None, None, "Not authorized"),
    ],
)
def test_paho_is_let_in_with_the_right_password_only(
    closed_broker: Broker, version: MQTTProtocolVersion, user: str | None, password: str | None, answer: str
) -> None:
    assert paho_answer(closed_broker, version, user, password) == answer


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("alice", PASSWORD, Reason.SUCCESS),
        ("alice", "wrong", Reason.NOT_AUTHORIZED),
        ("mallory", PASSWORD, Reason.NOT_AUTHORIZED),
    ],
)
async def test_scram_proves_the_password_without_sending_it(
    closed_broker: Broker, user: str, password: str, reason: Reason
) -> None:
    client = MQTTClient.over_streams(*await asyncio.open_connection("localhost", closed_broker.ports["tcp"]))
    scram = Scram(user, password)
    await client.send(mqtt.Connect(mqtt.VERSION_5, client_id=f"{user}-scram", properties=step(scram.first)))
    challenge = await client.read()
    assert isinstance(challenge, mqtt.Auth)
    assert challenge.properties is not None
    final = scram.final(challenge.properties.authentication_data or b"")
    await client.send(mqtt.Auth(Reason.CONTINUE_AUTHENTICATION, step(final)))
    answer = await client.read()
    assert isinstance(answer, mqtt.ConnAck)
    assert answer.reason == reason
    if reason == Reason.SUCCESS:
        assert answer.properties is not None
        assert answer.properties.authentication_data == scram.expected
        await client.send(mqtt.Disconnect())
    assert await client.read_to_the_end() == []


def step(data: bytes) -> mqtt.Properties:
    return mqtt.Properties(authentication_method=METHOD, authentication_data=data)


def test_no_password_is_logged(tmp_path: Path) -> None:
    add("alice", tmp_path / "users.toml")
    with Broker(tmp_path, "--users-file", str(tmp_path / "users.toml"), "--log-level", "debug") as broker:
        for password in (PASSWORD, f"{PASSWORD}-wrong"):
            pub(broker, "alice", password)
            for version in (V4, V5):
                paho_answer(broker, version, "alice", password)
        assert broker.stop() == 0
    log = "\n".join(broker.stdout + broker.stderr)
    assert "bad user name or password" in log
    assert PASSWORD not in log


def test_users_and_strangers_are_served_where_both_are_wanted(tmp_path: Path) -> None:
    add("alice", tmp_path / "users.toml")
    with Broker(tmp_path, "--users-file", str(tmp_path / "users.toml"), "--allow-anonymous") as broker:
        assert pub(broker).returncode == 0
        assert pub(broker, "alice", PASSWORD).returncode == 0
        assert pub(broker, "alice", "wrong").returncode == 4


@pytest.mark.parametrize(("options", "begins"), [((), "moq: "), (("--check-config",), "moq: users_file is '{file}': ")])
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot read the users file {file}: No such file or directory; `moq users add NAME` makes one\n"),
        ("[alice", "the users file {file} is not TOML: "),
        ("[alice]", "the users file {file}: user 'alice' needs a table of salt, "),
    ],
)
def test_a_users_file_that_cannot_be_used_is_one_line_and_exit_code_2(
    tmp_path: Path, file: Path, options: tuple[str, ...], begins: str, content: str | None, complaint: str
) -> None:
    if content is not None:
        file.write_text(content)
    with Running(*MOQ, "broker", "--users-file", str(file), "--data-dir", str(tmp_path / "data"), *options) as broker:
        assert broker.wait() == 2
    assert broker.stdout == []
    assert len(broker.stderr) == 1
    assert f"{broker.stderr[0]}\n".startswith((begins + complaint).format(file=file))


def test_with_users_a_host_may_be_bound_that_others_can_reach(file: Path) -> None:
    add("alice", file)
    assert moq("broker", "--check-config", "--host", "0.0.0.0", "--users-file", str(file)).returncode == 0
    refused = moq("broker", "--check-config", "--host", "0.0.0.0")
    assert refused.returncode == 2
    assert refused.stderr.endswith(b"; bind a loopback host, set users_file, or set allow_anonymous\n")

"""`moq top` as people run it: once as text, as JSON, and full screen on a terminal with keys and sizes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

import pytest

from moq.cli.exits import Exit
from moq.wire import mqtt
from tests.running import MOQ, PATIENCE_S, Broker, moq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

HOSTILE = "evil\x1b]0;pwned\x07\x1b[31m"


class Terminal:
    """`moq top` on a terminal of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        self._size = [24, 80]
        self._set_size()
        self.seen = b""
        self.process = subprocess.Popen(
            [*MOQ, "top", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "NO_COLOR": "", **environment},
        )
        os.close(slave)

    def _set_size(self) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", *self._size, 0, 0))

    def repaint(self) -> None:
        """Make the terminal wider, which paints everything anew."""
        self.seen = b""
        self._size[1] += 1
        self._set_size()

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> bytes:
        """Read until a text is on the screen; returns what came."""
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, f"waited in vain for {text!r}; seen: {self.seen!r}"
            self._read()
        return self.seen

    def wait_painted(self, text: str) -> None:
        """Paint anew until a text is on the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, f"waited in vain for {text!r}; seen: {self.seen!r}"
            self.repaint()
            self._read()

    def _read(self) -> None:
        if select.select([self._master], [], [], 0.5)[0]:
            try:
                self.seen += os.read(self._master, 65536)
            except OSError:  # nobody has the other end open any more
                raise AssertionError(f"moq top has ended; seen: {self.seen!r}") from None

    def end(self) -> int:
        """Wait for the end; returns the exit code."""
        while True:
            try:
                self.seen += os.read(self._master, 65536)
            except OSError:
                return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def evil(broker: Broker) -> Iterator[None]:
    """A client whose name is not good for a terminal."""
    with socket.create_connection(("127.0.0.1", broker.ports["tcp"])) as connection:
        connection.sendall(mqtt.encode(mqtt.Connect(mqtt.VERSION_5, client_id=HOSTILE), mqtt.VERSION_5))
        assert connection.recv(1)
        yield


def test_once_prints_every_table_as_text(broker: Broker, evil: None) -> None:
    done = moq("top", broker.url("tcp"), "--data-dir", str(broker.data_dir), "--once")
    assert done.returncode == Exit.OK
    shown = done.stdout.decode()
    for title in ("CONNECTIONS", "STREAMS", "TOPICS", "DROPS"):
        assert f"\n{title}\n" in shown
    assert "\x1b" not in shown
    assert r"evil\x1b]0" in shown


@pytest.mark.parametrize("scheme", ["tcp", "quic"])
def test_json_is_one_object_per_line(broker: Broker, scheme: str) -> None:
    done = moq("top", broker.url(scheme), "--data-dir", str(broker.data_dir), "--json", "-c", "2", "--client-id", "me")
    assert done.returncode == Exit.OK
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert second["at"] > first["at"]
    assert {entry["client_id"]: entry["transport"] for entry in second["connections"]}["me"] == scheme
    (itself,) = [entry for entry in second["topics"] if entry["topic"] == "$SYS/top"]
    assert round(itself["messages_out_per_s"] * second["interval_s"]) == itself["subscribers"] == 1


def test_without_a_terminal_pictures_follow_each_other(broker: Broker) -> None:
    done = moq("top", broker.url("tcp"), "--data-dir", str(broker.data_dir), "-c", "2")
    assert done.stdout.decode().count("CONNECTIONS") == 2


@pytest.mark.parametrize("interval", ["0.5", "601", "x"])
def test_an_interval_that_cannot_be_kept_is_refused(broker: Broker, interval: str) -> None:
    done = moq("top", broker.url("tcp"), "--interval", interval)
    assert done.returncode == Exit.USAGE
    assert b"--interval" in done.stderr


def test_who_may_not_see_it_is_told_so(data_dir: Path, tmp_path: Path) -> None:
    rules = tmp_path / "access.toml"
    rules.write_text('[[rule]]\nallow = ["all"]\ntopics = ["#"]\n')
    with Broker(data_dir, "--access-file", str(rules)) as broker:
        done = moq("top", broker.url("tcp"), "--data-dir", str(data_dir), "--once")
    assert done.returncode == Exit.REFUSED
    assert b"not authorized" in done.stderr


def test_the_full_screen_has_tables_help_and_an_end(broker: Broker, evil: None) -> None:
    with Terminal(broker.url("quic"), "--data-dir", str(broker.data_dir)) as terminal:
        terminal.wait_for("CLIENT")
        terminal.type("3")
        terminal.wait_painted("RETAINED")
        terminal.type("?")
        terminal.wait_painted("scroll")
        terminal.type(" ")
        terminal.type("1")
        terminal.wait_painted("UNSENT")
        assert rb"evil\x1b]0;" in terminal.wait_for("evil")
        assert b"\x1b]0;pwned" not in terminal.seen
        terminal.type("q")
        assert terminal.end() == Exit.OK
        assert terminal.seen.count(b"\x1b[?1049l") == 1  # the terminal is given back


def test_ctrl_c_gives_the_terminal_back(broker: Broker) -> None:
    with Terminal(broker.url("tcp"), "--data-dir", str(broker.data_dir), NO_COLOR="1") as terminal:
        terminal.wait_for("CLIENT")
        assert b"\x1b[31m" not in terminal.seen
        assert b"\x1b[36m" not in terminal.seen
        terminal.type("\x03")
        assert terminal.end() == Exit.INTERRUPTED
        assert b"\x1b[?1049l" in terminal.seen


def test_colours_are_used_on_a_terminal(broker: Broker) -> None:
    with Terminal(broker.url("tcp"), "--data-dir", str(broker.data_dir), "-c", "1") as terminal:
        assert terminal.end() == Exit.OK
        assert b"\x1b[36m" in terminal.seen or b";36m" in terminal.seen


def test_a_terminal_that_cannot_be_painted_on_gets_text(broker: Broker) -> None:
    with Terminal(broker.url("tcp"), "--data-dir", str(broker.data_dir), "-c", "1", TERM="dumb") as terminal:
        assert terminal.end() == Exit.OK
        assert b"CONNECTIONS" in terminal.seen


def test_it_says_that_the_broker_is_gone_and_comes_back_with_it(data_dir: Path) -> None:
    with Broker(data_dir) as first:
        port = str(first.ports["tcp"])
        terminal = Terminal(f"tcp://localhost:{port}", "--data-dir", str(data_dir))
        with terminal:
            terminal.wait_for("inflight")
            first.stop(signal.SIGKILL)
            terminal.wait_painted("connection lost")
            with Broker(data_dir, "--tcp-port", port):
                terminal.seen = b""
                terminal.wait_painted("inflight")
                terminal.type("q")
                assert terminal.end() == Exit.OK

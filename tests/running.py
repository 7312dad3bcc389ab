"""The real commands as processes, for tests: a broker on free ports, and `moq` run to its end or left running."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

MOQ = (sys.executable, "-m", "moq.cli")
FREE_PORTS = tuple(
    part for name in ("tcp", "tls", "quic", "http", "websocket", "wss") for part in (f"--{name}-port", "0")
)
PATIENCE_S = 30
"""How long a process may take for one thing; only a hanging one takes as long."""


class Running:
    """A process whose two outputs are read as they come, into `stdout` and `stderr`."""

    def __init__(self, *command: str, cwd: Path | None = None, **environment: str) -> None:
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self._arrived: queue.Queue[tuple[list[str], str | None]] = queue.Queue()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **environment},
            text=True,
        )
        self._open = 2
        for lines, stream in ((self.stdout, self.process.stdout), (self.stderr, self.process.stderr)):
            assert stream is not None
            threading.Thread(target=self._read, args=(lines, stream), daemon=True).start()

    def _read(self, lines: list[str], stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._arrived.put((lines, line.rstrip("\n")))
        self._arrived.put((lines, None))

    def wait_for(self, text: str) -> str:
        """Wait until a line with this text appears on either output, and return it."""
        while (line := self._next_line(text)) is not None:
            if text in line:
                return line
        raise AssertionError(f"the process ended without {text!r}; {self._so_far()}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        while self._next_line("the end of its output") is not None:
            pass
        return self.process.wait(PATIENCE_S)

    def _next_line(self, awaited: str) -> str | None:
        """The next line of either output; None once both have ended."""
        while self._open:
            try:
                lines, line = self._arrived.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"waited in vain for {awaited}; {self._so_far()}") from None
            if line is not None:
                lines.append(line)
                return line
            self._open -= 1
        return None

    def _so_far(self) -> str:
        return f"stdout: {self.stdout}; stderr: {self.stderr}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()


class Broker(Running):
    """`moq broker` on free ports; inside `with` it is ready."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        super().__init__(*MOQ, "broker", *FREE_PORTS, "--data-dir", str(data_dir), *options)
        self.data_dir = data_dir
        self.ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            self.ports = json.loads(self.wait_for('"ready"'))
        except BaseException:
            self.__exit__()
            raise
        return self

    def url(self, scheme: str) -> str:
        """Where to reach it."""
        return f"{scheme}://localhost:{self.ports[scheme]}"


def moq(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run one `moq` command to its end."""
    return subprocess.run(
        [*MOQ, *arguments],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        env={**os.environ, **environment},
        check=False,
    )

"""The router's serial console as questions and answers: a line goes in, output and exit code come back."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Final

from moq.errors import LabError
from moq.lab.image import PROMPT

ANSWER_TIMEOUT_S: Final = 15.0


class Console:
    """Talks to the router over two descriptors. Several threads may: each waits for its answer."""

    def __init__(self, write_fd: int, read_fd: int) -> None:
        self._write_fd = write_fd
        self._read_fd = read_fd
        self._buffer = b""
        self._number = 0
        self._lock = threading.Lock()

    def wait_for(self, text: str, timeout_s: float) -> list[str]:
        """Read until a line is this text; returns the lines before it.

        Raises:
            LabError: it does not come; the message has the last that did.
        """
        deadline = time.monotonic() + timeout_s
        lines: list[str] = []
        while (line := self._line(deadline, lines, text)) != text:
            lines.append(line)
        return lines

    def ask(self, command: str) -> str:
        """Have the router's shell run a line; returns what it printed.

        Raises:
            LabError: it failed there, or the router does not answer.
        """
        with self._lock:
            self._number += 1
            os.write(self._write_fd, f"{self._number} {command}\n".encode())
            lines, code = self._answer(self._number, command)
        said = "\n".join(lines).strip()
        if code:
            raise LabError(f"`{command}` failed in the router with exit code {code}: {said}")
        return said

    def _answer(self, number: int, command: str) -> tuple[list[str], int]:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        start = f"{PROMPT} {number} "
        lines: list[str] = []
        while not (line := self._line(deadline, lines, f"the answer to `{command}`")).startswith(start):
            lines.append(line)
        return lines, int(line.removeprefix(start))

    def _line(self, deadline: float, before: list[str], awaited: str) -> str:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read_fd], [], [], left)[0]:
                raise LabError(f"the router does not say {awaited!r} in time; last: {before[-3:]}")
            data = os.read(self._read_fd, 65536)
            if not data:
                raise LabError(f"the router ended; last: {before[-3:]}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace").strip("\r ")

"""qlog files: what aioquic says of each connection, one file each, for tools such as qvis.

    DIR/.server-3f2a….qlog.tmp    while the connection lasts
    DIR/server-3f2a….qlog         once it has ended

Events are written as they come, so a connection costs a file and no memory. Two bounds keep a forgotten option from
filling a disk: on connections logged at once, and on events of one connection; past either the log says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
from typing import TYPE_CHECKING, Any, Final, TextIO

from aioquic.quic.logger import QLOG_VERSION, QuicLogger, QuicLoggerTrace

from moq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 100
"""Logged at once; further ones are not."""

MAX_EVENTS: Final = 200_000
"""Of one connection, some 50 MB; further ones are not logged."""


class Trace(QuicLoggerTrace):
    """The log of one connection."""

    def __init__(self, directory: Path, *, is_client: bool, odcid: bytes) -> None:
        super().__init__(is_client=is_client, odcid=odcid)
        name = f"{self._vantage_point['type']}-{odcid.hex()}.qlog"
        self._path, self._temporary = directory / name, directory / f".{name}.tmp"
        self._count = 0
        self._file: TextIO | None = self._temporary.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        head = {key: value for key, value in self.to_dict().items() if key != "events"}
        about = {"qlog_format": "JSON", "qlog_version": QLOG_VERSION}
        self._write(f'{json.dumps(about)[:-1]}, "traces": [{json.dumps(head)[:-1]}, "events": [')

    def log_event(self, *, category: str, event: str, data: dict[str, Any]) -> None:
        """Write one event."""
        if self._count >= MAX_EVENTS or self._file is None:
            return
        super().log_event(category=category, event=event, data=data)
        self._write(("," if self._count else "") + "\n" + json.dumps(self._events.popleft()))
        self._count += 1
        if self._count == MAX_EVENTS:
            logger.warning("%s has %d events; what follows is not logged", self._path, MAX_EVENTS)

    def end(self) -> None:
        """Complete the file and give it its name."""
        self._write("\n]}]}\n")
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
            self._temporary.rename(self._path)
        except OSError as error:
            logger.error("%s cannot be completed: %s", self._path, error)

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(text)
        except OSError as error:
            logger.error("%s cannot be written and is given up: %s", self._path, error)
            self._file = None


class QlogDirectory(QuicLogger):
    """Makes the logs of connections, as many as are allowed at once."""

    def __init__(self, directory: Path) -> None:
        """Make the directory, and remove what an earlier process left unfinished.

        Raises:
            ConfigError: It cannot be written to.
        """
        super().__init__()
        self._directory = directory
        self._open: set[QuicLoggerTrace] = set()
        self._refused = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(directory)
            (directory / ".probe").write_bytes(b"")
            (directory / ".probe").unlink()
        except OSError as error:
            raise ConfigError(f"qlog is {str(directory)!r}, where nothing can be written: {error}") from error

    def start_trace(self, is_client: bool, odcid: bytes) -> Any:
        """The log of a new connection, or None if it gets none."""
        if len(self._open) >= MAX_CONNECTIONS:
            self._refused += 1
            if self._refused == 1:
                logger.warning("%d connections are logged in %s; others are not", MAX_CONNECTIONS, self._directory)
            return None
        try:
            trace = Trace(self._directory, is_client=is_client, odcid=odcid)
        except OSError as error:
            logger.error("a connection is not logged: %s", error)
            return None
        self._open.add(trace)
        return trace

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """A connection is over; it may be said twice."""
        if trace in self._open:
            self._open.discard(trace)
            assert isinstance(trace, Trace)
            trace.end()


def _remove_leftovers(directory: Path) -> None:
    """Remove what killed processes left: those that live have their files locked."""
    for leftover in directory.glob(".*.qlog.tmp"):
        with contextlib.suppress(OSError), leftover.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()

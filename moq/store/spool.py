"""Large payloads as files beside the database, with the guarantees of the database.

    write name.part → fsync → rename to name → fsync the directory → commit the row that names it
    commit the removal of that row → unlink

So a row never names a file that is not whole, and after a crash anywhere in between at worst a file is left that no row
names: it is removed at the next start. A file is written once and never altered.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

logger = logging.getLogger(__name__)

UNFINISHED = ".part"


class Spool:
    """The directory of payloads, used by one thread at a time."""

    def __init__(self, directory: Path, threshold: int) -> None:
        self.directory = directory
        self._threshold = threshold
        self._next_name = 1
        self._written: list[str] = []
        """By the transaction under way."""
        self._doomed: set[str] = set()
        """Files whose row the transaction under way removes."""
        self.bytes_written = 0

    def open(self, named: Iterable[str]) -> set[str]:
        """Make the directory if need be and remove all files but those named; returns the names that have no file."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        sync_directory(self.directory.parent)
        missing = set(named)
        for entry in os.scandir(self.directory):
            if entry.name in missing:
                missing.discard(entry.name)
                self._next_name = max(self._next_name, int(entry.name.lstrip("mr")) + 1)
            else:
                os.unlink(entry.path)
        return missing

    def keep_message(self, number: int, payload: bytes) -> tuple[bytes | None, str | None]:
        """Payload and spool columns of a queued message, whose number is never given to another one."""
        return self._keep(f"m{number}", payload)

    def keep_retained(self, payload: bytes) -> tuple[bytes | None, str | None]:
        """Payload and spool columns of a retained message."""
        kept = self._keep(f"r{self._next_name}", payload)
        self._next_name += 1
        return kept

    def _keep(self, name: str, payload: bytes) -> tuple[bytes | None, str | None]:
        if len(payload) < self._threshold:
            return payload, None
        self._doomed.discard(name)
        if not (self.directory / name).exists():
            self._written.append(name)
            self._write(name, payload)
        return None, name

    def _write(self, name: str, payload: bytes) -> None:
        path = self.directory / name
        unfinished = path.with_suffix(UNFINISHED)
        try:
            with open(unfinished, "wb", opener=_private) as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        unfinished.rename(path)
        self.bytes_written += len(payload)

    def read(self, name: str, size: int) -> bytes | None:
        """A payload; None, and a line in the log, if its file is not there or not as long as it should be."""
        path = self.directory / name
        try:
            payload = path.read_bytes()
        except OSError as error:
            logger.error("%s cannot be read: %s; its message is left out", path, error.strerror)
            return None
        if len(payload) != size:
            logger.error("%s has %d bytes, not %d; its message is left out", path, len(payload), size)
            return None
        return payload

    def doom(self, name: str) -> None:
        """The transaction under way removes the row that names this file."""
        self._doomed.add(name)

    def before_commit(self) -> None:
        """Make the names of new files safe."""
        if self._written:
            sync_directory(self.directory)

    def after_commit(self) -> None:
        """Remove the files that no row names any more."""
        self._unlink(self._doomed)

    def after_rollback(self) -> None:
        """Remove the files that no row will name: the disk may be full of them."""
        self._unlink(self._written)

    def _unlink(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.directory / name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                # The transaction is decided already: the next start removes it.
                logger.warning("%s cannot be removed: %s", path, error.strerror)
        self._written.clear()
        self._doomed.clear()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory safe."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

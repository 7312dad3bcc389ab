"""The data directory: made for one user, and held by one broker at a time."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from moq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "broker.lock"


class DirectoryLock:
    """A lock the operating system takes back when its holder ends, however that happens; the file names the holder."""

    def __init__(self, directory: Path) -> None:
        """Make the directory if need be and lock it, or raise `ConfigError` with the directory and the holder."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"the data directory {directory} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise ConfigError(
                f"the data directory {directory} is in use by another broker, process {holder}; "
                "stop that one or give this one a directory of its own"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another broker have the directory."""
        os.close(self._descriptor)

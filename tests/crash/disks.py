"""Disks that break and are mended while a broker runs: a small tmpfs that is full, and errors from the shim."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tests.crash.shim import Shim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SMALL_DISK: Final = "16m"
BALLAST: Final = "ballast"
MOUNT: Final = f'mount -t tmpfs -o size={SMALL_DISK} none "$1" && echo mounted && read _'
ENTER: Final = 'cd "$1" && shift && exec "$@"'
"""Entering another mount namespace leaves the working directory behind."""


class Disk(Protocol):
    """A place for a data directory."""

    path: Path
    prefix: Sequence[str]
    """Goes before the command of the broker."""
    environment: dict[str, str]
    """Of the broker."""

    def break_(self) -> None:
        """From now on it takes nothing."""

    def mend(self) -> None:
        """From now on all is well."""


class SmallDisk:
    """A tmpfs in a mount namespace of its own, which a process of ours keeps: it ends with that process."""

    def __init__(self, path: Path, keeper: subprocess.Popen[str]) -> None:
        self.path = path
        user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        enter = ("nsenter", f"--target={keeper.pid}", "--mount", *user)
        self.prefix: Sequence[str] = (*enter, "sh", "-c", ENTER, "sh", os.getcwd())
        self.environment: dict[str, str] = {}
        self._ballast = Path(f"/proc/{keeper.pid}/root{path}") / BALLAST

    def break_(self) -> None:
        with self._ballast.open("wb", buffering=0) as ballast:
            for size in (1 << 16, 1 << 12):
                with contextlib.suppress(OSError):
                    while ballast.write(bytes(size)) == size:
                        pass

    def mend(self) -> None:
        self._ballast.unlink()


class FaultyDisk:
    """An ordinary directory with the shim in between."""

    prefix: Sequence[str] = ()

    def __init__(
        self, path: Path, shim: Shim, write_error: int = 0, growth_error: int = 0, sync_error: int = 0
    ) -> None:
        self.path = path
        self.environment = shim.environment
        self._shim = shim
        self._break = partial(shim.set, write_error=write_error, growth_error=growth_error, sync_error=sync_error)

    def break_(self) -> None:
        self._break()

    def mend(self) -> None:
        self._shim.set()


@contextlib.contextmanager
def full_disk(directory: Path) -> Iterator[Disk]:
    """A small tmpfs; where mounting is not allowed, a directory in which nothing can grow."""
    path = directory / "data"
    path.mkdir()
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    command = ("unshare", *user, "--mount", "sh", "-c", MOUNT, "sh", str(path))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as keeper:
        assert keeper.stdout is not None
        if keeper.stdout.readline() == "mounted\n":
            try:
                yield SmallDisk(path, keeper)
            finally:
                keeper.kill()
            return
    with Shim(directory, path) as shim:
        yield FaultyDisk(path, shim, growth_error=errno.ENOSPC)


@contextlib.contextmanager
def disk_without_writes(directory: Path) -> Iterator[Disk]:
    """Every write ends in an I/O error."""
    with Shim(directory, directory / "data") as shim:
        yield FaultyDisk(directory / "data", shim, write_error=errno.EIO)


@contextlib.contextmanager
def disk_without_syncs(directory: Path) -> Iterator[Disk]:
    """Writes succeed; that they reach the disk is not so."""
    with Shim(directory, directory / "data") as shim:
        yield FaultyDisk(directory / "data", shim, sync_error=errno.EIO)

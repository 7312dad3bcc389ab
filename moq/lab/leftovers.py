"""Which labs are alive, and removing what the others left.

Each lab has a directory named after its process, with a lock in it that ends with the process, however that does:

    /run/moq-lab/lock          held while a directory is made or removed
    /run/moq-lab/<pid>/lock    held as long as the lab lives
    /run/moq-lab/<pid>/files-* its files
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.errors import LabError
from moq.lab import namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLAIMS: Final = Path("/run/moq-lab")


@contextlib.contextmanager
def claim() -> Iterator[Path]:
    """Say that this process has a lab; yields a directory that is removed with the lab."""
    directory = CLAIMS / str(os.getpid())
    with _all_claims():
        directory.mkdir(exist_ok=True)
        lock = (directory / "lock").open("w")
        if not _try_lock(lock.fileno()):
            lock.close()
            raise LabError("this process has a lab already; one at a time")
    try:
        yield directory
    finally:
        with _all_claims():
            shutil.rmtree(directory, ignore_errors=True)
            lock.close()


def find() -> list[int]:
    """The processes that had a lab, are gone, and have left something."""
    owners = {int(path.name) for path in CLAIMS.glob("[0-9]*")}
    for path in namespaces.RUN_NETNS.glob("moq-lab-*"):
        if named := namespaces.NAME.fullmatch(path.name):
            owners.add(int(named[1]))
    return sorted(pid for pid in owners if not _is_alive(pid))


def remove(progress: Callable[[str], None]) -> list[str]:
    """Remove what dead labs left: processes in their namespaces, the namespaces, files; returns their names.

    Their routers and TAP devices ended with them.
    """
    removed: list[str] = []
    with _all_claims():
        for pid in find():
            for role in (namespaces.CLIENT, namespaces.SERVER, namespaces.ROUTER):
                name = namespaces.name_of(role, pid)
                if (namespaces.RUN_NETNS / name).exists():
                    progress(f"removing {name}, left by a lab that was killed")
                    namespaces.remove(name)
                    removed.append(name)
            directory = CLAIMS / str(pid)
            if directory.exists():
                shutil.rmtree(directory, ignore_errors=True)
                removed.append(str(directory))
    return removed


@contextlib.contextmanager
def _all_claims() -> Iterator[None]:
    """Nobody claims or removes meanwhile."""
    CLAIMS.mkdir(parents=True, exist_ok=True)
    with (CLAIMS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_alive(pid: int) -> bool:
    try:
        with (CLAIMS / str(pid) / "lock").open() as lock:
            return not _try_lock(lock.fileno())
    except FileNotFoundError:
        return False


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

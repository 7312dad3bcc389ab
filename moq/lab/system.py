"""Programs of the system: run to their end, found, and bound to the life of this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Final

from moq.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
"""Debian keeps `tc` and `ip` where an ordinary user's path does not lead."""

COMMAND_TIMEOUT_S: Final = 30.0

PR_SET_PDEATHSIG: Final = 1
LIBC: Final = ctypes.CDLL(None, use_errno=True)


def find(program: str) -> str | None:
    """Where a program is."""
    return shutil.which(program, path=PATH)


def run(command: Sequence[str], *, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Run a command to its end; returns what it printed.

    Raises:
        LabError: it is not there, it failed or it hangs; the message has what it said.
    """
    program = find(command[0])
    if program is None:
        raise LabError(f"{command[0]} is not installed; `moq lab doctor` says what to install")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(command)}` has not ended within {timeout_s:g} s") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise LabError(f"`{' '.join(command)}` failed with exit code {done.returncode}: {said}")
    return done.stdout


def succeeds(command: Sequence[str]) -> bool:
    """Whether a command can be run and does what it should."""
    try:
        run(command)
    except LabError:
        return False
    return True


@contextlib.contextmanager
def urgent() -> Iterator[None]:
    """Run this thread before all ordinary ones, so that what is measured is the network and not its neighbours."""
    before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    hurry()
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, parameters)


def hurry() -> None:
    """Run this thread, and what it starts, before all ordinary ones; where that is not allowed, as it is."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def dying_with_us(number: int = signal.SIGKILL, *, is_urgent: bool = False) -> Callable[[], None]:
    """For `preexec_fn`: when the thread that starts the child ends, however it does, the child gets this signal."""
    parent = os.getpid()

    def prepare() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, number)
        if is_urgent:
            hurry()
        if os.getppid() != parent:
            os._exit(1)  # we were gone before the kernel knew

    return prepare

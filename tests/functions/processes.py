"""Which worker processes there are, as the kernel tells."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.running import PATIENCE_S


def workers(broker: int | None = None) -> set[int]:
    """The workers that a broker has started and that have not ended; without one, those of this process."""
    return {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_worker(pid, broker or os.getpid())}


def is_alive(pid: int) -> bool:
    """True until the process has ended, whether or not somebody has asked how."""
    return _state(pid) not in (None, "Z")


def wait_for_the_end_of(pids: set[int]) -> None:
    """Return once all of these have ended; fail if one does not."""
    deadline = time.monotonic() + PATIENCE_S
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "workers outlive their broker"
        time.sleep(0.01)


def _is_worker(pid: int, broker: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"moq.functions.worker" in command and str(broker).encode() in command and is_alive(pid)


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None

"""Seconds since 1970 on a timeline that never jumps, whatever happens to the wall clock.

Stored times must make sense to a broker started later, and a wall clock may be set in either direction at any moment.
So the store keeps an anchor: the same moment on every clock. The next start continues from it:

    same boot      anchor + what the clock since boot counted: running or not, the wall clock is not asked
    another boot   anchor + what the wall clock counted, at least 0: nothing better is known
    first start    the wall clock
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment on every clock."""

    boot_id: str
    boottime: float
    wall: float
    timeline: float


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of this machine; `boot_id` is empty where there is none, and then no two boots are the same."""

    boot_id: str
    boottime: Callable[[], float]
    wall: Callable[[], float]

    @classmethod
    def system(cls, boot_id_file: Path = BOOT_ID_FILE) -> Clocks:
        """Those of the operating system: one that counts sleep too if there is one."""
        try:
            boot_id = boot_id_file.read_text().strip()
        except OSError:
            boot_id = ""
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return cls(boot_id, lambda: time.clock_gettime(clock), time.time)


class Timeline:
    """The time that stored times are told in."""

    def __init__(self, anchor: Anchor | None, clocks: Clocks | None = None) -> None:
        self._clocks = clocks or Clocks.system()
        boottime = self._clocks.boottime()
        self._offset = self._start(anchor, boottime) - boottime

    def now(self) -> float:
        """Seconds since 1970, as far as they could be known at the start; grows as real time does."""
        return self._clocks.boottime() + self._offset

    def anchor(self) -> Anchor:
        """This moment, for the next start."""
        boottime = self._clocks.boottime()
        return Anchor(self._clocks.boot_id, boottime, self._clocks.wall(), boottime + self._offset)

    def _start(self, anchor: Anchor | None, boottime: float) -> float:
        if anchor is None:
            return self._clocks.wall()
        if anchor.boot_id and anchor.boot_id == self._clocks.boot_id:
            passed = boottime - anchor.boottime
        else:
            passed = self._clocks.wall() - anchor.wall
        # A virtual machine put back to a snapshot has lived less than its disk.
        return anchor.timeline + max(0.0, passed)

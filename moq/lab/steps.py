"""Steps: the changes of a profile, played by the clock while a command runs, and a record of when each really came."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from moq.lab.profiles import Profile, State

POLL_S: Final = 0.005
"""How often the start file is looked for."""


class Player:
    """Plays the steps of a profile in a thread of its own, inside `with`."""

    def __init__(self, profile: Profile, change: Callable[[State], None], start_file: Path | None = None) -> None:
        self._profile = profile
        self._change = change
        self._start_file = start_file
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._play, name="moq-lab-steps", daemon=True)
        self._failure: Exception | None = None
        self._played: list[dict[str, object]] = []
        self._started_at: float | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def record(self) -> dict[str, object]:
        """When the time began, and each step with the moment it was wanted and the moment it took effect."""
        return {
            "profile": self._profile.name,
            "started_at": self._started_at,
            "steps": list(self._played),
            "not_played": [step.at_s for step in self._profile.steps[len(self._played) :]],
        }

    def _play(self) -> None:
        try:
            if not self._wait_for_start():
                return
            began = time.monotonic()
            self._started_at = time.time()
            for step in self._profile.steps:
                if self._stopped.wait(max(began + step.at_s - time.monotonic(), 0)):
                    return
                asked_s = time.monotonic() - began
                self._change(step.state)
                self._played.append(
                    {
                        "at_s": step.at_s,
                        "asked_s": round(asked_s, 4),
                        "applied_s": round(time.monotonic() - began, 4),
                        "applied_at": time.time(),
                        "state": asdict(step.state),
                    }
                )
        except Exception as error:
            self._failure = error

    def _wait_for_start(self) -> bool:
        """Until the file is there; False if the command has ended first."""
        while self._start_file is not None and not self._start_file.exists():
            if self._stopped.wait(POLL_S):
                return False
        return True

"""A run: load from many clients, a broker that is killed again and again, quiet, and the comparison of the books."""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import certs
from tests.crash import power
from tests.crash.judge import Breach, Timeline, judge
from tests.crash.ledger import Ledger
from tests.crash.plan import SUBSCRIBERS, Plan
from tests.crash.processes import CLI, FaultyBroker, WorkerProcess, choose_ports
from tests.crash.shim import Shim
from tests.crash.worker import Settings, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLL_S: Final = 0.02
SETTLING_S: Final = 0.5
"""Once everything has arrived, a repetition has this long to arrive too."""
STALL_TIMEOUT_S: Final = 30.0
"""A living broker acknowledges or delivers something in less than this, if there is anything."""
MAX_BEHIND: Final = 20_000
"""Deliveries that may be outstanding; past it publishers pause, so that a run's end is not all catching up."""
BROKER_LIMITS: Final = {
    "max_queued_messages": 1_000_000,
    "max_queued_bytes": 1 << 30,
    "spool_bytes": 4096,
    "max_queued_in_memory": 200,
}
"""No queue is ever so full that its policy drops; the backlog is mostly on disk; large payloads get files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run consists of."""

    kills: int = 5
    messages: int = 0
    """Go on, if need be without further kills, until so many are acknowledged."""
    groups: int = 2
    processes: int = 2
    rate: float = 4000.0
    """Messages per second of all processes."""
    window: int = 40
    quiet_s: float = 10.0
    """When everybody is connected and nothing has arrived for so long, what is missing is lost."""
    seed: int = 0
    shortest_life_s: float = 0.1
    longest_life_s: float = 2.5
    longest_death_s: float = 0.3
    killed_at_birth: float = 0.15
    """The share of kills that hit a broker which is still starting: recovery has to survive them too."""
    power_cuts: bool = False
    """After each kill, what was not synced is lost in whole or in part."""
    module: str = CLI
    options: tuple[str, ...] = ()


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    acknowledged: int = 0
    refused: int = 0
    delivered: int = 0
    duration_s: float = 0.0
    kills: list[float] = field(default_factory=list)
    kills_at_birth: int = 0
    start_s: list[float] = field(default_factory=list)
    """From the start of the process to its ready line, for each start that got there."""
    breaches: list[Breach] = field(default_factory=list)

    def summary(self, run: Run) -> dict[str, object]:
        """The figures, for JSON."""
        starts = sorted(self.start_s)
        return {
            "seed": run.seed,
            "kills": len(self.kills),
            "kills_at_birth": self.kills_at_birth,
            "acknowledged": self.acknowledged,
            "refused": self.refused,
            "delivered": self.delivered,
            "duration_s": round(self.duration_s, 1),
            "acknowledged_per_s": round(self.acknowledged / self.duration_s) if self.duration_s else 0,
            "start_s_median": round(starts[len(starts) // 2], 3),
            "start_s_longest": round(starts[-1], 3),
            "breaches": dict(Counter(breach.kind.value for breach in self.breaches)),
        }


class Conductor:
    """Leads one run, in a directory of its own."""

    def __init__(self, run: Run, directory: Path, note: Callable[[str], None]) -> None:
        self._run = run
        self._note = note
        self._random = random.Random(run.seed)
        self._ports = choose_ports()
        self._data_dir = directory.resolve() / "data"
        self._shim = Shim(directory, self._data_dir) if run.power_cuts else None
        self._ledgers = [directory / f"ledger-{index}" for index in range(run.processes)]
        self._broker: FaultyBroker | None = None
        self._workers: list[WorkerProcess] = []
        self._is_loaded = self._is_publishing = False
        self._outcome = Outcome()

    def conduct(self) -> Outcome:
        """The whole run."""
        outcome = self._outcome
        with self._cleanup():
            certs.ensure(self._data_dir)  # made long ago: whether they are synced is not the question
            self._start_broker()
            self._start_workers()
            began = time.monotonic()
            self._is_loaded = True
            self._kill_and_restart()
            self._until("enough messages", lambda: self._acknowledged() >= self._run.messages)
            self._drain()
            outcome.duration_s = time.monotonic() - began
            ledger = self._collect()
        flows = Plan.of_groups(self._run.groups).flows
        outcome.acknowledged = sum(sent.acknowledged for sent in ledger.sent.values())
        outcome.delivered = sum(len(arrived.numbers) for arrived in ledger.arrived.values())
        outcome.breaches = judge(flows, ledger, Timeline(began, outcome.kills))
        return outcome

    # --- the broker ---

    def _start_broker(self) -> None:
        """Start it; a share of the restarts is killed before it is ready, once or more."""
        while True:
            began = time.monotonic()
            self._broker = self._make_broker()
            if not self._is_killed_at_birth():
                break
            longest = max(self._outcome.start_s)
            time.sleep(self._random.uniform(0, longest))
            self._kill()
            self._outcome.kills_at_birth += 1
        self._broker.__enter__()
        self._outcome.start_s.append(time.monotonic() - began)

    def _make_broker(self) -> FaultyBroker:
        limits = [f"--limit={name}={value}" for name, value in BROKER_LIMITS.items()]
        return FaultyBroker(
            self._data_dir,
            "--log-level=warning",
            *limits,
            *self._run.options,
            ports=self._ports,
            module=self._run.module,
            environment=self._shim.recording_environment if self._shim is not None else None,
        )

    def _is_killed_at_birth(self) -> bool:
        return 0 < len(self._outcome.kills) < self._run.kills and self._random.random() < self._run.killed_at_birth

    def _kill(self) -> None:
        assert self._broker is not None
        self._outcome.kills.append(time.monotonic())
        self._broker.kill()
        if self._shim is not None:
            power.cut(self._shim.journal, self._random)

    def _kill_and_restart(self) -> None:
        run = self._run
        while len(self._outcome.kills) < run.kills:
            end = time.monotonic() + self._random.uniform(run.shortest_life_s, run.longest_life_s)
            while (left := end - time.monotonic()) > 0:
                self._steer()
                time.sleep(min(left, POLL_S))
            self._kill()
            time.sleep(self._random.uniform(0, run.longest_death_s))
            self._start_broker()
            self._note(
                f"kill {len(self._outcome.kills)} of {run.kills}: {self._acknowledged()} acknowledged, "
                f"{self._arrived()} delivered"
            )

    def _check_alive(self) -> None:
        """Nobody ends by themselves."""
        assert self._broker is not None
        if self._broker.process.poll() is not None:
            raise AssertionError(f"the broker ended by itself with {self._broker.process.returncode}: {self._said()}")
        for index, worker in enumerate(self._workers):
            if not worker.is_running:
                raise AssertionError(f"process {index} of the clients ended by itself; its trace is on stderr")

    def _said(self) -> str:
        assert self._broker is not None
        with contextlib.suppress(AssertionError):
            self._broker.wait_for("text that no broker says")
        return "\n".join([*self._broker.stdout, *self._broker.stderr])

    # --- the clients ---

    def _start_workers(self) -> None:
        run = self._run
        for index, ledger in enumerate(self._ledgers):
            self._workers.append(
                WorkerProcess(
                    Settings(
                        index=index,
                        processes=run.processes,
                        groups=run.groups,
                        ports=self._ports,
                        data_dir=str(self._data_dir),
                        ledger=str(ledger),
                        rate=run.rate / run.processes,
                        window=run.window,
                    )
                )
            )
        self._until("every client's session", self._is_everybody_ready)

    def _tell(self, command: str) -> None:
        for worker in self._workers:
            worker.tell(command)

    def _acknowledged(self) -> int:
        return sum(worker.status.acknowledged for worker in self._workers)

    def _arrived(self) -> int:
        return sum(worker.status.new for worker in self._workers)

    def _behind(self) -> int:
        """Deliveries of acknowledged messages still to come."""
        return SUBSCRIBERS * self._acknowledged() - self._arrived()

    def _steer(self) -> None:
        """Let subscribers catch up now and then; notice whoever is gone."""
        self._check_alive()
        if self._is_loaded and self._is_publishing != (self._behind() < MAX_BEHIND):
            self._is_publishing = not self._is_publishing
            self._tell("publish" if self._is_publishing else "stop")

    def _is_everybody_ready(self) -> bool:
        return all(worker.status.is_ready for worker in self._workers)

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait for something, as long as anything moves."""
        since, seen = time.monotonic(), self._statuses()
        while not is_so():
            self._steer()
            if seen != self._statuses():
                since, seen = time.monotonic(), self._statuses()
            if time.monotonic() - since > STALL_TIMEOUT_S:
                raise AssertionError(f"waited in vain for {what}; the clients say {seen}; the broker: {self._said()}")
            time.sleep(POLL_S)

    def _statuses(self) -> list[Status]:
        return [worker.status for worker in self._workers]

    def _drain(self) -> None:
        """Wait until all has arrived, or nothing does any more; what is missing or unfinished is for the judge."""
        self._tell("stop")
        since, seen = time.monotonic(), self._statuses()
        while True:
            self._check_alive()
            now = self._statuses()
            if now != seen:
                since, seen = time.monotonic(), now
            if time.monotonic() - since > self._patience_s():
                return
            time.sleep(POLL_S)

    def _patience_s(self) -> float:
        if not self._is_everybody_ready():
            return STALL_TIMEOUT_S
        is_complete = not self._behind() and not any(status.unfinished for status in self._statuses())
        return SETTLING_S if is_complete else self._run.quiet_s

    def _collect(self) -> Ledger:
        ledger = Ledger()
        self._outcome.refused = sum(worker.status.refused for worker in self._workers)
        for worker, path in zip(self._workers, self._ledgers, strict=True):
            if worker.end():
                raise AssertionError("a process of the clients failed; its trace is on stderr")
            ledger.add(Ledger.load(path))
        return ledger

    @contextlib.contextmanager
    def _cleanup(self) -> Iterator[None]:
        try:
            yield
        finally:
            for worker in self._workers:
                worker.kill()
            if self._broker is not None:
                self._broker.kill()
            if self._shim is not None:
                self._shim.close()


def conduct(run: Run, note: Callable[[str], None] | None = None) -> Outcome:
    """Do a run in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="moq-crash-") as directory:
        return Conductor(run, Path(directory), note or _ignore).conduct()


def note_on_stderr(text: str) -> None:
    """Progress for people."""
    print(text, file=sys.stderr, flush=True)


def _ignore(text: str) -> None:
    pass

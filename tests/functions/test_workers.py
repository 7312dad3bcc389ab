"""Worker processes and their broker: none outlives it, and none holds it up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING

import pytest

from moq.config import Limits
from moq.functions import process
from moq.functions.frames import ANSWER, Kind, Status, request
from tests.functions.distributions import ENTRIES, FUNCTIONS, install
from tests.functions.processes import wait_for_the_end_of, workers
from tests.running import PATIENCE_S, Running

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.functions.pools import Opened, Pool

OWNER = """
import asyncio
from moq.config import Limits
from moq.functions.pool import FunctionPool

async def main():
    pool = FunctionPool(2, Limits(function_timeout_s=600))
    await pool.open()
    pool.start()
    ready = asyncio.Event()
    pool.submit("UPPER", b"", lambda *_: ready.set())
    await ready.wait()
    pool.submit("SPIN", b"", lambda *_: None)
    pool.submit("MEET", b"/nonexistent/file", lambda *_: None)
    while len(pool._workers) < 2 or not all(worker._prepared & {"SPIN", "MEET"} for worker in pool._workers):
        await asyncio.sleep(0.01)
    print("busy", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_workers_end_with_a_broker_that_is_killed_even_in_an_endless_call(site: Path) -> None:
    install(site, "some-functions", "some_functions", FUNCTIONS, **ENTRIES)
    with Running(sys.executable, "-c", OWNER, PYTHONPATH=str(site)) as owner:
        owner.wait_for("busy")
        busy = workers(owner.process.pid)
        assert len(busy) == 2
        owner.stop(signal.SIGKILL)
        wait_for_the_end_of(busy)


# --- a worker by itself -------------------------------------------------------------------------------


class Alone:
    """A worker and the broker's end of its pair of sockets."""

    def __init__(self, limits: Limits) -> None:
        ours, theirs = socket.socketpair()
        self.pipe = ours
        self.pipe.settimeout(PATIENCE_S)
        with theirs:
            self.process: subprocess.Popen[bytes] = process._spawn(limits, theirs)

    def ask(self, kind: Kind, name: str, body: bytes = b"") -> None:
        self.pipe.sendall(request(kind, name, body))

    def answer(self) -> tuple[int, bytes]:
        """The next answer; raises `struct.error` when there is none."""
        status, size = ANSWER.unpack(self.pipe.recv(ANSWER.size, socket.MSG_WAITALL))
        return status, self.pipe.recv(size, socket.MSG_WAITALL)

    def close(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def alone(site: Path, monkeypatch: pytest.MonkeyPatch) -> Alone:
    install(site, "some-functions", "some_functions", FUNCTIONS, **ENTRIES)
    monkeypatch.setattr(process, "LOAD_TIMEOUT_S", 2.0)
    return Alone(Limits(function_timeout_s=2.0))


def test_a_worker_ends_when_its_broker_closes_the_connection(alone: Alone) -> None:
    alone.ask(Kind.LOAD, "UPPER", b"some_functions:upper")
    assert alone.answer()[0] == Status.DONE
    alone.ask(Kind.CALL, "UPPER", b"a")
    assert alone.answer() == (Status.DONE, b"A")
    alone.pipe.close()
    assert alone.process.wait(PATIENCE_S) == 0


def test_a_worker_ends_by_itself_when_nobody_ends_a_call_without_end(alone: Alone) -> None:
    alone.ask(Kind.LOAD, "SPIN", b"some_functions:spin")
    assert alone.answer()[0] == Status.DONE
    alone.ask(Kind.CALL, "SPIN")
    assert alone.process.wait(PATIENCE_S) == -signal.SIGALRM
    with pytest.raises(struct.error):
        alone.answer()
    alone.close()


def test_a_worker_whose_broker_has_gone_before_it_was_ready_ends_at_once(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)  # not the process that starts it
    alone = Alone(Limits())
    assert alone.process.wait(PATIENCE_S) == 0
    alone.close()


# --- the event loop -----------------------------------------------------------------------------------

PHASE_S = 0.5
TICK_S = 0.001


async def ticks_per_second() -> float:
    """How often the event loop comes round to something that wants a turn every millisecond."""
    began = time.perf_counter()
    ticks = 0
    while time.perf_counter() < began + PHASE_S:
        await asyncio.sleep(TICK_S)
        ticks += 1
    return ticks / (time.perf_counter() - began)


async def keep_busy(pool: Pool, stop: asyncio.Event) -> None:
    """Call and call again."""
    while not stop.is_set():
        await pool.call("WORK", b"3000000")


async def test_the_event_loop_turns_as_before_while_workers_are_busy(opened: Opened) -> None:
    quiet: list[float] = []
    busy: list[float] = []
    async with opened(workers=2) as pool:
        for _ in range(3):
            quiet.append(await ticks_per_second())
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for _ in range(3):  # one for each worker, and one that waits
                    group.create_task(keep_busy(pool, stop))
                busy.append(await ticks_per_second())
                stop.set()
        assert pool.figures.calls >= 9
    # The best rounds are compared, because other processes want the processors too. A function that ran on the loop
    # would leave it a turn per call: some five per second in every round, instead of hundreds.
    assert max(busy) > 0.25 * max(quiet)

"""The broker's processing functions: plug-ins found at the start, calls in a queue, workers that take them.

    submit ──► waiting ──► workers, started on demand, at most `function_workers` ──► in order, per function ──► then
       └── full: False        └── crashed or too slow: ended, and the next call starts another

A call counts as outstanding from `submit` until its result has been given out, and there are at most
`limits.max_function_queue` of these: results wait for those before them, for a topic's latest value must be the one
published last.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.functions.figures import FunctionFigures
from moq.functions.function import PluginError, Unavailable, name_problem
from moq.functions.plugins import find
from moq.functions.process import CallError, CallTimeoutError, WorkerError, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from moq.broker.operators.functions import Then
    from moq.config import Limits
    from moq.functions.plugins import Plugin

    Deliver = Callable[[Then, bytes | None, str | None], None]
    """Gives a result to whoever asked for it."""

logger = logging.getLogger(__name__)

IDLE_S: Final = 60.0
"""A worker without work is ended after this long: one that has loaded a vision library holds a hundred megabytes."""

TELL_S: Final = 60.0
"""A function that keeps ending its workers is told of this often; the figures count each time."""


@dataclass(slots=True, eq=False)
class _Call:
    plugin: Plugin
    payload: bytes
    then: Then
    outcome: tuple[bytes | None, str | None] | None = None


def _deliver(then: Then, result: bytes | None, error: str | None) -> None:
    then(result, error)


class _Examiner:
    """Finds out what plug-ins are. Strangers' code is imported by a worker, which may hang or crash on it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._worker: WorkerProcess | None = None

    async def describe(self, plugin: Plugin) -> dict[str, object]:
        if plugin.is_ours:
            return plugin.load().described()
        self._worker = self._worker or await WorkerProcess.start(self._limits)
        try:
            description: dict[str, object] = json.loads(await self._worker.load(plugin))
        except WorkerError:
            await self.end()
            raise
        return description

    async def end(self) -> None:
        if self._worker is not None:
            await self._worker.end()
            self._worker = None


class FunctionPool:
    """Implements `Functions` of `moq.broker.operators` on one event loop: `open`, `start`, and at the end `close`."""

    def __init__(self, workers: int, limits: Limits, deliver: Deliver = _deliver) -> None:
        self._max_workers = workers
        self._limits = limits
        self._deliver = deliver
        self._plugins: dict[str, Plugin] = {}
        self._descriptions: list[dict[str, object]] = []
        self._waiting: deque[_Call] = deque()
        self._in_order: defaultdict[str, deque[_Call]] = defaultdict(deque)
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = 0
        self._workers: set[WorkerProcess] = set()
        self._told_at: dict[str, float] = {}
        self._is_started = False
        self._is_closed = False
        self.figures = FunctionFigures()
        self.outstanding = 0
        """Calls that were submitted and not given out."""
        self.held_bytes = 0
        """Their payloads."""

    # --- plug-ins -------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find the plug-ins and see which can be used. Those that cannot are named in the log and left out.

        Without workers there are no functions.
        """
        if not self._max_workers:
            return
        examiner = _Examiner(self._limits)
        try:
            for plugin in await asyncio.to_thread(find):
                await self._add_if_usable(plugin, examiner)
        finally:
            await examiner.end()

    async def _add_if_usable(self, plugin: Plugin, examiner: _Examiner) -> None:
        try:
            await self._add(plugin, examiner)
        except Unavailable as error:
            logger.info("%s is not there: %s", plugin, error)
        except Exception as error:  # whatever importing it does
            logger.warning("%s is left out: %s", plugin, error)

    async def _add(self, plugin: Plugin, examiner: _Examiner) -> None:
        if name_problem(plugin.name):
            raise PluginError(name_problem(plugin.name))
        if plugin.name in self._plugins:
            raise PluginError(f"there is {self._plugins[plugin.name]} already")
        self._descriptions.append(await examiner.describe(plugin))
        self._plugins[plugin.name] = plugin

    def names(self) -> Collection[str]:
        """See `Functions`."""
        return self._plugins.keys()

    def describe(self) -> list[dict[str, object]]:
        """See `Functions`."""
        return self._descriptions

    # --- calls ----------------------------------------------------------------------------------------

    def submit(self, name: str, payload: bytes, then: Then) -> bool:
        """See `Functions`. Before the start any thread may call it."""
        if self.outstanding >= self._limits.max_function_queue:
            self.figures.refused_queue_full += 1
            return False
        self.figures.calls += 1
        call = _Call(self._plugins[name], payload, then)
        self.outstanding += 1
        self.held_bytes += len(payload)
        self._in_order[name].append(call)
        self._waiting.append(call)
        if self._is_started:
            self._begin()
        return True

    def _settle(self, call: _Call, result: bytes | None, error: str | None) -> None:
        """A call is over: give out what has its turn now, in the next turn of the loop."""
        call.outcome = result, error
        line = self._in_order[call.plugin.name]
        loop = asyncio.get_running_loop()
        while line and line[0].outcome is not None:
            first = line.popleft()
            self.outstanding -= 1
            self.held_bytes -= len(first.payload)
            loop.call_soon(self._give_out, first)

    def _give_out(self, call: _Call) -> None:
        if not self._is_closed and call.outcome is not None:
            self._deliver(call.then, *call.outcome)

    # --- workers --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what has been submitted: whoever is to get the results is ready for them."""
        self._is_started = True
        self._begin()

    def _begin(self) -> None:
        self._arrived.set()
        for _ in range(min(len(self._waiting) - self._idle, self._max_workers - len(self._tasks))):
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        """The life of one worker, and of those that replace it."""
        worker: WorkerProcess | None = None
        while (call := await self._next()) is not None:
            began = time.perf_counter_ns()
            worker = await self._process(call, worker)
            self.figures.busy_ns += time.perf_counter_ns() - began
        if worker is not None:
            await self._end(worker)

    async def _next(self) -> _Call | None:
        """A call to make; None if there has been none for a while, or never will be."""
        while not self._is_closed:
            if self._waiting:
                return self._waiting.popleft()
            self._arrived.clear()
            self._idle += 1
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._arrived.wait()
            except TimeoutError:
                if not self._waiting:
                    return None
            finally:
                self._idle -= 1
        return None

    async def _process(self, call: _Call, worker: WorkerProcess | None) -> WorkerProcess | None:
        """Make one call; returns the worker if it can make another."""
        size, most = len(call.payload), self._limits.max_function_input_bytes
        try:
            if size > most:
                raise CallError(f"the payload has {size} bytes; at most {most} are processed")
            worker = worker or await self._start()
            self._settle(call, await worker.call(call.plugin, call.payload), None)
        except (CallError, Unavailable) as error:
            self.figures.errors += 1
            self._settle(call, None, str(error))
        except (WorkerError, OSError) as error:
            if isinstance(error, CallTimeoutError):
                self.figures.timeouts += 1
            else:
                self.figures.crashes += 1
            self._tell(call.plugin, error)
            self._settle(call, None, str(error))
            if worker is not None:
                await self._end(worker)
            return None
        return worker

    async def _start(self) -> WorkerProcess:
        worker = await WorkerProcess.start(self._limits)
        self._workers.add(worker)
        if self._is_closed:
            worker.kill()
        return worker

    async def _end(self, worker: WorkerProcess) -> None:
        await worker.end()
        self._workers.discard(worker)

    def _tell(self, plugin: Plugin, error: Exception) -> None:
        now = time.monotonic()
        if not self._is_closed and now >= self._told_at.get(plugin.name, now):
            self._told_at[plugin.name] = now + TELL_S
            logger.warning("%s: %s; a new worker is started when there is work for it", plugin, error)

    async def close(self) -> None:
        """End all workers; nothing that is outstanding is given out."""
        self._is_closed = True
        self._waiting.clear()
        self._arrived.set()
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*self._tasks)

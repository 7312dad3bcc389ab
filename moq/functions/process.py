"""One worker process as the broker sees it: started, asked, and ended when it does not answer in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Self

from moq.errors import MoqError
from moq.functions.frames import ANSWER, Kind, Status, request
from moq.functions.function import Unavailable

if TYPE_CHECKING:
    from moq.config import Limits
    from moq.functions.plugins import Plugin

LOAD_TIMEOUT_S: Final = 30.0
"""For Python to start and a plug-in to import what it needs, on a machine that is busy with messages."""

NICENESS: Final = 10
"""Messages go first: processing gets what they leave of the processors."""

MAX_DESCRIPTION_BYTES: Final = 64 * 1024

# Libraries that compute with several threads would take all processors, whatever `function_workers` says, and reserve
# address space for each.
ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class CallError(MoqError):
    """The function said why there is no result; the worker goes on."""


class WorkerError(MoqError):
    """The worker is gone, or must go: it crashed."""


class CallTimeoutError(WorkerError):
    """The worker must go: it took too long."""


class WorkerProcess:
    """Asked by one caller at a time. After `WorkerError` it can only be ended."""

    def __init__(
        self,
        limits: Limits,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._limits = limits
        self._process = process
        self._reader = reader
        self._writer = writer
        self._prepared: set[str] = set()

    @classmethod
    async def start(cls, limits: Limits) -> Self:
        """Start one; it is not waited for until it is asked something.

        Raises:
            OSError: The system has no room for another process.
        """
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            return cls(limits, _spawn(limits, theirs), reader, writer)
        except BaseException:
            writer.close()
            raise
        finally:
            theirs.close()

    async def load(self, plugin: Plugin) -> bytes:
        """Have a plug-in imported; returns its description as JSON.

        Raises:
            Unavailable: It needs something that is not installed.
            CallError: It cannot be used, for the reason given.
            WorkerError: It ended the worker, or took too long.
        """
        value = plugin.value.encode()
        return await self._ask(Kind.LOAD, plugin.name, value, LOAD_TIMEOUT_S, MAX_DESCRIPTION_BYTES)

    async def call(self, plugin: Plugin, payload: bytes) -> bytes:
        """Have a payload processed.

        Raises:
            CallError: The function raised something or returned too much.
            WorkerError: It ended the worker, or took too long.
        """
        if plugin.name not in self._prepared:
            await self.load(plugin)
            await self._ask(Kind.PREPARE, plugin.name, b"", LOAD_TIMEOUT_S, 0)
            self._prepared.add(plugin.name)
        limits = self._limits
        return await self._ask(
            Kind.CALL, plugin.name, payload, limits.function_timeout_s, limits.max_function_output_bytes
        )

    async def _ask(self, kind: Kind, name: str, body: bytes, timeout_s: float, max_bytes: int) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(request(kind, name, body))
                status, size = ANSWER.unpack(await self._reader.readexactly(ANSWER.size))
                if size > max_bytes and status == Status.DONE:
                    raise WorkerError(f"the worker announced {size} bytes; at most {max_bytes} are allowed")
                answered = await self._reader.readexactly(size)
        except TimeoutError:
            raise CallTimeoutError(f"took more than {timeout_s:g} seconds") from None
        except (asyncio.IncompleteReadError, OSError):
            raise WorkerError(await self._last_words()) from None
        if status == Status.UNAVAILABLE:
            raise Unavailable(answered.decode())
        if status != Status.DONE:
            raise CallError(answered.decode())
        return answered

    async def _last_words(self) -> str:
        """How it ended; it has closed its end, so that does not take long unless somebody is trying to fool us."""
        self.kill()
        code = await asyncio.to_thread(self._process.wait)
        if code == -signal.SIGKILL:
            return "closed its connection to the broker, or was killed"
        return f"ended the worker with signal {-code}" if code < 0 else f"ended the worker with status {code}"

    def kill(self) -> None:
        """End it at once, and whatever it has started that did not leave its group."""
        if self._process.returncode is not None:  # its number may be another's by now
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End it and see to it that nothing is left."""
        self.kill()
        self._writer.close()
        await asyncio.to_thread(self._process.wait)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid


def _spawn(limits: Limits, pipe: socket.socket) -> subprocess.Popen[bytes]:
    # A second more than the broker waits, see `moq.functions.worker`.
    alarm_s = max(LOAD_TIMEOUT_S, limits.function_timeout_s) + 1
    numbers = (os.getpid(), limits.max_function_memory_bytes, limits.max_function_output_bytes, alarm_s)
    # Its end of the pair is its standard input: no descriptor has to be passed on. All others close on exec, so none
    # have to be closed one by one either, which would take a while with 20,000 clients.
    process = subprocess.Popen(
        # -P: what lies in the working directory is not to be imported in place of what is installed.
        [sys.executable, "-P", "-m", "moq.functions.worker", *map(str, numbers)],
        stdin=pipe.fileno(),
        stdout=2,  # ours is for those who wait for the ready line
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        close_fds=False,
        process_group=0,  # Ctrl-C is for the broker, which lets its clients go first
    )
    # From its first moment on: importing a large library is work, too.
    os.setpriority(os.PRIO_PROCESS, process.pid, os.nice(0) + NICENESS)
    return process

"""The worker process: loads functions and calls them, one request after the other, until the broker is gone.

    python -m moq.functions.worker BROKER MEMORY OUTPUT SECONDS

Requests come on standard input, which is one end of a pair of sockets, and answers go back there; the numbers are the
process of the broker and the limits. The code called here is anybody's: it may end the process or hang, and whatever
it prints goes to the log. So this process ends at once when the broker does (Linux tells it so), else when it finds the
socket closed, and in the middle of a call when an alarm goes off that no Python code has to run for.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from moq.functions.frames import REQUEST, Kind, Status, answer, complaint
from moq.functions.function import PluginError, Unavailable
from moq.functions.plugins import Plugin

if TYPE_CHECKING:
    from io import BufferedRWPair

    from moq.functions.function import Function

_PR_SET_PDEATHSIG: Final = 1


class Worker:
    """Answers the requests of one broker."""

    def __init__(self, pipe: BufferedRWPair, max_output_bytes: int, alarm_s: float) -> None:
        self._pipe = pipe
        self._max_output_bytes = max_output_bytes
        self._alarm_s = alarm_s
        self._functions: dict[str, Function] = {}

    def serve(self) -> None:
        """Answer until there is nobody to answer."""
        while len(header := self._pipe.read(REQUEST.size)) == REQUEST.size:
            kind, name_size, body_size = REQUEST.unpack(header)
            # Longer than the broker waits: it sees a time-out when it is there, and we end by ourselves when it is not.
            signal.setitimer(signal.ITIMER_REAL, self._alarm_s)
            name = self._pipe.read(name_size).decode()
            answered = self._answer(kind, name, self._pipe.read(body_size))
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._pipe.write(answered)
            self._pipe.flush()

    def _answer(self, kind: int, name: str, body: bytes) -> bytes:
        try:
            match kind:
                case Kind.LOAD:
                    result = self._load(name, body)
                case Kind.PREPARE:
                    result = b""
                    self._functions[name].prepare()
                case _:
                    result = self._call(name, body)
        except Unavailable as error:
            return answer(Status.UNAVAILABLE, str(error).encode())
        except BaseException as error:  # also SystemExit: it is the function that wants to end, not we
            return answer(Status.FAILED, complaint(error))
        return answer(Status.DONE, result)

    def _call(self, name: str, payload: bytes) -> bytes:
        result = self._functions[name].process(payload)
        if len(result) > self._max_output_bytes:
            raise PluginError(f"returned {len(result)} bytes; at most {self._max_output_bytes} are allowed")
        return result

    def _load(self, name: str, value: bytes) -> bytes:
        function = Plugin(name, value.decode(), "").load()
        self._functions[name] = function
        return json.dumps(function.described()).encode()


def _end_with(broker: int) -> None:
    """Have the kernel end this process when the broker ends, however it does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != broker:
        sys.exit()


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # systems that know no such limit
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _take_standard_input() -> socket.socket:
    """Our end of the pair; functions that read standard input find it empty."""
    pipe = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return pipe


def main() -> None:
    """Serve the broker that started this process."""
    broker, memory_bytes, output_bytes = map(int, sys.argv[1:4])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _end_with(broker)
    _limit(memory_bytes)
    with _take_standard_input() as end, end.makefile("rwb") as pipe, contextlib.suppress(BrokenPipeError):
        Worker(pipe, output_bytes, float(sys.argv[4])).serve()


if __name__ == "__main__":
    main()

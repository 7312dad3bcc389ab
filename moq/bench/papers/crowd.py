"""The subscribers of E-MQTT's experiment, in a process of their own: the paper's publisher was another machine.

    python -m moq.bench.papers.crowd PORT SUBSCRIBERS

Were they in the publisher's process, an answer for it would wait until they have handled what arrived for them. Each
line on standard input is a number of queries: once all exchanges of so many have ended at every subscriber, a line with
the number of packets that have passed their links so far, both ways, is the answer. The end of the input ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Final, Self

from moq import wire
from moq.bench.papers.exchanges import ALIASES, ANSWERED, CONFIRMED, RESPONSE, Subscriber
from moq.errors import ConnectFailed, ConnectionLost
from transports import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0

NAME: Final = "subscriber-"
"""How their client identifiers begin."""


class Crowd:
    """Seen from the publisher's process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._queries = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def run(cls, port: int, subscribers: int) -> AsyncIterator[Self]:
        """Connect so many to a broker on this machine; end them at the end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            str(port),
            str(subscribers),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                if not await process.stdout.readline():
                    raise ConnectFailed("the subscribers ended before they were ready")
            yield cls(process.stdout, process.stdin)
        finally:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def packets_after_query(self) -> int:
        """Wait until one more query is over at all of them; the packets so far."""
        self._queries += 1
        self._writer.write(f"{self._queries}\n".encode())
        line = await self._reader.readline()
        if not line:
            raise ConnectionLost("the subscribers ended in the middle of a query")
        return int(json.loads(line)["packets"])


async def _main(port: int, count: int) -> None:
    target = Target("tcp", "127.0.0.1", port)
    subscribers = [await Subscriber.open(target, f"{NAME}{number}") for number in range(count)]
    for subscriber in subscribers:
        await subscriber.request(
            wire.Subscribe(2, False, ALIASES[ANSWERED], ANSWERED),
            wire.Register(0, False, ALIASES[RESPONSE], RESPONSE),
            wire.Subscribe(3, False, ALIASES[CONFIRMED], CONFIRMED),
        )
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print(json.dumps({"event": "ready"}), flush=True)
    while line := await reader.readline():
        for subscriber in subscribers:
            await subscriber.quiet_after(int(line))
        print(json.dumps({"packets": sum(subscriber.packets for subscriber in subscribers)}), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))

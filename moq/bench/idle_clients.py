"""Idle clients as a process of their own: `python -m moq.bench.idle_clients PLAN`, a JSON object, until stdin ends.

They connect some at a time, say who they are, and from then on only answer the broker's keep-alive packets. JSON lines
tell how far they are; after a line on stdin nobody new connects. TCP and TLS clients are one small object each; QUIC
clients are whole links with a socket each. Once all are connected the process runs at the lowest priority: what is
measured is what the broker makes of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from moq.bench.dialects import MMQP
from moq.errors import ConnectionLost, MoqError
from moq.wire import ConReq, ConSyn, Settings, encode
from transports import quic, tls

if TYPE_CHECKING:
    import ssl

    from moq.broker.link import Lane, Link

SPARE_FILES: Final = 64
"""For everything that is no connection."""

LOWEST_PRIORITY: Final = 19
REPORT_S: Final = 0.5
GIVE_UP: Final = 10
"""Failures in a row after which this machine, or the broker, has shown its limit."""

ANSWER_TIMEOUT_S: Final = 30.0
CONSYN: Final = encode(ConSyn())


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Who is to connect where."""

    scheme: str
    host: str
    port: int
    ca: str
    count: int
    address: str
    """They connect from here: the ports of one address are 28,000."""
    keep_alive_s: int
    engine: str = "aioquic"
    at_once: int = 32


class Client:
    """Answers keep-alive packets, and whoever waits for its own answer."""

    __slots__ = ("_rest", "answered", "crowd", "is_answered")

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.answered: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        self.is_answered = False
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """Bytes of the control stream; returns what to say to them."""
        data = self._rest + data
        at, answers, dialect = 0, b"", self.crowd.dialect
        while (end := dialect.packet_end(data, at)) is not None and end <= len(data):
            packet, at = data[at:end], end
            if packet[0] >> 4 == ConSyn.TYPE:
                answers += CONSYN
            elif self.answered is not None:
                self._settle(packet)
        self._rest = data[at:]
        return answers

    def _settle(self, packet: bytes) -> None:
        assert self.answered is not None
        try:
            self.crowd.dialect.check(packet)
        except MoqError as error:
            self._fail(error)
        else:
            self.is_answered = True
            self.crowd.open += 1
            self.crowd.last_at = time.monotonic()
            if not self.answered.done():
                self.answered.set_result(None)
            self.answered = None

    def _fail(self, error: Exception) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_exception(error)
        self.answered = None

    def lost(self, message: str) -> None:
        """The connection has ended."""
        if self.is_answered:
            self.is_answered = False
            self.crowd.open -= 1
            self.crowd.lost += 1
            self.crowd.why_lost = message
        self._fail(ConnectionLost(message, None))


class StreamClient(Client, asyncio.Protocol):
    """Over TCP or TLS."""

    __slots__ = ("transport",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who this is."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.crowd.hello)

    def data_received(self, data: bytes) -> None:
        """An answer, or a question."""
        if answers := self.take(data):
            self.transport.write(answers)

    def connection_lost(self, exc: Exception | None) -> None:
        """By the broker: nobody here ends one."""
        self.lost(str(exc or "the broker closed the connection"))


class LinkClient(Client):
    """Over QUIC."""

    __slots__ = ("link",)

    def __init__(self, crowd: Crowd, link: Link) -> None:
        super().__init__(crowd)
        self.link = link
        link.control.write(crowd.hello)

    def data_received(self, lane_id: int, data: bytes) -> None:
        """An answer, or a question."""
        if answers := self.take(data):
            self.link.control.write(answers)

    def lane_finished(self, lane_id: int) -> None:
        """The end of the link follows."""

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """The end of the link follows."""

    def lane_writable(self, lane: Lane) -> None:
        """Little is written."""

    def closed(self, reason: int | None, message: str) -> None:
        """By the broker, or for want of answers."""
        self.lost(message)


class Crowd:
    """All clients of this process."""

    def __init__(self, plan: Clients) -> None:
        self.dialect = MMQP()
        self.hello = encode(ConReq(settings=Settings(False, plan.keep_alive_s, None)))
        self.open = 0
        self.lost = 0
        self.why = ""
        """The last attempt failed."""
        self.why_lost = ""
        """The last connection that was open ended."""
        self.started_at = self.last_at = time.monotonic()
        self._plan = plan
        self._clients: list[Client] = []
        self._tls: ssl.SSLContext | None = tls.client_context(Path(plan.ca)) if plan.scheme == "tls" else None
        # A socket of a client has next to nothing to buffer, and ten thousand of them would.
        self._options = quic.QUICOptions(socket_buffer_bytes=64 * 1024, connect_timeout_s=ANSWER_TIMEOUT_S)
        self._begun = 0
        self._failures = 0
        self.is_over = False
        self.is_stopped = False
        """Set when nobody new is wanted."""

    async def fill(self) -> None:
        """Connect all, some at a time, or as many as go."""
        await asyncio.gather(*(self._work() for _ in range(self._plan.at_once)))
        self.is_over = True

    async def _work(self) -> None:
        while self._begun < self._plan.count and self._failures < GIVE_UP and not self.is_stopped:
            self._begun += 1
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._connect()
            except (MoqError, OSError, TimeoutError) as error:
                # A slow answer is worth another try, for as long as whoever started this wants; a refusal is not.
                self._failures += not isinstance(error, TimeoutError) and "timed out" not in str(error)
                self._begun -= 1
                self.why = str(error) or f"no answer within {ANSWER_TIMEOUT_S:g} s"
            else:
                self._failures = 0

    async def _connect(self) -> None:
        plan, loop = self._plan, asyncio.get_running_loop()
        if plan.scheme == "quic":
            made: list[LinkClient] = []

            def make(link: Link) -> LinkClient:
                made.append(LinkClient(self, link))
                return made[0]

            await quic.connect(
                plan.host,
                plan.port,
                make,
                ca=Path(plan.ca),
                server_name="localhost",
                options=self._options,
                engine=plan.engine,
                local_host=plan.address,
            )
            client: Client = made[0]
        else:
            _, client = await loop.create_connection(
                lambda: StreamClient(self),
                plan.host,
                plan.port,
                ssl=self._tls,
                server_hostname="localhost" if self._tls else None,
                local_addr=(plan.address, 0),
            )
        self._clients.append(client)
        if client.answered is not None:
            await client.answered

    def say(self) -> None:
        """How far they are."""
        told = {
            "open": self.open,
            "lost": self.lost,
            "is_over": self.is_over,
            "why": self.why,
            "why_lost": self.why_lost,
            "seconds": self.last_at - self.started_at,
        }
        print(json.dumps(told), flush=True)


async def _run(plan: Clients) -> None:
    crowd = Crowd(plan)
    filling = asyncio.create_task(crowd.fill())
    filling.add_done_callback(lambda _: os.nice(LOWEST_PRIORITY))
    telling = asyncio.create_task(_tell(crowd))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        crowd.is_stopped = True
    telling.cancel()
    # Ten thousand goodbyes take a while, and the broker is stopped anyway.
    os._exit(0)


async def _tell(crowd: Crowd) -> None:
    while True:
        crowd.say()
        await asyncio.sleep(REPORT_S)


def raise_file_limit(wanted: int) -> int:
    """Let this process, and those it starts, have so many files; returns how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return soft
    for most in (max(wanted, hard), hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            return most
    return soft


def main() -> None:
    """Run what the first argument describes."""
    plan = Clients(**json.loads(sys.argv[1]))
    raise_file_limit(plan.count + SPARE_FILES)
    asyncio.run(_run(plan))


if __name__ == "__main__":
    main()

"""What drives an engine, with an engine that does as it is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from transports.quic.connection import REFUSALS_UNTIL_LOST, Connection
from transports.quic.engine import Closed, HandshakeCompleted, StreamData, StreamReset, Terminated
from transports.quic.options import QUICOptions

if TYPE_CHECKING:
    from transports.quic.endpoint import Endpoint
    from transports.quic.engine import Address, Engine, Event

ADDRESS: Address = ("127.0.0.1", 4)


class Puppet:
    """An engine whose events and datagrams a test decides on."""

    connection_id = b"12345678"

    def __init__(self) -> None:
        self.queue: list[Event] = []
        self.outgoing: list[list[tuple[bytes, Address]]] = []
        self.pings = 0

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        pass

    def events(self) -> list[Event]:
        events, self.queue = self.queue, []
        return events

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        return self.outgoing.pop(0) if self.outgoing else []

    def drained(self) -> list[int]:
        return []

    def release(self) -> None:
        self.is_released = True

    def timer(self) -> float | None:
        return None

    def ping(self) -> None:
        self.pings += 1

    def close(self, code: int | None, message: str) -> None:
        self.outgoing.append([(b"farewell", ADDRESS)])


class Network:
    """An endpoint that only counts."""

    is_full = False

    def __init__(self, *, is_client: bool) -> None:
        self.is_client = is_client
        self.loop = asyncio.get_running_loop()
        self.sent: list[bytes] = []
        self.forgotten: list[Connection] = []

    def send(self, datagrams: list[tuple[bytes, Address]]) -> None:
        self.sent += [data for data, _ in datagrams]

    def schedule_flush(self, connection: Connection) -> None:
        pass

    def forget(self, connection: Connection) -> None:
        self.forgotten.append(connection)
        connection.release()


class Listening:
    """An owner that records."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def stream_data(self, stream_id: int, data: bytes, *, is_finished: bool) -> None:
        self.heard.append((stream_id, data, is_finished))

    def stream_reset(self, stream_id: int, code: int) -> None:
        self.heard.append(("reset", stream_id, code))

    def stream_stopped(self, stream_id: int, code: int) -> None: ...
    def fill(self, drained: list[int]) -> None: ...
    def flushed(self) -> None: ...

    def closed(self, code: int | None, message: str) -> None:
        self.heard.append(("closed", code, message))


class Stage:
    """A connection with puppets on all sides."""

    def __init__(self, *, is_client: bool = False) -> None:
        self.engine = Puppet()
        self.network = Network(is_client=is_client)
        self.owner = Listening()
        self.failures: list[Closed] = []
        self.connection = Connection(
            cast("Endpoint", self.network),
            cast("Engine", self.engine),
            ADDRESS,
            options=QUICOptions(),
            on_open=lambda *_: self.owner,
            on_failed=self.failures.append,
        )

    def happen(self, *events: Event) -> None:
        self.engine.queue += events
        self.connection.handle_events()


async def test_early_data_waits_for_the_handshake_because_it_may_be_a_replay() -> None:
    stage = Stage()
    stage.happen(StreamData(0, b"early", False), StreamReset(2, 7))
    assert stage.owner.heard == []
    stage.happen(HandshakeCompleted("mmqp", True), StreamData(0, b"late", True))
    assert stage.owner.heard == [(0, b"early", False), ("reset", 2, 7), (0, b"late", True)]
    stage.connection.release()


async def test_an_unfinished_handshake_that_ends_is_reported_as_failed() -> None:
    stage = Stage()
    stage.happen(StreamData(0, b"early", False), Closed(None, "no", is_by_peer=True), Terminated())
    assert [closed.message for closed in stage.failures] == ["no"]
    assert stage.owner.heard == []
    assert stage.network.forgotten == [stage.connection]


async def test_the_end_is_told_once() -> None:
    stage = Stage()
    stage.happen(HandshakeCompleted("mmqp", False))
    stage.connection.end(0x8B, "going down")
    stage.connection.end(0x8B, "going down")
    stage.happen(Closed(5, "crossed on the way", is_by_peer=True))
    assert stage.owner.heard == [("closed", None, "going down")]


async def test_a_peer_that_missed_the_farewell_hears_it_again_ever_more_rarely() -> None:
    stage = Stage()
    stage.happen(HandshakeCompleted("mmqp", False))
    stage.connection.end(0, "done")
    for _ in range(100):
        stage.connection.receive([b"late"], ADDRESS, 0.0)
    assert stage.network.sent == [b"farewell"] * 8  # the first, and with late datagrams 1, 2, 4, ... 64


async def test_a_single_refusal_may_be_stale_but_several_are_not() -> None:
    stage = Stage(is_client=True)
    stage.happen(HandshakeCompleted("mmqp", False))
    for _ in range(REFUSALS_UNTIL_LOST - 1):
        stage.connection.refused()
    stage.connection.receive([b"alive"], ADDRESS, 0.0)
    stage.connection.refused()
    assert stage.owner.heard == []
    for _ in range(REFUSALS_UNTIL_LOST - 1):
        stage.connection.refused()
    assert stage.owner.heard == [("closed", None, "connection refused")]
    assert stage.network.forgotten == [stage.connection]


async def test_only_a_client_keeps_the_connection_alive() -> None:
    for is_client in (True, False):
        stage = Stage(is_client=is_client)
        stage.happen(HandshakeCompleted("mmqp", False))
        assert stage.engine.pings == is_client  # it has never heard anything: silence enough to ask
        stage.connection.release()

"""A peer that does not read costs the broker a bounded amount of memory and nobody else anything.

The broker is a process of its own, so that its memory can be read from the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import certs
import moq
import transports
from moq.broker.link import CONTROL
from moq.wire import ConReq, FrameReader, PubReq, Register, Subscribe, TopAck, encode
from tests.running import Broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moq.broker.link import Lane, Link
    from moq.wire import TopicRequest

SCHEMES = ("tcp", "tls", "quic")

PAYLOAD = bytes(16 * 1024)
MESSAGES = 3_000
"""Of 16 KiB: nearly 50 MB, several times what the broker may hold for one subscriber."""

QUEUED_BYTES = 4 * 1024 * 1024
LIMITS = ("--limit", f"max_queued_bytes={QUEUED_BYTES}")

ALLOWED_BYTES = 24 * 1024 * 1024
"""So much waiting, as much in flight, a few high-water marks of 1 MiB, and Python's own slack."""

MAX_QUESTIONS_BYTES = 64 * 1024 * 1024
STILL_S = 1.0
"""A writer that gets nothing away for so long has been stopped; the socket buffers are long full then."""


class Peer:
    """A client that reads a lane until told to stop, and then not at all."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.subscribed = asyncio.Event()
        self.stuck: set[int] = set()
        self.stops_at: str | None = None
        self.counts: dict[str, int] = {}
        self.awaited: tuple[str, int] | None = None
        self.arrived = asyncio.Event()
        self.writable = asyncio.Event()
        self._readers: dict[int, FrameReader] = {}
        self._names: dict[tuple[int, int], str] = {}

    def start(self, client_id: str, requests: list[TopicRequest]) -> None:
        self.link.control.write(encode(ConReq(client_id=client_id, topics=requests)))

    def data_received(self, lane_id: int, data: bytes) -> None:
        reader = self._readers.setdefault(lane_id, FrameReader(1 << 24))
        for item in reader.feed(data):
            if isinstance(item, TopAck):
                self.subscribed.set()
            elif isinstance(item, PubReq):
                self._on_message(lane_id, item)

    def _on_message(self, lane_id: int, packet: PubReq) -> None:
        if packet.topic is not None:
            self._names[lane_id, packet.alias] = packet.topic
        name = self._names[lane_id, packet.alias]
        self.counts[name] = self.counts.get(name, 0) + 1
        if (name, self.counts[name]) == self.awaited:
            self.arrived.set()
        if name == self.stops_at:
            self.stuck.add(lane_id)
            self.link.pause_reading(lane_id)

    def lane_finished(self, lane_id: int) -> None: ...
    def lane_reset(self, lane_id: int, reason: int) -> None: ...
    def lane_writable(self, lane: Lane) -> None:
        self.writable.set()

    def closed(self, reason: int | None, message: str) -> None: ...


async def join(
    broker: Broker, scheme: str, client_id: str, requests: list[TopicRequest], kind: type[Peer] = Peer
) -> Peer:
    target = transports.parse_url(broker.url(scheme))
    peers: list[Peer] = []

    def make(link: Link) -> Peer:
        peers.append(kind(link))
        return peers[0]

    await transports.connect(target, make, ca=certs.paths(broker.data_dir).ca)
    peers[0].start(client_id, requests)
    await peers[0].subscribed.wait()
    return peers[0]


def rss_bytes(broker: Broker) -> int:
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


async def publish_all(client: moq.Client, topic: str, payloads: Iterable[bytes], qos: int) -> None:
    for payload in payloads:
        await client.publish(topic, payload, qos=qos)


@pytest.mark.slow
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_subscriber_that_stops_reading_is_bounded_and_alone(tmp_path: Path, scheme: str, qos: int) -> None:
    with Broker(tmp_path, *LIMITS) as broker:
        wants = Subscribe(qos=qos, accepts_requests=False, alias=0, topic="load")
        stuck = await join(broker, scheme, "stuck", [wants])
        stuck.stops_at = "load"
        async with (
            moq.connect(broker.url(scheme), data_dir=tmp_path) as reader,
            moq.connect(broker.url(scheme), data_dir=tmp_path) as publisher,
            reader.subscribe("load", qos=1, queue=MESSAGES) as load,
        ):
            await publisher.publish("load", PAYLOAD, qos=1)
            await anext(load)
            before = rss_bytes(broker)
            highest = before
            for _ in range(MESSAGES // 100):
                await publish_all(publisher, "load", [PAYLOAD] * 100, qos=1)
                for _ in range(100):
                    await anext(load)
                highest = max(highest, rss_bytes(broker))
        assert stuck.stuck, "it did stop reading"
        assert stuck.counts["load"] < MESSAGES
        assert highest - before < ALLOWED_BYTES
        stuck.link.abort()


async def test_a_stream_that_is_not_read_holds_up_no_other_stream_of_its_connection(tmp_path: Path) -> None:
    with Broker(tmp_path, *LIMITS) as broker:
        peer = await join(broker, "quic", "half stuck", [Subscribe(1, False, 0, "+")])
        peer.stops_at = "video"
        peer.awaited = ("thermostat", 100)
        async with moq.connect(broker.url("quic"), data_dir=tmp_path) as publisher:
            await publish_all(publisher, "video", [PAYLOAD] * 400, qos=0)
            await publish_all(publisher, "thermostat", [b"21.5"] * 100, qos=0)
            await peer.arrived.wait()
        assert peer.counts["video"] < 400
        assert CONTROL not in peer.stuck
        peer.link.abort()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_client_that_asks_and_does_not_read_the_answers_is_stopped(tmp_path: Path, scheme: str) -> None:
    with Broker(tmp_path, *LIMITS) as broker:
        peer = await join(broker, scheme, "asker", [Register(0, False, 1, "a")])
        before = rss_bytes(broker)
        peer.link.pause_reading(CONTROL)
        # Every PUBREQ of QoS 1 is answered; nobody reads the answers, so the broker stops reading the questions.
        block = b"".join(encode(PubReq(0, False, False, 1, n, 1, None, None, None, b"")) for n in range(1, 5001))
        written = 0
        with contextlib.suppress(TimeoutError):
            while written < MAX_QUESTIONS_BYTES:
                peer.writable.clear()
                peer.link.control.write(block)
                written += len(block)
                if peer.link.control.congested:
                    await asyncio.wait_for(peer.writable.wait(), STILL_S)
        assert written < MAX_QUESTIONS_BYTES, "flow control reached the writer"
        async with moq.connect(broker.url(scheme), data_dir=tmp_path) as other:
            await other.publish("b", "still served", qos=1)
        assert rss_bytes(broker) - before < ALLOWED_BYTES
        peer.link.abort()

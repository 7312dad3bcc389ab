"""One QUIC stream per topic, as a stranger sees it: aioquic's own client counts the streams the broker opens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived

import moq
from moq.config import BrokerConfig
from moq.server import Server
from moq.wire import ConReq, FrameReader, PubReq, Subscribe, TopAck, encode

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = 50
ROUNDS = 3


class StreamCounter(QuicConnectionProtocol):
    """Keeps what arrives on each stream, as the transport reports it."""

    streams: dict[int, bytes]
    subscribed: asyncio.Event
    complete: asyncio.Event

    def expect(self) -> None:
        self.streams = {}
        self.subscribed = asyncio.Event()
        self.complete = asyncio.Event()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self.streams[event.stream_id] = self.streams.get(event.stream_id, b"") + event.data
            if any(isinstance(item, TopAck) for item in packets(self.streams.get(0, b""))):
                self.subscribed.set()
            topics = [packets(data) for stream_id, data in self.streams.items() if stream_id]
            if len(topics) >= TOPICS and all(len(items) == ROUNDS for items in topics):
                self.complete.set()


def packets(data: bytes) -> list[object]:
    return list(FrameReader(1 << 20).feed(data))


async def test_a_wildcard_subscription_to_fifty_topics_uses_fifty_streams_besides_stream_0(tmp_path: Path) -> None:
    config = BrokerConfig(tcp_port=0, tls_port=0, quic_port=0, http_port=0, data_dir=tmp_path, sys_interval_s=0)
    async with Server(config) as server:
        trust = QuicConfiguration(alpn_protocols=["mmqp"], cafile=str(tmp_path / "certs" / "ca.pem"))
        trust.server_name = "localhost"
        async with connect(
            "127.0.0.1", server.ports["quic"], configuration=trust, create_protocol=StreamCounter
        ) as peer:
            assert isinstance(peer, StreamCounter)
            peer.expect()
            subscribe = Subscribe(qos=0, accepts_requests=False, alias=0, topic="room/#")
            peer._quic.send_stream_data(0, encode(ConReq(client_id="counter", topics=[subscribe])))
            peer.transmit()
            await peer.subscribed.wait()
            async with moq.connect(f"tcp://127.0.0.1:{server.ports['tcp']}") as publisher:
                for round_ in range(ROUNDS):
                    for number in range(TOPICS):
                        await publisher.publish(f"room/{number}", f"{round_}")
                await peer.complete.wait()
    by_stream = {stream_id: packets(data) for stream_id, data in peer.streams.items() if stream_id}
    assert len(by_stream) == TOPICS
    assert all(stream_id % 4 == 3 for stream_id in by_stream), "server-initiated unidirectional streams end in 11"
    first_packets = [items[0] for items in by_stream.values()]
    assert {item.topic for item in first_packets if isinstance(item, PubReq)} == {f"room/{n}" for n in range(TOPICS)}
    for items in by_stream.values():
        pubreqs = [item for item in items if isinstance(item, PubReq)]
        assert len({item.alias for item in pubreqs}) == 1, "a stream carries one topic"
        assert [item.payload for item in pubreqs] == [b"0", b"1", b"2"]

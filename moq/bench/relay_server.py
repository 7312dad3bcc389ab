"""Relays without a broker, run as processes of their own: what a publisher's streams bring goes to every subscriber.

    python -m moq.bench.relay_server endpoint DIRECTORY ENGINE    our QUIC transport, stream by stream
    python -m moq.bench.relay_server shipped DIRECTORY aioquic    aioquic's own asyncio server, as its examples use it

A subscriber is whoever sends a TOPREQ on the control stream. Both print the ready line of a broker.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import certs
from moq import wire
from moq.broker.link import CONTROL
from transports import quic

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link

TOPREQ: Final = 5
MOST_STREAMS: Final = 4096
"""As our own transport allows; aioquic as shipped would stop at 128."""


def answer_to(data: bytes) -> bytes:
    """What a broker would say, without being one."""
    is_subscribing = data[0] >> 4 == TOPREQ
    return wire.encode(wire.TopAck(1, b"\0") if is_subscribing else wire.ConAck(False, 0))


class EndpointRelay:
    """One connection to the relay on our transport."""

    subscribers: Final[list[EndpointRelay]] = []

    def __init__(self, link: Link) -> None:
        self.link = link
        self._waiting: defaultdict[Lane, list[tuple[Link, int]]] = defaultdict(list)

    def data_received(self, lane_id: int, data: bytes) -> None:
        """Pass it on; a subscriber that does not keep up slows its publisher."""
        if lane_id == CONTROL:
            if data[0] >> 4 == TOPREQ:
                self.subscribers.append(self)
            self.link.control.write(answer_to(data))
            return
        for subscriber in self.subscribers:
            lane = subscriber.link.lane(lane_id)
            lane.write(data)
            if lane.congested:
                self.link.pause_reading(lane_id)
                subscriber._waiting[lane].append((self.link, lane_id))

    def lane_finished(self, lane_id: int) -> None:
        """Streams of a benchmark stay open."""

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """Streams of a benchmark stay open."""

    def lane_writable(self, lane: Lane) -> None:
        """Let the publishers go on."""
        for link, lane_id in self._waiting.pop(lane, ()):
            link.resume_reading(lane_id)

    def closed(self, reason: int | None, message: str) -> None:
        """Send it nothing more."""
        if self in self.subscribers:
            self.subscribers.remove(self)


async def serve_endpoint(where: certs.CertificatePaths, engine: str) -> int:
    """Relay on our transport; the port."""
    listener = await quic.serve(
        "127.0.0.1", 0, EndpointRelay, certificate=where.server, private_key=where.server_key, engine=engine
    )
    return listener.port


async def serve_shipped(where: certs.CertificatePaths) -> int:
    """Relay as the examples of aioquic do it: its asyncio server, one `transmit` for each event; the port."""
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.asyncio.server import serve
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamDataReceived

    subscribers: list[ShippedRelay] = []

    class ShippedRelay(QuicConnectionProtocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._quic._local_max_streams_uni.value = MOST_STREAMS
            self._streams: dict[int, int] = {}

        def quic_event_received(self, event: QuicEvent) -> None:
            if isinstance(event, ConnectionTerminated) and self in subscribers:
                subscribers.remove(self)
            if not isinstance(event, StreamDataReceived):
                return
            if event.stream_id != 0:
                for subscriber in subscribers:
                    subscriber.relay(event.stream_id, event.data)
            elif event.data:
                if event.data[0] >> 4 == TOPREQ:
                    subscribers.append(self)
                self._quic.send_stream_data(0, answer_to(event.data))

        def relay(self, source: int, data: bytes) -> None:
            if source not in self._streams:
                self._streams[source] = self._quic.get_next_available_stream_id(is_unidirectional=True)
                # The identifier counts as used from the first data on.
            self._quic.send_stream_data(self._streams[source], data)
            self.transmit()

    configuration = QuicConfiguration(is_client=False, alpn_protocols=["mmqp"])
    configuration.load_cert_chain(where.server, where.server_key)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=ShippedRelay)
    assert server._transport is not None
    return int(server._transport.get_extra_info("sockname")[1])


async def main(kind: str, directory: Path, engine: str) -> None:
    """Serve until terminated."""
    where = certs.ensure(directory)
    port = await (serve_shipped(where) if kind == "shipped" else serve_endpoint(where, engine))
    print(json.dumps({"event": "ready", "quic": port}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))

"""A broker that notes when bytes leave for subscribers and when their answers come, run as a process of its own.

    python -m moq.bench.papers.tapped_broker DIRECTORY

The broker-subscriber delay of E-MQTT begins and ends inside the broker, so that is where it is taken. While the broker
runs, its taps keep times and bytes and nothing more; they are taken apart at the end, into DIRECTORY/delays.json: a
list for each subscriber.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq import wire
from moq.bench.papers.clients import MAX_PACKET_BYTES
from moq.bench.papers.crowd import NAME as SUBSCRIBER
from moq.config import BrokerConfig
from moq.server.server import Server
from transports.fair import FairLoop

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link, LinkHandler

DELAYS: Final = "delays.json"


class Tap:
    """What passed one link: when, which way, which bytes."""

    def __init__(self) -> None:
        self.outgoing: list[tuple[int, bytes]] = []
        self.incoming: list[tuple[int, bytes]] = []

    def delays_ns(self) -> list[int]:
        """From each PUBREQ to the first answer of its packet identifier; nothing if this is no subscriber."""
        incoming = _packets(self.incoming)
        hello = incoming[0][1] if incoming else None
        if not isinstance(hello, wire.ConReq) or not (hello.client_id or "").startswith(SUBSCRIBER):
            return []
        sent = [(at, packet.packet_id) for at, packet in _packets(self.outgoing) if isinstance(packet, wire.PubReq)]
        answers: dict[int, list[int]] = {}
        for at, packet in incoming:
            if isinstance(packet, wire.PubSyn | wire.ConfirmSyn):
                answers.setdefault(packet.packet_id, []).append(at)
        return [
            min(answered - at for answered in answers.get(packet_id, ()) if answered >= at)
            for at, packet_id in sent
            if any(answered >= at for answered in answers.get(packet_id, ()))
        ]


def _packets(pieces: list[tuple[int, bytes]]) -> list[tuple[int, wire.Item]]:
    reader = wire.FrameReader(MAX_PACKET_BYTES)
    return [(at, packet) for at, data in pieces for packet in reader.feed(data)]


class TappedLane:
    """A lane that notes what is written to it."""

    def __init__(self, lane: Lane, tap: Tap) -> None:
        self._lane = lane
        self._noted = tap.outgoing
        self.stream_id = lane.stream_id

    @property
    def congested(self) -> bool:
        """See `Lane`."""
        return self._lane.congested

    @property
    def unsent(self) -> int:
        """See `Lane`."""
        return self._lane.unsent

    @property
    def is_closed(self) -> bool:
        """See `Lane`."""
        return self._lane.is_closed

    def write(self, data: bytes) -> None:
        """See `Lane`."""
        self._noted.append((time.perf_counter_ns(), data))
        self._lane.write(data)

    def finish(self) -> None:
        """See `Lane`."""
        self._lane.finish()

    def reset(self, reason: int) -> None:
        """See `Lane`."""
        self._lane.reset(reason)


class TappedHandler:
    """A handler that notes what is read for it."""

    def __init__(self, handler: LinkHandler, tap: Tap) -> None:
        self._noted = tap.incoming
        self._receive = handler.data_received
        self.lane_finished = handler.lane_finished
        self.lane_reset = handler.lane_reset
        self.lane_writable = handler.lane_writable
        self.closed = handler.closed

    def data_received(self, lane_id: int, data: bytes) -> None:
        """See `LinkHandler`."""
        self._noted.append((time.perf_counter_ns(), data))
        self._receive(lane_id, data)


class TappedServer(Server):
    """The broker, every link of it with a tap."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config)
        self.taps: list[Tap] = []

    def _accept(self, link: Link) -> LinkHandler:
        tap = Tap()
        self.taps.append(tap)
        link.control = TappedLane(link.control, tap)
        return TappedHandler(super()._accept(link), tap)


async def main(directory: Path) -> None:
    """Serve until terminated, then write the delays."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    config = BrokerConfig(
        tcp_port=0,
        tls_port=0,
        quic_port=0,
        http_port=0,
        websocket_port=0,
        wss_port=0,
        data_dir=directory,
        sys_interval_s=0.0,
    )
    async with TappedServer(config) as server:
        print(json.dumps({"event": "ready", **server.ports}), flush=True)
        await stop.wait()
        delays = [delays for tap in server.taps if (delays := tap.delays_ns())]
        (directory / DELAYS).write_text(json.dumps(delays))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=FairLoop) as runner:
        runner.run(main(Path(sys.argv[1])))

"""MQTT clients of a few lines for the listeners' tests: packets out, packets in, over TCP and WebSocket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from moq.wire import mqtt
from tests.server.wire_client import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from websockets.asyncio.client import ClientConnection

VERSION = mqtt.VERSION_5


def encode(*packets: mqtt.Packet) -> bytes:
    return b"".join(mqtt.encode(packet, VERSION) for packet in packets)


def decode(data: bytes) -> list[mqtt.Item]:
    return list(mqtt.MQTTFrameReader(1 << 24, version=VERSION).feed(data))


def connect(client_id: str, version: int = VERSION) -> bytes:
    return mqtt.encode(mqtt.Connect(version, client_id=client_id), version)


def subscribe(topic: str, qos: int = 0, packet_id: int = 1) -> mqtt.Subscribe:
    return mqtt.Subscribe(packet_id, None, [mqtt.Subscription(topic, qos)])


def publish(topic: str, payload: bytes, qos: int = 0, packet_id: int = 0) -> mqtt.Publish:
    return mqtt.Publish(False, qos, False, topic, packet_id, None, payload)


class MQTTClient:
    """One connection; `read` gives the next packet, or None once the server has closed."""

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        receive: Callable[[], Awaitable[bytes]],
        close: Callable[[], object],
        version: int = VERSION,
    ) -> None:
        self._send = send
        self._receive = receive
        self._close = close
        self._frames = mqtt.MQTTFrameReader(1 << 24, version=version)
        self._packets: list[mqtt.Item] = []

    @classmethod
    def over_streams(
        cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int = VERSION
    ) -> MQTTClient:
        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        return cls(send, lambda: reader.read(65536), writer.close, version)

    @classmethod
    def over_websocket(cls, websocket: ClientConnection) -> MQTTClient:
        async def receive() -> bytes:
            try:
                data = await websocket.recv()
            except ConnectionClosed:
                return b""
            assert isinstance(data, bytes)
            return data

        return cls(websocket.send, receive, lambda: None)

    async def send(self, *packets: mqtt.Packet) -> None:
        await self._send(encode(*packets))

    async def send_bytes(self, data: bytes) -> None:
        await self._send(data)

    async def read(self) -> mqtt.Item | None:
        async with asyncio.timeout(PATIENCE_S):
            while not self._packets:
                data = await self._receive()
                if not data:
                    return None
                self._packets += self._frames.feed(data)
        return self._packets.pop(0)

    async def read_to_the_end(self) -> list[mqtt.Item]:
        """Everything until the server closes; then this side closes too."""
        packets: list[mqtt.Item] = []
        while (packet := await self.read()) is not None:
            packets.append(packet)
        self._close()
        return packets

    async def ended(self) -> None:
        """Wait for the server to close, whatever it says before."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._receive():
                pass

    async def connect(self, client_id: str) -> None:
        await self.send_bytes(connect(client_id))
        await self.is_accepted()

    async def is_accepted(self) -> None:
        answer = await self.read()
        assert isinstance(answer, mqtt.ConnAck)
        assert answer.reason == 0

    async def subscribe(self, topic: str, qos: int = 0) -> None:
        await self.send(subscribe(topic, qos))
        answer = await self.read()
        assert isinstance(answer, mqtt.SubAck)
        assert answer.reasons == bytes((qos,))

    async def payload(self) -> bytes:
        """That of the next packet, which is a message."""
        packet = await self.read()
        assert isinstance(packet, mqtt.Publish)
        return packet.payload

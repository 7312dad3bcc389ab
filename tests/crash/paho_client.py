"""A client of the load that other people wrote: paho-mqtt, in a thread of its own, reconnecting as it does by itself.

It has its own idea of how QoS 1 and 2 are resumed, so that the broker does not only have to agree with ours.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

KEEP_ALIVE_S: Final = 2
RECONNECT_S: Final = 0.2
WINDOW: Final = 100


class PahoClient:
    """MQTT 3.1.1 over TCP with a persistent session; callbacks of its thread are handed to the event loop."""

    def __init__(
        self,
        client_id: str,
        port: int,
        filter_: str | None,
        on_message: Callable[[bytes], None],
        complain: Callable[[str], None],
    ) -> None:
        self._client_id = client_id
        self._port = port
        self._filter = filter_
        self._deliver = on_message
        self._complain = complain
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: dict[int, Callable[[int], None]] = {}
        self._is_connected = False
        self._is_established = False
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv311, clean_session=False
        )
        self._client.max_inflight_messages_set(WINDOW)
        self._client.reconnect_delay_set(RECONNECT_S, RECONNECT_S)  # type: ignore[arg-type]  # it only ever adds them
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = lambda *_: self._call(self._disconnected)
        self._client.on_subscribe = lambda *_: self._call(self._established)
        self._client.on_publish = lambda _client, _data, number, *_: self._call(self._finished, number)
        self._client.on_message = lambda _client, _data, message: self._call(self._deliver, message.payload)

    @property
    def is_ready(self) -> bool:
        return self._is_connected and self._is_established

    @property
    def unfinished(self) -> int:
        return len(self._done)

    def publish(self, topic: str, payload: bytes, qos: int, on_done: Callable[[int], None]) -> None:
        info = self._client.publish(topic, payload, qos)
        assert info.rc in (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN)
        self._done[info.mid] = on_done  # its end is told through the loop, so not before this turn is over

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._client.connect("127.0.0.1", self._port, KEEP_ALIVE_S)
        self._client.loop_start()
        try:
            await self._loop.create_future()
        finally:
            self._client.disconnect()
            self._client.loop_stop()

    # --- in paho's thread ---

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function, *arguments)

    def _on_connect(
        self,
        client: paho.Client,
        data: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if reason.is_failure:
            return
        if self._filter is not None and not flags.session_present:
            client.subscribe(self._filter, 2)
        self._call(self._connected, flags.session_present)

    # --- in the event loop ---

    def _connected(self, session_present: bool) -> None:
        self._is_connected = True
        if self._is_established and not session_present:
            self._complain(f"the persistent session of {self._client_id} was forgotten")
        self._is_established |= self._filter is None or session_present

    def _disconnected(self) -> None:
        self._is_connected = False

    def _established(self) -> None:
        self._is_established = True

    def _finished(self, number: int) -> None:
        on_done = self._done.pop(number, None)
        if on_done is not None:
            on_done(0)

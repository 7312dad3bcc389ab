"""A paho-mqtt client in a thread of its own, with its messages in a queue."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties

if TYPE_CHECKING:
    from typing import Self

    from paho.mqtt.reasoncodes import ReasonCode
    from paho.mqtt.subscribeoptions import SubscribeOptions

V4 = MQTTProtocolVersion.MQTTv311
V5 = MQTTProtocolVersion.MQTTv5
PATIENCE_S = 15
"""How long anything may take; only a lost message takes as long."""


class Paho:
    """A connected client; `clean` and `expiry_s` say what becomes of its session."""

    def __init__(
        self,
        port: int,
        version: MQTTProtocolVersion,
        client_id: str = "",
        *,
        clean: bool = True,
        will: paho.MQTTMessage | None = None,
        connect_properties: Properties | None = None,
        keep_alive_s: int = 60,
    ) -> None:
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.reasons: list[int] = []
        self.session_present = False
        self.connack_properties: Any = None
        self.answer_properties: Any = None
        """Of the latest SUBACK or UNSUBACK."""
        self._connected = threading.Event()
        self._disconnected = threading.Event()
        self._answered: dict[int, threading.Event] = {}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=version,
            clean_session=clean if version == V4 else None,
            reconnect_on_failure=False,
        )
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_unsubscribe = self._on_subscribe
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        if will is not None:
            self.client.will_set(will.topic, will.payload, will.qos, will.retain, will.properties)
        self.client.connect(
            "localhost",
            port,
            keep_alive_s,
            clean_start=clean if version == V5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
            properties=connect_properties,
        )
        self.client.loop_start()
        assert self._connected.wait(PATIENCE_S), "no CONNACK"

    def _on_connect(
        self,
        _client: paho.Client,
        _data: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        self.session_present = flags.session_present
        self.connack_properties = properties
        self.connect_reason = reason
        self._connected.set()

    def _on_disconnect(self, *_: object) -> None:
        self._disconnected.set()

    def _on_subscribe(
        self, _client: paho.Client, _data: object, packet_id: int, reasons: list[ReasonCode], properties: object
    ) -> None:
        self.answer_properties = properties
        self.reasons = [reason.value for reason in reasons]
        self._answered.setdefault(packet_id, threading.Event()).set()

    def _wait_for_answer(self, packet_id: int | None) -> None:
        assert packet_id is not None
        assert self._answered.setdefault(packet_id, threading.Event()).wait(PATIENCE_S), "no SUBACK or UNSUBACK"

    def subscribe(
        self, filter_: str, qos: int = 0, options: SubscribeOptions | None = None, properties: Properties | None = None
    ) -> list[int]:
        """Subscribe and wait for the answer; returns the reason codes."""
        if options is None:
            self._wait_for_answer(self.client.subscribe(filter_, qos, properties=properties)[1])
        else:
            self._wait_for_answer(self.client.subscribe(filter_, options=options, properties=properties)[1])
        return self.reasons

    def unsubscribe(self, filter_: str) -> None:
        self._wait_for_answer(self.client.unsubscribe(filter_)[1])

    def publish(
        self, topic: str, payload: bytes | str, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> None:
        """Publish and wait until it is acknowledged as its QoS asks."""
        self.client.publish(topic, payload, qos, retain, properties).wait_for_publish(PATIENCE_S)

    def next(self) -> paho.MQTTMessage:
        """The next message."""
        return self.messages.get(timeout=PATIENCE_S)

    def disconnect(self) -> None:
        """Say goodbye and wait until the connection has ended."""
        self.client.disconnect()
        assert self._disconnected.wait(PATIENCE_S), "the connection does not end"
        self.client.loop_stop()

    def vanish(self) -> None:
        """End as a device without power does: no DISCONNECT."""
        with contextlib.suppress(OSError, AttributeError):  # it has ended already, perhaps just now
            self.client.socket().shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
        self.client.loop_stop()
        # Its own pair of sockets paho closes when it is collected, which may be after they are.
        self.client._reset_sockets()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.vanish()


def will(topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> paho.MQTTMessage:
    """A will for `Paho`."""
    message = paho.MQTTMessage(topic=topic.encode())
    message.payload, message.qos, message.retain = payload, qos, retain
    return message


def properties(packet_type: int, **values: object) -> Properties:
    """Properties for a packet, by the names paho gives them."""
    made = Properties(packet_type)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made


def properties_of(message: paho.MQTTMessage) -> Any:
    """The properties a message came with; paho declares no attributes for them."""
    assert message.properties is not None
    return message.properties

"""A scripted MQTT client on the broker's desk: it sends packets, collects packets, and does nothing by itself.

    alice = connect(desk, "alice")                  CONNECT sent, CONNACK read
    alice.subscribe("room/#", qos=1)                SUBSCRIBE sent, SUBACK checked
    alice.publish("room/light", b"on")              PUBLISH
    alice.messages()                                every PUBLISH that arrived since the last look

Everything it sends and receives is bytes of the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from moq.broker.dialects.mqtt import MQTTConnection
from moq.broker.link import CONTROL
from moq.wire import mqtt
from tests.broker.desk import DeskLane, DeskLink

if TYPE_CHECKING:
    from moq.broker.link import Lane
    from tests.broker.desk import Desk

P = TypeVar("P")

NEVER = 0xFFFF_FFFF


class MQTTLink(DeskLink):
    """A link whose client may open lanes that go both ways, as on QUIC."""

    def __init__(self, *, has_lanes: bool, high_water: int | None) -> None:
        super().__init__(has_lanes=has_lanes, high_water=high_water)
        self._high = high_water

    def reply_lane(self, lane_id: int) -> Lane:
        if lane_id == CONTROL or not self.has_lanes:
            return self.control
        return self.lanes.setdefault(lane_id, DeskLane(self._high))


class MQTTClient:
    def __init__(
        self, desk: Desk, version: int = mqtt.VERSION_5, *, has_lanes: bool = False, high_water: int | None = None
    ) -> None:
        self.link = MQTTLink(has_lanes=has_lanes, high_water=high_water)
        self.connection = MQTTConnection(desk.broker, self.link, desk.new_client_id, desk.now)
        self.version = version
        self.connack: mqtt.ConnAck | None = None
        self._desk = desk
        self._readers: dict[DeskLane, mqtt.MQTTFrameReader] = {}
        self._inbox: list[mqtt.Packet] = []
        self._arrived_on: dict[int, DeskLane] = {}
        self._last_packet_id = 0

    # --- sending --------------------------------------------------------------------------------------

    def send(self, *packets: mqtt.Packet, lane: int = CONTROL) -> None:
        self.send_bytes(b"".join(mqtt.encode(packet, self.version) for packet in packets), lane)

    def send_bytes(self, data: bytes, lane: int = CONTROL) -> None:
        self.connection.receive_data(lane, data, self._desk.now)

    def connect(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_alive: int = 0,
        properties: mqtt.Properties | None = None,
        will: mqtt.Will | None = None,
        will_qos: int = 0,
        will_retain: bool = False,
        user_name: str | None = None,
        password: bytes | None = None,
    ) -> None:
        self.send(
            mqtt.Connect(
                self.version, clean, will_qos, will_retain, keep_alive, properties, client_id, will, user_name, password
            )
        )

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        id: int = 0,  # noqa: A002 - the word of the packets
        retain: bool = False,
        dup: bool = False,
        properties: mqtt.Properties | None = None,
        lane: int = CONTROL,
    ) -> None:
        self.send(mqtt.Publish(dup, qos, retain, topic, id, properties, payload), lane=lane)

    def ask(self, *subscriptions: mqtt.Subscription, properties: mqtt.Properties | None = None) -> list[int]:
        """Send a SUBSCRIBE and return the reasons of its SUBACK."""
        self._last_packet_id += 1
        self.send(mqtt.Subscribe(self._last_packet_id, properties, list(subscriptions)))
        (answer,) = self.take(mqtt.SubAck)
        assert answer.packet_id == self._last_packet_id
        return list(answer.reasons)

    def subscribe(
        self,
        topic: str,
        qos: int = 0,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int | None = None,
        requests: bool = False,
    ) -> None:
        properties = mqtt.Properties(
            subscription_identifiers=[identifier] if identifier is not None else None,
            user_properties=[("moq-requests", "1")] if requests else None,
        )
        subscription = mqtt.Subscription(topic, qos, no_local, retain_as_published, retain_handling)
        given = None if properties == mqtt.Properties() else properties
        assert self.ask(subscription, properties=given) == [qos]

    def unsubscribe(self, *filters: str) -> list[int]:
        self.send(mqtt.Unsubscribe(7, None, list(filters)))
        (answer,) = self.take(mqtt.UnsubAck)
        assert answer.packet_id == 7
        return list(answer.reasons)

    def disconnect(self, reason: int = 0, properties: mqtt.Properties | None = None) -> None:
        self.send(mqtt.Disconnect(reason, properties))

    def lost(self) -> None:
        """The connection breaks."""
        self.link.closed_with = 0
        self.connection.closed(self._desk.now)

    # --- receiving ------------------------------------------------------------------------------------

    def read(self) -> list[mqtt.Packet]:
        """Everything that arrived and was not taken yet; reading makes room on the lanes."""
        for lane in self.link.all_lanes():
            while not lane.is_stalled and lane.unsent:
                self._decode(lane)
                if lane.congested:
                    lane.congested = False
                    self.connection.lane_writable(lane, self._desk.now)
        inbox, self._inbox = self._inbox, []
        return inbox

    def take(self, kind: type[P]) -> list[P]:
        """The packets of one kind that arrived; others stay for later."""
        everything = self.read()
        self._inbox = [item for item in everything if not isinstance(item, kind)]
        return [item for item in everything if isinstance(item, kind)]

    def messages(self) -> list[mqtt.Publish]:
        return self.take(mqtt.Publish)

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages()]

    def lane_of(self, packet: mqtt.Packet) -> int:
        """The lane a packet arrived on."""
        lane = self._arrived_on[id(packet)]
        return next((lane_id for lane_id, other in self.link.lanes.items() if other is lane), CONTROL)

    def _decode(self, lane: DeskLane) -> None:
        reader = self._readers.setdefault(lane, mqtt.MQTTFrameReader(1 << 28, 1 << 28, self.version))
        for item in reader.feed(lane.read()):
            assert isinstance(item, mqtt.Packet)
            self._inbox.append(item)
            self._arrived_on[id(item)] = lane

    # --- the link -------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self.link.closed_with is not None

    def stall(self) -> None:
        """The network takes nothing more."""
        lane = self._control()
        lane.is_stalled = lane.congested = True

    def drain(self) -> None:
        """It does again."""
        lane = self._control()
        lane.is_stalled = lane.congested = False
        self.connection.lane_writable(lane, self._desk.now)

    def _control(self) -> DeskLane:
        assert isinstance(self.link.control, DeskLane)
        return self.link.control


def connect(
    desk: Desk,
    client_id: str = "",
    version: int = mqtt.VERSION_5,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    properties: mqtt.Properties | None = None,
    will: mqtt.Will | None = None,
    will_qos: int = 0,
    will_retain: bool = False,
    has_lanes: bool = False,
    high_water: int | None = None,
) -> MQTTClient:
    """A client that was accepted."""
    client = MQTTClient(desk, version, has_lanes=has_lanes, high_water=high_water)
    client.connect(
        client_id,
        clean=clean,
        keep_alive=keep_alive,
        properties=properties,
        will=will,
        will_qos=will_qos,
        will_retain=will_retain,
    )
    (client.connack,) = client.take(mqtt.ConnAck)
    assert client.connack.reason == 0
    return client


def lasting(seconds: int = 3600, **others: object) -> mqtt.Properties:
    """Properties of a CONNECT whose session outlives its connection."""
    properties = mqtt.Properties(session_expiry_interval=seconds)
    for name, value in others.items():
        setattr(properties, name, value)
    return properties

"""QoS 2 over MQTT delivers exactly once and in order, whatever connection is lost and whenever the broker crashes.

Publisher and subscriber keep their session state as the standard asks and follow the exchange packet by packet; what
they have not read when their connection is lost, they never see. The broker comes back with what its store had
committed, and nothing else.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moq.wire import mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting


class Endpoint:
    """A client whose session outlives its connections."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.client: MQTTClient | None = None

    def connect(self, desk: Desk) -> None:
        terms = lasting() if self.version == 5 else None
        self.client = connect(desk, self.name, self.version, clean=False, properties=terms)
        self.resume(self.client)

    def resume(self, client: MQTTClient) -> None:
        """Go on with what the session remembers."""

    def lost(self) -> None:
        if self.client is not None:
            self.client.lost()
            self.client = None

    def read(self) -> bool:
        """Take and answer everything that has arrived; False if that was nothing."""
        packets = self.client.read() if self.client is not None else []
        for packet in packets:
            assert self.client is not None
            self.answer(self.client, packet)
        return bool(packets)

    def answer(self, client: MQTTClient, packet: mqtt.Packet) -> None:
        raise NotImplementedError


class Publisher(Endpoint):
    def __init__(self, version: int) -> None:
        super().__init__("publisher", version)
        self.unreceived: dict[int, bytes] = {}
        self.unreleased: list[int] = []
        self._last_id = 0

    def publish(self, payload: bytes) -> None:
        self._last_id = self._last_id % 3 + 1
        while self._last_id in self.unreceived or self._last_id in self.unreleased:
            self._last_id += 1
        self.unreceived[self._last_id] = payload
        if self.client is not None:
            self.client.publish("a", payload, qos=2, id=self._last_id)

    def resume(self, client: MQTTClient) -> None:
        for packet_id, payload in self.unreceived.items():
            client.publish("a", payload, qos=2, id=packet_id, dup=True)
        for packet_id in self.unreleased:
            client.send(mqtt.PubRel(packet_id))

    def answer(self, client: MQTTClient, packet: mqtt.Packet) -> None:
        if isinstance(packet, mqtt.PubRec):
            if self.unreceived.pop(packet.packet_id, None) is not None:
                self.unreleased.append(packet.packet_id)
            client.send(mqtt.PubRel(packet.packet_id))
        elif isinstance(packet, mqtt.PubComp) and packet.packet_id in self.unreleased:
            self.unreleased.remove(packet.packet_id)


class Subscriber(Endpoint):
    def __init__(self, version: int) -> None:
        super().__init__("subscriber", version)
        self.received: list[bytes] = []
        self._unreleased: set[int] = set()

    def answer(self, client: MQTTClient, packet: mqtt.Packet) -> None:
        if isinstance(packet, mqtt.Publish):
            if packet.packet_id not in self._unreleased:
                self._unreleased.add(packet.packet_id)
                self.received.append(packet.payload)
            client.send(mqtt.PubRec(packet.packet_id))
        elif isinstance(packet, mqtt.PubRel):
            self._unreleased.discard(packet.packet_id)
            client.send(mqtt.PubComp(packet.packet_id))


class ExactlyOnce(RuleBasedStateMachine):
    @initialize(sends=st.sampled_from([4, 5]), gets=st.sampled_from([4, 5]))
    def start(self, sends: int, gets: int) -> None:
        self.desk = Desk()
        self.publisher, self.subscriber = Publisher(sends), Subscriber(gets)
        self.published: list[bytes] = []
        self.subscriber.connect(self.desk)
        assert self.subscriber.client is not None
        self.subscriber.client.subscribe("a", 2)
        self.publisher.connect(self.desk)
        self.desk.hold_commits()

    @rule()
    def publish(self) -> None:
        self.published.append(b"%d" % len(self.published))
        self.publisher.publish(self.published[-1])

    @rule()
    def publisher_reads(self) -> None:
        self.publisher.read()

    @rule()
    def subscriber_reads(self) -> None:
        self.subscriber.read()

    @rule()
    def commit(self) -> None:
        self.desk.commit()

    @rule()
    def publisher_is_lost(self) -> None:
        self.publisher.lost()

    @rule()
    def subscriber_is_lost(self) -> None:
        self.subscriber.lost()

    @precondition(lambda self: self.publisher.client is None)
    @rule()
    def publisher_is_back(self) -> None:
        self.publisher.connect(self.desk)

    @precondition(lambda self: self.subscriber.client is None)
    @rule()
    def subscriber_is_back(self) -> None:
        self.subscriber.connect(self.desk)

    @rule()
    def broker_crashes(self) -> None:
        self.publisher.client = self.subscriber.client = None
        self.desk = self.desk.restarted()
        self.desk.hold_commits()

    @invariant()
    def nothing_arrives_twice_or_out_of_order(self) -> None:
        if hasattr(self, "subscriber"):
            assert self.subscriber.received == self.published[: len(self.subscriber.received)]

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        for endpoint in (self.publisher, self.subscriber):
            if endpoint.client is None:
                endpoint.connect(self.desk)
        is_busy = True
        while is_busy:
            self.desk.commit()
            is_busy = self.publisher.read() | self.subscriber.read()
        assert self.subscriber.received == self.published
        assert not self.publisher.unreceived
        assert not self.publisher.unreleased


ExactlyOnce.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
# [MQTT-4.3.3-8] [MQTT-4.3.3-10] [MQTT-4.3.3-12] [MQTT-4.4.0-1] [MQTT-4.6.0-5]
TestExactlyOnce = ExactlyOnce.TestCase

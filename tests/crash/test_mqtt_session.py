"""The MQTT client of the load keeps its own promises over lost connections: else a run would blame the broker."""

from __future__ import annotations

from moq.wire import mqtt
from tests.crash.mqtt_session import MQTTSession

VERSION = mqtt.VERSION_5


class Wire:
    """A session, the packets it wrote, what it delivered and which of its messages are done."""

    def __init__(self, filter_: str | None = None) -> None:
        self.delivered: list[bytes] = []
        self.done: list[tuple[str, int]] = []
        self.session = MQTTSession("tester", VERSION, filter_, self.delivered.append)
        self._reader = mqtt.MQTTFrameReader(1 << 20, version=VERSION)
        self._written: list[mqtt.Item] = []

    def connect(self, session_present: bool = True) -> list[mqtt.Item]:
        self.session.opened(session_present, self._write)
        return self.written()

    def publish(self, name: str, qos: int) -> None:
        self.session.publish("lamp", name.encode(), qos, lambda reason: self.done.append((name, reason)))

    def receive(self, packet: mqtt.Packet) -> list[mqtt.Item]:
        self.session.received(packet)
        return self.written()

    def written(self) -> list[mqtt.Item]:
        written, self._written = self._written, []
        return written

    def _write(self, data: bytes) -> None:
        self._written += self._reader.feed(data)


def message(name: str, qos: int, packet_id: int, dup: bool = False) -> mqtt.Publish:
    return mqtt.Publish(dup, qos, False, "lamp", packet_id, None, name.encode())


def test_unfinished_messages_are_sent_again_in_order_with_dup() -> None:
    wire = Wire()
    wire.connect()
    wire.publish("one", 1)
    wire.publish("two", 2)
    assert wire.written() == [message("one", 1, 1), message("two", 2, 2)]
    wire.session.closed()
    assert wire.connect() == [message("one", 1, 1, dup=True), message("two", 2, 2, dup=True)]
    assert wire.done == []


def test_a_released_message_is_released_again_and_not_sent_again() -> None:
    wire = Wire()
    wire.connect()
    wire.publish("two", 2)
    wire.written()
    assert wire.receive(mqtt.PubRec(1)) == [mqtt.PubRel(1)]
    wire.session.closed()
    assert wire.connect() == [mqtt.PubRel(1)]
    wire.receive(mqtt.PubComp(1))
    assert wire.done == [("two", 0)]
    assert wire.session.unfinished == 0


def test_a_message_published_without_a_connection_goes_out_with_the_next() -> None:
    wire = Wire()
    wire.publish("late", 1)
    assert wire.connect() == [message("late", 1, 1)]
    wire.receive(mqtt.PubAck(1))
    assert wire.done == [("late", 0)]


def test_a_refusal_ends_the_exchange_with_its_reason() -> None:
    wire = Wire()
    wire.connect()
    wire.publish("one", 1)
    wire.publish("two", 2)
    wire.written()
    assert wire.receive(mqtt.PubAck(1, 0x97)) == []
    assert wire.receive(mqtt.PubRec(2, 0x97)) == []
    assert wire.done == [("one", 0x97), ("two", 0x97)]


def test_an_identifier_is_not_used_again_before_its_exchange_is_over() -> None:
    wire = Wire()
    wire.connect()
    wire.publish("stays", 2)
    for number in range(0xFFFE):
        wire.publish(str(number), 1)
        packet = wire.written()[-1]
        assert isinstance(packet, mqtt.Publish)
        assert packet.packet_id != 1
        wire.receive(mqtt.PubAck(packet.packet_id))


def test_a_qos_2_message_repeated_on_the_next_connection_is_delivered_once() -> None:
    wire = Wire("lamp")
    wire.connect(session_present=False)
    assert wire.receive(message("two", 2, 7)) == [mqtt.PubRec(7)]
    wire.session.closed()
    wire.connect()
    assert wire.receive(message("two", 2, 7, dup=True)) == [mqtt.PubRec(7)]
    assert wire.receive(mqtt.PubRel(7)) == [mqtt.PubComp(7)]
    assert wire.receive(message("another", 2, 7)) == [mqtt.PubRec(7)]
    assert wire.delivered == [b"two", b"another"]


def test_a_qos_1_message_is_delivered_as_often_as_it_comes() -> None:
    wire = Wire("lamp")
    wire.connect(session_present=False)
    assert wire.receive(message("one", 1, 7)) == [mqtt.PubAck(7)]
    assert wire.receive(message("one", 1, 7, dup=True)) == [mqtt.PubAck(7)]
    assert wire.delivered == [b"one", b"one"]


def test_a_forgotten_session_is_counted_and_subscribed_anew() -> None:
    wire = Wire("lamp")
    (first,) = wire.connect(session_present=False)
    assert isinstance(first, mqtt.Subscribe)
    wire.receive(mqtt.SubAck(first.packet_id, None, b"\x02"))
    wire.session.closed()
    assert wire.session.times_forgotten == 0
    (again,) = wire.connect(session_present=False)
    assert isinstance(again, mqtt.Subscribe)
    assert wire.session.times_forgotten == 1

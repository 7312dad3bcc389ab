"""Whatever a client sends, the broker answers or closes: no exception, and nobody else notices."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moq.errors import LocalProtocolError
from moq.reasons import Reason
from moq.security.scram import METHOD
from moq.wire import Packet, mqtt
from moq.wire import encode as encode_mmqp
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting
from tests.strategies import any_mqtt_packet, any_packet

TOPICS = ["a", "a/b", "$moq/response/1", "$SYS/x", ""]
FILTERS = ["a", "a/#", "+/b", "#", "$share/g/a", "$share/g/#", "$moq/#", "a/#/b"]

properties = st.builds(
    mqtt.Properties,
    message_expiry_interval=st.sampled_from([None, 0, 1, 100]),
    content_type=st.sampled_from([None, "text/plain"]),
    payload_format_indicator=st.sampled_from([None, 0, 1]),
    response_topic=st.sampled_from([None, "a", "back"]),
    correlation_data=st.sampled_from([None, b"c"]),
    topic_alias=st.sampled_from([None, 1, 2, 1001]),
    user_properties=st.sampled_from([None, [("k", "v")]]),
)
identifiers = st.integers(1, 4)
reasons = st.sampled_from([Reason.SUCCESS, Reason.QUOTA_EXCEEDED])
likely_packet = st.one_of(
    st.builds(
        mqtt.Publish,
        dup=st.just(False),
        qos=st.just(0),
        retain=st.booleans(),
        topic=st.sampled_from(TOPICS),
        packet_id=st.just(0),
        properties=properties,
        payload=st.sampled_from([b"", b"x", b"\xff"]),
    ),
    st.builds(
        mqtt.Publish,
        dup=st.booleans(),
        qos=st.integers(1, 2),
        retain=st.booleans(),
        topic=st.sampled_from(TOPICS),
        packet_id=identifiers,
        properties=properties,
        payload=st.sampled_from([b"", b"x", b"\xff"]),
    ),
    st.builds(
        mqtt.Subscribe,
        packet_id=identifiers,
        properties=st.builds(
            mqtt.Properties,
            subscription_identifiers=st.sampled_from([None, [1], [2]]),
            user_properties=st.sampled_from([None, [("moq-requests", "1")]]),
        ),
        subscriptions=st.lists(
            st.builds(
                mqtt.Subscription,
                filter=st.sampled_from(FILTERS),
                qos=st.integers(0, 2),
                no_local=st.booleans(),
                retain_as_published=st.booleans(),
                retain_handling=st.integers(0, 2),
            ),
            min_size=1,
            max_size=3,
        ),
    ),
    st.builds(mqtt.Unsubscribe, identifiers, st.none(), st.lists(st.sampled_from(FILTERS), min_size=1, max_size=2)),
    st.builds(mqtt.PubAck, identifiers, reasons),
    st.builds(mqtt.PubRec, identifiers, reasons),
    st.builds(mqtt.PubRel, identifiers),
    st.builds(mqtt.PubComp, identifiers),
    st.builds(mqtt.PingReq),
    st.builds(mqtt.Disconnect),
    st.just(mqtt.Auth(Reason.REAUTHENTICATE, mqtt.Properties(authentication_method=METHOD))),
    any_mqtt_packet[5],
)
step = st.tuples(st.sampled_from(["one", "two"]), st.sampled_from([0, 0, 4]), likely_packet)


def encodable(packet: mqtt.Packet) -> bytes:
    """The packet's bytes; nothing for combinations that cannot be sent at all."""
    try:
        return mqtt.encode(packet, 5)
    except LocalProtocolError:
        return b""


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=40), st.lists(any_packet, max_size=3))
def test_any_packets_in_any_order_are_answered_or_refused(
    steps: list[tuple[str, int, mqtt.Packet]], ours: list[Packet]
) -> None:
    desk = Desk()
    watcher, publisher = connect(desk, "watcher"), connect(desk, "publisher")
    watcher.subscribe("safe", 1)
    mmqp = desk.connect("ours")
    mmqp.subscribe("#", qos=2, requests=True)
    mmqp.register("a", alias=7)
    clients: dict[str, MQTTClient] = {}
    for position, (name, lane, packet) in enumerate(steps):
        if name not in clients or clients[name].is_closed:
            terms = lasting(topic_alias_maximum=2, receive_maximum=3)
            clients[name] = connect(desk, name, clean=False, properties=terms, has_lanes=True)
        clients[name].send_bytes(encodable(packet), lane)
        desk.advance(0.5)
        if position % 7 == 3:
            mmqp.request(7, b"question", qos=position % 3, id=position + 1)
    for question in ours:
        if not mmqp.is_closed:
            mmqp.send_bytes(encode_mmqp(question))
    publisher.publish("safe", b"x", qos=1, id=1)
    assert watcher.payloads() == [b"x"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=64), max_size=5), st.booleans())
def test_any_bytes_are_answered_or_refused(chunks: list[bytes], is_open: bool) -> None:
    desk = Desk()
    watcher = connect(desk, "watcher")
    watcher.subscribe("safe")
    client = connect(desk, "stranger") if is_open else MQTTClient(desk)
    for chunk in chunks:
        if not client.is_closed:
            client.send_bytes(chunk)
    connect(desk, "publisher").publish("safe", b"x")
    assert watcher.payloads() == [b"x"]

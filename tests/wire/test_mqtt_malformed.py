"""Every packet no MQTT client may send is refused with the reason code the standard has for it."""

import pytest

from moq.errors import ProtocolError, RemoteProtocolError
from moq.reasons import Reason
from moq.wire import mqtt
from tests.vectors.mqtt_malformed import MALFORMED_PACKETS, Malformed

each_case = pytest.mark.parametrize("case", MALFORMED_PACKETS, ids=str)


def reader(case: Malformed) -> mqtt.MQTTFrameReader:
    return mqtt.MQTTFrameReader(1 << 20, version=0 if case.is_connect else case.version)


@each_case
def test_a_malformed_packet_is_refused_with_its_reason(case: Malformed) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        list(reader(case).feed(case.data))
    assert raised.value.reason is case.reason


@each_case
def test_a_malformed_packet_is_refused_byte_by_byte_for_the_same_reason(case: Malformed) -> None:
    frames = reader(case)

    def feed_bytes() -> None:
        for position in range(len(case.data)):
            list(frames.feed(case.data[position : position + 1]))

    with pytest.raises(RemoteProtocolError) as raised:
        feed_bytes()
    assert raised.value.reason is case.reason


@each_case
def test_packets_before_a_malformed_one_are_given(case: Malformed) -> None:
    frames = mqtt.MQTTFrameReader(1 << 20, version=case.version)
    items = iter(frames.feed(mqtt.encode(mqtt.PingReq(), case.version) + case.data))
    assert next(items) == mqtt.PingReq()
    with pytest.raises(ProtocolError):
        next(items)


def test_no_two_cases_are_the_same() -> None:
    assert len({(case.version, case.data) for case in MALFORMED_PACKETS}) == len(MALFORMED_PACKETS)
    assert len({str(case) for case in MALFORMED_PACKETS}) == len(MALFORMED_PACKETS)


def test_the_version_is_known_even_when_the_rest_of_connect_is_refused() -> None:
    for case in MALFORMED_PACKETS:
        if case.data[0] == 0x10 and case.reason is not Reason.UNSUPPORTED_PROTOCOL_VERSION and len(case.data) > 8:
            frames = reader(case)
            with pytest.raises(RemoteProtocolError):
                list(frames.feed(case.data))
            assert frames.version == case.version


def test_an_old_client_learns_that_its_version_is_not_spoken() -> None:
    with pytest.raises(RemoteProtocolError, match=r"MQIsdp: MQTT 3\.1") as raised:
        list(mqtt.MQTTFrameReader(1 << 20).feed(b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x00"))
    assert raised.value.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION

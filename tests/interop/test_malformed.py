"""What no client may send, sent to a running broker: the answer, the end of the connection, and nobody else's harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.reasons import Reason
from moq.wire import mqtt
from moq.wire.mqtt import Subscription
from tests.interop.raw import Raw, publish
from tests.vectors.mqtt_malformed import MALFORMED_PACKETS, Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNACCEPTABLE_VERSION = b"\x20\x02\x00\x01"
"""A CONNACK of 3.1.1: whoever asks for neither version is refused in the form that the oldest clients know, too."""


@pytest.fixture(scope="module")
def witness(ports: dict[str, int]) -> Iterator[Raw]:
    """A second client that is connected all the time."""
    with Raw(ports["tcp"]) as client:
        client.connect()
        assert client.subscribe(Subscription("witness", 1)) == b"\x01"
        yield client


def test_every_way_to_break_the_protocol_is_tried() -> None:
    assert {case.reason for case in MALFORMED_PACKETS} >= {Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR}
    assert {case.version for case in MALFORMED_PACKETS} == {4, 5}


def is_version_known(case: Malformed) -> bool:
    """True unless CONNECT ends before it has told the version: then the broker knows no form for an answer."""
    return not case.is_connect or len(case.data) > len(b"\x10\x00\x00\x04MQTT")


@pytest.mark.parametrize("case", MALFORMED_PACKETS, ids=str)
def test_a_malformed_packet_ends_its_own_connection_and_no_other(
    raw: Callable[..., Raw], witness: Raw, case: Malformed
) -> None:
    """Covers [MQTT-3.1.4-1], [MQTT-4.13.1-1] and [MQTT-4.13.2-1], and each statement named by the corpus.

    [MQTT-3.2.2-8], [MQTT-3.14.2-1]: with reason codes of these packets alone, which `Raw` checks.
    [MQTT-3.14.0-1]: what is wrong with a CONNECT is answered by CONNACK, never by DISCONNECT.
    """
    offender = raw(case.version)
    if not case.is_connect:
        assert offender.connect().reason == 0
    offender.send(case.data)
    if case.data[0] == 0x11:  # not even the first byte is MQTT's: any answer is in the broker's own dialect
        offender.skip_to_the_end()
    elif case.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
        assert offender.skip_to_the_end() == UNACCEPTABLE_VERSION
    elif case.version == 5 and is_version_known(case):
        answer = offender.receive()
        assert isinstance(answer, mqtt.ConnAck if case.is_connect else mqtt.Disconnect)
        assert Reason(answer.reason) is case.reason
        assert offender.is_closed()
    else:
        assert offender.is_closed()

    with_others = raw()
    with_others.connect()
    with_others.send(publish("witness", str(case).encode(), 1, 1))
    assert with_others.expect(mqtt.PubAck).reason == 0
    message = witness.expect(mqtt.Publish)
    assert message.payload == str(case).encode()
    witness.send(mqtt.PubAck(message.packet_id))
